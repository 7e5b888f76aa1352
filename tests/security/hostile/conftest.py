"""One two_hosts per tier for all hostile tests: its start is paid once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.boundary.two_hosts import TwoHosts, two_hosts

NEEDS = {
    "process": pytest.mark.bubblewrap,
    "container": pytest.mark.docker,
    "micro_vm": pytest.mark.runsc,
}
TIERS = [
    pytest.param(
        tier,
        id=tier,
        marks=[pytest.mark.tier(tier), pytest.mark.xdist_group(f"hostile-{tier}"), needs],
    )
    for tier, needs in NEEDS.items()
]


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=TIERS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[TwoHosts]:
    async with two_hosts(request.param) as ready:
        yield ready
        await ready.assert_unharmed()
