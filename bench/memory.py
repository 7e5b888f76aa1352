"""What remembering costs, each figure beside the yardstick it is judged by.

Run alone: `python -m bench.memory [--full]`.
"""

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import libsql
import numpy as np

from bench import corpus
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, Origin
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate

_SIZES = (1_000, 5_000, 20_000, 100_000, 200_000)
_SIZES_FULL = (*_SIZES, 1_000_000)
_SCANNED_MAX = 100_000
"""In more passages, the engine's own search is not measured: filling its table takes minutes."""
_DISKANN_SIZE = 5_000
_DISKANN_SIZE_FULL = 20_000
_SCAN_QUERIES = 10
_TOP_K = 5
_SAVES = 1_000
_WARM_COMMITS = 1_200
"""Enough for the log to have been written once around: after that a commit
overwrites it instead of extending the file, which is cheaper."""


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` adds 1,000,000 passages and a larger DiskANN index."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxb-") as scratch:
        lines = [
            "hybrid search, top 5, without the query's embedding (ms)",
            "  passages   hybrid p50    p95   numpy dot p50   libSQL scan p50   libSQL DiskANN p50"
            "   first search   resident",
        ]
        for size in _SIZES_FULL if full else _SIZES:
            with_index = size == _DISKANN_SIZE or (full and size == _DISKANN_SIZE_FULL)
            lines.append(await _search(Path(scratch) / f"{size}", size, with_index))
        if not full:
            lines.append(
                f"  DiskANN at {_DISKANN_SIZE:,} only: building it takes longer with every row; "
                f"`--full` adds {_DISKANN_SIZE_FULL:,}"
            )
        lines.append(
            "  goals: 20,000: p50 2 ms; 100,000: 8 ms; 1,000,000: 50 ms and 2 GB resident; "
            "the first search in 200,000: 0.5 s"
        )
        lines += ["", "save, durable, without waiting for a vector (ms)"]
        lines += await _saves(Path(scratch))
    return lines


async def _search(directory: Path, size: int, with_index: bool) -> str:
    directory.mkdir()
    data = corpus.make(size)
    database = await LocalDatabase.open(directory / "memory.db")
    await migrate(database)
    await corpus.fill(database, data)
    await database.close()
    searched = await _apart(directory / "memory.db", data.queries)
    questions = list(data.queries.values())
    dot = [_timed(partial(_nearest, data.vectors, question)) for question in questions]
    line = (
        f"  {size:8,}   {_p50(searched.hybrid):10.2f} {_p95(searched.hybrid):6.2f}"
        f"   {_p50(dot):13.2f}   "
    )
    if size <= _SCANNED_MAX:
        scan, index, build = _libsql(directory / "vectors.db", data.vectors, questions, with_index)
        line += f"{_p50(scan):15.2f}   " + (f"{_p50(index):18.2f}" if with_index else f"{'-':>18}")
    else:
        build = 0.0
        line += f"{'-':>15}   {'-':>18}"
    line += f"   {searched.first_s:10.2f} s {searched.resident_mb:6,.0f} MB"
    return line + (f"  (built in {build:.0f} s)" if with_index else "")


@dataclass(frozen=True)
class _Searched:
    """What a process saw that only searches.

    `first_s` is from opening the memory to its first answer.
    """

    hybrid: list[float]
    first_s: float
    resident_mb: float


async def _apart(path: Path, queries: dict[str, Any]) -> _Searched:
    """Search in a process of its own, which holds nothing of the corpus."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return await asyncio.wrap_future(process.submit(_searching, path, queries))


def _searching(path: Path, queries: dict[str, Any]) -> _Searched:
    return asyncio.run(_search_all(path, queries))


async def _search_all(path: Path, queries: dict[str, Any]) -> _Searched:
    config = MemoryConfig(db_path=str(path))
    begin = time.perf_counter()
    memory = await Memory.open(config, corpus.QueryEmbedder(queries), corpus.USER_ID)
    await memory.search(next(iter(queries)), top_k=_TOP_K)
    first = time.perf_counter() - begin
    hybrid = []
    for round_ in range(3):  # the first round warms the caches
        for query in queries:
            start = time.perf_counter()
            await memory.search(query, top_k=_TOP_K)
            if round_:
                hybrid.append(time.perf_counter() - start)
    await memory.close()
    return _Searched(hybrid, first, _resident_mb())


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _nearest(vectors: Any, query: Any) -> Any:
    return np.argpartition(-(vectors @ query), _TOP_K)[:_TOP_K]


def _libsql(
    path: Path, vectors: Any, questions: list[Any], with_index: bool
) -> tuple[list[float], list[float], float]:
    """Query times of the engine's own exact scan and index, and the index's build time."""
    connection = libsql.connect(str(path), isolation_level=None)
    connection.execute(f"CREATE TABLE v (id INTEGER PRIMARY KEY, e F32_BLOB({corpus.DIMENSIONS}))")
    connection.execute("BEGIN")
    for vector in vectors:
        connection.execute("INSERT INTO v (e) VALUES (?)", (vector.tobytes(),))
    connection.execute("COMMIT")
    exact = f"SELECT id FROM v ORDER BY vector_distance_cos(e, ?) LIMIT {_TOP_K}"
    asked = questions[:_SCAN_QUERIES]
    scan = _query_times(connection, exact, asked)
    index: list[float] = []
    build = 0.0
    if with_index:
        start = time.perf_counter()
        connection.execute("CREATE INDEX ann ON v (libsql_vector_idx(e))")
        build = time.perf_counter() - start
        near = f"SELECT id FROM vector_top_k('ann', ?, {_TOP_K})"
        index = _query_times(connection, near, asked)
    connection.close()
    return scan, index, build


def _query_times(connection: Any, sql: str, questions: Iterable[Any]) -> list[float]:
    def ask(question: Any) -> None:
        connection.execute(sql, (question.tobytes(),)).fetchall()

    return [_timed(partial(ask, question)) for question in questions]


async def _saves(directory: Path) -> list[str]:
    """Saves through the store and bare commits of the same texts, one by one in turn."""
    texts = corpus.make(_SAVES + _WARM_COMMITS).texts
    bare = sqlite3.connect(directory / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, content TEXT)")
    memory = await Memory.open(
        MemoryConfig(db_path=str(directory / "memory.db")), None, corpus.USER_ID
    )
    commits: list[float] = []
    saves: list[float] = []
    for text in texts:
        start = time.perf_counter()
        bare.execute("INSERT INTO notes VALUES (?, ?)", (f"note-{uuid.uuid4()}", text))
        middle = time.perf_counter()
        await memory.save(text, (), Origin("user"))
        saves.append(time.perf_counter() - middle)
        commits.append(middle - start)
    await memory.close()
    bare.close()
    return [
        _save_line("fresh files", saves[:_SAVES], commits[:_SAVES]),
        _save_line("logs warm", saves[_WARM_COMMITS:], commits[_WARM_COMMITS:]),
        "  goal: at most 2 times the bare commit",
    ]


def _save_line(label: str, saves: list[float], commits: list[float]) -> str:
    return (
        f"  {label:12}  save p50 {_p50(saves):.3f} p95 {_p95(saves):.3f}   "
        f"bare SQLite commit p50 {_p50(commits):.3f} p95 {_p95(commits):.3f}   "
        f"ratio {_p50(saves) / _p50(commits):.1f}"
    )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _p50(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)] * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.memory")
    parser.add_argument(
        "--full", action="store_true", help="1,000,000 passages, and a larger DiskANN index"
    )
    print("\n".join(asyncio.run(run(parser.parse_args().full))))
