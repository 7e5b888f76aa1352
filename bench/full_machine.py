"""Fifty users of one machine in the container tier, each with an agent, a shell and a way out of
their own: time until all are ready, memory of everything, searches while some talk.

Run alone: `python -m bench.full_machine [--users 5]`.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
from wire.v1 import gateway_pb2

from bench import corpus, engine
from bench.report import p50, p95, verdict
from bench.scratch import scratch
from runner.cli.agent import connect_agent
from runner.client.gateway import GatewayClient, new_turn_id
from runner.config.loading import load_settings
from runner.config.models import Config
from runner.host.control import connect_control
from tests.support.guests.engine import bridge_address
from tests.support.servers.scripted_provider import says, scripted

_USERS: Final = 50
_TALKING: Final = 10
_NOTES: Final = 20
_ROUNDS: Final = 6
_PAUSE_S: Final = 1.0
"""Between two turns or two searches of one user."""

_READY_GOAL_S: Final = 120
_MEMORY_GOAL_GB: Final = 9
_SEARCH_GOAL_MS: Final = 50
_INDEXED_LIMIT_S: Final = 300.0


async def run(full: bool = False, users: int = _USERS) -> list[str]:
    """Lines of the report; `full` measures three times as many turns and searches."""
    title = f"{users} users of one machine, container tier"
    if missing := await engine.missing():
        return [title, f"  left out: {missing}"]
    names = [f"user{number}" for number in range(users)]
    with scratch() as root, scripted(bridge_address()) as provider:
        provider.play(says("That is what ", "you like best."))
        file = _configuration(root, names, provider.base_url)
        try:
            began = time.perf_counter()
            await _runner(file, "start", "--all", "--detach")
            ready = time.perf_counter() - began
            config = load_settings(file).config
            async with _agents(config, names) as agents:
                await _remember(agents)
                turns, searches = await _use(agents, 3 * _ROUNDS if full else _ROUNDS)
            processes, guests = await _processes(config, names)
            memory = sum(each.memory_full_info().pss for each in processes)
        finally:
            await _runner(file, "stop", "--all")
    slowest = p95(searches)
    return [
        title,
        f"  all ready {ready:19.1f} s   goal: {_READY_GOAL_S} s: {verdict(ready <= _READY_GOAL_S)}",
        f"  {guests} guests, their hosts, the embedder and the engine's shims, PSS "
        f"{memory / 1e9:.2f} GB   "
        f"goal: {_MEMORY_GOAL_GB} GB: {verdict(memory <= _MEMORY_GOAL_GB * 1e9)}",
        f"  {len(searches):,} searches, one a second of each who does not talk: "
        f"p50 {p50(searches):.1f} ms   p95 {slowest:.1f} ms   "
        f"goal: {_SEARCH_GOAL_MS} ms: {verdict(slowest <= _SEARCH_GOAL_MS)}",
        f"  {len(turns):,} turns meanwhile: p50 {p50(turns):.0f} ms   p95 {p95(turns):.0f} ms",
    ]


def _configuration(root: Path, names: Sequence[str], base_url: str) -> Path:
    file = root / "runner.toml"
    lines = [
        f'workspace_root = "{root}/w"',
        f'runtime_dir = "{root}/r"',
        "[agent]",
        'provider = "openai"',
        'model = "m"',
        f'base_url = "{base_url}"',
        'api_key_env = "BENCH_KEY"',
        *(f"[users.{name}]" for name in names),
    ]
    file.write_text("\n".join(lines))
    return file


async def _runner(file: Path, *words: str) -> None:
    """Run a command line of the runner. Raises `CalledProcessError`."""
    command = [sys.executable, "-P", "-m", "runner.cli", "--config", str(file), *words]
    await asyncio.to_thread(
        subprocess.run,
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "BENCH_KEY": "sk-bench", "HF_HUB_OFFLINE": "1"},
    )


@asynccontextmanager
async def _agents(config: Config, names: Sequence[str]) -> AsyncIterator[list[GatewayClient]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(await connect_agent(config, name, resolution=""))
            for name in names
        ]


async def _remember(agents: Sequence[GatewayClient]) -> None:
    """Give every user notes, and wait until all have vectors."""
    for number, agent in enumerate(agents):
        for text in corpus.make(_NOTES, seed=number).texts:
            await agent.save_note(text, [], "")
    async with asyncio.timeout(_INDEXED_LIMIT_S):
        for agent in agents:
            while not all(
                [each.embedded async for each in agent.notes(gateway_pb2.ListNotesRequest())]
            ):
                await asyncio.sleep(_PAUSE_S)


async def _use(agents: Sequence[GatewayClient], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds that turns of some and searches of all others took, side by side."""
    turns: list[float] = []
    searches: list[float] = []
    talking = agents[: min(_TALKING, len(agents) // 2)]
    async with asyncio.TaskGroup() as group:
        for number, agent in enumerate(agents):
            delay = _PAUSE_S * number / len(agents)
            if number < len(talking):
                group.create_task(_talk(agent, delay, rounds, turns))
            else:
                texts = corpus.make(_NOTES, seed=number).texts[:rounds]
                group.create_task(_search(agent, delay, texts, searches))
    return turns, searches


async def _talk(agent: GatewayClient, delay: float, rounds: int, times: list[float]) -> None:
    await asyncio.sleep(delay)
    session = await agent.create_session()
    for _ in range(rounds):
        began = time.perf_counter()
        events = [
            each
            async for each in agent.run_turn(
                session.session_id, "what do I like best?", new_turn_id()
            )
        ]
        if not events[-1].HasField("completed"):
            raise RuntimeError(f"the turn did not complete: {events[-1]}")
        times.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE_S)


async def _search(
    agent: GatewayClient, delay: float, texts: Sequence[str], times: list[float]
) -> None:
    await asyncio.sleep(delay)
    for text in texts:
        request = gateway_pb2.SearchNotesRequest(query=" ".join(text.split()[:6]), top_k=10)
        began = time.perf_counter()
        reply = await agent.search_notes(request)
        if not reply.notes or reply.warnings:
            raise RuntimeError(f"the search found nothing, or not by meaning: {reply}")
        times.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE_S)


async def _processes(config: Config, names: Sequence[str]) -> tuple[set[psutil.Process], int]:
    """Hosts, guests and embedder with all that they started, and what the engine runs beside each
    container; and how many guests they are. Raises `RuntimeError` if one of them is not ready."""
    found: set[psutil.Process] = set()
    guests = 0
    for name in names:
        control = await connect_control(config, name)
        if control is None:
            raise RuntimeError(f"no host runs for {name}")
        async with control:
            status = await control.status()
        pids = [status.pid]
        for guest in status.guests:
            if guest.state != "ready":
                raise RuntimeError(f"{guest.role} of {name} is {guest.state}: {guest.reason}")
            pids.append(guest.pid)
            guests += guest.role != "embedder"
        for process in map(psutil.Process, pids):
            found |= {process, *process.children(recursive=True)}
            parent = process.parent()
            if parent is not None and parent.name().startswith("containerd-shim"):
                found.add(parent)
    return found, guests


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.full_machine")
    parser.add_argument("--users", type=int, default=_USERS, help="how many; 2 or more")
    print("\n".join(asyncio.run(run(users=parser.parse_args().users))))
