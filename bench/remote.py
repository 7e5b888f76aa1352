"""What a memory on a server costs beyond the bare requests to the same server.

Run alone: `python -m bench.remote [--full]`.
"""

import argparse
import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bench import bare_requests, corpus, server
from bench.bare_requests import BareClient
from bench.report import p50, p95, verdict
from bench.scratch import scratch
from guest.memory.memory import Memory
from guest.memory.models import Origin, User

GOAL: Final = 1.3
"""How many times as long as the bare requests a save and a search may take."""
_PASSAGES: Final = 2_000
_PASSAGES_FULL: Final = 20_000
_ROUNDS: Final = 100
_ROUNDS_FULL: Final = 500
_WARM_UP: Final = 10
_PAUSE_S: Final = 0.03
"""A pause between rounds, in which the replicas catch up."""

_SAVER: Final = "saver"
"""The user whose saves are measured: not the one who searches, whose results thus stay the same."""

Way = Callable[[], Awaitable[object]]

_SAVE = "save"
_SAVE_VECTOR = "save, with its vector (two requests)"
_SAVE_BARE = "bare request, the same statements"
_SEARCH = "search in the copy, made sure to be fresh"
_SEARCH_BARE = "bare requests of a search without a copy"
_FRESH_BARE = "bare request: has anything changed?"


async def run(full: bool = False, passages: int = 0, rounds: int = 0) -> list[str]:
    """Lines of the report; `full` measures more passages and more rounds."""
    if missing := server.missing():
        return ["a memory on a server", f"  left out: {missing}"]
    passages = passages or (_PASSAGES_FULL if full else _PASSAGES)
    rounds = rounds or (_ROUNDS_FULL if full else _ROUNDS)
    data = corpus.make(passages)
    embedder = corpus.QueryEmbedder(data.queries)
    with scratch() as place, server.running() as sqld:
        async with server.prepared(sqld.url()) as database:
            await corpus.fill(database, data)
        async with (
            server.opened(place / "searching", sqld.url(), embedder, corpus.USER_ID) as searching,
            server.opened(place / "saving", sqld.url(), None, _SAVER) as saving,
            server.opened(place / "embedding", sqld.url(), embedder, _SAVER) as embedding,
            bare_requests.bare_client(sqld.url()) as bare,
        ):
            await server.caught_up(searching, next(iter(data.queries)))
            ways = _saves(saving, embedding, bare, data) | _searches(searching, bare, data)
            times = await _interleaved(ways, rounds)
    return [
        f"a memory of {passages:,} passages on a server (sqld on this machine; {rounds} "
        "interleaved rounds; milliseconds)",
        *(f"  {name:44}p50 {p50(t):7.2f}   p95 {p95(t):7.2f}" for name, t in times.items()),
        _judged("save", times, _SAVE, _SAVE_BARE),
        _judged("search", times, _SEARCH, _SEARCH_BARE),
        f"  search against only asking for changes: {_ratio(times, _SEARCH, _FRESH_BARE):.2f}",
    ]


def _saves(
    saving: Memory, embedding: Memory, bare: BareClient, data: corpus.Corpus
) -> dict[str, Way]:
    texts = (f"{text} {uuid.uuid4()}" for text in itertools.cycle(data.texts))

    async def save() -> None:
        await saving.save(next(texts), (), Origin("user"))

    async def save_with_vector() -> None:
        await embedding.save(next(texts), (), Origin("user"))

    async def bare_save() -> None:
        note_id = f"note-{uuid.uuid4()}"
        await bare.transaction(await bare_requests.saving(User(_SAVER), note_id, next(texts)))

    return {_SAVE: save, _SAVE_VECTOR: save_with_vector, _SAVE_BARE: bare_save}


def _searches(searching: Memory, bare: BareClient, data: corpus.Corpus) -> dict[str, Way]:
    queries = itertools.cycle(data.queries)

    async def search() -> None:
        await searching.search(next(queries))

    async def bare_search() -> None:
        query = next(queries)
        vector = data.queries[query].tobytes()
        await bare.queries(*bare_requests.finding(corpus.NAMESPACE, query, corpus.MODEL_ID, vector))
        await bare.queries(*await bare_requests.showing(corpus.NAMESPACE, list(range(1, 11))))

    async def fresh() -> None:
        await bare.queries(*await bare_requests.asking(corpus.NAMESPACE))

    return {_SEARCH: search, _SEARCH_BARE: bare_search, _FRESH_BARE: fresh}


async def _interleaved(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """The times of each way. The ways take turns, in a changing order."""
    chance = random.Random(1)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(_WARM_UP + rounds):
        for name in chance.sample([*ways], len(ways)):
            await asyncio.sleep(_PAUSE_S)
            start = time.perf_counter()
            await ways[name]()
            if number >= _WARM_UP:
                times[name].append(time.perf_counter() - start)
    return times


def _ratio(times: Mapping[str, list[float]], way: str, yardstick: str) -> float:
    return p50(times[way]) / p50(times[yardstick])


def _judged(label: str, times: Mapping[str, list[float]], way: str, yardstick: str) -> str:
    ratio = _ratio(times, way, yardstick)
    return (
        f"  {label} against {yardstick}: {ratio:.2f}  "
        f"(goal: at most {GOAL}: {verdict(ratio <= GOAL)})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.remote")
    parser.add_argument("--full", action="store_true", help="20,000 passages, more rounds")
    print("\n".join(asyncio.run(run(parser.parse_args().full))))
