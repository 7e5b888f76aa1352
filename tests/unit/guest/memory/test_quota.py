"""A full memory refuses what would make it larger, says why, and changes nothing."""

import asyncio
from pathlib import Path

import pytest

from guest.errors import StorageError
from guest.memory.database.base import Statement
from guest.memory.quota import Quota
from guest.memory.store import Memory
from guest.memory.types import MemoryFull, NoteNotFound, StaleVersion
from tests.unit.memory_support import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


async def listed(memory: Memory, user_id: str) -> list[str]:
    return [note.text for note in (await memory.list(user_id, 100))[0]]


async def test_one_note_too_many_is_refused_with_the_numbers(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_notes=2) as memory:
        first = (await memory.save(ALICE, "one", [], ORIGIN)).note
        await memory.save(ALICE, "two", [], ORIGIN)
        with pytest.raises(MemoryFull, match="the memory is full: 2 notes of at most 2;"):
            await memory.save(ALICE, "three", [], ORIGIN)
        with pytest.raises(MemoryFull):
            await memory.keyed.write(ALICE, "plan", "three", "append", ORIGIN)
        assert await listed(memory, ALICE) == ["two", "one"]
        assert (await memory.statistics(ALICE)).passages == 2
        assert not (await memory.search(ALICE, "three")).hits

        assert not (await memory.save(ALICE, "one", [], ORIGIN)).created
        await memory.update(ALICE, first.note_id, "one, and more of it", None, ORIGIN)
        assert (await memory.save(BOB, "another user's", [], ORIGIN)).created
        await memory.delete(ALICE, first.note_id)
        assert (await memory.save(ALICE, "three", [], ORIGIN)).created


async def test_bytes_are_counted_as_they_are_stored(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        await memory.save(ALICE, "öäüß", [], ORIGIN)
        with pytest.raises(
            MemoryFull, match="the memory is full: 8 bytes of text of at most 10, and this needs 3"
        ):
            await memory.save(ALICE, "abc", [], ORIGIN)
        assert (await memory.save(ALICE, "ab", [], ORIGIN)).created
        assert await listed(memory, ALICE) == ["ab", "öäüß"]


async def test_a_note_may_grow_as_far_as_there_is_room_and_shrink_always(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        note = (await memory.save(ALICE, "12345", [], ORIGIN)).note
        await memory.update(ALICE, note.note_id, "1234567890", None, ORIGIN)
        with pytest.raises(MemoryFull, match="10 bytes of text of at most 10, and this needs 1"):
            await memory.update(ALICE, note.note_id, "1234567890a", None, ORIGIN)
        with pytest.raises(MemoryFull, match="and this needs 1 more"):
            await memory.update(ALICE, note.note_id, "öäüßé1", None, ORIGIN)
        assert (await memory.get(ALICE, note.note_id)).version == 2
    async with opened(path, FakeEmbedder(), max_text_bytes=4) as memory:
        await memory.update(ALICE, note.note_id, "abcdefghij", None, ORIGIN)
        await memory.update(ALICE, note.note_id, "abcdefghi", None, ORIGIN)
        with pytest.raises(MemoryFull):
            await memory.update(ALICE, note.note_id, "abcdefghij", None, ORIGIN)
        assert await listed(memory, ALICE) == ["abcdefghi"]
        await memory.update(ALICE, note.note_id, "abc", None, ORIGIN)
        await memory.update(ALICE, note.note_id, "abcd", None, ORIGIN)


async def test_versions_before_do_not_count_and_nothing_forgotten_does(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        for text in ("123456", "abcdef", "ABCDEF"):
            await memory.keyed.write(ALICE, "plan", text, "replace", ORIGIN)
        await memory.save(ALICE, "wxyz", [], ORIGIN)
        with pytest.raises(MemoryFull):
            await memory.keyed.write(ALICE, "plan", "!", "append", ORIGIN)
        await memory.keyed.clear(ALICE, "plan")
        await memory.save(ALICE, "123456", [], ORIGIN)


async def test_many_at_once_never_go_over(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_notes=5) as memory:
        saves = [memory.save(ALICE, f"fact {i}", [], ORIGIN) for i in range(12)]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        assert sum(isinstance(outcome, MemoryFull) for outcome in outcomes) == 7
        assert len(await listed(memory, ALICE)) == 5


async def test_a_refusal_that_nothing_explains_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as memory:
        note = (await memory.save(ALICE, "tea", [], ORIGIN)).note
        refusing = Statement("INSERT INTO guards (ok) VALUES (0)")
        for guard in ("keep", "keep_growing"):
            monkeypatch.setattr(Quota, guard, lambda *_: refusing)
        with pytest.raises(StorageError, match="cannot be stored"):
            await memory.save(ALICE, "coffee", [], ORIGIN)
        with pytest.raises(StorageError, match="cannot be stored"):
            await memory.update(ALICE, note.note_id, "coffee", None, ORIGIN)
        assert await listed(memory, ALICE) == ["tea"]


async def test_a_full_memory_does_not_hide_what_else_is_wrong(path: Path) -> None:
    async with opened(path, FakeEmbedder(), max_text_bytes=10) as memory:
        note = (await memory.save(ALICE, "1234567890", [], ORIGIN)).note
        with pytest.raises(NoteNotFound):
            await memory.update(ALICE, "note-x", "1234567890a", None, ORIGIN)
        with pytest.raises(StaleVersion):
            await memory.update(
                ALICE, note.note_id, "1234567890a", None, ORIGIN, expected_version=7
            )
