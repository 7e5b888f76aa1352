"""Working memory: one note per name and user, of which nothing appended is ever lost."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from wire.limits import NOTE_MAX_CHARS

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import FIXED, HANDOFF, SCRATCHPAD, Note, Origin, StaleVersion
from guest.memory.notes.history import UndoRefused
from guest.memory.notes.repository import VERSIONS_KEPT
from guest.memory.notes.writer import NoteWriter
from tests.support.memory.exports import entities, exported
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"
OWN = Origin("agent", "test", "s2", "t2")
AGENT = replace(OWN, link="/shared/plan.md", material=True)


def today() -> date:
    return datetime.now(UTC).date()


async def test_the_first_write_makes_the_note_and_the_next_replaces_it(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        assert await memory.keyed.read("plan") is None
        first = await memory.keyed.write("plan", "sow beans", "append", AGENT)
        assert (first.key, first.version, first.change) == ("plan", 1, "append")
        assert await memory.keyed.read("plan") == first
        second = await memory.keyed.write("plan", "water beans", "replace", ORIGIN)
        assert (second.note_id, second.text) == (first.note_id, "water beans")
        assert (second.version, second.change, second.origin) == (2, "replace", ORIGIN)
        assert await memory.keyed.read("plan") == second
        assert (await memory.statistics()).note_versions == 1


async def test_every_search_finds_it_and_a_save_never_takes_it_for_a_duplicate(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        keyed = await memory.keyed.write("plan", "the gate code is 4711", "replace", ORIGIN)
        fact = await memory.save("the gate code is 4711", [], ORIGIN)
        assert fact.created
        assert fact.note.key == ""
        again = await memory.save("the gate code is 4711", [], ORIGIN)
        assert (again.created, again.note.note_id) == (False, fact.note.note_id)
        other = await memory.keyed.write("gate", "the gate code is 4711", "replace", ORIGIN)
        hits = (await memory.search("gate code")).results
        assert {(hit.note_id, hit.key) for hit in hits} == {
            (keyed.note_id, "plan"),
            (fact.note.note_id, ""),
            (other.note_id, "gate"),
        }
        assert await memory.keyed.clear("plan")
        assert (await memory.notes.get(fact.note.note_id)).text == "the gate code is 4711"


async def test_what_is_cleared_is_gone_for_good(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        for text in ("a first plan", "a second plan"):
            await memory.keyed.write(SCRATCHPAD, text, "replace", ORIGIN)
        assert await memory.keyed.clear(SCRATCHPAD)
        assert not await memory.keyed.clear(SCRATCHPAD)
        assert await memory.keyed.read(SCRATCHPAD) is None
        assert not (await memory.search("plan")).results
        assert (await memory.statistics()).note_versions == 0
        note = await memory.keyed.write(SCRATCHPAD, "anew", "append", ORIGIN)
        assert (note.text, note.version) == ("anew", 1)


async def test_users_have_the_same_names_and_never_meet(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        keyed = {user: Memory(memory.store, user).keyed for user in (ALICE, BOB)}
        for user, notes in keyed.items():
            for mode in ("replace", "append"):
                await notes.write("plan", f"of {user}", mode, ORIGIN)
        for user, notes in keyed.items():
            note = await notes.read("plan")
            assert note is not None
            assert note.text == f"of {user}\nof {user}"
        assert await keyed[ALICE].clear("plan")
        assert await keyed[BOB].read("plan") is not None
        assert await keyed[ALICE].activity(today()) == []
        assert len(await keyed[BOB].activity(today())) == 2


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        (ORIGIN, ORIGIN, ("user", False, "")),
        (OWN, ORIGIN, ("agent", False, "")),
        (ORIGIN, OWN, ("agent", False, "")),
        (AGENT, ORIGIN, ("agent", True, "/shared/plan.md")),
        (AGENT, OWN, ("agent", True, "/shared/plan.md")),
        (ORIGIN, AGENT, ("agent", True, "/shared/plan.md")),
        (replace(AGENT, actor="user"), OWN, ("agent", True, "/shared/plan.md")),
    ],
)
async def test_what_is_partly_anothers_is_not_the_users(
    path: Path, first: Origin, then: Origin, both: tuple[str, bool, str]
) -> None:
    async with opened(path) as memory:
        await memory.keyed.write("plan", "one", "append", first)
        origin = (await memory.keyed.write("plan", "two", "append", then)).origin
        assert (origin.actor, origin.material, origin.link) == both


async def test_everybody_appends_at_once_and_no_line_is_lost(path: Path) -> None:
    lines = [f"line {i}" for i in range(12)]
    async with opened(path, FakeEmbedder()) as memory:
        await asyncio.gather(
            *(memory.keyed.write("plan", line, "append", ORIGIN) for line in lines)
        )
        note = await memory.keyed.read("plan")
        assert note is not None
        assert sorted(note.text.split("\n")) == sorted(lines)
        assert note.version == len(lines)
        assert len((await memory.list(10))[0]) == 1


async def test_a_write_that_another_one_overtakes_is_made_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has made the note, changed it, or cleared it between the look and the write."""
    async with opened(path, FakeEmbedder()) as memory:
        overtaken_by(monkeypatch, memory, "save", "append")
        made = await memory.keyed.write("plan", "mine", "append", ORIGIN)
        assert (made.text, made.version) == ("theirs\nmine", 2)
        overtaken_by(monkeypatch, memory, "update", "append")
        changed = await memory.keyed.write("plan", "mine again", "append", ORIGIN)
        assert changed.text == "theirs\nmine\ntheirs\nmine again"
        overtaken_by(monkeypatch, memory, "update", "clear")
        anew = await memory.keyed.write("plan", "mine", "append", ORIGIN)
        assert (anew.text, anew.version) == ("mine", 1)


def overtaken_by(monkeypatch: pytest.MonkeyPatch, memory: Memory, writing: str, doing: str) -> None:
    """Let somebody else write the note, or clear it, just before the next `writing`."""
    original: Callable[..., Awaitable[object]] = getattr(NoteWriter, writing)

    async def overtaken(writer: NoteWriter, *arguments: object) -> object:
        monkeypatch.setattr(NoteWriter, writing, original)
        if doing == "clear":
            await memory.keyed.clear("plan")
        else:
            await memory.keyed.write("plan", "theirs", "append", ORIGIN)
        return await original(writer, *arguments)

    monkeypatch.setattr(NoteWriter, writing, overtaken)


async def test_a_write_that_is_always_overtaken_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as memory:
        note = await memory.keyed.write("plan", "theirs", "append", ORIGIN)

        async def overtaken(*_: object) -> Note:
            raise StaleVersion(note)

        monkeypatch.setattr(NoteWriter, "update", overtaken)
        with pytest.raises(StorageError, match="the note plan could not be written"):
            await memory.keyed.write("plan", "mine", "append", ORIGIN)
        assert await memory.keyed.read("plan") == note


@pytest.mark.parametrize("key", ["plan", SCRATCHPAD])
async def test_of_a_fixed_key_the_last_versions_are_kept(path: Path, key: str) -> None:
    """History, undo, export and import bear with a note whose first version is gone."""
    count, kept = 23, VERSIONS_KEPT
    async with opened(path) as memory:
        for number in range(1, count + 1):
            note = await memory.keyed.write(key, f"text {number}", "replace", ORIGIN)
        assert note.version == count
        oldest = 1 if key == "plan" else count - kept
        changes, _ = await memory.history.changes(note_id=note.note_id)
        assert [change.version for change in changes] == list(range(count, oldest - 1, -1))
        assert (await memory.statistics()).note_versions == count - oldest
        for number in range(count - 1, oldest - 1, -1):
            undone = (await memory.history.undo(note.note_id)).note
            assert undone is not None
            assert undone.text == f"text {number}"
            versions = (await memory.statistics()).note_versions
            assert versions == (undone.version - 1 if key == "plan" else kept)
        with pytest.raises(
            UndoRefused,
            match="says what it said first" if key == "plan" else f"of the {key} the la",
        ):
            await memory.history.undo(note.note_id)
        export = await exported(memory)
    async with opened(path.with_name("other.db")) as memory:
        assert (await memory.importer().feed(export)).problems == []
        assert entities(await exported(memory)) == entities(export)
        note = await memory.keyed.write(key, "anew", "replace", ORIGIN)
        versions = (await memory.statistics()).note_versions
        assert versions == (note.version - 1 if key == "plan" else kept)


async def test_undos_of_a_fixed_key_lose_no_text_and_never_come_back(path: Path) -> None:
    async with opened(path) as memory:
        for number in range(1, 31):
            note = await memory.keyed.write(HANDOFF, f"text {number}", "replace", ORIGIN)

        async def undo() -> str:
            undone = (await memory.history.undo(note.note_id)).note
            assert (await memory.statistics()).note_versions <= VERSIONS_KEPT
            return undone.text if undone else ""

        assert [await undo() for _ in range(3)] == ["text 29", "text 28", "text 27"]
        changes, _ = await memory.history.changes(note_id=note.note_id)
        assert {change.text for change in changes} == {f"text {n}" for n in range(10, 31)}
        await memory.keyed.write(HANDOFF, "another", "replace", ORIGIN)
        assert [await undo() for _ in range(3)] == ["text 27", "text 26", "text 25"]
        export = await exported(memory)
    async with opened(path.with_name("other.db")) as memory:
        assert (await memory.importer().feed(export)).problems == []
        assert entities(await exported(memory)) == entities(export)
        assert await undo() == "text 24"


async def test_a_note_that_would_be_too_long_stays_as_it_is(path: Path) -> None:
    async with opened(path) as memory:
        await memory.keyed.write("plan", "x" * (NOTE_MAX_CHARS - 4), "replace", ORIGIN)
        full = await memory.keyed.write("plan", "yyy", "append", ORIGIN)
        assert len(full.text) == NOTE_MAX_CHARS
        with pytest.raises(ValueError, match=r"text: the note plan has 16000 .* have 16002; at mo"):
            await memory.keyed.write("plan", "z", "append", ORIGIN)
        with pytest.raises(ValueError, match="text: 16001 characters are more than 16000"):
            await memory.keyed.write("plan", "z" * 16_001, "replace", ORIGIN)
        assert await memory.keyed.read("plan") == full


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("", "text", "key: must not be blank"),
        ("two\nlines", "text", "key: must be one line"),
        (" plan", "text", "key: must be one line"),
        ("k" * 129, "text", "key: 129 characters are more than 128"),
        ("plan", " ", "text: must not be blank"),
        ("plan", "a\0b", "text: must not hold NUL"),
    ],
)
async def test_what_is_no_name_or_text_is_refused(
    path: Path, key: str, text: str, problem: str
) -> None:
    async with opened(path) as memory:
        with pytest.raises(ValueError, match=problem):
            await memory.keyed.write(key, text, "append", ORIGIN)
        assert (await memory.list(10))[0] == []


async def test_the_days_activity_has_a_line_for_every_write_in_order(path: Path) -> None:
    async with opened(path) as memory:
        write = memory.keyed.write
        before = today()
        await write("plan", "one", "replace", ORIGIN)
        await write("garden", "beans", "append", replace(ORIGIN, session_id="s2"))
        await write("plan", "two", "append", ORIGIN)
        for key in FIXED:
            await write(key, "says nothing", "replace", ORIGIN)
        await memory.save("a fact has no name", [], ORIGIN)
        days = dict.fromkeys((before, today()))
        found = [line for day in days for line in await memory.keyed.activity(day)]
        assert [(line.key, line.change, line.version) for line in found] == [
            ("plan", "replace", 1),
            ("garden", "append", 1),
            ("plan", "append", 2),
        ]
        assert [line.at for line in found] == sorted(line.at for line in found)
        for other in (before - timedelta(days=1), today() + timedelta(days=1)):
            assert await memory.keyed.activity(other) == []
        await memory.keyed.clear("plan")
        left = [line for day in days for line in await memory.keyed.activity(day)]
        assert [line.key for line in left] == ["garden"]
