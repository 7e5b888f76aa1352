"""After a deletion, no file has a part of the vectors of what is gone: they tell its subject."""

import hashlib
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from guest.memory.memory import Memory
from guest.memory.models import Details
from guest.memory.storage.base import Row
from tests.security.test_forgetting import Writer
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened

PART = 8
"""So many bytes of a vector, two of its numbers, count as a part of it."""


class DenseEmbedder(FakeEmbedder):
    """No two numbers in a row are in the vectors of two texts."""

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).standard_normal(self.dimensions)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


async def parts(memory: Memory, note_id: str) -> set[bytes]:
    """The parts of all vectors of a note."""
    found = await memory.store.database.execute(
        "SELECT vector FROM chunks_vec JOIN chunks USING (chunk_id) WHERE note_id = ?", (note_id,)
    )
    return cut(found.rows)


def cut(rows: Sequence[Row]) -> set[bytes]:
    """The parts of the vectors in these rows."""
    vectors = [cast(bytes, row[0]) for row in rows]
    return {
        vector[start : start + PART] for vector in vectors for start in range(0, len(vector), PART)
    }


def in_files(directory: Path, wanted: set[bytes]) -> set[bytes]:
    """Which of these parts are in any file."""
    content = [path.read_bytes() for path in directory.iterdir() if path.is_file()]
    return {part for part in wanted if any(part in file for file in content)}


async def test_no_file_has_a_part_of_a_deleted_notes_vectors(
    path: Path, chance: random.Random
) -> None:
    writer = Writer(chance)
    alive: dict[str, set[bytes]] = {}
    dead: set[bytes] = set()
    async with opened(path, DenseEmbedder()) as memory:
        for _ in range(150):
            action = chance.random()
            if action < 0.6 or not alive:
                note_id = (await memory.save(writer.text()[0], [], ORIGIN)).note.note_id
            elif action < 0.8:
                note_id = chance.choice(list(alive))
                dead |= alive[note_id]
                await memory.update(note_id, writer.text()[0], None, ORIGIN)
            else:
                note_id = chance.choice(list(alive))
                dead |= alive.pop(note_id)
                await memory.delete(note_id)
                continue
            alive[note_id] = await parts(memory, note_id)
        note_id = chance.choice(list(alive))
        dead |= alive.pop(note_id)
        await memory.delete(note_id)
        living = set().union(*alive.values())
        assert in_files(path.parent, living) == living, "the test would see nothing"
        assert len(dead) > 500, "the test would see nothing"
        assert in_files(path.parent, dead) == set()


async def test_no_file_has_a_part_of_a_forgotten_sessions_vectors(path: Path) -> None:
    """Neither of its turns nor of the notes that only it sees."""
    vectors = (
        "SELECT vector FROM chunks_vec JOIN chunks USING (chunk_id) "
        "LEFT JOIN notes USING (note_id) WHERE ? IN (chunks.session_id, scope_session)"
    )
    async with opened(path, DenseEmbedder()) as memory:
        for session_id in ("s1", "s2"):
            await memory.conversations.create(session_id)
            await memory.search("anything", include_conversation=True)
            for number in range(10):
                await memory.conversations.append(
                    session_id,
                    turn_id="t",
                    role="user",
                    text=f"{session_id} {number}",
                    payload="[]",
                )
            details = Details(scope_session=session_id)
            await memory.save(f"a note of {session_id}", [], ORIGIN, details)
        await embedded(memory, 22)
        of_session = {}
        for session_id in ("s1", "s2"):
            found = await memory.store.database.execute(vectors, (session_id,))
            assert len(found.rows) == 11
            of_session[session_id] = cut(found.rows)
        await memory.search("anything", include_conversation=True)
        await memory.sessions.forget("s1")
        assert in_files(path.parent, of_session["s1"]) == set()
        living = of_session["s2"]
        assert in_files(path.parent, living) == living


@pytest.mark.parametrize("key", ["", "a key that only the tests know"])
async def test_files_of_vectors_of_an_earlier_version_are_overwritten_and_removed(
    path: Path, key: str
) -> None:
    """What has such a name and is no plain file is neither waited for nor touched."""
    other = path.with_name("other")
    other.write_bytes(b"untouched")
    link, pipe, directory = (path.with_name(f"{path.name}.vectors-{kind}") for kind in "lpd")
    link.symlink_to(other)
    os.mkfifo(pipe)
    directory.mkdir()
    old = [path.with_name(f"{path.name}.vectors-0123{copy}") for copy in ("", "-copy")]
    for file in old:
        file.write_bytes(b"numbers")
    with old[0].open("rb") as still_open:
        async with opened(path, encryption_key=key):
            assert [file for file in old if file.exists()] == []
        assert still_open.read() == bytes(len(b"numbers"))
    assert other.read_bytes() == b"untouched"
