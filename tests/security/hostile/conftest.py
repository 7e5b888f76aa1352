"""One two_hosts per tier for all hostile tests: its start is paid once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.boundary.two_hosts import TwoHosts, two_hosts
from tests.support.tiers import every_tier

TIERS = every_tier("hostile")


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=TIERS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[TwoHosts]:
    async with two_hosts(request.param) as ready:
        yield ready
        await ready.assert_unharmed()
