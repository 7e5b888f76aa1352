"""After a deletion no byte of the text is left in the database file or its log."""

import asyncio
import random
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import NoteNotFound
from guest.memory.storage.local import LocalDatabase
from tests.support.memory.store import ORIGIN, FakeEmbedder, file_bytes, opened, rows

ALICE = "alice"
PREFIX = 4
"""So many leading characters of a secret count as a part of it."""
RARE = "jqxzvwky"
"""Secrets begin with letters that nothing else in a file has in such a row."""


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
        secrets = [
            f"{''.join(self._chance.choices(RARE, k=PREFIX))}{self._word(6)}" for _ in range(3)
        ]
        words = self._chance.choices(self._common, k=self._chance.choice([4, 20, 80, 200, 900]))
        for secret in secrets:
            words.insert(self._chance.randrange(len(words)), secret)
        return " ".join(words), secrets


def left_over(path: Path, secrets: list[str], alive: list[str]) -> list[str]:
    """Those of `secrets` of which a recognisable part is still in the files."""
    living = " ".join(alive)
    content = file_bytes(path)
    return [
        secret
        for secret in secrets
        if secret[:PREFIX] not in living and secret[:PREFIX].encode() in content
    ]


def visible(content: bytes, secrets: Collection[str]) -> bool:
    """Whether the bytes show what is stored. A long text goes over several pages, and a secret
    at the end of one is cut in two."""
    return sum(secret.encode() in content for secret in secrets) > 0.9 * len(secrets)


async def all_terms(memory: Memory) -> set[str]:
    result = await memory.store.database.execute("SELECT term FROM chunks_terms")
    return {str(row[0]) for row in result.rows}


async def separators_of_dead_terms(memory: Memory) -> list[bytes]:
    """What stands between the pages of the index and begins no living term."""
    result = await memory.store.database.execute("SELECT term FROM chunks_fts_idx")
    living = [term.encode() for term in await all_terms(memory)]
    separators = [term[1:] for (term,) in result.rows if isinstance(term, bytes)]
    assert len(separators) > 1, "the test would see nothing"
    return [s for s in separators if not any(term.startswith(s) for term in living)]


async def test_note_versions_index_and_log_hold_nothing_of_a_deleted_note(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        await memory.save("the garden needs water", [], ORIGIN)
        note = (await memory.save("code word quixotry", ["tagquark"], ORIGIN)).note
        await memory.update(note.note_id, "code word zephyrine", None, ORIGIN)
        await memory.update(note.note_id, "code word byzantium", None, ORIGIN)
        # the receipts of the session's turn keep the id, and nothing that the note said
        words = [b"quixotry", b"zephyrin", b"byzantium", b"tagquark"]
        before = file_bytes(path)
        assert all(word in before for word in words), "the test would see nothing"
        await memory.delete(note.note_id)
        after = file_bytes(path)
        assert [word for word in words if word in after] == []
        assert b"garden" in after
        assert (await memory.search("water")).results


@pytest.mark.parametrize("number", range(3))
async def test_nothing_is_left_after_many_changes(
    path: Path, number: int, chance: random.Random
) -> None:
    """Rows move between pages while notes come and go; their old copies go too."""
    writer = Writer(chance)
    alive: dict[str, list[str]] = {}
    dead: list[str] = []
    async with opened(path) as memory:
        for _ in range(500):
            text, secrets = writer.text()
            action = chance.random()
            if action < 0.6 or not alive:
                note = (await memory.save(text, [], ORIGIN)).note
                alive[note.note_id] = secrets
            elif action < 0.8:
                note_id = chance.choice(list(alive))
                await memory.update(note_id, text, None, ORIGIN)
                alive[note_id] += secrets
            else:
                note_id = chance.choice(list(alive))
                await memory.delete(note_id)
                dead += alive.pop(note_id)
        living = [secret for secrets in alive.values() for secret in secrets]
        content = file_bytes(path)
        assert visible(content, living), "the test would see nothing"
        note_id = chance.choice(list(alive))
        await memory.delete(note_id)
        dead += alive.pop(note_id)
        living = [secret for secrets in alive.values() for secret in secrets]
        assert left_over(path, dead, living) == []
        assert await separators_of_dead_terms(memory) == []
        index = "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"
        await memory.store.database.execute(index)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert len(dead) > 100


async def test_an_interrupted_erasure_is_finished_at_the_next_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as memory:
        await memory.save("kept", [], ORIGIN)
        note = (await memory.save("code word quixotry", [], ORIGIN)).note
        with monkeypatch.context() as patched:
            patched.setattr(LocalDatabase, "checkpoint", _fail_to_checkpoint)
            with pytest.raises(OSError, match="cut off"):
                await memory.delete(note.note_id)
        with pytest.raises(NoteNotFound):
            await memory.get(note.note_id)
    async with opened(path) as memory:
        assert b"quixotry" not in file_bytes(path)
        assert (await memory.store.database.execute("SELECT * FROM erasures")).rows == ()
        assert (await memory.search("kept")).results


async def _fail_to_checkpoint(_: LocalDatabase) -> None:
    raise OSError("cut off")


async def test_a_cancelled_deletion_still_erases(path: Path) -> None:
    async with opened(path) as memory:
        note = (await memory.save("code word quixotry", [], ORIGIN)).note
        task = asyncio.create_task(memory.delete(note.note_id))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert b"quixotry" not in file_bytes(path)
    assert rows(path, "SELECT COUNT(*) FROM erasures") == [(0,)]


async def test_what_was_never_saved_is_nowhere(path: Path) -> None:
    """A refused duplicate is rolled back, and its text is in no file twice."""
    async with opened(path) as memory:
        await memory.save("code word quixotry", [], ORIGIN)
        assert not (await memory.save("code word quixotry", ["tagquark"], ORIGIN)).created
        assert b"tagquark" not in file_bytes(path)


async def test_other_users_notes_are_untouched(path: Path) -> None:
    async with opened(path) as memory:
        mine = (await memory.save("shared words quixotry", [], ORIGIN)).note
        await Memory(memory.store, "bob").save("shared words quixotry", [], ORIGIN)
        await memory.delete(mine.note_id)
        assert (await Memory(memory.store, "bob").search("quixotry")).results
        assert not (await memory.search("quixotry")).results
        content = file_bytes(path)
        assert len(re.findall(b"shared words quixotry", content)) == 2  # note and passage


async def test_the_index_holds_no_word_that_only_a_deleted_note_had(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("green tea", [], ORIGIN)
        note = (await memory.save("green quixotry", [], ORIGIN)).note
        assert "quixotri" in await all_terms(memory)
        await memory.delete(note.note_id)
        assert await all_terms(memory) == {"green", "tea"}
