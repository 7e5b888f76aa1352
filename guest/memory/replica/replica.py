"""The replica: one user's searchable memory on this machine, copied from a server.

It holds passages with their ids, the current notes, and vectors; nothing else of conversations. It
can always be fetched again, so its file is never backed up, and can be discarded at any time.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar, cast

import numpy as np
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import now
from guest.memory.replica import sync as delta
from guest.memory.replica.sync import Progress
from guest.memory.storage import copies
from guest.memory.storage.base import ConstraintViolated, Database, Row, Statement
from guest.memory.storage.changes import Background
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import LocalDatabase, owned
from guest.memory.storage.migrations import MIGRATIONS, Migration, found_version, migrate
from guest.memory.storage.scrubbing import SUFFIX

log = logging.getLogger(__name__)

KINDS: Final = 3
_COALESCE_S: Final = 0.002
"""Changes within this time are fetched together."""

_T = TypeVar("_T")


_REPLACEABLE: Final = (Code.DATA_LOSS, Code.FAILED_PRECONDITION, Code.INTERNAL)


async def open_copy(
    path: Path, key: str, source: str, migrations: Sequence[Migration] = MIGRATIONS
) -> Database:
    """Open the replica of `source` at `path`; an empty one if none there fits.

    A file that is damaged, has another key or version, or copies something else is removed. Raises
    `StorageError` if another process owns the file or the disk refuses it.
    """
    try:
        return await _open(path, key, source, migrations)
    except StorageError as error:
        if error.code not in _REPLACEABLE:
            raise
        log.warning("the copy of the memory is fetched anew: %s", error)
    return await anew(path, key, source, migrations)


async def anew(
    path: Path, key: str, source: str, migrations: Sequence[Migration] = MIGRATIONS
) -> Database:
    """Replace the file at `path`, which must not be in use, by an empty replica."""
    _remove(path)
    return await _open(path, key, source, migrations)


async def _open(path: Path, key: str, source: str, migrations: Sequence[Migration]) -> Database:
    database = await LocalDatabase.open(path, key)
    try:
        copies.erase_leftovers(database.path)
        if 0 < await found_version(database) < migrations[-1].version:
            raise _unfit("an older version has made it, and only the server has what it lacks")
        await migrate(database, migrations)
        await database.batch([Statement(sql) for sql in delta.TABLES])
        sources = (await database.execute("SELECT source FROM replica_of")).rows
        if not sources:
            await database.execute("INSERT INTO replica_of (source) VALUES (?)", (source,))
        elif sources != ((source,),):
            raise _unfit("it is of another memory")
        await Eraser(database).finish()
    except BaseException:
        await database.close()
        raise
    return database


def _unfit(why: str) -> StorageError:
    return StorageError(Code.FAILED_PRECONDITION, f"the copy cannot be used: {why}")


def _remove(path: Path) -> None:
    """Remove a file. Raises `StorageError` if another process has it open."""
    with owned(path):
        for suffix in ("", "-wal", "-shm", SUFFIX):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


class ServerUnreachable(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The server could not be asked what the replica lacks; `problem` says why."""

    def __init__(self, problem: StorageError) -> None:
        super().__init__(problem.brief)
        self.problem = problem


class Replica:
    """The replica, and how it follows the server.

    `database` and `vectors` are read-only for callers, and change when a damaged replica is
    replaced.
    """

    def __init__(self, path: Path, key: str, source: str, server: Database) -> None:
        self._path = path
        self._key = key
        self._source = source
        self._server = server
        self._lock = asyncio.Lock()
        self._changed: set[str] = set()
        self._work = Background()
        self._following: asyncio.Task[None] | None = None
        self._progress: dict[str, Progress] = {}
        self.busy_since: float | None = None

    @classmethod
    async def open(cls, path: Path, key: str, source: str, server: Database) -> "Replica":
        """Open the replica at `path` of the memory at `source`; does not contact the server yet."""
        replica = cls(path, key, source, server)
        await replica._use(await open_copy(path, key, source))
        return replica

    async def _use(self, database: Database) -> None:
        self.database = database
        self.vectors = VectorStore(database)
        self._eraser = Eraser(database)
        try:
            self._progress = await delta.progress_of(database)
        except BaseException:
            await database.close()
            raise

    async def close(self) -> None:
        """Stop following, and release the file. Idempotent."""
        await self._work.stop()
        await self._erase_quietly()
        try:
            await self._write_down()
        except StorageError as error:
            log.warning("how old the copy of the memory is was not written down: %s", error.brief)
        await self.database.close()

    def progress(self, namespace: str) -> Progress:
        return self._progress.get(namespace, Progress())

    def changed(self, namespaces: Collection[str]) -> None:
        """These namespaces have, or may have, changed on the server: fetch them soon."""
        self._changed.update(namespaces)
        if not self._changed:
            return
        if self._following is None or self._following.done():
            self._following = self._work.begin(self._follow())

    def returned(self) -> None:
        """The server is back."""
        self.changed(list(self._progress))

    @property
    def following(self) -> asyncio.Task[None] | None:
        """The task that fetches everything reported to `changed` so far; None if there is
        nothing to fetch."""
        return None if self._following is None or self._following.done() else self._following

    def sync(self, namespaces: Sequence[str]) -> asyncio.Task[None]:
        """Start fetching what the server has in these namespaces now.

        Continues even if nobody waits. The task raises `ServerUnreachable`, and `StorageError` if
        the replica itself fails.
        """
        return self._work.begin(self._sync(namespaces))

    async def erase(self) -> None:
        """Erase from the replica what was deleted on the server.

        Raises `ServerUnreachable`, `StorageError`.
        """
        await self.sync(list(self._progress))
        await self._eraser.finish()

    async def replace(self, damaged: Database) -> None:
        """Discard the replica if it is still `damaged`, and begin a new one."""
        async with self._lock:
            if self.database is not damaged:
                return
            try:
                await damaged.close()
            except StorageError as error:
                log.info("closing the damaged copy failed too: %s", error.brief)
            await self._use(await anew(self._path, self._key, self._source))

    async def _follow(self) -> None:
        while self._changed:
            await asyncio.sleep(_COALESCE_S)
            namespaces, self._changed = sorted(self._changed), set()
            try:
                await self._sync(namespaces)
            except ServerUnreachable as error:
                log.info("the copy of the memory is behind: %s", error)
            except StorageError as error:
                log.warning("the copy of the memory could not be brought up to date: %s", error)

    async def _sync(self, namespaces: Sequence[str]) -> None:
        async with self._lock:
            self.busy_since = asyncio.get_running_loop().time()
            try:
                counted = await _asked(delta.counters(self._server, namespaces))
                for namespace, counters in counted.items():
                    progress = self.progress(namespace)
                    if (progress.changes, progress.removals) == counters:
                        self._progress[namespace] = replace(progress, synced_at=now())
                    else:
                        await self._catch_up(namespace, *counters)
            finally:
                self.busy_since = None

    async def _catch_up(self, namespace: str, changes: int, removals: int) -> None:
        progress = self.progress(namespace)
        if changes < progress.changes or removals < progress.removals:
            log.warning("the memory server has gone back in time; it is copied anew")
            await self._discard(namespace)
        kinds = KINDS if progress.complete_once else 1
        complete, asking = False, self._pull(namespace, self.progress(namespace), kinds, removals)
        try:
            while not complete:
                page = await asking
                progress = self.progress(namespace)
                after, removals = delta.moved(progress, page), page.counters[1]
                complete = page.complete and removals == after.removals
                if not complete:  # the server reads the next page while this one is written
                    asking = self._pull(namespace, after, page.next_kinds, removals)
                try:
                    await self._put(namespace, progress, page)
                except ConstraintViolated as error:
                    log.warning("the copy of the memory conflicts with the server: %s", error)
                    asking.cancel()
                    await self._discard(namespace)
                    complete, asking = False, self._pull(namespace, Progress(), 1, removals)
        finally:
            asking.cancel()

    def _pull(
        self, namespace: str, progress: Progress, kinds: int, removals: int
    ) -> "asyncio.Task[delta.Page]":
        ids = progress.begun and removals != progress.removals
        pulling = delta.pull(self._server, namespace, progress, kinds=kinds, ids=ids)
        task = asyncio.create_task(_asked(pulling))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _put(self, namespace: str, progress: Progress, page: delta.Page) -> None:
        async with self.vectors.changing(namespace):
            done = await delta.put(self.database, namespace, progress, page)
            self._progress[namespace] = done.progress
            self.vectors.added(namespace, done.added)
            self.vectors.removed(namespace, done.removed)
            for model_id, chunk_ids, vectors in _by_model(done.vectors):
                self.vectors.stored(namespace, model_id, chunk_ids, vectors)
        if page.ids is not None:
            self._work.begin(self._erase_quietly())

    async def _discard(self, namespace: str) -> None:
        async with self.vectors.changing(namespace):
            await delta.discard(self.database, namespace)
            self._progress[namespace] = Progress()
            self.vectors.drop(namespace)
        self._work.begin(self._erase_quietly())

    async def _erase_quietly(self) -> None:
        try:
            await self._eraser.finish()
        except StorageError as error:
            log.warning("what was deleted is not erased from the copy yet: %s", error)

    async def _write_down(self) -> None:
        """Store when the server was last asked; everything else is stored with each page."""
        await self.database.batch(
            [progress.statement(namespace) for namespace, progress in self._progress.items()]
        )


class ReplicaEraser(Eraser):
    """An `Eraser` for a store with a replica.

    What other clients delete is erased from the replica when it is next brought up to date.
    """

    def __init__(self, database: Database, replica: Replica, *, delay_s: float) -> None:
        super().__init__(database, delay_s=delay_s)
        self._replica = replica

    async def erase(self) -> None:
        await super().erase()
        try:
            await self._replica.erase()
        except ServerUnreachable as error:
            raise StorageError(
                error.problem.code,
                "it is deleted on the memory server, and not yet from the copy on this machine",
                details=f"{error.problem.brief}: {error.problem.details}",
                resolution="nothing to do: it goes as soon as the server can be reached",
            ) from error


async def _asked(question: Awaitable[_T]) -> _T:
    try:
        return await question
    except StorageError as error:
        raise ServerUnreachable(error) from error


def _by_model(
    rows: Sequence[Row],
) -> list[tuple[str, list[int], "np.ndarray[tuple[int, int], np.dtype[np.float32]]"]]:
    """A page's vectors, grouped by model and size."""
    groups: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
    for _, chunk_id, model_id, blob in cast("Sequence[tuple[int, int, str, bytes]]", rows):
        groups[model_id, len(blob)].append((chunk_id, blob))
    return [
        (
            model_id,
            [chunk_id for chunk_id, _ in group],
            np.frombuffer(b"".join(blob for _, blob in group), "<f4")
            .reshape(len(group), -1)
            .astype(np.float32, copy=False),
        )
        for (model_id, _), group in groups.items()
    ]
