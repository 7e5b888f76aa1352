"""One user's guests per tier on one small internet, for all attempts to get out."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.internet.guests import Guests, guests
from tests.support.internet.internet import Internet, internet
from tests.support.servers import openai_server as provider
from tests.support.tiers import every_tier

BAD_NAMES = tuple(
    f"{name}.example.org"
    for name in ("loopback", "loopback6", "mapped", "private", "metadata", "mixed")
)
"""Names that rules allow, and that lie where nothing may be reached."""
ALLOWED = (
    "files.example.org",
    "rebind-shell.example.org",
    "rebind-agent.example.org",
    "GET https://api.example.org/public/*",
    *BAD_NAMES,
)
TIERS = every_tier("egress", pytest.mark.root)


@pytest.fixture(scope="session")
def net() -> Iterator[Internet]:
    with internet() as made:
        made.said_by_provider(provider.says("Yes."))
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=TIERS)
async def place(request: pytest.FixtureRequest, net: Internet) -> AsyncIterator[Guests]:
    opened = {"allow": ALLOWED, "deny": ("unlisted.example.org",)}
    async with guests(
        net, request.param, agent=opened, shell=opened, inspect=("api.example.org",)
    ) as ready:
        yield ready
