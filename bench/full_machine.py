"""Fifty users of one machine in the container tier, each with an agent, a shell and a way out of
their own: time and processor seconds until all are ready, memory of everything, what it takes at
rest, searches while some talk.

Run alone: `python -m bench.full_machine [--users 5]`. Ctrl-C ends it and what it started.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
from wire.v1 import gateway_pb2

from bench import corpus, engine
from bench.inventory import (
    Inventory,
    cpu_seconds,
    engine_processes,
    proportional_bytes,
    users_processes,
)
from bench.report import p50, p95, verdict
from bench.scratch import scratch
from runner.cli.agent import connect_agent
from runner.cli.operation.lifecycle import at_first_signal
from runner.client.gateway import GatewayClient, new_turn_id
from runner.config.loading import load_settings
from runner.config.models import Config
from tests.support.guests.engine import bridge_address
from tests.support.servers.scripted_provider import says, scripted

_USERS: Final = 50
_TALKING: Final = 10
_NOTES: Final = 20
_ROUNDS: Final = 6
_PAUSE_S: Final = 5.0
"""Between two turns or two searches of one user, as of a person who reads what came."""
_POLL_S: Final = 1.0
_REST_S: Final = 10.0

_READY_GOAL_S: Final = 120
_MEMORY_GOAL_GB: Final = 9
_SEARCH_GOAL_MS: Final = 50
_LIMIT_S: Final = 420.0
"""For all but the end, which takes about a second for each user."""


async def run(full: bool = False, users: int = _USERS) -> list[str]:
    """Lines of the report; `full` measures three times as many turns and searches.

    Raises `RuntimeError` with what the runner said if a user could not be started or stopped.
    """
    title = f"{users} users of one machine, container tier"
    if missing := await engine.missing():
        return [title, f"  left out: {missing}"]
    names = [f"user{number}" for number in range(users)]
    with scratch() as root, scripted(bridge_address()) as provider, _ended_by_signals():
        provider.play(says("That is what ", "you like best."))
        file = _configuration(root, names, provider.base_url)
        try:
            async with asyncio.timeout(_LIMIT_S):
                lines = await _measured(file, names, 3 * _ROUNDS if full else _ROUNDS)
        finally:
            await _runner(file, "stop", "--all")
    return [title, *lines]


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a signal end the measurement in an orderly way."""
    task = asyncio.current_task()
    assert task is not None
    with at_first_signal(task.cancel, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        yield


async def _measured(file: Path, names: Sequence[str], rounds: int) -> list[str]:
    config = load_settings(file).config
    available = psutil.virtual_memory().available
    engines = engine_processes()
    engine_before = cpu_seconds(engines)
    began = time.perf_counter()
    await _runner(file, "start", "--all", "--detach")
    ready = time.perf_counter() - began
    found = await users_processes(config, names)
    starting = {kind: cpu_seconds(each) for kind, each in found.items()}
    starting["engine"] = cpu_seconds(engines) - engine_before
    lines = [
        f"  all ready {ready:19.1f} s   goal: {_READY_GOAL_S} s: {verdict(ready <= _READY_GOAL_S)}",
        f"  processor time until then {sum(starting.values()):3.0f} s: {_parts(starting, 's')}",
    ]
    async with _agents(config, names) as agents:
        await _remember(agents)
        turns, searches = await _use(agents, rounds)
    found = await users_processes(config, names)
    memory = {kind: proportional_bytes(each) / 1e9 for kind, each in found.items()}
    gone = (available - psutil.virtual_memory().available) / 1e9
    slowest = p95(searches)
    return [
        *lines,
        f"  {len(searches):,} searches, one in {_PAUSE_S:g} s of each who does not talk: "
        f"p50 {p50(searches):.1f} ms   p95 {slowest:.1f} ms   "
        f"goal: {_SEARCH_GOAL_MS} ms: {verdict(slowest <= _SEARCH_GOAL_MS)}",
        f"  {len(turns):,} turns meanwhile: p50 {p50(turns):.0f} ms   p95 {p95(turns):.0f} ms",
        f"  memory, PSS {sum(memory.values()):17.2f} GB   goal: {_MEMORY_GOAL_GB} GB: "
        f"{verdict(sum(memory.values()) <= _MEMORY_GOAL_GB)}",
        f"      {_parts(memory, 'GB', 2)}; the machine has {gone:.1f} GB less available",
        f"  at rest: {await _at_rest(found)}",
    ]


async def _at_rest(found: Inventory) -> str:
    """What the processes take of a core while nobody asks anything."""
    before = {kind: cpu_seconds(each) for kind, each in found.items()}
    began = time.perf_counter()
    await asyncio.sleep(_REST_S)
    passed = time.perf_counter() - began
    shares = {
        kind: (cpu_seconds(each) - before[kind]) / passed * 100 for kind, each in found.items()
    }
    return f"{sum(shares.values()):.0f} % of a core: {_parts(shares, '%')}"


def _parts(values: dict[str, float], unit: str, digits: int = 1) -> str:
    largest_first = sorted(values.items(), key=lambda each: -each[1])
    return ", ".join(f"{kind} {value:.{digits}f} {unit}" for kind, value in largest_first)


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
    """Run a command line of the runner; a cancellation ends it in an orderly way first. Raises
    `RuntimeError` with what it said if it failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "runner.cli", "--config", str(file), *words),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BENCH_KEY": "sk-bench", "HF_HUB_OFFLINE": "1"},
        start_new_session=True,  # signals of the terminal are for us
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"runner {' '.join(words)} failed:\n{said.decode()}")


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
    for agent in agents:
        while not all(
            [each.embedded async for each in agent.notes(gateway_pb2.ListNotesRequest())]
        ):
            await asyncio.sleep(_POLL_S)


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
    await asyncio.sleep(_PAUSE_S)  # somebody writes a message
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.full_machine")
    parser.add_argument("--users", type=int, default=_USERS, help="how many; 2 or more")
    try:
        print("\n".join(asyncio.run(run(users=parser.parse_args().users))))
    except asyncio.CancelledError:
        sys.exit("ended before it was done; what it started is ended too")
