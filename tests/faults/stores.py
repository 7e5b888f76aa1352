"""Where the workers' memories lie: in files, and on a server that can be killed."""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from guest.memory.factory import open_file, prepare
from guest.memory.indexing.chunking import passages_of
from guest.memory.models import MemoryConfig, RemoteConfig
from guest.memory.storage.migrations import MIGRATIONS, Migration
from tests.faults.inspection import inspect
from tests.faults.ledger import Found
from tests.security.test_forgetting_pages import unclean
from tests.support.memory.store import FakeEmbedder, rows
from tests.support.scratch import SCRATCH
from tests.support.servers import sqld
from tests.support.settings import memory_config

_PATIENT_S: Final = 30.0
"""No request takes so long on a machine that has other work too."""


class Place(Protocol):
    """One memory: how a guest opens it, and a look at what it holds when no guest has it.
    `migrations` are those of the program that looks."""

    config: MemoryConfig
    migrations: Sequence[Migration]

    def look(self, removed: set[str]) -> Found:
        """What it holds; `removed` are texts of which nothing may be left."""
        ...


class LocalPlace:
    """A file, in a directory of its own, or in one that is there already."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self.migrations: Sequence[Migration] = MIGRATIONS
        self.config = memory_config(directory / "memory.db", embed_wait_s=0.005)

    def look(self, removed: set[str]) -> Found:
        found = asyncio.run(self._look())
        path = Path(self.config.db_path)
        content = b"".join(file.read_bytes() for file in self._directory.glob("memory.db*"))
        left = [f"page {page} holds what nobody has" for page in unclean(path)]
        living = {vector for (vector,) in rows(path, "SELECT vector FROM chunks_vec")}
        for text in removed:
            vector = FakeEmbedder("fake").vector(passages_of(text)[0]).tobytes()
            if text.split(". ")[0].encode() in content:
                left.append(f"removed, and still in the files: {text:.100}")
            elif vector in content and vector not in living:
                left.append(f"removed, and its vector is in the files: {text:.100}")
        return replace(found, half_made=(*found.half_made, *left))

    async def _look(self) -> Found:
        database = await open_file(self.config, self.migrations)
        try:
            return await inspect(database)
        finally:
            await database.close()


class RemotePlace:
    """A server, on new data or on what is in `directory`. `way` turns its address into the one
    that the guest uses, as of a proxy."""

    def __init__(self, directory: Path, way: Callable[[str], str], timeout_s: float) -> None:
        directory.mkdir(exist_ok=True)
        self.migrations: Sequence[Migration] = MIGRATIONS
        self.server = sqld.Sqld(directory / "data")
        self.server.start()
        self.config = memory_config(
            directory / "memory.db",
            embed_wait_s=0.005,
            remote=RemoteConfig(way(self.server.url()), timeout_s=timeout_s, one_user=True),
        )

    def look(self, removed: set[str]) -> Found:
        """On a server the bytes are out of reach."""
        return asyncio.run(self._look())

    async def _look(self) -> Found:
        async with sqld.connected(self.server.url()) as database:
            await prepare(database, self.migrations)
            return await inspect(database)


class Stores:
    """Makes one place after the other; the one before has had its time then."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self._numbers = itertools.count()
        self._server: sqld.Sqld | None = None

    def place(
        self,
        way: Callable[[str], str] = str,
        timeout_s: float = _PATIENT_S,
        *,
        like: Path | None = None,
    ) -> LocalPlace | RemotePlace:
        """A new place: empty, or with what `left` has returned."""
        directory = self._directory / f"place{next(self._numbers)}"
        if like is not None:
            shutil.copytree(like, directory)
        if self._kind == "local":
            return LocalPlace(directory)
        self.close()
        place = RemotePlace(directory, way, timeout_s)
        self._server = place.server
        return place

    def left(self, place: Place) -> Path:
        """The files of a place that nobody uses any more."""
        if self._server is not None:
            self._server.stop()
        return Path(place.config.db_path).parent

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()


@contextmanager
def opened(kind: str) -> Iterator[Stores]:
    """Stores of one kind, gone at the end."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="faults-") as scratch:
        stores = Stores(kind, Path(scratch))
        try:
            yield stores
        finally:
            stores.close()
