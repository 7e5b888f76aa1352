"""Opens a memory: in a local file, or on a server with a replica on this machine."""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from wire.errors import Code
from wire.installation import adding
from wire.memory_server import ABILITIES, FULL_TEXT, objection, remark

from guest.embedding.backends import Embedder
from guest.embedding.weights import DEFAULT_MODEL
from guest.errors import StorageError
from guest.memory.conversations.sessions import InUse, purge
from guest.memory.conversations.store import Conversations
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.indexer import Indexer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.indexing.vectors import Snapshot
from guest.memory.languages import foreign_percent
from guest.memory.models import MemoryConfig, Note, RemoteConfig, Statistics, User
from guest.memory.notes.quota import UNBOUNDED, Quota
from guest.memory.notes.repository import NoteRepository
from guest.memory.replica import sync
from guest.memory.replica.outbox import Outbox
from guest.memory.replica.replica import Replica, ReplicaEraser
from guest.memory.replica.search import ReplicaSearch, freshen, instead_of_server
from guest.memory.search.engine import Search
from guest.memory.storage import copies
from guest.memory.storage.availability import WatchedDatabase, is_away
from guest.memory.storage.base import Database
from guest.memory.storage.changes import Background
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import LocalDatabase, RamDatabase
from guest.memory.storage.migrations import MIGRATIONS, Migration, found_version, migrate

if TYPE_CHECKING:
    from guest.memory.storage.remote import RemoteDatabase

log = logging.getLogger(__name__)


async def open_file(config: MemoryConfig, migrations: Sequence[Migration] = MIGRATIONS) -> Database:
    """Open the file that holds the memory and migrate its schema.

    A copy is made beside the file before its schema changes. Interrupted erasures are finished.

    Raises:
        StorageError: It cannot be opened, copied or migrated; its schema is unchanged.
    """
    async with AsyncExitStack() as stack:
        database = await LocalDatabase.open(Path(config.db_path), config.encryption_key)
        stack.push_async_callback(database.close)
        await _keep_copy(database, migrations)
        await migrate(database, migrations)
        await _finish_deletions(database)
        stack.pop_all()
    return database


async def open_remote(config: RemoteConfig) -> "RemoteDatabase":
    """A database on a server, which may be away. Raises `StorageError`.

    Imports the client only here: that takes time and memory, and few users need it.
    """
    try:
        from guest.memory.storage.remote import RemoteDatabase
    except ImportError as error:
        raise StorageError(
            Code.FAILED_PRECONDITION,
            "the client for a memory on a server is not installed",
            details=str(error),
            resolution=adding("remote"),
        ) from None
    return await RemoteDatabase.open(config)


async def _keep_copy(database: LocalDatabase, migrations: Sequence[Migration]) -> None:
    """Copy a file that is about to be migrated, named after the first pending step."""
    copies.drop_surplus(database.path)
    version = await found_version(database)
    if 0 < version < migrations[-1].version:
        copy = copies.before(f"v{version + 1}", database.path)
        log.info("the memory database is copied to %s before its schema changes", copy)
        await database.copy_to(copy)
        copies.drop_surplus(database.path)


_REPLICA: Final = "replica.db"


_COUNT: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND superseded_by IS NULL),
       (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1),
       (SELECT COUNT(*) FROM chunks WHERE namespace IN (SELECT value FROM json_each(?2))),
       (SELECT COUNT(*) FROM chunks_vec WHERE namespace IN (SELECT value FROM json_each(?2))
            AND model_id > '' AND (?4 = '' OR model_id = ?4)),
       (SELECT COUNT(*) FROM sessions WHERE user_id = ?3),
       (SELECT COUNT(*) FROM conversation_events JOIN sessions USING (session_id)
            WHERE sessions.user_id = ?3),
       (SELECT MAX(version) FROM memory_migrations),
       (SELECT COUNT(*) FROM sessions WHERE user_id = ?3 AND archived_at <> ''),
       COALESCE((SELECT notes FROM usage WHERE namespace = ?1), 0),
       COALESCE((SELECT bytes FROM usage WHERE namespace = ?1), 0),
       (SELECT json_group_object(model_id, vectors) FROM (
            SELECT model_id, COUNT(*) AS vectors FROM chunks_vec
                WHERE namespace IN (SELECT value FROM json_each(?2)) GROUP BY model_id)),
       (SELECT json_group_array(content) FROM (
            SELECT hex(substr(content, 1, 500)) AS content FROM notes
                WHERE namespace = ?1 AND superseded_by IS NULL ORDER BY seq DESC LIMIT ?5))
"""
_LATEST_NOTES: Final = 200
"""Of these it is asked which are in a language that the default model does not know."""


async def _statistics(database: Database, user: User, model_id: str) -> Statistics:
    """Counts of one user's memory; vectors only of `model_id`, if given."""
    passages = json.dumps(user.namespaces)
    latest = _LATEST_NOTES if model_id.startswith(DEFAULT_MODEL) else 0
    result = await database.execute(_COUNT, (user.notes, passages, user.id, model_id, latest))
    *counts, vectors, texts = cast("tuple[Any, ...]", result.rows[0])
    found = (*counts, json.loads(vectors), await database.size_bytes(), model_id)
    # another program may have written what is no text: hex is any value's
    starts = [bytes.fromhex(each).decode(errors="replace") for each in json.loads(texts)]
    foreign = await asyncio.to_thread(foreign_percent, starts)
    return replace(Statistics(*found), foreign_percent=foreign)


@dataclass(frozen=True)
class Server:
    """The parts that only a store on a server has."""

    watched: WatchedDatabase
    remote: "RemoteDatabase"
    replica: Replica
    outboxes: list[Outbox] = field(default_factory=list)

    def returned(self, indexer: Indexer) -> None:
        """The server is back: continue what waited for it."""
        self.replica.returned()
        for outbox in self.outboxes:
            outbox.returned()
        indexer.retry()


@dataclass(frozen=True)
class Store:
    """An open store. It may hold the memories of several users, each a `Memory`.

    `database` receives all writes.
    """

    config: MemoryConfig
    database: Database
    vectorizer: Vectorizer
    vectors: VectorStore
    indexer: Indexer
    eraser: Eraser
    server: Server | None = None
    background: Background = field(default_factory=Background)
    in_use: InUse = field(default_factory=InUse)

    def search(self, user: User) -> Search:
        if self.server is not None:
            replica, watched = self.server.replica, self.server.watched
            return ReplicaSearch(replica, watched, self.vectorizer, self.config, user)
        return Search(self, self.vectorizer, self.config, user)

    def conversations(self, user: User) -> Conversations:
        if self.server is None:
            return Conversations(self.database, self.vectors, self.indexer, user)
        outbox = Outbox(self.database, self.vectors, self.indexer, user)
        self.server.outboxes.append(outbox)
        return outbox

    def serve(self, user: User) -> None:
        """On a server: begin to copy this user's memory and to embed its passages. Passages of
        users that are not served here are left to their own guests."""
        if self.server is not None:
            self.indexer.include(user.namespaces)
            self.server.replica.changed(user.namespaces)

    @property
    def state(self) -> str:
        """ "ready", or one sentence that says what is wrong with the store."""
        problem = self.server.watched.problem if self.server is not None else None
        return "ready" if problem is None else problem.brief

    async def statistics(self, user: User) -> Statistics:
        """Counts for one user; from the replica while the server is away."""
        model_id, server = self.vectorizer.model_id, self.server
        try:
            counts = await _statistics(self.database, user, model_id)
        except StorageError as error:
            if server is None or not is_away(error):
                raise
            counts = await _statistics(server.replica.database, user, model_id)
        missing = counts.passages - counts.passages_embedded
        left = math.ceil(max(0, missing) * self.indexer.seconds_each)
        counts = replace(counts, embedding_seconds_left=left)
        if server is None:
            return counts
        synced_at = server.replica.progress(user.notes).synced_at
        return replace(counts, store="remote", state=self.state, replica_synced_at=synced_at)

    async def set_token(self, auth_token: str) -> None:
        """Switch to another token once the memory server has accepted it; otherwise keep the old
        one. Raises `StorageError`."""
        if self.server is None:
            raise StorageError(
                Code.FAILED_PRECONDITION,
                "this memory is a local file and has no token",
                resolution="a token belongs to memory.remote_url in runner.toml",
            )
        await self.server.remote.set_token(auth_token)

    def notes(self, user: User) -> NoteRepository:
        return NoteRepository(self.database, self.vectors, user, Quota.of(self.config))

    async def read_notes(
        self, user: User, reading: Callable[[NoteRepository], Awaitable[list[Note]]]
    ) -> tuple[list[Note], str]:
        """The result of `reading` and an empty string; while the server is away, the replica's
        result and a warning."""
        try:
            return await reading(self.notes(user)), ""
        except StorageError as error:
            if self.server is None or not is_away(error):
                raise
            replica = self.server.replica
            warning = instead_of_server(replica, [user.notes], error)
            copy = NoteRepository(replica.database, replica.vectors, user, UNBOUNDED)
            return await reading(copy), warning

    async def note_vectors(self, user: User) -> Snapshot | None:
        """The user's note vectors that searches use; None if there are none."""
        vectors = self.vectors
        if self.server is not None:
            await freshen(self.server.replica, user.notes, self.config.patience.copy_s)
            vectors = self.server.replica.vectors
        return await vectors.all_of(user.notes, self.vectorizer.model_id)

    async def close(self) -> None:
        """Wait for running changes, then release everything. Idempotent."""
        await self.indexer.stop()
        await self.background.finish()
        await self.eraser.close()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.database.close)
            if self.server is not None:
                stack.push_async_callback(self.server.replica.close)
                for outbox in self.server.outboxes:
                    stack.push_async_callback(outbox.close)


async def open_store(
    config: MemoryConfig, embedder: Embedder | None, *, erase_after_s: float = 30.0
) -> Store:
    """Open the store that `config` names, and start its indexer.

    A server may be away. Text of overwritten versions is erased `erase_after_s` later. Raises
    `StorageError`.
    """
    vectorizer = Vectorizer(embedder, config.patience.starting_s)
    if config.remote is not None:
        store = await _on_server(config, config.remote, vectorizer, erase_after_s)
    else:
        store = _on_file(config, await open_file(config), vectorizer, erase_after_s)
    if embedder is not None:
        store.indexer.start()
    return store


def in_ram(config: MemoryConfig) -> Store:
    """A store in this process's memory alone, without vectors."""
    database = RamDatabase([sql for each in MIGRATIONS for sql in each.statements])
    return _on_file(replace(config, remote=None), database, Vectorizer(None), 0.0)


async def admit(database: Database, config: RemoteConfig) -> None:
    """Ask a server whether it is fit for a user's memory. Raises `StorageError` if it is not."""
    full_text, abilities = [await _answered(database, each) for each in (FULL_TEXT, ABILITIES)]
    if refusal := objection(config.url, full_text, abilities, one_user=config.one_user):
        raise StorageError.of(refusal.fields())
    if said := remark(config.url, abilities):
        log.warning("%s", said)


async def _answered(database: Database, question: str) -> list[str] | None:
    """The texts that a server answers; None if its engine cannot."""
    try:
        return [str(text) for (text,) in (await database.execute(question)).rows]
    except StorageError as error:
        if error.code != Code.INTERNAL:
            raise
        return None


async def prepare(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Migrate a server's schema, and finish interrupted erasures."""
    await migrate(database, migrations)
    await sync.count_changes(database)
    await _finish_deletions(database)


async def _finish_deletions(database: Database) -> None:
    """Finish the removals and erasures of an interrupted run."""
    await purge(database, VectorStore(database))
    await Eraser(database).finish()


def _on_file(
    config: MemoryConfig, database: Database, vectorizer: Vectorizer, erase_after_s: float
) -> Store:
    vectors = VectorStore(database)
    indexer = Indexer(database, vectors, vectorizer)
    eraser = Eraser(database, delay_s=erase_after_s)
    return Store(config, database, vectorizer, vectors, indexer, eraser)


async def _on_server(
    config: MemoryConfig, where: RemoteConfig, vectorizer: Vectorizer, erase_after_s: float
) -> Store:
    async with AsyncExitStack() as stack:
        remote = await open_remote(where)
        stack.push_async_callback(remote.close)

        async def fit(server: Database) -> None:
            await admit(server, where)
            await prepare(server)

        watched = WatchedDatabase(remote, fit, start_wait_s=config.patience.server_s)
        stack.push_async_callback(watched.close)
        path = Path(config.db_path).with_name(_REPLICA)
        replica = await Replica.open(path, config.encryption_key, where.url, watched)
        stack.push_async_callback(replica.close)
        vectors = VectorStore(watched)
        indexer = Indexer(watched, vectors, vectorizer, namespaces=())
        server = Server(watched, remote, replica)
        watched.on_return = partial(server.returned, indexer)
        vectors.on_change = lambda namespace: replica.changed([namespace])
        await watched.start()
        stack.pop_all()
    eraser = ReplicaEraser(watched, replica, delay_s=erase_after_s)
    return Store(config, watched, vectorizer, vectors, indexer, eraser, server)
