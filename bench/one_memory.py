"""One memory of a given size, in a process of its own, so that the process's size can be measured.

`measure` starts that process: `python -m bench.one_memory`, which reads what to do
from its standard input and prints what it found.
"""

import asyncio
import json
import sqlite3
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
from wire.errors import Code
from wire.settings import MemorySettings

from bench import corpus
from bench.report import p50, p95
from guest.embedding.backends import Embedded
from guest.errors import EmbedderError
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, Origin, RemoteConfig

_SAVES = 200
_DELETIONS = 3
_PAGE = 50
_NOTES_MAX = 1_000_000


@dataclass(frozen=True)
class Found:
    """Times in milliseconds, sizes in MB of 1,000,000 bytes.

    `first_search` includes the opening, and on a server the fetching of the copy.
    """

    first_search: float
    hybrid_p50: float
    hybrid_p95: float
    keyword_p50: float
    save_p50: float
    save_p95: float
    bare_p50: float
    list_p50: float
    delete_p50: float
    resident: float


class _Embedder(corpus.QueryEmbedder):
    """If `away` is set, it does not answer: searches go by keyword and saves do not wait."""

    away = False

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        if self.away:
            raise EmbedderError(Code.UNAVAILABLE, "away")
        return await super().embed(texts, timeout=timeout)


async def measure(db_path: Path, queries: Path, url: str = "") -> Found:
    """Use the memory at `db_path`, or the one at `url` with its copy beside `db_path`.

    `queries` is a file that `write_queries` has made.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.one_memory"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    order = json.dumps([str(db_path), str(queries), url]).encode()
    out, _ = await process.communicate(order)
    if process.returncode:
        raise RuntimeError(f"measuring {url or db_path} failed with {process.returncode}")
    return Found(**json.loads(out))


def write_queries(path: Path, data: corpus.Corpus) -> None:
    """Write the queries of a corpus to a file, for a process that does not make the corpus."""
    np.savez(path, texts=np.array(list(data.queries)), vectors=np.stack([*data.queries.values()]))


async def _measure(db_path: str, queries: str, url: str) -> Found:
    with np.load(queries) as kept:
        asked = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    embedder = _Embedder(asked)
    remote = RemoteConfig(url, one_user=True) if url else None
    start = time.perf_counter()
    config = MemoryConfig(db_path, MemorySettings(max_notes=_NOTES_MAX), remote=remote)
    memory = await Memory.open(config, embedder, corpus.USER_ID)
    try:
        while (await memory.search(next(iter(asked)))).warnings:
            await asyncio.sleep(0.05)  # what the server has is still being fetched
        first_search = (time.perf_counter() - start) * 1000

        async def search(query: str) -> None:
            await memory.search(query)

        async def page(_: str) -> None:
            await memory.list(_PAGE)

        async def delete(note_id: str) -> None:
            await memory.delete(note_id)

        await _times(search, asked)
        hybrid = await _times(search, asked)
        pages = await _times(page, [*asked][:10])
        embedder.away = True
        keyword = await _times(search, asked)
        saved, saves, commits = await _saves(memory, Path(db_path).with_name("bare.db"), asked)
        resident = psutil.Process().memory_info().rss / 1e6
        deletions = await _times(delete, saved[:_DELETIONS])
    finally:
        await memory.close()
    return Found(
        first_search,
        hybrid_p50=p50(hybrid),
        hybrid_p95=p95(hybrid),
        keyword_p50=p50(keyword),
        save_p50=p50(saves),
        save_p95=p95(saves),
        bare_p50=p50(commits),
        list_p50=p50(pages),
        delete_p50=p50(deletions),
        resident=resident,
    )


async def _saves(
    memory: Memory, bare_path: Path, asked: Iterable[str]
) -> tuple[list[str], list[float], list[float]]:
    """The ids of new notes, how long their saves took, and bare commits of the same texts in turn
    with them."""
    saved: list[str] = []
    saves, commits = [], []
    bare = sqlite3.connect(bare_path, isolation_level=None)
    try:
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, content TEXT)")
        for text in _texts(asked):
            start = time.perf_counter()
            bare.execute("INSERT INTO notes VALUES (?, ?)", (f"note-{uuid.uuid4()}", text))
            middle = time.perf_counter()
            outcome = await memory.save(text, (), Origin("user"))
            saves.append(time.perf_counter() - middle)
            commits.append(middle - start)
            saved.append(outcome.note.note_id)
    finally:
        bare.close()
        for file in bare_path.parent.glob(f"{bare_path.name}*"):
            file.unlink()
    return saved, saves, commits


def _texts(asked: Iterable[str]) -> list[str]:
    """Texts of several words each, all different."""
    words = [word for query in asked for word in query.split()]
    return [" ".join((*words[n % 50 : n % 50 + 24], str(n))) for n in range(_SAVES)]


async def _times(work: Callable[[str], Awaitable[None]], of: Iterable[str]) -> list[float]:
    times = []
    for each in of:
        start = time.perf_counter()
        await work(each)
        times.append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_measure(*json.loads(sys.stdin.read()))))))
