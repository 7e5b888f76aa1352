"""How the cost of one user's memory grows with its size, on this machine and on a server.

Run alone: `python -m bench.sizes [--full]`.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench import corpus, one_memory, server
from bench.one_memory import Found
from bench.scratch import scratch
from guest.memory.factory import open_file
from guest.memory.models import MemoryConfig
from guest.memory.storage.base import Database

_SIZES = (1_000, 20_000)
_SIZES_FULL = (1_000, 20_000, 200_000)
_ROWS: tuple[tuple[str, Callable[[Found], float]], ...] = (
    ("search, hybrid, p50 ms", lambda found: found.hybrid_p50),
    ("search, hybrid, p95 ms", lambda found: found.hybrid_p95),
    ("search, keyword, p50 ms", lambda found: found.keyword_p50),
    ("save, p50 ms", lambda found: found.save_p50),
    ("save, p95 ms", lambda found: found.save_p95),
    ("bare SQLite commit, p50 ms", lambda found: found.bare_p50),
    ("first page of the list, p50 ms", lambda found: found.list_p50),
    ("delete, p50 ms", lambda found: found.delete_p50),
    ("open and first search, ms", lambda found: found.first_search),
    ("resident memory, MB", lambda found: found.resident),
)


async def run(full: bool = False, sizes: Sequence[int] = ()) -> list[str]:
    """Lines of the report."""
    sizes = sizes or (_SIZES_FULL if full else _SIZES)
    local: list[tuple[Found, float]] = []
    remote: list[tuple[Found, float]] = []
    missing = server.missing()
    for size in sizes:
        data = corpus.make(size)
        with scratch() as place:
            queries = place / "queries.npz"
            one_memory.write_queries(queries, data)
            local.append(await _local(place, data, queries))
            if not missing:
                remote.append(await _remote(place, data, queries))
    lines = ["one user's memory by size (passages), on this machine"]
    lines += _table(sizes, local)
    lines += ["", "the same on a server (sqld on this machine), searched in its copy here"]
    return lines + (_table(sizes, remote) if not missing else [f"  left out: {missing}"])


async def _local(place: Path, data: corpus.Corpus, queries: Path) -> tuple[Found, float]:
    path = place / "local" / "memory.db"
    path.parent.mkdir()
    async with _opened(MemoryConfig(str(path))) as database:
        await corpus.fill(database, data)
    return await one_memory.measure(path, queries), path.stat().st_size / 1e6


async def _remote(place: Path, data: corpus.Corpus, queries: Path) -> tuple[Found, float]:
    with server.running() as sqld:
        async with server.prepared(sqld.url()) as database:
            await corpus.fill(database, data)
        path = place / "remote" / "memory.db"
        path.parent.mkdir()
        found = await one_memory.measure(path, queries, sqld.url())
    return found, sum(file.stat().st_size for file in path.parent.iterdir()) / 1e6


@asynccontextmanager
async def _opened(config: MemoryConfig) -> AsyncIterator[Database]:
    database = await open_file(config)
    try:
        yield database
    finally:
        await database.close()


def _table(sizes: Sequence[int], found: Sequence[tuple[Found, float]]) -> list[str]:
    lines = [f"  {'':32}" + "".join(f"{size:>12,}" for size in sizes)]
    for label, value in _ROWS:
        lines.append(f"  {label:32}" + "".join(f"{value(each):12.2f}" for each, _ in found))
    files = "".join(f"{size:12.1f}" for _, size in found)
    return [*lines, f"  {'files here, MB':32}{files}"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.sizes")
    parser.add_argument("--full", action="store_true", help="up to 200,000 passages")
    print("\n".join(asyncio.run(run(parser.parse_args().full))))
