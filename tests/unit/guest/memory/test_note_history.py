"""Every change of a note is listed, newest first, and the last one can be taken back."""

from collections.abc import AsyncIterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from guest.memory import models
from guest.memory.memory import Memory
from guest.memory.models import Details, NoteNotFound, Origin, StaleVersion
from guest.memory.notes.history import ChangeEntry, UndoRefused
from guest.memory.notes.writer import NoteWriter
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"
AGENT = Origin("agent", "chat", "s2", "t2")
PAGE = Origin("agent", "chat", "s2", "t2", "/shared/page.md", material=True)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db", FakeEmbedder()) as memory:
        yield memory


async def save(memory: Memory, text: str, origin: Origin = ORIGIN, **details: object) -> str:
    known = Details(**details)  # type: ignore[arg-type]
    return (await memory.save(text, ("home",), origin, known)).note.note_id


async def changes(memory: Memory, **how: Any) -> list[ChangeEntry]:
    """All changes, page by page of two."""
    found: list[ChangeEntry] = []
    cursor = ""
    while True:
        page, cursor = await memory.history.changes(limit=2, cursor=cursor, **how)
        found += page
        if not cursor:
            return found


def said(entries: list[ChangeEntry]) -> list[tuple[str, str]]:
    return [(entry.change, entry.text) for entry in entries]


async def test_changes_come_newest_first_page_by_page(memory: Memory) -> None:
    tea = await save(memory, "tea at four", type="decision")
    await memory.keyed.write("plan", "bake", "replace", AGENT)
    await memory.update(tea, "tea at five", None, AGENT)
    await memory.keyed.write("plan", "wash up", "append", AGENT)
    new = await save(memory, "coffee at five")
    await memory.typed.supersede(tea, reason="no tea", replacement_id=new)
    await save(Memory(memory.store, BOB), "bob's")
    entries = await changes(memory)
    assert said(entries) == [
        ("supersede", "no tea"),
        ("save", "coffee at five"),
        ("append", "bake\nwash up"),
        ("update", "tea at five"),
        ("replace", "bake"),
        ("save", "tea at four"),
    ]
    assert [entry.at for entry in entries] == sorted((e.at for e in entries), reverse=True)
    assert [entry.current for entry in entries] == [True, True, True, False, False, False]
    assert (entries[0].superseded_by, entries[0].origin.actor) == (new, "agent")
    assert (entries[2].key, entries[2].version) == ("plan", 2)
    first = entries[-1]
    assert (first.note_id, first.version, first.origin) == (tea, 1, ORIGIN)
    assert (first.type, first.tags) == ("decision", ("home",))


async def test_changes_of_one_note_or_origin(memory: Memory) -> None:
    tea = await save(memory, "tea at four")
    await save(memory, "coffee", PAGE)
    await memory.update(tea, "tea at five", None, AGENT)
    await memory.update(tea, "tea at six", None, ORIGIN)
    await memory.typed.supersede(tea)
    assert said(await changes(memory, note_id=tea)) == [
        ("supersede", ""),
        ("update", "tea at six"),
        ("update", "tea at five"),
        ("save", "tea at four"),
    ]
    assert said(await changes(memory, actor="user")) == [
        ("update", "tea at six"),
        ("save", "tea at four"),
    ]
    assert said(await changes(memory, actor="agent", note_id=tea)) == [
        ("supersede", ""),
        ("update", "tea at five"),
    ]
    assert said(await changes(memory, session_id="s2")) == [
        ("update", "tea at five"),
        ("save", "coffee"),
    ]
    assert said(await changes(memory, session_id="s1")) == [
        ("update", "tea at six"),
        ("save", "tea at four"),
    ]
    (material,) = await changes(memory, material_only=True)
    assert material.origin == PAGE
    assert await changes(memory, note_id="note-none") == []


async def test_changes_of_one_moment_are_each_listed_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Stopped":
            return cls(2026, 11, 21, tzinfo=tz)

    monkeypatch.setattr(models, "datetime", Stopped)
    ids = [await save(memory, f"tea {i}") for i in range(5)]
    await memory.update(ids[0], "tea for two", None, ORIGIN)
    await memory.typed.supersede(ids[1])
    entries = await changes(memory)
    assert len(entries) == len({(e.note_id, e.version, e.change) for e in entries}) == 7


async def test_a_forgotten_note_leaves_no_change(memory: Memory) -> None:
    tea = await save(memory, "tea at four")
    await memory.update(tea, "tea at five", None, AGENT)
    await memory.delete(tea)
    assert await changes(memory) == []


@pytest.mark.parametrize("cursor", ["x", "bm90IGpzb24=", "W10=", "WyJhIiwgImIiLCAxXQ==", "é"])
async def test_another_cursor_is_refused(memory: Memory, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await memory.history.changes(cursor=cursor)


async def test_undo_brings_back_what_was_said_before(memory: Memory) -> None:
    tea = await save(memory, "oolong at four", type="decision", confidence=0.5, rationale="r")
    before = await memory.get(tea)
    await memory.update(tea, "espresso at five", ("bar",), AGENT)
    undone = await memory.history.undo(tea, channel="cli")
    note = await memory.get(tea)
    assert (undone.done, undone.note) == ("restored", note)
    assert (note.text, note.tags, note.details) == (before.text, before.tags, before.details)
    assert (note.version, note.change, note.restores) == (3, "undo", 1)
    assert note.origin == Origin("user", "cli")
    assert note.created_at == before.created_at
    assert [hit.note_id for hit in (await memory.search("oolong")).results] == [tea]
    assert (await memory.search("espresso")).results == ()


async def test_undo_again_goes_further_back(memory: Memory) -> None:
    tea = await save(memory, "one")
    for text in ("two", "three"):
        await memory.update(tea, text, None, AGENT)
    for text, restores in (("two", 2), ("one", 1)):
        note = (await memory.history.undo(tea)).note
        assert note is not None
        assert (note.text, note.restores) == (text, restores)
    with pytest.raises(UndoRefused, match=f"^{tea} says what it said first"):
        await memory.history.undo(tea)
    assert (await memory.get(tea)).version == 5
    undone = await memory.history.undo(tea, may_forget=True)
    assert (undone.done, undone.note) == ("forgotten", None)
    with pytest.raises(NoteNotFound):
        await memory.get(tea)


async def test_what_was_undone_does_not_come_back_by_undoing_later_changes(memory: Memory) -> None:
    tea = await save(memory, "one")
    await memory.update(tea, "two", None, AGENT)
    await memory.update(tea, "planted", None, PAGE)
    await memory.history.undo(tea)
    await memory.update(tea, "three", None, AGENT)
    undone = [(await memory.history.undo(tea)).note for _ in range(2)]
    assert [note and (note.text, note.restores) for note in undone] == [("two", 2), ("one", 1)]


async def test_what_was_read_stays_marked(memory: Memory) -> None:
    tea = await save(memory, "tea at four", PAGE)
    await memory.update(tea, "tea at five", None, ORIGIN)
    note = (await memory.history.undo(tea, channel="cli")).note
    assert note is not None
    assert note.origin == Origin("user", "cli", link="/shared/page.md", material=True)


async def test_undo_of_a_superseded_note_makes_it_current(memory: Memory) -> None:
    tea = await save(memory, "tea at four")
    await memory.typed.supersede(tea, reason="no tea")
    undone = await memory.history.undo(tea, expected_version=1)
    assert undone.done == "current_again"
    assert undone.note is not None
    assert (undone.note.version, undone.note.superseded) == (1, None)
    assert [hit.note_id for hit in (await memory.search("tea")).results] == [tea]
    assert said(await changes(memory)) == [("save", "tea at four")]


async def test_undo_to_what_another_note_says(memory: Memory) -> None:
    tea = await save(memory, "tea at four")
    await memory.update(tea, "tea at five", None, ORIGIN)
    other = await save(memory, "tea at four")
    assert (await memory.history.undo(tea)).done == "restored"
    assert (await memory.get(other)).text == (await memory.get(tea)).text


async def test_undo_of_a_keyed_and_of_a_scoped_note_keeps_key_and_scope(memory: Memory) -> None:
    plan = await memory.keyed.write("plan", "bake", "replace", ORIGIN)
    await memory.keyed.write("plan", "wash up", "append", ORIGIN)
    await memory.history.undo(plan.note_id)
    read = await memory.keyed.read("plan")
    assert read is not None
    assert (read.note_id, read.text) == (plan.note_id, "bake")
    tea = await save(memory, "tea at four", scope_session="s1")
    await memory.update(tea, "tea at five", None, ORIGIN)
    note = (await memory.history.undo(tea)).note
    assert note is not None
    assert note.details.scope_session == "s1"


async def test_another_version_than_expected_is_left(memory: Memory) -> None:
    tea = await save(memory, "tea at four")
    await memory.update(tea, "tea at five", None, AGENT)
    for may_forget in (False, True):
        with pytest.raises(StaleVersion) as stale:
            await memory.history.undo(tea, expected_version=1, may_forget=may_forget)
        assert stale.value.current.text == "tea at five"
    with pytest.raises(NoteNotFound):
        await Memory(memory.store, BOB).history.undo(tea)


async def test_what_is_written_meanwhile_is_not_forgotten(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is read, then written by somebody else, then undone."""
    tea = await save(memory, "tea at four")
    delete = NoteWriter.delete

    async def overtaken(writer: NoteWriter, *which: object) -> None:
        monkeypatch.setattr(NoteWriter, "delete", delete)
        await memory.update(tea, "tea at five", None, AGENT)
        await delete(writer, *which)  # type: ignore[arg-type]

    monkeypatch.setattr(NoteWriter, "delete", overtaken)
    with pytest.raises(StaleVersion):
        await memory.history.undo(tea, expected_version=1, may_forget=True)
    assert (await memory.get(tea)).text == "tea at five"


async def test_a_version_that_is_not_kept_cannot_come_back(memory: Memory) -> None:
    """Lines of an export may have been taken out before they were imported."""
    tea = await save(memory, "tea at four")
    await memory.update(tea, "tea at five", None, ORIGIN)
    await memory.store.database.execute("DELETE FROM note_versions")
    with pytest.raises(UndoRefused, match=f"^version 1 of {tea} is not kept$"):
        await memory.history.undo(tea)
    assert (await memory.get(tea)).text == "tea at five"
