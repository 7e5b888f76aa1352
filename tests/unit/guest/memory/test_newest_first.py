"""Of notes that say different things of the same, the newest stands first and is named."""

import math
from pathlib import Path

import numpy as np
import pytest

from guest.memory.memory import Memory
from guest.memory.search.context_block import render
from guest.memory.search.newest import COMPARED, Dated, newest_first, older_ones
from tests.support.memory.store import ALONE, FakeEmbedder, away, opened

OLD, NEW = "Anna lives in the old harbour quarter", "Anna lives in a village near the mountains"


async def saved(memory: Memory, *texts: str) -> list[str]:
    return [(await memory.save(text, (), ALONE)).note.note_id for text in texts]


async def found(memory: Memory, query: str, top_k: int = 5) -> list[tuple[str, str]]:
    outcome = await memory.search(query, top_k=top_k, weak=True)
    return [(hit.note_id, hit.older_than) for hit in outcome.results]


async def test_the_newest_stands_first_and_the_older_one_names_it(memory: Memory) -> None:
    old, new = await saved(memory, OLD, NEW)
    assert await found(memory, "Anna in the old harbour quarter") == [(new, ""), (old, new)]
    results = (await memory.search("Anna in the old harbour quarter", top_k=5)).results
    assert results[0].score >= results[1].score
    assert f"older than {new})" in render(results, 1000).text


async def test_the_newest_takes_the_only_place(memory: Memory) -> None:
    _, new = await saved(memory, OLD, NEW)
    assert await found(memory, "Anna in the old harbour quarter", top_k=1) == [(new, "")]


async def test_of_three_the_newest_is_named_by_both(memory: Memory) -> None:
    one, two, three = await saved(memory, OLD, NEW, "Anna lives in a boat at the north harbour")
    assert dict(await found(memory, "Anna lives")) == {one: three, two: three, three: ""}


async def test_an_update_makes_a_note_the_newest(memory: Memory) -> None:
    old, new = await saved(memory, OLD, NEW)
    await memory.update(old, "Anna lives in the new harbour quarter", None, ALONE)
    assert await found(memory, "where Anna lives") == [(old, ""), (new, old)]


@pytest.mark.parametrize(
    "other",
    ["Ben lives in a village near the mountains", "Anna was in a village in May", OLD + "!"],
)
async def test_what_is_about_something_else_or_the_same_is_not_older(
    memory: Memory, other: str
) -> None:
    await saved(memory, OLD, other)
    assert [newer for _, newer in await found(memory, "Anna lives in the harbour")] == ["", ""]


async def test_entries_of_a_series_are_not_older_than_one_another(memory: Memory) -> None:
    await saved(memory, *(f"The river level is at {level} cm" for level in range(210, 216)))
    assert {newer for _, newer in await found(memory, "river level")} == {""}


async def test_notes_with_a_key_are_apart(memory: Memory) -> None:
    (old,) = await saved(memory, OLD)
    await memory.keyed.write("anna", NEW, "replace", ALONE)
    assert (old, "") in await found(memory, "Anna lives")


async def test_also_without_vectors(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.error = away()
    async with opened(tmp_path / "memory.db", embedder) as memory:
        old, new = await saved(memory, OLD, NEW)
        assert await found(memory, "old harbour Anna") == [(new, ""), (old, new)]


async def test_a_save_names_what_it_may_contradict_though_it_is_not_similar(
    memory: Memory,
) -> None:
    (old,) = await saved(memory, OLD)
    outcome = await memory.save("Anna lives in the cottage of some uncle", (), ALONE)
    assert [(hit.note_id, hit.older_than) for hit in outcome.similar] == [
        (old, outcome.note.note_id)
    ]
    assert outcome.similar[0].score < 0.6


def dated(note_id: str, text: str, angle: float, score: float = 1.0) -> Dated:
    """A note of the day that its id names, whose vector is at an angle from the question's."""
    vector = np.array([math.cos(angle), math.sin(angle)], np.float32)
    return Dated(note_id, text, f"2026-05-0{note_id}", vector, math.cos(angle), score)


def test_what_a_question_does_not_tell_apart_stands_behind_the_newer_unmarked() -> None:
    old, new = "I live in Lisbon", "We moved to Porto"
    assert older_ones([dated("1", old, 0.8), dated("2", new, 0.9)]) == ({}, {"1": "2"})
    assert older_ones([dated("1", old, 0.1), dated("2", new, 0.9)]) == ({}, {})
    assert older_ones([dated("1", old, 0.8), dated("2", new, 0.9, 0.4)]) == ({}, {})
    assert older_ones([dated("1", old, 0.8), dated("2", new, 2.4)]) == ({}, {})


def test_of_a_series_nothing_is_older() -> None:
    texts = ("Fed the cat", "Swam in the sea", "Read a book", "Sang at home")
    series = [dated(str(day), text, 0.8 + day / 100) for day, text in enumerate(texts)]
    assert older_ones(series) == ({}, {})
    assert older_ones(series[:2]) == ({}, {"0": "1"})


def test_the_order() -> None:
    assert newest_first(["a", "", "b", "c"], [0.9, 0.8, 0.5, 0.4], {"a": "b"}) == [
        *((2, 0.9), (0, 0.9), (1, 0.8), (3, 0.4))
    ]
    assert newest_first(["", ""], [0.4, 0.5], {}) == [(1, 0.5), (0, 0.4)]


def test_what_was_written_at_the_same_moment_is_not_older() -> None:
    assert older_ones([Dated("a", OLD, "2026", None), Dated("b", NEW, "2026", None)]) == ({}, {})
    assert older_ones([Dated("a", OLD, "2026", None)]) == ({}, {})
    assert COMPARED > 20
