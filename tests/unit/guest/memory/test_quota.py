"""A full memory refuses what would make it larger, says why, and changes nothing."""

import asyncio
from pathlib import Path

import pytest

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import MemoryFull, NoteNotFound, StaleVersion
from guest.memory.notes.history import UndoRefused
from guest.memory.notes.quota import Quota
from guest.memory.storage.base import Statement
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"


async def listed(memory: Memory) -> list[str]:
    return [note.text for note in (await memory.list(100))[0]]


async def test_one_note_too_many_is_refused_with_the_numbers(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_notes=2) as memory:
        first = (await memory.save("one", [], ORIGIN)).note
        await memory.save("two", [], ORIGIN)
        with pytest.raises(MemoryFull, match="the memory is full: 2 notes of at most 2;"):
            await memory.save("three", [], ORIGIN)
        with pytest.raises(MemoryFull):
            await memory.keyed.write("plan", "three", "append", ORIGIN)
        assert await listed(memory) == ["two", "one"]
        assert (await memory.statistics()).passages == 2
        assert not (await memory.search("three")).results

        assert not (await memory.save("one", [], ORIGIN)).created
        await memory.update(first.note_id, "one, and more of it", None, ORIGIN)
        assert (await Memory(memory.store, BOB).save("another user's", [], ORIGIN)).created
        await memory.delete(first.note_id)
        assert (await memory.save("three", [], ORIGIN)).created


async def test_bytes_are_counted_as_they_are_stored(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        await memory.save("öäüß", [], ORIGIN)
        with pytest.raises(
            MemoryFull, match="the memory is full: 8 bytes of text of at most 10, and this needs 3"
        ):
            await memory.save("abc", [], ORIGIN)
        assert (await memory.save("ab", [], ORIGIN)).created
        assert await listed(memory) == ["ab", "öäüß"]


async def test_what_a_note_said_before_counts_until_the_note_is_forgotten(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        note = (await memory.save("12345", [], ORIGIN)).note
        await memory.update(note.note_id, "é", None, ORIGIN)
        await memory.keyed.write("plan", "a", "append", ORIGIN)
        refusal = "10 bytes of text of at most 10, and this needs 2 more; earlier versions and"
        await memory.update(note.note_id, "12", None, ORIGIN)
        with pytest.raises(MemoryFull, match=refusal):
            await memory.update(note.note_id, "ab", None, ORIGIN)
        with pytest.raises(MemoryFull, match="this needs 3 more"):
            await memory.keyed.write("plan", "b", "append", ORIGIN)
        assert await listed(memory) == ["a", "12"]
        assert (await memory.notes.get(note.note_id)).version == 3
        await memory.delete(note.note_id)
        await memory.keyed.write("plan", "b", "append", ORIGIN)
        await memory.save("123456", [], ORIGIN)


async def test_a_full_memory_can_be_undone_as_far_as_it_goes(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=12) as memory:
        note = (await memory.save("true", [], ORIGIN)).note
        for text in ("lie", "lies!"):
            await memory.update(note.note_id, text, None, ORIGIN)
        for text in ("lie", "true"):
            undone = await memory.history.undo(note.note_id)
            assert undone.note is not None
            assert undone.note.text == text
        with pytest.raises(UndoRefused):
            await memory.history.undo(note.note_id)
        with pytest.raises(MemoryFull, match="19 bytes of text of at most 12"):
            await memory.save("x", [], ORIGIN)


async def test_many_at_once_never_go_over(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_notes=5) as memory:
        saves = [memory.save(f"fact {i}", [], ORIGIN) for i in range(12)]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        assert sum(isinstance(outcome, MemoryFull) for outcome in outcomes) == 7
        assert len(await listed(memory)) == 5


async def test_a_refusal_that_nothing_explains_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as memory:
        note = (await memory.save("tea", [], ORIGIN)).note
        refusing = Statement("INSERT INTO guards (ok) VALUES (0)")
        monkeypatch.setattr(Quota, "keep", lambda *_: refusing)
        with pytest.raises(StorageError, match="cannot be stored"):
            await memory.save("coffee", [], ORIGIN)
        with pytest.raises(StorageError, match="cannot be stored"):
            await memory.update(note.note_id, "coffee", None, ORIGIN)
        assert await listed(memory) == ["tea"]


async def test_a_full_memory_does_not_hide_what_else_is_wrong(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        note = (await memory.save("1234567890", [], ORIGIN)).note
        with pytest.raises(NoteNotFound):
            await memory.update("note-x", "1234567890a", None, ORIGIN)
        with pytest.raises(StaleVersion):
            await memory.update(note.note_id, "1234567890a", None, ORIGIN, expected_version=7)
