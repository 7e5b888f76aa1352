"""Vectors in the database and, after the first search, in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory.indexing.vectors import ResidentVectors, Snapshot
from guest.memory.storage.base import AnswerLost, Database, Row, Statement, apply

LOAD_ROWS: Final = 1000
"""Rows per query while loading, so that other work is not blocked."""

_STORE: Final = """
INSERT INTO chunks_vec (chunk_id, namespace, model_id, vector, digest)
    SELECT chunk_id, namespace, ?, ?, 0 FROM chunks WHERE chunk_id = ? AND namespace = ?
    ON CONFLICT (chunk_id) DO UPDATE SET
        model_id = excluded.model_id, vector = excluded.vector
    RETURNING chunk_id
"""

REMOVED_AT_ONCE: Final = 100
"""Removing a passage from the full-text index takes up to a millisecond."""

SLICE_ROWS: Final = 1000
"""Rows per statement while setting vectors aside; other threads run in between."""

_SET_ASIDE: Final = """
UPDATE chunks_vec SET model_id = '' WHERE chunk_id IN (
    SELECT chunk_id FROM chunks_vec
        WHERE namespace IN (SELECT value FROM json_each(?)) AND model_id > '' LIMIT ?)
"""
_MAIN_MODEL: Final = """
SELECT model_id FROM chunks_vec WHERE namespace = ? AND model_id > ''
    GROUP BY model_id ORDER BY COUNT(*) DESC LIMIT 1
"""
_DIMENSIONS: Final = """
SELECT length(vector) / 4 FROM chunks_vec WHERE namespace = ? AND model_id = ? LIMIT 1
"""
_COUNT_BOTH: Final = """
SELECT (SELECT COUNT(*) FROM chunks_vec
            WHERE namespace IN (SELECT value FROM json_each(?1)) AND model_id > ''),
       (SELECT COUNT(*) FROM chunks WHERE namespace IN (SELECT value FROM json_each(?1)))
"""
_PASSAGES: Final = "SELECT COUNT(*) FROM chunks WHERE namespace = ?"
_LOAD: Final = """
SELECT chunk_id, vector FROM chunks_vec
    WHERE namespace = ? AND model_id = ? AND length(vector) = ? AND chunk_id > ?
        AND typeof(vector) = 'blob'
    ORDER BY chunk_id LIMIT ?
"""


@dataclass
class _Namespace:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    model_id: str = ""
    resident: ResidentVectors | None = None
    passages: int = 0


class VectorStore:
    """Every namespace's vectors. The database is the source of truth.

    Code that adds or removes passages does so within `changing(namespace)` and reports it here
    before leaving, so that the resident vectors stay in step.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespaces: dict[str, _Namespace] = {}
        self.on_unknown_change: Callable[[], None] = lambda: None
        self.on_change: Callable[[str], None] = lambda _: None

    @asynccontextmanager
    async def changing(self, namespace: str) -> AsyncIterator[None]:
        """Change a namespace's passages or vectors, one change at a time.

        A caller that is cancelled during its batch, or loses the answer to it, cannot know what
        changed. The resident vectors are then dropped, to be reloaded on demand, and
        `on_unknown_change` is called. `on_change` is called after every possible change.
        """
        state = self._of(namespace)
        async with state.lock:
            try:
                yield
            except (asyncio.CancelledError, AnswerLost):
                self.drop(namespace)
                self.on_unknown_change()
                raise
            finally:
                self.on_change(namespace)

    def drop(self, namespace: str) -> None:
        """Drop the resident vectors; they are reloaded on demand."""
        self._of(namespace).resident = None

    def added(self, namespace: str, passages: int) -> None:
        """Record passages that were stored without vectors."""
        self._of(namespace).passages += passages

    def removed(self, namespace: str, chunk_ids: Sequence[int]) -> None:
        """Record that passages and their vectors are gone."""
        state = self._of(namespace)
        state.passages -= len(chunk_ids)
        if state.resident is not None:
            state.resident.remove(chunk_ids)

    async def store(
        self, namespace: str, model_id: str, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        """Store the vectors of passages durably; vectors of passages that no longer exist are
        ignored."""
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        statements = [
            Statement(_STORE, (model_id, row.tobytes(), chunk_id, namespace))
            for chunk_id, row in zip(chunk_ids, rows, strict=True)
        ]
        # a lost answer means durable, too; `changing` drops the resident vectors
        with suppress(AnswerLost):
            async with self.changing(namespace):
                results = await self._database.batch(statements)
                stored = [i for i, result in enumerate(results) if result.rows]
                self.stored(namespace, model_id, [chunk_ids[i] for i in stored], rows[stored])

    def stored(
        self, namespace: str, model_id: str, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        """Record vectors that were stored durably. A passage has one vector: a new one replaces
        that of another model."""
        state = self._of(namespace)
        if state.resident is None:
            return
        if state.model_id != model_id:
            state.resident.remove(chunk_ids)
        elif state.resident.dimensions == vectors.shape[1]:
            state.resident.add(chunk_ids, vectors)
        else:
            state.resident = None

    async def remove_passages(self, namespace: str, sql: str, which: tuple[str, ...]) -> list[int]:
        """Remove passages in slices, so that other work is not blocked.

        Args:
            sql: Deletes at most as many passages as its last argument says, and returns their ids.
            which: The arguments of `sql` before the last one.

        Returns:
            The ids of the removed passages, as far as known.
        """
        removed: list[int] = []
        while True:
            with suppress(AnswerLost):
                async with self.changing(namespace):
                    result = await self._database.execute(sql, (*which, REMOVED_AT_ONCE))
                    gone = [cast(int, row[0]) for row in result.rows]
                    self.removed(namespace, gone)
                if not gone:
                    return removed
                removed += gone

    async def set_aside(self, namespaces: Sequence[str]) -> int:
        """Set all vectors of these namespaces aside at once; returns how many passages had one.

        They stay in the database, as vectors of no model, until replaced.
        """
        names = json.dumps(sorted(namespaces))
        async with AsyncExitStack() as stack:
            for namespace in sorted(namespaces):
                await stack.enter_async_context(self.changing(namespace))
            vectors, passages = (await self._database.execute(_COUNT_BOTH, (names,))).rows[0]
            slices = cast(int, vectors) // SLICE_ROWS + 1
            await apply(self._database, *[Statement(_SET_ASIDE, (names, SLICE_ROWS))] * slices)
            for namespace in namespaces:
                self.drop(namespace)
        return cast(int, passages)

    async def snapshot(
        self, namespace: str, model_id: str, dimensions: int
    ) -> tuple[Snapshot, int]:
        """The namespace's vectors of this model only, and how many passages have none."""
        state = self._of(namespace)
        resident = self._resident(state, model_id, dimensions)
        if resident is None:
            async with state.lock:
                resident = self._resident(state, model_id, dimensions)
                if resident is None:
                    state.resident = None
                    found = await self._database.execute(_PASSAGES, (namespace,))
                    state.passages = cast(int, found.rows[0][0])
                    resident = ResidentVectors(dimensions, expected=state.passages)
                    await self._load(resident, namespace, model_id)
                    state.model_id, state.resident = model_id, resident
        return resident.snapshot(), state.passages - len(resident)

    async def all_of(self, namespace: str, model_id: str) -> Snapshot | None:
        """The namespace's vectors of a model, of the most common one if `model_id` is empty;
        None if there are none."""
        if not model_id:
            models = (await self._database.execute(_MAIN_MODEL, (namespace,))).rows
            model_id = str(models[0][0]) if models else ""
        sizes = (await self._database.execute(_DIMENSIONS, (namespace, model_id))).rows
        if not sizes:
            return None
        return (await self.snapshot(namespace, model_id, cast(int, sizes[0][0])))[0]

    def _of(self, namespace: str) -> _Namespace:
        return self._namespaces.setdefault(namespace, _Namespace())

    def _resident(
        self, state: _Namespace, model_id: str, dimensions: int
    ) -> ResidentVectors | None:
        resident = state.resident
        if resident is None or state.model_id != model_id or resident.dimensions != dimensions:
            return None
        return resident

    async def _load(self, resident: ResidentVectors, namespace: str, model_id: str) -> None:
        """Read the namespace's vectors of this model from the database."""
        size, last = resident.dimensions * np.dtype("<f4").itemsize, 0
        while True:
            which = (namespace, model_id, size, last, LOAD_ROWS)
            found = (await self._database.execute(_LOAD, which)).rows
            if not found:
                return
            ids, vectors = _unpack(found, resident.dimensions)
            resident.add(ids, vectors)
            last = ids[-1]


def _unpack(rows: Sequence[Row], dimensions: int) -> tuple[list[int], Vectors]:
    ids: list[int] = []
    blobs: list[bytes] = []
    for chunk_id, blob in rows:
        assert isinstance(chunk_id, int)
        assert isinstance(blob, bytes)
        ids.append(chunk_id)
        blobs.append(blob)
    vectors = np.frombuffer(b"".join(blobs), "<f4").reshape(len(ids), dimensions)
    return ids, vectors.astype(np.float32, copy=False)
