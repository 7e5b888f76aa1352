"""A note with all that is known of it: stored, versioned, told apart and listed."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from guest.memory.models import (
    Details,
    Filter,
    Note,
    Only,
    Origin,
    Superseded,
)
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened, rows

ALICE, BOB = "alice", "bob"
READ = Origin("agent", "chat", "s9", "t9", "/shared/page.md", material=True)
RISKY = Details("risk", 0.25, "the hose is old", 0.5, "s9")


async def supersede(memory: Memory, note_id: str, by: str = "") -> None:
    await memory.store.database.execute(
        "UPDATE notes SET superseded_by = ?, superseded_reason = 'wrong', superseded_at = ? "
        "WHERE note_id = ?",
        (by, "2026-11-21T08:00:00.000000Z", note_id),
    )


async def ids(memory: Memory, *, include_superseded: bool = False, **chosen: Any) -> list[str]:
    listed, _ = await memory.list(100, "", Filter(**chosen), include_superseded=include_superseded)
    return [note.note_id for note in listed]


async def test_what_is_known_of_a_note_is_stored_with_it(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        saved = (await memory.save("the boiler may leak", ["house"], READ, RISKY)).note
        assert (saved.details, saved.origin, saved.change) == (RISKY, READ, "save")
        assert await memory.notes.get(saved.note_id) == saved
        plain = (await memory.save("likes tea", [], ORIGIN)).note
        assert (plain.details, plain.superseded, plain.key) == (Details(), None, "")
        await supersede(memory, plain.note_id, saved.note_id)
        superseded = (await memory.notes.get(plain.note_id)).superseded
        assert superseded == Superseded(saved.note_id, "wrong", "2026-11-21T08:00:00.000000Z")


async def test_an_update_keeps_what_it_says_nothing_about(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        saved = (await memory.save("the boiler may leak", ["house"], READ, RISKY)).note
        updated = (await memory.update(saved.note_id, "the boiler leaks", None, ORIGIN)).note
        assert (updated.details, updated.tags) == (RISKY, ("house",))
        assert (updated.origin, updated.change, updated.version) == (ORIGIN, "update", 2)
    kept = rows(
        path,
        "SELECT content, tags, type, confidence, rationale, importance, origin_actor, "
        "origin_channel, origin_session, origin_turn, origin_link, origin_material, change, "
        "restores, written_at, replaced_at FROM note_versions",
    )
    assert kept == [
        (
            *("the boiler may leak", '["house"]', "risk", 0.25, "the hose is old", 0.5),
            *("agent", "chat", "s9", "t9", "/shared/page.md", 1, "save", 0),
            *(saved.created_at, updated.updated_at),
        )
    ]


async def test_a_note_written_anew_counts_again(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        note = (await memory.save("lives in Berlin", [], ORIGIN)).note
        await supersede(memory, note.note_id)
        updated = (await memory.update(note.note_id, "lives in Bern", None, ORIGIN)).note
        assert updated.superseded is None
        assert [hit.note_id for hit in (await memory.search("lives")).results] == [note.note_id]


async def test_the_same_text_is_one_note_for_each_who_sees_it(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        everybody = await memory.save("tea", [], ORIGIN)
        scoped = await memory.save("tea", [], ORIGIN, Details(scope_session="s1"))
        other = await memory.save("tea", [], ORIGIN, Details(scope_session="s2"))
        outcomes = (everybody, scoped, other)
        assert all(outcome.created for outcome in outcomes)
        for outcome in outcomes:
            again = await memory.save("tea", [], ORIGIN, outcome.note.details)
            assert (again.created, again.note.note_id) == (False, outcome.note.note_id)
        await supersede(memory, everybody.note.note_id)
        assert (await memory.save("tea", [], ORIGIN)).created


@pytest.mark.parametrize(
    ("details", "problem"),
    [
        (Details(confidence=1.01), "confidence: 1.01 is not from 0 to 1"),
        (Details(confidence=-0.1), "confidence: -0.1 is not from 0 to 1"),
        (Details(confidence=math.nan), "confidence: nan is not from 0 to 1"),
        (Details(importance=math.inf), "importance: inf is not from 0 to 1"),
        (Details(rationale="x" * 2001), "rationale: 2001 characters are more than 2000"),
        (Details(rationale="a\0"), "rationale: must not hold NUL"),
        (Details(type="rumour"), "type: 'rumour' is not one of fact, assumption, .*lesson_"),  # type: ignore[arg-type]
    ],
)
async def test_details_out_of_bounds_are_refused(
    path: Path, details: Details, problem: str
) -> None:
    async with opened(path) as memory:
        with pytest.raises(ValueError, match=problem):
            await memory.save("tea", [], ORIGIN, details)
        assert await ids(memory) == []


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda memory: memory.list(5, "", Filter(type="rumour")), "type: 'rumour' is not one of"),
        (lambda memory: memory.search("tea", top_k=51), "top_k: 51 is not from 1 to 50"),
        (
            lambda memory: memory.search("tea", only=Only(min_confidence=2)),
            "min_confidence: 2 is not from 0 to 1",
        ),
        (
            lambda memory: memory.search("tea", only=Only(types=("rumour",))),  # type: ignore[arg-type]
            "type: 'rumour' is not one of",
        ),
    ],
)
async def test_what_cannot_be_looked_for_is_named(
    path: Path, call: Callable[[Memory], Any], problem: str
) -> None:
    async with opened(path) as memory:
        with pytest.raises(ValueError, match=problem):
            await call(memory)


async def test_a_list_has_what_is_asked_of_it(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        fact = (await memory.save("a", ["x"], ORIGIN)).note.note_id
        risk = (await memory.save("b", ["x", "y"], READ, RISKY)).note.note_id
        gone = (await memory.save("c", ["y"], READ)).note.note_id
        keyed = (await memory.keyed.write("plan", "d", "replace", ORIGIN)).note_id
        await Memory(memory.store, BOB).save("e", ["x"], READ, RISKY)
        await supersede(memory, gone)
        assert await ids(memory) == [keyed, risk, fact]
        assert await ids(memory, include_superseded=True) == [keyed, gone, risk, fact]
        assert await ids(memory, type="risk") == [risk]
        assert await ids(memory, actor="agent") == [risk]
        assert await ids(memory, material_only=True, include_superseded=True) == [gone, risk]
        assert await ids(memory, tag="x") == [risk, fact]
        assert await ids(memory, tag="x", actor="user", type="fact") == [fact]
        assert await ids(memory, tag="z") == []


async def test_a_filtered_list_comes_in_pages(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        for i in range(9):
            details = Details("risk" if i % 3 == 0 else "fact")
            await memory.save(f"note {i}", [], ORIGIN, details)
        first, cursor = await memory.list(2, "", Filter(type="risk"))
        second, end = await memory.list(2, cursor, Filter(type="risk"))
        assert [note.text for note in (*first, *second)] == ["note 6", "note 3", "note 0"]
        assert end == ""


async def test_many_notes_come_in_the_order_asked_for(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        saved: list[Note] = [(await memory.save(text, [], ORIGIN)).note for text in ("a", "b", "c")]
        others = (await Memory(memory.store, BOB).save("d", [], ORIGIN)).note
        wanted = [saved[2].note_id, others.note_id, "note-x", saved[0].note_id]
        found = await memory.notes.get_many(wanted)
        assert found == [saved[2], saved[0]]
        assert await memory.notes.get_many([]) == []
