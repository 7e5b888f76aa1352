"""What `test_delegation_killed.py` kills: an agent whose turn hands tasks on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from wire.settings import BudgetSettings, PriceSettings

from tests.support.gateway.gateways import Client, Gateways, open_gateways

CAP = 0.08
PRICE = PriceSettings(input=5.0, output=10.0)


@asynccontextmanager
async def agent(path: Path, base_url: str) -> AsyncIterator[tuple[Gateways, Client]]:
    """Alice's agent with the memory at `path`."""
    async with open_gateways(
        path=path,
        provider="openai",
        model="test-model",
        base_url=base_url,
        api_key="sk-test-0123456789abcdef",
        max_output_tokens=200,
        prices={"test-model": PRICE},
        budget=BudgetSettings(turn_usd=CAP),
    ) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        yield gateways, alice


def ask(path: Path, base_url: str, text: str) -> None:
    """Ask the provider at `base_url` in the session of the memory at `path`."""

    async def asked() -> None:
        async with agent(path, base_url) as (_, alice):
            await alice.say("s", text)

    asyncio.run(asked())
