"""What `test_delegation_killed.py` kills: an agent whose turn hands tasks on, and its host."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path

from wire.settings import BudgetSettings, EmbedderSettings, PriceSettings
from wire.v1 import gateway_pb2 as pb

from guest.agent.models import openai_model
from guest.schedules.store import owner_of
from runner.cli.agent import connect_agent
from runner.client.gateway import new_turn_id
from runner.config.models import Config
from tests.support.commands.household import Household
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
        owner=owner_of(path),
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


class Agent:
    """Alice's agent in a process of its own, with the memory at `path`."""

    def __init__(self, path: Path, base_url: str) -> None:
        self.path, self._url = path, base_url
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([__name__, openai_model.__name__])

    async def ask(self, text: str) -> None:
        """Begin to ask in a session, in an agent that is started for it."""
        arguments = (self.path, self._url, text)
        self._process = self._context.Process(target=ask, args=arguments, daemon=True)
        self._process.start()

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.join)

    def close(self) -> None:
        """Nothing else is left of it."""


class Host:
    """Alice's host with its guests; the host alone is killed."""

    def __init__(self, _: Path, base_url: str) -> None:
        self._house = house = Household()
        house.environment |= {
            "OXYDRA_EMBEDDER__BACKEND": "none",
            "OXYDRA_SHELL__ENABLED": "false",
            "OXYDRA_AGENT__PROVIDER": "openai",
            "OXYDRA_AGENT__MODEL": "test-model",
            "OXYDRA_AGENT__BASE_URL": base_url,
            "OXYDRA_AGENT__MAX_OUTPUT_TOKENS": "200",
            "OXYDRA_AGENT__API_KEY_ENV": "TEST_KEY",
            "TEST_KEY": "sk-test-0123456789abcdef",
            "OXYDRA_AGENT__BUDGET__TURN_USD": str(CAP),
        }
        (house.working_directory / "x.toml").write_text(
            f'[agent.prices."test-model"]\ninput = {PRICE.input}\noutput = {PRICE.output}\n'
        )
        self.path = house.workspaces / "alice" / ".oxydra"

    async def ask(self, text: str) -> None:
        await self._runner("--config", "x.toml", "start", "--detach")
        config = Config(
            workspace_root=self._house.workspaces,
            runtime_dir=self._house.runtime,
            tier="process",
            embedder=EmbedderSettings(backend="none"),
        )
        async with await connect_agent(config, "alice", resolution="") as client:
            await client.create_session("s")
            request = pb.StartTurnRequest(session_id="s", text=text, turn_id=new_turn_id())
            await client.start_turn(request)

    async def kill(self) -> None:
        os.kill(json.loads(await self._runner("status", "--json"))["pid"], signal.SIGKILL)
        assert await asyncio.to_thread(self._house.gone)

    async def _runner(self, *words: str) -> str:
        return await asyncio.to_thread(self._house.works, "--user", "alice", *words)

    def close(self) -> None:
        self._house.stop("alice")
        self._house.remove()
