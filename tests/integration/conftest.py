"""A gateway over a real memory, and the first user of it; other suites bring their own."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.gateway_house import Client, House, hashing, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house(embedder=hashing()) as opened:
        yield opened


@pytest.fixture
async def alice(house: House) -> Client:
    return await house.serve("alice")
