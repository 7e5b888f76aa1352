"""Recall by kind, with a query by relevance and without one by recency; what is recalled
is counted."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Details, Note
from guest.memory.notes.repository import NoteRepository
from tests.support.memory.store import ALONE, ORIGIN, FakeEmbedder, away, opened

ALICE, BOB = "alice", "bob"


async def save(memory: Memory, text: str, **details: object) -> Note:
    known = replace(Details(), **details)  # type: ignore[arg-type]
    return (await memory.save(text, (), ALONE, known)).note


async def recalled(memory: Memory, **how: object) -> list[str]:
    outcome = await memory.typed.recall(**how)  # type: ignore[arg-type]
    return [note.text for note in outcome.notes]


async def test_without_a_query_the_last_written_comes_first(memory: Memory) -> None:
    first = await save(memory, "tea is green")
    await save(memory, "coffee is brown")
    await save(Memory(memory.store, BOB), "bob's secret")
    await memory.update(first.note_id, "tea is white", None, ORIGIN)
    assert await recalled(memory) == ["tea is white", "coffee is brown"]
    assert await recalled(memory, query="  ") == ["tea is white", "coffee is brown"]
    assert await recalled(memory, limit=1) == ["tea is white"]


async def test_with_a_query_the_most_relevant_comes_first(memory: Memory) -> None:
    await save(memory, "green tea from china")
    await save(memory, "tea and water and much more of it")
    await save(memory, "coffee is brown")
    assert (await recalled(memory, query="green tea china"))[0] == "green tea from china"
    assert "coffee is brown" not in await recalled(memory, query="green tea china")


@pytest.mark.parametrize("query", ["", "tea"])
async def test_kinds_and_confidence_limit_what_is_recalled(memory: Memory, query: str) -> None:
    await save(memory, "tea is safe", type="fact", confidence=0.9)
    await save(memory, "tea is a risk", type="risk", confidence=0.4)
    await save(memory, "tea it is", type="decision", confidence=0.6, rationale="no coffee")
    assert await recalled(memory, query=query, types=("risk",)) == ["tea is a risk"]
    assert set(await recalled(memory, query=query, min_confidence=0.6)) == {
        "tea is safe",
        "tea it is",
    }
    outcome = await memory.typed.recall(query=query, types=("decision",))
    assert [note.details.rationale for note in outcome.notes] == ["no coffee"]


@pytest.mark.parametrize("query", ["", "tea"])
async def test_the_work_at_hand_is_no_memory(memory: Memory, query: str) -> None:
    for key, text in (("session-handoff", "tea"), ("scratchpad", "tea"), ("plan", "tea for all")):
        await memory.keyed.write(key, text, "replace", ORIGIN)
    await save(memory, "tea in the old garden")
    assert set(await recalled(memory, query=query)) == {"tea for all", "tea in the old garden"}
    assert len(await recalled(memory, query=query, limit=2)) == 2


async def test_what_was_recalled_is_counted_with_its_time(memory: Memory) -> None:
    note = await save(memory, "green tea")
    other = await save(memory, "coffee")
    await memory.search("tea")
    assert (await memory.notes.get(note.note_id)).access_count == 0
    for query in ("tea", ""):
        await memory.typed.count((await memory.typed.recall(query=query)).notes)
    now = await memory.notes.get(note.note_id)
    assert now.access_count == 2
    assert now.accessed_at > note.updated_at
    assert (now.version, now.updated_at) == (1, note.updated_at)
    assert (await memory.notes.get(other.note_id)).access_count == 1


async def test_what_cannot_be_counted_is_logged(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = await save(memory, "green tea")

    async def full(*_: object) -> None:
        raise StorageError(Code.RESOURCE_EXHAUSTED, "the disk is full")

    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patched:
        patched.setattr(NoteRepository, "count_recall", full)
        await memory.typed.count([note])
    assert "that 1 notes were recalled is not recorded: the disk is full" in caplog.text
    assert (await memory.notes.get(note.note_id)).access_count == 0


async def test_a_degraded_search_is_not_silent(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.error = away()
    async with opened(tmp_path / "memory.db", embedder) as memory:
        await save(memory, "green tea")
        outcome = await memory.typed.recall(query="tea")
    assert [note.text for note in outcome.notes] == ["green tea"]
    assert "semantic search is unavailable" in outcome.warnings[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": 51},
        {"min_confidence": 1.5},
        {"min_confidence": float("nan")},
        {"types": ("rumour",)},
    ],
)
async def test_what_makes_no_sense_is_refused(memory: Memory, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"limit|min_confidence|type"):
        await recalled(memory, **wrong)
