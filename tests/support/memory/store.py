"""What tests of memory share: a small deterministic embedder, and a look behind the facade."""

import asyncio
import hashlib
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
from wire.errors import Code

from guest.embedding import hashing
from guest.embedding.backends import Embedded, Embedder
from guest.embedding.hashing import HashingBackend
from guest.errors import EmbedderError
from guest.memory.factory import open_store
from guest.memory.memory import Memory
from guest.memory.models import Origin, RemoteConfig
from tests.support.settings import memory_config

ORIGIN = Origin(actor="user", channel="test", session_id="s1", turn_id="t1")
ALONE = Origin(actor="user", channel="test")
"""Of no session: notes from here have no neighbours, and are none."""

DIMENSIONS = 64

remote_of: Callable[[Path], Awaitable[RemoteConfig]] | None = None
"""Set by tests that run others' tests on a server instead of a file."""


class HashingEmbedder:
    """An `Embedder` in this process: no socket, no model, always ready."""

    def __init__(self) -> None:
        self._backend = HashingBackend()

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        try:
            async with asyncio.timeout(timeout):
                vectors = await asyncio.to_thread(self._backend.encode, texts)
        except TimeoutError:
            raise EmbedderError(
                Code.TIMEOUT, f"the hashing embedder took longer than {timeout:g} s"
            ) from None
        return Embedded(hashing.MODEL_ID, vectors)

    async def state(self) -> str:
        return "ready"

    async def close(self) -> None:
        """Nothing is held."""


class FakeEmbedder:
    """An `Embedder` in which texts are similar by the words they share.

    `aliases` maps words to others with the same meaning, so that a test can
    tell meaning from keywords. Every text embedded is in `texts`.
    """

    def __init__(self, model_id: str = "fake-1", dimensions: int = DIMENSIONS) -> None:
        self.model_id = model_id
        self.dimensions = dimensions
        self.aliases: dict[str, str] = {}
        self.error: Exception | None = None
        self.delay_s = 0.0
        self.refuses: Callable[[str], bool] = lambda _: False
        self.texts: list[str] = []
        self.calls = 0
        self.closed = False

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        self.calls += 1
        if self.delay_s > timeout:
            await asyncio.sleep(timeout)
            raise EmbedderError(Code.TIMEOUT, "the embedder did not answer in time")
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        if any(self.refuses(text) for text in texts):
            raise EmbedderError(Code.INVALID_ARGUMENT, "a text was refused")
        self.texts += texts
        return Embedded(self.model_id, np.stack([self.vector(text) for text in texts]))

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        vector = np.zeros(self.dimensions, np.float32)
        for word in re.findall(r"\w+", text.lower()):
            meaning = self.aliases.get(word, word)
            digest = hashlib.sha256(f"{self.model_id} {meaning}".encode()).digest()
            vector[int.from_bytes(digest[:4], "big") % self.dimensions] += 1
        length = float(np.linalg.norm(vector))
        if not length:
            vector[0] = length = 1.0
        return np.asarray(vector / length, np.float32)

    async def state(self) -> str:
        return "ready" if self.error is None else "away"

    async def close(self) -> None:
        self.closed = True


def away() -> EmbedderError:
    return EmbedderError(Code.UNAVAILABLE, "the embedder cannot be reached")


@asynccontextmanager
async def opened(
    path: Path, embedder: Embedder | None = None, *, erase_after_s: float = 30.0, **settings: Any
) -> AsyncIterator[Memory]:
    """Alice's memory on the database at `path`, closed at the end; on a server, where
    `remote_of` says which."""
    if remote_of is not None:
        settings["remote"] = await remote_of(path)
    config = memory_config(path, **settings)
    store = await open_store(config, embedder, erase_after_s=erase_after_s)
    try:
        yield Memory(store, "alice")
    finally:
        await store.close()


async def until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for a condition; a hang is a failure."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)


async def embedded(memory: Memory, passages: int) -> None:
    """Wait until so many of a user's passages have a vector."""
    async with asyncio.timeout(60):
        while (await memory.statistics()).passages_embedded != passages:
            await asyncio.sleep(0.005)


def rows(path: Path, sql: str, *args: object) -> list[tuple[Any, ...]]:
    """Query a database that no memory has open.

    Never while one has: closing a file drops this process's locks on it, also
    those of the other connection.
    """
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql, args).fetchall()


def file_bytes(path: Path) -> bytes:
    """Every byte of a database: the file, its log and whatever lies beside it.

    Not where other programs use the database too, for the reason `rows` gives.
    """
    return b"".join(p.read_bytes() for p in sorted(path.parent.glob(path.name + "*")))
