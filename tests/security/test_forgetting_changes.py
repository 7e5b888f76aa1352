"""Whatever has come and gone in a memory: of what was forgotten no byte is left."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from guest.embedding.backends import Embedder
from guest.memory.memory import Memory
from guest.memory.models import NoteNotFound, SessionNotFound
from guest.memory.storage.base import Result, Statement
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.scrubbing import page_gap
from tests.support.memory.forgetting import (
    KEY,
    PART,
    DenseEmbedder,
    Writer,
    bytes_of,
    parts_of,
    say,
)
from tests.support.memory.store import ORIGIN, file_bytes, opened, rows

COMMON = [chr(code) for code in range(0x4E00, 0x4E00 + 300)]
UNCOMMON = [chr(code) for code in range(0x7000, 0x9000) if code % 64]
"""Characters of which each occurs in one note only. None ends with the byte 0x80, as numbers of an
index do."""
VISIBLE = 0.9
"""So many of the living marks must be seen: a long text goes over several pages, and a mark at the
end of one is cut in two."""

Marks = set[bytes]


class Notes:
    """What comes and goes, and the marks by which it is recognised in a file.

    `part` leading bytes count as a mark. `made` and `changed` are the shares of such steps among
    `steps`. Where `versions` hold what was changed, it goes with the note and not before.
    """

    steps, made, changed = 500, 0.6, 0.2
    part = 4
    versions = True
    key = ""
    embedder: Embedder | None = None
    index, terms = "chunks_fts", "chunks_terms"

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._writer = Writer(chance)

    def text(self) -> tuple[str, Marks]:
        text, secrets = self._writer.text()
        return text, {secret.encode() for secret in secrets}

    async def marks(self, memory: Memory, name: str, written: Marks) -> Marks:
        return written

    async def make(self, memory: Memory) -> tuple[str, Marks]:
        text, written = self.text()
        note_id = (await memory.save(text, [], ORIGIN)).note.note_id
        return note_id, await self.marks(memory, note_id, written)

    async def change(self, memory: Memory, name: str) -> Marks:
        text, written = self.text()
        await memory.update(name, text, None, ORIGIN)
        return await self.marks(memory, name, written)

    async def forget(self, memory: Memory, name: str) -> None:
        await memory.delete(name)

    async def get(self, memory: Memory, name: str) -> object:
        return await memory.notes.get(name)


class EncryptedNotes(Notes):
    steps = 150
    key = KEY


class Characters(Notes):
    """Notes in a script whose words are not apart."""

    steps = 400
    part = len(UNCOMMON[0].encode())

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._unused = iter(UNCOMMON)

    def text(self) -> tuple[str, Marks]:
        secrets = [next(self._unused) for _ in range(6)]
        characters = self.chance.choices(COMMON, k=self.chance.choice([4, 40, 300]))
        for secret in secrets:
            characters.insert(self.chance.randrange(len(characters)), secret)
        return "".join(characters), {secret.encode() for secret in secrets}


class Vectors(Notes):
    """The vectors of notes, which tell their subject. Two numbers in a row are a mark."""

    steps = 150
    part = PART
    versions = False

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.embedder = DenseEmbedder()

    async def marks(self, memory: Memory, name: str, written: Marks) -> Marks:
        found = await memory.store.database.execute(
            "SELECT vector FROM chunks_vec JOIN chunks USING (chunk_id) WHERE note_id = ?", (name,)
        )
        return parts_of(found.rows)


class EncryptedVectors(Vectors):
    steps = 100
    key = KEY


class Sessions(Notes):
    """Sessions, and what is said in them."""

    steps, made, changed = 400, 0.15, 0.77
    index, terms = "conversation_fts", "conversation_terms"

    async def make(self, memory: Memory) -> tuple[str, Marks]:
        title = min(self.text()[1])
        name = f"s{self.chance.random()}"
        await memory.conversations.create(name, title.decode())
        return name, {title}

    async def change(self, memory: Memory, name: str) -> Marks:
        text, written = self.text()
        await say(memory, name, text, self.chance.choice(["user", "assistant"]))
        return written

    async def forget(self, memory: Memory, name: str) -> None:
        await memory.sessions.forget(name)

    async def get(self, memory: Memory, name: str) -> object:
        return await memory.conversations.get(name)


EVERY_KIND = [
    *[Notes] * 3,
    EncryptedNotes,
    Characters,
    Vectors,
    EncryptedVectors,
    *[Sessions] * 2,
]
BOTH = pytest.mark.parametrize("kind", [Notes, Sessions])


async def separators_of_dead_terms(memory: Memory, kind: Notes) -> list[bytes]:
    """What stands between the pages of the index and begins no living term."""
    database = memory.store.database
    terms = await database.execute(f"SELECT term FROM {kind.terms}")
    living = [str(term).encode() for (term,) in terms.rows]
    index = await database.execute(f"SELECT term AS vector FROM {kind.index}_idx")
    separators = [term[1:] for (term,) in index.rows if isinstance(term, bytes)]
    assert len(separators) > 1, "the test would see nothing"
    return [each for each in separators if not any(term.startswith(each) for term in living)]


def left_in_gaps(content: bytes) -> int:
    """The bytes in the unused space of pages that are not zero."""
    pages = [content[at : at + 4096] for at in range(4096, len(content), 4096)]
    gaps = [page[slice(*page_gap(2, page))] for page in pages]
    assert sum(map(len, gaps)) > 10_000, "the test would see nothing"
    return sum(len(gap) - gap.count(0) for gap in gaps)


@pytest.mark.parametrize("make_kind", EVERY_KIND)
async def test_nothing_is_left_after_many_changes(
    path: Path, chance: random.Random, make_kind: type[Notes]
) -> None:
    """Rows move between pages while others come and go; their old copies go too."""
    kind = make_kind(chance)
    alive: dict[str, Marks] = {}
    dead: Marks = set()
    async with opened(path, kind.embedder, encryption_key=kind.key) as memory:

        async def forget_one() -> None:
            name = chance.choice(list(alive))
            await kind.forget(memory, name)
            dead.update(alive.pop(name))

        for _ in range(kind.steps):
            action = chance.random()
            if action < kind.made or not alive:
                name, alive[name] = await kind.make(memory)
            elif action < kind.made + kind.changed:
                name = chance.choice(list(alive))
                if not kind.versions:
                    dead.update(alive.pop(name))
                    alive[name] = set()
                alive[name] |= await kind.change(memory, name)
            else:
                await forget_one()
        await forget_one()
        content = await bytes_of(memory, path, kind.key)
        living = set().union(*alive.values())
        seen = sum(mark in content for mark in living)
        assert seen > VISIBLE * len(living), "the test would see nothing"
        together = b" ".join(living)
        gone = {mark[: kind.part] for mark in dead if mark[: kind.part] not in together}
        assert len(gone) > 50, "the test would see nothing"
        assert [mark for mark in gone if mark in content] == []
        assert await separators_of_dead_terms(memory, kind) == []
        check = f"INSERT INTO {kind.index} ({kind.index}, rank) VALUES ('integrity-check', 1)"
        await memory.store.database.execute(check)
        if kind.key:
            assert left_in_gaps(content) < 8, "more than a pointer of the last row of `erasures`"
    if not kind.key:
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def one(memory: Memory, kind: Notes) -> tuple[str, Marks]:
    """One that is made and changed."""
    name, marks = await kind.make(memory)
    return name, marks | await kind.change(memory, name)


@BOTH
async def test_an_interrupted_erasure_is_finished_at_the_next_start(
    path: Path, chance: random.Random, kind: type[Notes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: LocalDatabase) -> None:
        raise OSError("cut off")

    kept = kind(chance)
    async with opened(path) as memory:
        stays, living = await one(memory, kept)
        name, marks = await one(memory, kept)
        with monkeypatch.context() as patched:
            patched.setattr(LocalDatabase, "checkpoint", fail)
            with pytest.raises(OSError, match="cut off"):
                await kept.forget(memory, name)
        with pytest.raises((NoteNotFound, SessionNotFound)):
            await kept.get(memory, name)
    async with opened(path) as memory:
        content = await bytes_of(memory, path, "")
        assert [mark for mark in marks if mark in content] == []
        assert all(mark in content for mark in living)
        assert (await memory.store.database.execute("SELECT * FROM erasures")).rows == ()
        await kept.get(memory, stays)


@BOTH
async def test_a_cancelled_caller_does_not_stop_the_forgetting(
    path: Path, chance: random.Random, kind: type[Notes], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    batch = LocalDatabase.batch

    async def noticed(self: LocalDatabase, statements: Sequence[Statement]) -> list[Result]:
        begun.set()
        return await batch(self, statements)

    async with opened(path) as memory:
        name, marks = await one(memory, kind(chance))
        monkeypatch.setattr(LocalDatabase, "batch", noticed)
        task = asyncio.create_task(kind(chance).forget(memory, name))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    content = file_bytes(path)
    assert [mark for mark in marks if mark in content] == []
    assert rows(path, "SELECT COUNT(*) FROM erasures") == [(0,)]
