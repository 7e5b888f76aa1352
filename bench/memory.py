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
from functools import partial
from pathlib import Path
from typing import Any

import libsql
import numpy as np

from bench import corpus
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, Origin
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate

_SIZES = (1_000, 5_000, 20_000, 100_000)
_DISKANN_SIZE = 5_000
_DISKANN_SIZE_FULL = 20_000
_SCAN_QUERIES = 10
_TOP_K = 5
_SAVES = 1_000
_WARM_COMMITS = 1_200
"""Enough for the log to have been written once around: after that a commit
overwrites it instead of extending the file, which is cheaper."""


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` builds the DiskANN index at the larger size too."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxb-") as scratch:
        lines = [
            "hybrid search, top 5, without the query's embedding (ms)",
            "  passages   hybrid p50    p95   numpy dot p50   libSQL scan p50   libSQL DiskANN p50",
        ]
        for size in _SIZES:
            with_index = size == _DISKANN_SIZE or (full and size == _DISKANN_SIZE_FULL)
            lines.append(await _search(Path(scratch) / f"{size}", size, with_index))
        if not full:
            lines.append(
                f"  DiskANN at {_DISKANN_SIZE:,} only: building it takes longer with every row; "
                f"`--full` adds {_DISKANN_SIZE_FULL:,}"
            )
        lines.append("  goal at 20,000: p50 2 ms")
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
    config = MemoryConfig(db_path=str(directory / "memory.db"))
    memory = await Memory.open(config, corpus.QueryEmbedder(data.queries), corpus.USER_ID)
    hybrid = []
    for round_ in range(3):  # the first round loads the vectors and warms the caches
        for query in data.queries:
            start = time.perf_counter()
            await memory.search(query, top_k=_TOP_K)
            if round_:
                hybrid.append(time.perf_counter() - start)
    await memory.close()
    questions = list(data.queries.values())
    dot = [_timed(partial(_nearest, data.vectors, question)) for question in questions]
    scan, index, build = _libsql(directory / "vectors.db", data.vectors, questions, with_index)
    line = (
        f"  {size:8,}   {_p50(hybrid):10.2f} {_p95(hybrid):6.2f}   {_p50(dot):13.2f}"
        f"   {_p50(scan):15.2f}   "
    )
    if not with_index:
        return line + f"{'-':>18}"
    return line + f"{_p50(index):18.2f}  (built in {build:.0f} s)"


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
    parser.add_argument("--full", action="store_true", help="build the larger DiskANN index too")
    print("\n".join(asyncio.run(run(parser.parse_args().full))))
