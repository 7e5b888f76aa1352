"""Opens a memory: on a local file, or on a server with a searchable copy here."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from wire.errors import Code

from guest.embedding.backends import Embedded, Embedder
from guest.errors import StorageError
from guest.memory.conversations.sessions import InUse
from guest.memory.conversations.store import Conversations
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.indexer import Indexer
from guest.memory.models import (
    Hit,
    MemoryConfig,
    Only,
    RemoteConfig,
    SearchOutcome,
    Statistics,
    User,
)
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
from guest.memory.storage.changes import Unbroken
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, Migration, found_version, migrate

if TYPE_CHECKING:
    from guest.memory.storage.remote import RemoteDatabase

log = logging.getLogger(__name__)


async def open_file(config: MemoryConfig, migrations: Sequence[Migration] = MIGRATIONS) -> Database:
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
            resolution=f"{sys.executable} -m pip install 'oxydra[remote]'",
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


class Finder(Protocol):
    """`guest.memory.search.engine.Search`, or what stands in for it."""

    async def search(
        self,
        query: str,
        top_k: int,
        tags: Sequence[str],
        include_conversation: bool,
        only: Only,
    ) -> SearchOutcome: ...

    async def similar(
        self, note_id: str, embedded: Embedded, session_id: str = ""
    ) -> tuple[Hit, ...]: ...


@dataclass(frozen=True)
class Server:
    """What only a store on a server has."""

    watched: WatchedDatabase
    remote: "RemoteDatabase"
    replica: Replica
    outboxes: list[Outbox] = field(default_factory=list)

    async def statistics(self, user: User, model_id: str) -> Statistics:
        """Counts for one user: of the copy, where the server is away."""
        try:
            counts = await statistics(self.watched, user, model_id)
        except StorageError as error:
            if not is_away(error):
                raise
            counts = await statistics(self.replica.database, user, model_id)
        return replace(
            counts,
            store="remote",
            state=self.state,
            replica_synced_at=self.replica.progress(user.notes).synced_at,
        )

    @property
    def state(self) -> str:
        return "ready" if self.watched.problem is None else self.watched.problem.brief

    def returned(self, indexer: Indexer) -> None:
        """The server is there again: go on with what has waited for it."""
        self.replica.returned()
        for outbox in self.outboxes:
            outbox.returned()
        indexer.retry()


@dataclass(frozen=True)
class Store:
    """An open store, on which the memories of several users may lie, each a `Memory`.

    `database` is the one that everything is written to.
    """

    config: MemoryConfig
    database: Database
    vectorizer: Vectorizer
    vectors: VectorStore
    indexer: Indexer
    eraser: Eraser
    server: Server | None = None
    deletions: Unbroken = field(default_factory=Unbroken)
    in_use: InUse = field(default_factory=InUse)

    def search(self, user: User) -> Finder:
        """What searches the memory of one user."""
        if self.server is not None:
            replica, watched = self.server.replica, self.server.watched
            return ReplicaSearch(replica, watched, self.vectorizer, self.config, user)
        return Search(self.database, self.vectors, self.vectorizer, self.config, user)

    def conversations(self, user: User) -> Conversations:
        """What keeps the conversations of one user."""
        if self.server is None:
            return Conversations(self.database, self.vectors, self.indexer, user)
        outbox = Outbox(self.database, self.vectors, self.indexer, user)
        self.server.outboxes.append(outbox)
        return outbox

    def serve(self, user: User) -> None:
        """From a server, begin to copy what this user has there, and give vectors to their
        passages; those of users that are not served here are others' work."""
        if self.server is not None:
            self.indexer.include(user.namespaces)
            self.server.replica.changed(user.namespaces)

    @property
    def state(self) -> str:
        """ "ready", or what is wrong with the store."""
        return "ready" if self.server is None else self.server.state

    async def statistics(self, user: User) -> Statistics:
        """Counts for one user."""
        if self.server is not None:
            return await self.server.statistics(user, self.vectorizer.model_id)
        return await statistics(self.database, user, self.vectorizer.model_id)

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
            await asyncio.wait({following}, timeout=self.config.patience.own_writes_s)

    async def close(self) -> None:
        """Let running changes finish, and release everything. Idempotent."""
        await self.indexer.stop()
        await self.deletions.finish()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.database.close)
            if self.server is not None:
                stack.push_async_callback(self.server.replica.close)
                for outbox in self.server.outboxes:
                    stack.push_async_callback(outbox.close)


async def open_store(config: MemoryConfig, embedder: Embedder | None) -> Store:
    """Open the store that `config` names, and start its indexer.

    A server need not be there. Raises `StorageError`.
    """
    vectorizer = Vectorizer(embedder)
    if config.remote is not None:
        store = await _on_server(config, config.remote, vectorizer)
    else:
        store = _on_file(config, await open_file(config), vectorizer)
    if embedder is not None:
        store.indexer.start()
    return store


async def prepare(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Give a server's database the schema of `migrations`, and finish its erasures."""
    await migrate(database, migrations)
    await triggers.count(database)
    await Eraser(database).finish()


def _on_file(config: MemoryConfig, database: Database, vectorizer: Vectorizer) -> Store:
    vectors = VectorStore(database)
    indexer = Indexer(database, vectors, vectorizer)
    return Store(config, database, vectorizer, vectors, indexer, Eraser(database))


async def _on_server(config: MemoryConfig, where: RemoteConfig, vectorizer: Vectorizer) -> Store:
    async with AsyncExitStack() as stack:
        remote = await open_remote(where)
        stack.push_async_callback(remote.close)
        watched = WatchedDatabase(remote, prepare, start_wait_s=config.patience.server_s)
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
    eraser = ReplicaEraser(watched, replica)
    return Store(config, watched, vectorizer, vectors, indexer, eraser, server)
