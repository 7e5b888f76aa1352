"""Many users on memory servers: saves and searches of 50 at a time, and who sees what.

Run alone: `python -m bench.many_users [--full]`.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from bench import corpus, server
from bench.report import p50, p95
from bench.scratch import scratch
from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Origin, User

_USERS: Final = 50
_USERS_FULL: Final = 300
_AT_A_TIME: Final = 50

_NOTES: Final = 20
_ROUNDS: Final = 4
_PAUSE_S: Final = 0.3
"""A pause between saves and searches, in which the replicas catch up."""

_PATIENCE_S: Final = 60.0
"""And a second for each user; a server may hang."""


@dataclass
class _Times:
    """What was measured, in seconds, and how many hits were looked at."""

    open: list[float] = field(default_factory=list)
    save: list[float] = field(default_factory=list)
    search: list[float] = field(default_factory=list)
    saving: float = 0.0
    searching: float = 0.0
    hits: int = 0
    foreign: int = 0
    given_up: str = ""


async def run(full: bool = False, users: int = 0) -> list[str]:
    """Lines of the report; `full` measures 300 users."""
    if missing := server.missing():
        return ["many users on memory servers", f"  left out: {missing}"]
    users = users or (_USERS_FULL if full else _USERS)
    names = [f"user{number}" for number in range(users)]
    lines = [
        f"{users:,} users of {_NOTES} notes on libSQL servers (sqld); {_AT_A_TIME} at a time open, "
        "save and search, each with a copy of its own"
    ]
    with scratch() as place:
        return lines + await _on_their_own(names, place) + await _in_one_database(names, place)


async def _on_their_own(names: Sequence[str], place: Path) -> list[str]:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(server.running()) for name in names}
        for number, name in enumerate(names):
            async with server.prepared(servers[name].url()) as database:
                await corpus.fill(database, _notes(number), User(name).notes)
        return await _measured("a server each", names, lambda name: servers[name].url(), place)


async def _in_one_database(names: Sequence[str], place: Path) -> list[str]:
    with server.running() as sqld:
        async with server.prepared(sqld.url()) as database:
            for number, name in enumerate(names):
                await corpus.fill(database, _notes(number), User(name).notes)
        return await _measured("one database for all", names, lambda _: sqld.url(), place)


def _notes(number: int) -> corpus.Corpus:
    """The notes of one user: each begins with the user's own word."""
    made = corpus.make(_NOTES, queries=_ROUNDS, seed=number)
    texts = [f"{_mark(number)} {text}" for text in made.texts]
    return corpus.Corpus(texts, made.vectors, made.queries)


def _mark(number: int) -> str:
    return f"owned-by-{number}"


async def _measured(
    label: str, names: Sequence[str], url_of: Callable[[str], str], place: Path
) -> list[str]:
    times = _Times()
    try:
        async with asyncio.timeout(_PATIENCE_S + len(names)):
            for start in range(0, len(names), _AT_A_TIME):
                wave = [*enumerate(names)][start : start + _AT_A_TIME]
                await _wave(times, wave, url_of, place / label)
    except (StorageError, TimeoutError) as error:
        times.given_up = f" - given up after {len(times.open)} users: {error or 'too slow'}"
    servers = [each for each in psutil.Process().children() if each.name() == "sqld"]
    resident = sum(each.memory_info().rss for each in servers)
    own = sum(each.memory_full_info().pss for each in servers)
    return [
        f"  {label}:{times.given_up}",
        _line("open, with the first copy", times.open, sum(times.open)),
        _line("save, with vector", times.save, times.saving),
        _line("search", times.search, times.searching),
        f"    other users' notes among {times.hits:,} hits: {times.foreign}",
        f"    memory of {len(servers)} servers: {resident / 1e6:.0f} MB resident, "
        f"{own / 1e6:.0f} MB without counting shared pages twice",
    ]


async def _wave(
    times: _Times, users: Sequence[tuple[int, str]], url_of: Callable[[str], str], place: Path
) -> None:
    """Open the memories of `users`, let all of them save and then search at once."""
    place.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        memories = []
        for number, name in users:
            queries = _notes(number).queries
            start = time.perf_counter()
            memory = await stack.enter_async_context(
                server.opened(place / name, url_of(name), corpus.QueryEmbedder(queries), name)
            )
            await server.caught_up(memory, next(iter(queries)))
            times.open.append(time.perf_counter() - start)
            memories.append((number, memory))
        start = time.perf_counter()
        await asyncio.gather(*(_save(times, *each) for each in memories))
        times.saving += time.perf_counter() - start
        await asyncio.sleep(_PAUSE_S)
        start = time.perf_counter()
        await asyncio.gather(*(_search(times, *each) for each in memories))
        times.searching += time.perf_counter() - start


async def _save(times: _Times, number: int, memory: Memory) -> None:
    for each in range(_ROUNDS):
        text = f"{_mark(number)} says something new about {each} of the many"
        start = time.perf_counter()
        await memory.save(text, (), Origin("user"))
        times.save.append(time.perf_counter() - start)


async def _search(times: _Times, number: int, memory: Memory) -> None:
    for query in _notes(number).queries:
        start = time.perf_counter()
        outcome = await memory.search(f"{query} says something new")
        times.search.append(time.perf_counter() - start)
        times.hits += len(outcome.results)
        own = f"{_mark(number)} "
        times.foreign += sum(not hit.text.startswith(own) for hit in outcome.results)


def _line(label: str, times: Sequence[float], seconds: float) -> str:
    if not seconds:
        return f"    {label:25}   not measured"
    return (
        f"    {label:25}   p50 {p50(times):7.1f} ms   p95 {p95(times):7.1f} ms   "
        f"{len(times) / seconds:6.0f} a second"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.many_users")
    parser.add_argument("--full", action="store_true", help="300 users")
    print("\n".join(asyncio.run(run(parser.parse_args().full))))
