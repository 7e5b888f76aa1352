"""The inspection sees what is half-made: a table of zeros means something."""

from pathlib import Path

import pytest

from guest.memory.factory import open_file
from guest.memory.models import MemoryConfig
from tests.faults.inspection import inspect
from tests.faults.ledger import Found
from tests.support.memory.model import NoteModel
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened

ALICE = "alice"


async def after(tmp_path: Path, *harm: str) -> Found:
    """What is found in a small memory after something was done behind its back."""
    path = tmp_path / "memory.db"
    async with opened(path, FakeEmbedder()) as memory:
        note = (await memory.save("likes tea", [], ORIGIN)).note
        await memory.update(note.note_id, "likes coffee", None, ORIGIN)
        await memory.keyed.write("plan", "to sow", "replace", ORIGIN)
        await memory.keyed.write("plan", "to reap", "append", ORIGIN)
        await memory.typed.supersede(note.note_id)
        await memory.conversations.create("s")
        for role in ("user", "assistant"):
            await memory.conversations.append(
                "s", turn_id="t", role=role, text=f"hello from {role}", payload="[]"
            )
        await embedded(memory, 4)
    database = await open_file(MemoryConfig(db_path=str(path)))
    try:
        for sql in harm:
            await database.execute(sql)
        return await inspect(database)
    finally:
        await database.close()


async def test_a_memory_that_is_whole_shows_nothing(tmp_path: Path) -> None:
    found = await after(tmp_path)
    assert list(found.notes.values()) == [
        NoteModel("likes coffee", 2, ("likes tea",), superseded_by=""),
        NoteModel("to sow\nto reap", 2, ("to sow",), key="plan"),
    ]
    assert found.sessions == {"s": ("hello from user", "hello from assistant")}
    assert (found.half_made, found.doubles, found.damage) == ((), (), ())


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("DELETE FROM note_versions", "before it"),
        ("DELETE FROM chunks WHERE note_id IS NOT NULL", "other passages than its text"),
        ("DELETE FROM chunks WHERE sequence = 2", "event 2 of s is not indexed"),
        ("DELETE FROM conversation_events WHERE sequence = 1", "has the events [2]"),
        ("UPDATE sessions SET turns = 5", "counts 5 turns of 1"),
        ("DELETE FROM chunks_fts", "full text of notes"),
        ("DELETE FROM conversation_fts", "full text of events"),
        ("UPDATE notes SET superseded_by = 'n9'", "replaced by n9, which is not there"),
        ("UPDATE usage SET bytes = bytes + 1", "usage says ('memory:alice', 2, "),
        ("UPDATE chunks_vec SET vector = x'00' WHERE chunk_id = 2", "different lengths"),
    ],
)
async def test_what_is_half_made_is_named(tmp_path: Path, harm: str, words: str) -> None:
    found = await after(tmp_path, harm)
    assert words in "; ".join(found.half_made)


async def test_what_is_there_twice_is_named(tmp_path: Path) -> None:
    found = await after(tmp_path, "UPDATE conversation_events SET text = 'hello'")
    assert found.doubles == ("twice: hello",)


async def test_what_was_appended_twice_is_named(tmp_path: Path) -> None:
    found = await after(
        tmp_path, "UPDATE notes SET content = content || char(10) || 'to reap' WHERE key = 'plan'"
    )
    assert len(found.doubles) == 1
    assert found.doubles[0].endswith(": to reap")


async def test_an_index_that_is_not_in_step_is_damage(tmp_path: Path) -> None:
    found = await after(
        tmp_path, "INSERT INTO chunks_fts (rowid, body) VALUES (999, 'nowhere else')"
    )
    assert any("chunks_fts" in sentence for sentence in found.damage)
