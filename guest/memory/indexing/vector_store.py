"""Vectors in the database and, after the first search, in memory or in a file beside it."""

import asyncio
import json
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import numpy as np

from guest.embedding.backends import Vectors
from guest.errors import StorageError
from guest.memory.indexing.vector_file import Contents, VectorFile, VectorFiles
from guest.memory.indexing.vectors import Ids, ResidentVectors, Snapshot, digests
from guest.memory.storage import copies
from guest.memory.storage.base import AnswerLost, Database, Row, Statement, apply
from guest.memory.storage.errors import from_system, noticed

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_LOAD_ROWS: Final = 1000
"""Rows per query while loading, so that other work is not blocked."""

_DIGESTS_AT_ONCE: Final = 20_000

_STORE: Final = """
INSERT INTO chunks_vec (chunk_id, namespace, model_id, vector, digest)
    SELECT chunk_id, namespace, ?, ?, ? FROM chunks WHERE chunk_id = ? AND namespace = ?
    ON CONFLICT (chunk_id) DO UPDATE SET
        model_id = excluded.model_id, vector = excluded.vector, digest = excluded.digest
    RETURNING chunk_id
"""
_OVERSIZED: Final = 3
"""A file for so many times the vectors that are in it is made anew."""
_ROWS_FEW: Final = 1000

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
_DIGESTS: Final = """
SELECT COUNT(*), json_group_array(chunk_id), json_group_array(digest) FROM (
    SELECT chunk_id, digest FROM chunks_vec
        WHERE namespace = ? AND model_id = ? AND chunk_id > ? ORDER BY chunk_id LIMIT ?)
"""
_LOAD: Final = """
SELECT chunk_id, vector FROM json_each(?) AS wanted
    CROSS JOIN chunks_vec ON chunk_id = wanted.value
    WHERE namespace = ? AND model_id = ? AND length(vector) = ?
"""


@dataclass
class _Namespace:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    model_id: str = ""
    resident: ResidentVectors | None = None
    file: VectorFile | None = None
    passages: int = 0
    readers: "weakref.WeakSet[Snapshot]" = field(default_factory=weakref.WeakSet)

    def drop(self) -> None:
        """Drop the resident vectors; they are loaded when needed."""
        self.resident = self.file = None


class VectorStore:
    """Every namespace's vectors. The database is the source of truth.

    Code that adds or removes passages does so within `changing(namespace)` and reports it here
    before leaving, so that the resident vectors stay in step. With `files`, those are in a file.
    """

    def __init__(self, database: Database, files: VectorFiles | None = None) -> None:
        self._database = database
        self._files = files
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
        self._of(namespace).drop()

    def added(self, namespace: str, passages: int) -> None:
        """Record passages that were stored without vectors."""
        self._of(namespace).passages += passages

    def removed(self, namespace: str, chunk_ids: Sequence[int]) -> None:
        """Record that passages and their vectors are gone."""
        state = self._of(namespace)
        state.passages -= len(chunk_ids)
        if state.resident is not None:
            with _dropping(state):
                state.resident.remove(chunk_ids)

    async def store(
        self, namespace: str, model_id: str, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        """Store the vectors of passages durably; vectors of passages that no longer exist are
        ignored."""
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        statements = [
            Statement(_STORE, (model_id, row.tobytes(), digest, chunk_id, namespace))
            for chunk_id, row, digest in zip(chunk_ids, rows, digests(rows).tolist(), strict=True)
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
        if state.model_id == model_id and state.resident.dimensions != vectors.shape[1]:
            state.drop()
            return
        with _dropping(state):
            if state.model_id != model_id:
                state.resident.remove(chunk_ids)
            else:
                state.resident.add(chunk_ids, vectors)

    async def remove_passages(self, namespace: str, sql: str, which: tuple[str, ...]) -> list[int]:
        """Remove passages in slices, so that other work is not blocked.

        Args:
            namespace: The namespace of the passages.
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
                self._of(namespace).drop()
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
                    state.drop()
                    contents = Contents(namespace, model_id, dimensions)
                    resident, file = await self._load(contents, rewriting=not state.readers)
                    state.passages = await self._count(namespace)
                    state.model_id, state.resident, state.file = model_id, resident, file
        snapshot = resident.snapshot()
        state.readers.add(snapshot)
        return snapshot, state.passages - len(resident)

    async def erase(self) -> None:
        """Make it durable that no file has a vector of a passage that is gone.

        Raises `StorageError`.
        """
        if self._files is None:
            return
        for path, contents in (await asyncio.to_thread(self._files.contents)).items():
            try:
                if contents is None or not await self._erased(contents):
                    await self._remove(path)
            except OSError as error:
                raise from_system(error, path) from None

    async def _erased(self, contents: Contents) -> bool:
        """Whether the file of these contents has become like the database, durably."""
        state = self._of(contents.namespace)
        if state.resident is None:
            await self.snapshot(contents.namespace, contents.model_id, contents.dimensions)
        if state.file is None:
            return False
        await asyncio.to_thread(state.file.sync)
        return True

    async def _remove(self, path: Path) -> None:
        """Erase a file, unless a search has begun to use it meanwhile: then it has been compared
        with the database."""
        assert self._files is not None
        for namespace, state in tuple(self._namespaces.items()):
            if self._files.path_of(namespace) == path:
                async with state.lock:
                    if state.file is not None:
                        await asyncio.to_thread(state.file.sync)
                    else:
                        await _to_the_end(partial(copies.erase, path))
                return
        await asyncio.to_thread(copies.erase, path)

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

    async def _load(
        self, contents: Contents, *, rewriting: bool
    ) -> tuple[ResidentVectors, VectorFile | None]:
        """The vectors of these contents, and the file they are in, if any.

        What the file lacks, or has differently, is read from the database. With `rewriting`, a
        file that is out of order is made anew; a search must not be reading it then.
        """
        chunk_ids, expected = await self._digests(contents)
        resident, file = ResidentVectors(contents.dimensions), None
        if self._files is not None:
            path = self._files.path_of(contents.namespace)
            opening = partial(_opened, path, contents, chunk_ids, expected, rewriting=rewriting)
            try:
                resident, file = await _to_the_end(opening)
            except (OSError, StorageError) as error:
                log.warning("vectors are kept in memory instead of %s: %s", path.name, error)
        missing = np.setdiff1d(chunk_ids, resident.passages, assume_unique=True)
        while True:
            try:
                await self._add(resident, contents, missing)
            except (OSError, StorageError) as error:
                if file is None:
                    raise
                log.warning("vectors are kept in memory instead of a file: %s", error)
                resident, file, missing = ResidentVectors(contents.dimensions), None, chunk_ids
            else:
                return resident, file

    async def _digests(self, contents: Contents) -> tuple[Ids, Ids]:
        """The passages with a vector, ascending, and the digests of these."""
        ids, expected = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        count, last = _DIGESTS_AT_ONCE, 0
        while count == _DIGESTS_AT_ONCE:
            found = await self._database.execute(
                _DIGESTS, (contents.namespace, contents.model_id, last, _DIGESTS_AT_ONCE)
            )
            count, some, theirs = cast("tuple[int, str, str]", found.rows[0])
            if count:
                ids.append(_numbers(some))
                expected.append(_numbers(theirs))
                last = int(ids[-1][-1])
        return np.concatenate(ids), np.concatenate(expected)

    async def _add(self, resident: ResidentVectors, contents: Contents, chunk_ids: Ids) -> None:
        """Read the vectors of passages from the database."""
        size = contents.dimensions * np.dtype("<f4").itemsize
        for start in range(0, len(chunk_ids), _LOAD_ROWS):
            wanted = json.dumps(chunk_ids[start : start + _LOAD_ROWS].tolist())
            result = await self._database.execute(
                _LOAD, (wanted, contents.namespace, contents.model_id, size)
            )
            if result.rows:
                with noticed("a vector"):
                    ids, vectors = _unpack(result.rows, contents.dimensions)
                resident.add(ids, vectors)

    async def _count(self, namespace: str) -> int:
        result = await self._database.execute(
            "SELECT COUNT(*) FROM chunks WHERE namespace = ?", (namespace,)
        )
        count = result.rows[0][0]
        assert isinstance(count, int)
        return count


async def _to_the_end(work: Callable[[], _T]) -> _T:
    """Do `work` in a thread; a caller that is cancelled keeps its lock until that has ended."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        working.exception()
        raise


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


def _opened(
    path: Path, contents: Contents, chunk_ids: Ids, expected: Ids, *, rewriting: bool
) -> tuple[ResidentVectors, VectorFile]:
    """The file at `path` without what is not in the database."""
    file = VectorFile.open(path, contents)
    resident = ResidentVectors.within(file, *file.found(chunk_ids, expected))
    oversized = len(file.vectors) > _OVERSIZED * max(len(resident), _ROWS_FEW)
    if rewriting and (oversized or resident.wasteful or not resident.ascending):
        copies.erase(path)
        return _opened(path, contents, chunk_ids, expected, rewriting=False)
    return resident, file


@contextmanager
def _dropping(state: _Namespace) -> Iterator[None]:
    """Drop the resident vectors if their file does not take a change, or has become half empty.

    When they are needed again, the file is compared with the database.
    """
    assert state.resident is not None
    try:
        yield
    except (OSError, StorageError) as error:
        log.warning("the file of vectors could not be changed: %s", error)
        state.drop()
    else:
        if state.file is not None and state.resident.wasteful:
            state.drop()


def _numbers(array: str) -> Ids:
    return np.fromstring(array[1:-1], np.int64, sep=",")
