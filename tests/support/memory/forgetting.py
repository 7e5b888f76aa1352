"""What tests of forgetting share: texts with secrets in them, and every byte of a memory."""

import hashlib
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from guest.memory.memory import Memory
from guest.memory.storage.base import Row
from guest.memory.storage.local import connect_apart
from tests.support.memory.store import FakeEmbedder, file_bytes

KEY = "a key that only the tests know"
RARE = "jqxzvwky"
"""Secrets begin with four letters that nothing else in a file has in such a row."""
PART = 8
"""So many bytes of a vector, two of its numbers, count as a part of it."""


class Writer:
    """Makes texts out of common words, with secrets in them that occur nowhere else."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._common = [self._word(3) for _ in range(400)]

    def _word(self, syllables: int) -> str:
        return "".join(
            self._chance.choice("bcdfghklmnprtvz") + self._chance.choice("aou")
            for _ in range(syllables)
        )

    def text(self) -> tuple[str, list[str]]:
        secrets = [f"{''.join(self._chance.choices(RARE, k=4))}{self._word(6)}" for _ in range(3)]
        words = self._chance.choices(self._common, k=self._chance.choice([4, 20, 80, 200, 900]))
        for secret in secrets:
            words.insert(self._chance.randrange(len(words)), secret)
        return " ".join(words), secrets


class DenseEmbedder(FakeEmbedder):
    """No two numbers in a row are in the vectors of two texts."""

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).standard_normal(self.dimensions)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


def parts_of(rows: Sequence[Row]) -> set[bytes]:
    """The parts of the vectors in these rows."""
    vectors = [cast(bytes, row[0]) for row in rows]
    return {vector[at : at + PART] for vector in vectors for at in range(0, len(vector), PART)}


async def say(memory: Memory, session_id: str, text: str, role: str = "user") -> None:
    """Append to a conversation, with the text in its payload too."""
    await memory.conversations.append(
        session_id, turn_id="t1", role=role, text=text, payload=f'["{text}"]'
    )


async def bytes_of(memory: Memory, path: Path, key: str) -> bytes:
    """Every byte of a database in use: in the clear, or decrypted with `key`."""
    return await _decrypted(memory, path, key) if key else file_bytes(path)


async def _decrypted(memory: Memory, path: Path, key: str) -> bytes:
    """Every page, with what is in its log, and of the copies beside it."""
    await memory.store.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.with_name("memory.db-wal").stat().st_size == 0
    content = b""
    for file in sorted(path.parent.glob("memory.db*")):
        if file.name.endswith(("-wal", "-shm", ".lock", ".scrubbed")):
            continue
        copy = shutil.copyfile(file, path.parent / "copy")
        connection = connect_apart(copy, key)
        pages = connection.execute("SELECT data FROM sqlite_dbpage").fetchall()
        content += b"".join(page for (page,) in pages)
        connection.close()
    return content
