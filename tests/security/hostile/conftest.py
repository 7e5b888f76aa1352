"""One two_hosts per tier for all hostile tests: its start is paid once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.boundary.two_hosts import TwoHosts, two_hosts

TIERS = [
    pytest.param(
        "process",
        id="process",
        marks=[pytest.mark.bubblewrap, pytest.mark.xdist_group("hostile-process")],
    ),
    pytest.param(
        "container",
        id="container",
        marks=[pytest.mark.docker, pytest.mark.xdist_group("hostile-container")],
    ),
]


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=TIERS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[TwoHosts]:
    async with two_hosts(request.param) as ready:
        yield ready
        await ready.assert_unharmed()
