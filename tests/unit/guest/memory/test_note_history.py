"""Every change of a note is listed, newest first, and the last one can be taken back."""

from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from guest.memory import models
from guest.memory.memory import Memory
from guest.memory.models import Details, Note, NoteNotFound, Origin, StaleVersion
from guest.memory.notes.history import ChangeEntry, UndoRefused
from guest.memory.notes.repository import Draft, NoteRepository, Revision
from guest.memory.notes.writer import NoteWriter
from tests.support.memory.exports import entities, exported
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"
AGENT = Origin("agent", "chat", "s2", "t2")
PAGE = Origin("agent", "chat", "s2", "t2", "/shared/page.md", material=True)


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
    monkeypatch.setattr(models, "datetime", stopped_at(datetime(2026, 11, 21, tzinfo=UTC)))
    ids = [await save(memory, f"tea {i}") for i in range(5)]
    await memory.update(ids[0], "tea for two", None, ORIGIN)
    await memory.typed.supersede(ids[1])
    entries = await changes(memory)
    assert len(entries) == len({(e.note_id, e.version, e.change) for e in entries}) == 7


@pytest.mark.parametrize("cursor", ["x", "bm90IGpzb24=", "W10=", "WyJhIiwgImIiLCAxXQ==", "é"])
async def test_another_cursor_is_refused(memory: Memory, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await memory.history.changes(cursor=cursor)


async def test_undo_brings_back_what_was_said_before(memory: Memory) -> None:
    tea = await save(memory, "oolong at four", type="decision", confidence=0.5, rationale="r")
    before = await memory.notes.get(tea)
    await memory.update(tea, "espresso at five", ("bar",), AGENT)
    undone = await memory.history.undo(tea, channel="cli")
    note = await memory.notes.get(tea)
    assert (undone.done, undone.note) == ("restored", note)
    assert (note.text, note.tags, note.details) == (before.text, before.tags, before.details)
    assert (note.version, note.change, note.restores) == (3, "undo", 1)
    assert note.origin == Origin("user", "cli")
    assert note.created_at == before.created_at
    assert [hit.note_id for hit in (await memory.search("oolong")).results] == [tea]
    assert (await memory.search("espresso")).results == ()


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


async def test_undo_tells_of_its_own_version_and_not_of_a_later_one(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes the later one for its own overwrites it unseen."""
    tea = await save(memory, "tea at four")
    await memory.typed.supersede(tea, reason="no tea")
    revive = NoteRepository.revive

    async def revive_and_be_overtaken(notes: NoteRepository, note: Note) -> bool:
        revived = await revive(notes, note)
        await memory.update(tea, "tea at five", None, AGENT)
        return revived

    monkeypatch.setattr(NoteRepository, "revive", revive_and_be_overtaken)
    undone = await memory.history.undo(tea)
    assert undone.done == "current_again"
    assert undone.note is not None
    assert (undone.note.text, undone.note.version) == ("tea at four", 1)
    assert undone.note.superseded is None


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
    assert (await memory.notes.get(tea)).text == "tea at five"


async def test_a_version_that_is_not_kept_cannot_come_back(memory: Memory) -> None:
    """Lines of an export may have been taken out before they were imported."""
    tea = await save(memory, "tea at four")
    await memory.update(tea, "tea at five", None, ORIGIN)
    await memory.store.database.execute("DELETE FROM note_versions")
    with pytest.raises(UndoRefused, match=f"^version 1 of {tea} is not kept$"):
        await memory.history.undo(tea)
    assert (await memory.notes.get(tea)).text == "tea at five"


async def test_undo_does_not_close_a_circle_that_another_writer_is_opening(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both notes would be superseded, and neither found any more."""
    tea, new = await save(memory, "tea at four"), await save(memory, "coffee")
    await memory.typed.supersede(tea, replacement_id=new)
    await memory.update(tea, "tea at five", None, AGENT)
    update = NoteRepository.update

    async def update_late(notes: NoteRepository, draft: Draft) -> Revision | None:
        monkeypatch.undo()
        await memory.typed.supersede(new, replacement_id=tea)
        return await update(notes, draft)

    monkeypatch.setattr(NoteRepository, "update", update_late)
    with pytest.raises(UndoRefused, match=f"undo the last change of {new} first"):
        await memory.history.undo(tea)
    assert (await memory.notes.get(tea)).superseded is None


@pytest.mark.parametrize("whole", [True, False])
async def test_a_moved_memory_knows_what_an_undo_supersedes(
    memory: Memory, tmp_path: Path, whole: bool
) -> None:
    """Imported whole, or in two steps of which the first knew the note before it was superseded."""
    tea, new = await save(memory, "tea at four"), await save(memory, "coffee")
    first = b"" if whole else await exported(memory)
    await memory.typed.supersede(tea, reason="no tea", replacement_id=new)
    second = b"" if whole else await exported(memory)
    await memory.update(tea, "tea at five", None, AGENT)
    (tmp_path / "other").mkdir()
    async with opened(tmp_path / "other/memory.db", FakeEmbedder()) as other:
        for lines in (first, second, await exported(memory), await exported(memory)):
            if lines:
                await other.importer().feed(lines)
        assert entities(await exported(other)) == entities(await exported(memory))
        note = (await other.history.undo(tea)).note
        assert note is not None
        assert note.superseded is not None
        assert (note.superseded.by, note.superseded.reason) == (new, "no tea")


async def test_the_order_of_versions_outlives_a_clock_that_is_set_back(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tea = await save(memory, "tea 1")
    plan = (await memory.keyed.write("plan", "plan 1", "replace", ORIGIN)).note_id
    jumps = [datetime(2026, 11, 21, 12 - hour, tzinfo=UTC) for hour in range(4)]
    for number, moment in enumerate(jumps, 2):
        monkeypatch.setattr(models, "datetime", stopped_at(moment))
        await memory.update(tea, f"tea {number}", None, AGENT)
        await memory.keyed.write("plan", f"plan {number}", "replace", ORIGIN)
    await memory.typed.supersede(tea, reason="no tea")
    for only in ({}, {"note_id": tea}, {"note_id": plan}):
        entries = await changes(memory, **only)
        for note_id in (tea, plan):
            found = [e for e in entries if e.note_id == note_id]
            versions = [e.version for e in found if e.change != "supersede"]
            assert versions == sorted(versions, reverse=True)
            if found and note_id == tea:
                assert found[0].change == "supersede"
    assert len(await changes(memory)) == 11
    day = datetime.fromisoformat((await memory.notes.get(plan)).created_at).date()
    assert [each.version for each in await memory.keyed.activity(day)] == [1, 2, 3, 4, 5]


async def test_the_history_of_a_note_is_by_version_whatever_its_times(memory: Memory) -> None:
    """An imported file may have been written under any clock."""
    tea = await save(memory, "tea 1")
    for number in range(2, 6):
        await memory.update(tea, f"tea {number}", None, AGENT)
    await memory.store.database.execute(
        "UPDATE note_versions SET written_at = '2026-11-2' || (5 - version) || 'T00:00:00.000000Z'"
    )
    assert [e.version for e in await changes(memory, note_id=tea)] == [5, 4, 3, 2, 1]


def stopped_at(moment: datetime) -> type[datetime]:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Stopped":
            return cls.fromtimestamp(moment.timestamp(), tz)

    return Stopped
