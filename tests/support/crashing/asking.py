"""The program that `test_budget.py` kills: one turn, with a provider that does not answer."""

import asyncio
import sys
from pathlib import Path

from tests.support.gateway.gateways import open_gateways


async def ask(path: Path, base_url: str) -> None:
    """Ask the provider at `base_url` in a new session of the memory at `path`."""
    async with open_gateways(
        path=path,
        provider="openai",
        model="test-model",
        base_url=base_url,
        api_key="sk-test-0123456789abcdef",
        max_output_tokens=500,
    ) as gateways:
        alice = await gateways.serve("alice")
        await alice.say(await alice.session("s0"), "hello")


if __name__ == "__main__":
    asyncio.run(ask(Path(sys.argv[1]), sys.argv[2]))
