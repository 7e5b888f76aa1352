"""What becomes of keys, scopes, supersession and recalls in an import."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from guest.memory.models import Details
from guest.memory.transfer.importer import Report
from guest.memory.transfer.merge import Stored, StoredNotes
from tests.support.memory.exports import TIME, entities, exported, file, header, note, said, session
from tests.support.memory.store import opened

EARLIER = "2026-11-20T10:00:00.000000Z"
LATER = "2026-11-21T10:00:00.000000Z"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db") as opened_memory:
        yield opened_memory


async def fed(memory: Memory, *lines: dict[str, Any], dry_run: bool = False) -> Report:
    return await memory.importer().feed(file(*lines), dry_run=dry_run)


async def stored(memory: Memory) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, entities(await exported(memory)))
    return {line.get("note_id") or line["session_id"]: line for line in lines}


def outcome(report: Report) -> tuple[int, int, int, int]:
    return report.created, report.updated, report.unchanged, len(report.problems)


def everything() -> list[dict[str, Any]]:
    """Notes in which no field has its usual value, and what they need."""
    read = {"actor": "agent", "channel": "cli", "session_id": "s1", "turn_id": "t"}
    origin = read | {"link": "/shared/page.md", "material": True}
    told = said("the page says so", 3) | {"origin": origin, "change": "undo", "restores": 1}
    told |= {"type": "decision", "confidence": 0.5, "rationale": "why", "importance": 0.25}
    told |= {"due_at": LATER}
    whole = note("n1", "x", 3, current=told, key="k", scope_session="s2", access_count=3)
    whole |= {"accessed_at": LATER, "superseded_by": "n2", "superseded_reason": "wrong"}
    whole |= {"superseded_at": LATER}
    gone = note("n3", "gone", superseded_by="", superseded_at=TIME)
    return [whole, note("n2", "y"), gone, session("s1"), session("s2", parent_id="s1")]


@pytest.mark.parametrize("order", [1, -1])
async def test_every_field_arrives_in_whatever_order(memory: Memory, order: int) -> None:
    lines = everything()
    assert outcome(await fed(memory, *lines[::order])) == (5, 0, 0, 0)
    found = await stored(memory)
    assert list(found.values()) == sorted(
        lines, key=lambda line: list(found).index(line.get("note_id") or line["session_id"])
    )
    assert outcome(await fed(memory, *lines)) == (0, 0, 5, 0)
    bob = Memory(memory.store, "bob").importer()
    assert (
        outcome(await bob.feed(header() + b"\n".join(entities(await exported(memory)))))[3] == 2
    ), "sessions s1 and s2 are alice's"
    kept = await memory.notes.get("n1")
    assert kept.details == Details("decision", 0.5, "why", 0.25, "s2", LATER)
    assert (kept.origin.link, kept.origin.material, kept.key) == ("/shared/page.md", True, "k")


async def test_recalls_are_the_most_of_both_and_change_nothing(memory: Memory) -> None:
    await fed(memory, note("n1", "tea", access_count=3, accessed_at=TIME))
    for count, at in ((2, None), (5, EARLIER), (4, LATER), (1, TIME)):
        line = note("n1", "tea", access_count=count, accessed_at=at)
        assert outcome(await fed(memory, line)) == (0, 0, 1, 0)
    assert await stored(memory) == {"n1": note("n1", "tea", access_count=5, accessed_at=LATER)}
    newer = note("n1", "black tea", 2, access_count=9, history=[], updated_at=LATER)
    assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
    found = (await stored(memory))["n1"]
    assert (found["access_count"], found["accessed_at"]) == (9, LATER)


@pytest.mark.parametrize(("updated", "keeps"), [(EARLIER, "n1"), (LATER, "n2"), (TIME, "n2")])
async def test_of_two_notes_with_one_key_the_newer_keeps_it_and_none_is_lost(
    memory: Memory, updated: str, keeps: str
) -> None:
    await fed(memory, note("n1", "mine", key="k"), note("n0", "theirs"))
    line = note("n2", "theirs", key="k", updated_at=updated)
    report = await fed(memory, line, note("n3", "other"), dry_run=True)
    assert outcome(report) == (2, 0, 0, 1)
    assert outcome(await fed(memory, line, note("n3", "other"))) == (2, 0, 0, 1)
    number, told = report.problems[0]
    assert number == 2
    assert told.startswith("key: 'k' ")
    assert "n1" in told
    found = await stored(memory)
    assert {i: each["key"] for i, each in found.items()} == {"n0": None, "n3": None} | {
        i: "k" if i == keeps else None for i in ("n1", "n2")
    }
    assert {each["current"]["content"] for each in found.values()} == {"mine", "theirs", "other"}
    assert outcome(await fed(memory, line)) == (0, 0, 1, 0)
    assert (await stored(memory)).keys() == found.keys()


async def test_a_newer_version_keeps_the_key_that_the_note_has(memory: Memory) -> None:
    await fed(memory, note("n1", "mine", key="k"))
    newer = note("n1", "mine", 2, updated_at=LATER)
    newer["history"] = note("n1", "mine")["history"] + [
        said("mine", 1) | {"written_at": TIME, "replaced_at": LATER}
    ]
    assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
    assert (await stored(memory))["n1"]["key"] == "k"


async def test_the_same_text_may_be_there_once_for_each_scope_and_key(memory: Memory) -> None:
    lines = [
        note("n1", "tea"),
        note("n2", "tea", key="k"),
        note("n3", "tea", scope_session="s1"),
        note("n4", "tea", superseded_by="n1", superseded_at=TIME),
    ]
    assert outcome(await fed(memory, *lines)) == (4, 0, 0, 0)
    assert not any(line["repeats_text"] for line in (await stored(memory)).values())
    again = [note("n5", "tea"), note("n6", "tea", scope_session="s1")]
    for dry_run in (True, False):
        report = await fed(memory, *again, dry_run=dry_run)
        assert [problem for _, problem in report.problems] == [
            "note n1 says exactly the same here, under that id",
            "note n3 says exactly the same here, under that id",
        ]
    assert outcome(await fed(memory, note("n7", "tea", scope_session="s2"))) == (1, 0, 0, 0)


async def test_what_replaces_a_note_may_come_later_in_the_file(memory: Memory) -> None:
    chain = [note(f"n{n}", f"tea {n}", superseded_by=f"n{n + 1}") for n in range(100)]
    assert outcome(await fed(memory, *chain, note("n100", "coffee"))) == (101, 0, 0, 0)


@pytest.mark.parametrize("apart", [False, True])
async def test_notes_that_replace_each_other_in_a_circle_count_again(
    memory: Memory, apart: bool
) -> None:
    await fed(memory, note("n3", "c"), note("n4", "d", superseded_by="n3"))
    lines = [
        note("n1", "a", superseded_by="n2"),
        note("n2", "b", superseded_by="n4"),
        note("n3", "c", superseded_by="n1"),
        note("n5", "e", superseded_by="n5"),
        note("n6", "f", superseded_by="n4"),
    ]
    problems = []
    for part in [[line] for line in lines] if apart else [lines]:
        problems += (await fed(memory, *part)).problems
    again = {"n3", "n5"} if apart else {"n1", "n2", "n3", "n5"}
    found = await stored(memory)
    assert {i for i, each in found.items() if each["superseded_by"] is None} == again
    assert sorted(problem[:29] for _, problem in problems) == [
        f"superseded_by: note {i} counts" for i in sorted(again)
    ]


@pytest.mark.parametrize("apart", [False, True])
async def test_no_note_of_one_session_takes_a_note_from_the_others(
    memory: Memory, apart: bool
) -> None:
    """Whatever comes first in the file; the tools refuse it."""
    await fed(memory, note("n1", "a", scope_session="s1"), note("n2", "b", superseded_by="n3"))
    lines = [
        note("n3", "c", scope_session="s1"),
        note("n4", "d", superseded_by="n1"),
        note("n5", "e", superseded_by="n1", scope_session="s1"),
        note("n7", "g", superseded_by="n8", scope_session="s2"),
        note("n8", "h", scope_session="s1"),
        note("n9", "i", superseded_by="n10", scope_session="s1"),
        note("n10", "j", scope_session="s1"),
        note("n11", "k", superseded_by="n9", scope_session="s1"),
    ]
    for part in [[line] for line in lines] if apart else [lines]:
        await fed(memory, *part)
    found = await stored(memory)
    superseded = {i for i, each in found.items() if each["superseded_by"]}
    assert superseded == {"n5", "n9", "n11"}


async def test_a_circle_is_not_closed_by_two_at_the_same_moment(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fed(memory, note("n1", "a"), note("n2", "b"), note("n3", "c"))
    read = Stored.notes

    async def overtaken(self: Stored, lines: Any) -> StoredNotes:
        found = await read(self, lines)
        await memory.typed.supersede("n2", replacement_id="n1")
        return found

    monkeypatch.setattr(Stored, "notes", overtaken)
    report = await fed(memory, note("n1", "a", superseded_by="n2"), note("n3", "c", access_count=2))
    assert report.problems[0][1].startswith("superseded_by: note n1 counts again")
    found = await stored(memory)
    assert [each["superseded_by"] for each in found.values()] == [None, "n1", None]


async def test_who_has_superseded_a_note_last_is_believed(memory: Memory) -> None:
    forgotten = note("n1", "a", superseded_by="", superseded_reason="old", superseded_at=TIME)
    replaced = note("n1", "a", superseded_by="n2", superseded_reason="", superseded_at=LATER)
    await fed(memory, note("n1", "a"))
    assert outcome(await fed(memory, forgotten)) == (0, 1, 0, 0)
    assert (await stored(memory))["n1"] == forgotten
    assert outcome(await fed(memory, replaced)) == (0, 1, 0, 0)
    assert outcome(await fed(memory, forgotten)) == (0, 0, 1, 0)
    found = (await stored(memory))["n1"]
    assert found == replaced


async def test_a_newer_version_says_whether_it_counts(memory: Memory) -> None:
    """As an update does: who writes a superseded note anew means what it says."""
    await fed(memory, note("n1", "a", superseded_by="n2", superseded_at=TIME))
    newer = note("n1", "b", 2, history=[], updated_at=LATER)
    assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
    assert (await stored(memory))["n1"]["superseded_by"] is None
    assert (await stored(memory))["n1"]["superseded_at"] is None
    newest = note("n1", "c", 3, history=[], superseded_by="", superseded_at=LATER)
    assert outcome(await fed(memory, newest)) == (0, 1, 0, 0)
    assert (await stored(memory))["n1"]["superseded_by"] == ""


async def test_a_line_that_was_refused_closes_no_circle(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db", max_notes=1) as memory:
        await fed(memory, note("n1", "a"))
        report = await fed(
            memory, note("n2", "b", superseded_by="n1"), note("n1", "a", superseded_by="n2")
        )
        assert [number for number, _ in report.problems] == [2]
        assert (await stored(memory))["n1"]["superseded_by"] == "n2"
