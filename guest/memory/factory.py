"""Opens a memory: on a local file, or on a server with a searchable copy here."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from wire.errors import Code

from guest.embedding.backends import Embedded, Embedder
from guest.errors import StorageError
from guest.memory import models
from guest.memory.conversations.store import Conversations
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.indexer import Indexer
from guest.memory.models import Hit, MemoryConfig, Only, RemoteConfig, SearchOutcome, Statistics
from guest.memory.notes.statistics import statistics
from guest.memory.replica import triggers
from guest.memory.replica.erasure import ReplicaEraser
from guest.memory.replica.outbox import Outbox
from guest.memory.replica.replica import Replica
from guest.memory.replica.search import ReplicaSearch
from guest.memory.search.engine import Search
from guest.memory.search.vector_store import VectorStore
from guest.memory.storage import copies
from guest.memory.storage.availability import WatchedDatabase, is_away
from guest.memory.storage.base import Database
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, Migration, found_version, migrate

if TYPE_CHECKING:
    from guest.memory.storage.remote import RemoteDatabase

log = logging.getLogger(__name__)


async def open_store(
    config: MemoryConfig, migrations: Sequence[Migration] = MIGRATIONS
) -> Database:
    """The file that holds the memory, with the schema that `migrations` give it.

    Before a file's schema is changed, a copy is made beside it. Finishes the erasure of
    what was deleted before.

    Raises:
        StorageError: It cannot be opened, copied or migrated; its schema is unchanged.
    """
    async with AsyncExitStack() as stack:
        database = await LocalDatabase.open(Path(config.db_path), config.encryption_key)
        stack.push_async_callback(database.close)
        await _keep_copy(database, migrations)
        await migrate(database, migrations)
        await Eraser(database).finish()
        stack.pop_all()
    return database


async def open_remote(config: RemoteConfig) -> "RemoteDatabase":
    """A database on a server, which may be away. Raises `StorageError`.

    The client is imported here only: it takes time and memory, and few need it.
    """
    try:
        from guest.memory.storage.remote import RemoteDatabase
    except ImportError as error:
        raise StorageError(
            Code.FAILED_PRECONDITION,
            "the client for a memory on a server is not installed",
            details=str(error),
            resolution="pip install aiohttp && pip install --no-deps libsql-client==0.3.1",
        ) from None
    return await RemoteDatabase.open(config)


async def _keep_copy(database: LocalDatabase, migrations: Sequence[Migration]) -> None:
    """Copy a file that is about to be migrated, named after the first step to come."""
    copies.drop_surplus(database.path)
    version = await found_version(database)
    if 0 < version < migrations[-1].version:
        copy = copies.before_migration(database.path, version + 1)
        log.info("the memory database is copied to %s before its schema changes", copy)
        await database.copy_to(copy)
        copies.drop_surplus(database.path)


_REPLICA: Final = "replica.db"
_CATCH_UP_S: Final = 1.0


class Finder(Protocol):
    """`guest.memory.search.engine.Search`, or what stands in for it."""

    async def search(
        self,
        user_id: str,
        query: str,
        top_k: int,
        tags: Sequence[str],
        include_conversation: bool,
        only: Only,
    ) -> SearchOutcome: ...

    async def similar(
        self, user_id: str, note_id: str, embedded: Embedded, session_id: str = ""
    ) -> tuple[Hit, ...]: ...


@dataclass(frozen=True)
class ServerParts:
    """What only a memory on a server has."""

    watched: WatchedDatabase
    remote: "RemoteDatabase"
    replica: Replica
    outbox: Outbox

    async def statistics(self, user_id: str, model_id: str) -> Statistics:
        """Counts for one user: of the copy, where the server is away."""
        try:
            counts = await statistics(self.watched, user_id, model_id)
        except StorageError as error:
            if not is_away(error):
                raise
            counts = await statistics(self.replica.database, user_id, model_id)
        return replace(
            counts,
            store="remote",
            state=self.state,
            replica_synced_at=self.replica.progress(models.notes_of(user_id)).synced_at,
        )

    @property
    def state(self) -> str:
        return "ready" if self.watched.problem is None else self.watched.problem.brief


@dataclass(frozen=True)
class Parts:
    """An open memory. `database` is the one that everything is written to."""

    database: Database
    vectorizer: Vectorizer
    vectors: VectorStore
    indexer: Indexer
    search: Finder
    eraser: Eraser
    conversations: Conversations
    server: ServerParts | None = None

    @property
    def state(self) -> str:
        """ "ready", or what is wrong with the store."""
        return "ready" if self.server is None else self.server.state

    async def statistics(self, user_id: str) -> Statistics:
        """Counts for one user."""
        if self.server is not None:
            return await self.server.statistics(user_id, self.vectorizer.model_id)
        return await statistics(self.database, user_id, self.vectorizer.model_id)

    async def set_token(self, auth_token: str) -> None:
        """See `Memory.set_token`."""
        if self.server is None:
            raise StorageError(
                Code.FAILED_PRECONDITION,
                "this memory is a local file and has no token",
                resolution="a token belongs to memory.remote_url in runner.toml",
            )
        await self.server.remote.set_token(auth_token)

    @property
    def following(self) -> "asyncio.Task[None] | None":
        """The copying of what was written to a server so far; None where all is copied."""
        return None if self.server is None else self.server.replica.following

    async def caught_up(self, following: "asyncio.Task[None] | None") -> None:
        """Wait for what `following` has given, though not for long."""
        if following is not None:
            await asyncio.wait({following}, timeout=_CATCH_UP_S)

    async def close(self) -> None:
        """Release everything. Idempotent."""
        await self.indexer.stop()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.database.close)
            if self.server is not None:
                stack.push_async_callback(self.server.replica.close)
                stack.push_async_callback(self.server.outbox.close)


async def open_parts(config: MemoryConfig, embedder: Embedder | None, user_id: str = "") -> Parts:
    """Open the store that `config` names.

    A server need not be there. With `user_id`, what that user has on it begins to be
    copied, and nobody else's passages are given vectors. Raises `StorageError`.
    """
    vectorizer = Vectorizer(embedder)
    if config.remote is not None:
        parts = await _on_server(config, config.remote, vectorizer, user_id)
    else:
        parts = _on_file(config, await open_store(config), vectorizer)
    if embedder is not None:
        parts.indexer.start()
    return parts


async def prepare(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Give a server's database the schema of `migrations`, and finish its erasures."""
    await migrate(database, migrations)
    await triggers.count(database)
    await Eraser(database).finish()


def _on_file(config: MemoryConfig, database: Database, vectorizer: Vectorizer) -> Parts:
    vectors = VectorStore(database)
    indexer = Indexer(database, vectors, vectorizer)
    return Parts(
        database=database,
        vectorizer=vectorizer,
        vectors=vectors,
        indexer=indexer,
        search=Search(database, vectors, vectorizer, config),
        eraser=Eraser(database),
        conversations=Conversations(database, vectors, indexer),
    )


async def _on_server(
    config: MemoryConfig, where: RemoteConfig, vectorizer: Vectorizer, user_id: str
) -> Parts:
    async with AsyncExitStack() as stack:
        remote = await open_remote(where)
        stack.push_async_callback(remote.close)
        watched = WatchedDatabase(remote, prepare)
        stack.push_async_callback(watched.close)
        path = Path(config.db_path).with_name(_REPLICA)
        replica = await Replica.open(path, config.encryption_key, where.url, watched)
        stack.push_async_callback(replica.close)
        vectors = VectorStore(watched)
        own = (models.notes_of(user_id), models.conversations_of(user_id)) if user_id else ()
        indexer = Indexer(watched, vectors, vectorizer, namespaces=own)
        outbox = Outbox(watched, vectors, indexer)
        watched.on_return = partial(_returned, replica, outbox, indexer)
        vectors.on_change = lambda namespace: replica.changed([namespace])
        replica.changed(own)
        await watched.start()
        stack.pop_all()
    return Parts(
        database=watched,
        vectorizer=vectorizer,
        vectors=vectors,
        indexer=indexer,
        search=ReplicaSearch(replica, watched, vectorizer, config),
        eraser=ReplicaEraser(watched, replica),
        conversations=outbox,
        server=ServerParts(watched, remote, replica, outbox),
    )


def _returned(replica: Replica, outbox: Outbox, indexer: Indexer) -> None:
    replica.returned()
    outbox.returned()
    indexer.retry()
