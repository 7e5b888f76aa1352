"""A gateway over a real memory, and the first user of it; other suites bring their own."""

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway.gateways import Client, Gateways, hashing, open_gateways


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    async with open_gateways(embedder=hashing()) as opened:
        yield opened


@pytest.fixture
async def alice(gateways: Gateways) -> Client:
    return await gateways.serve("alice")
