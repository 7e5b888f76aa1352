"""A search that goes on where an earlier one ended, whatever was written in between."""

import random
from pathlib import Path
from typing import Any

import pytest
from wire.limits import CURSOR_MAX_CHARS

from guest.memory.memory import NOTHING_THEN, Memory
from guest.memory.models import Hit, Only
from guest.memory.period import Period
from guest.memory.search.shown import SHOWN_MAX
from tests.support.memory.store import ALONE, FakeEmbedder, embedded, opened


@pytest.fixture
async def ferries(memory: Memory) -> Memory:
    """20 notes and 20 messages, and one among them that repeats a note."""
    await memory.conversations.create("s")
    for number in range(20):
        await memory.save(f"ferry {number} leaves {'late ' * (number % 7)}", (), ALONE)
        said = "ferry 3 leaves late late late" if number == 10 else f"the ferry was number {number}"
        await memory.conversations.append(
            "s", turn_id=f"t{number}", role="user", text=said, payload="[]"
        )
    await embedded(memory, 40)
    return memory


def named(hit: Hit) -> str:
    return hit.note_id or hit.text


async def test_pages_are_the_whole_list_whatever_their_sizes(ferries: Memory) -> None:
    whole = await ferries.search("ferry late", top_k=50, include_conversation=True)
    assert (len(whole.results), whole.next_cursor) == (39, "")
    found, cursor, sizes = list[Hit](), "", iter([1, 7, 20, 11, 50])
    while True:
        page = await ferries.search(
            "ferry late", top_k=next(sizes), include_conversation=True, cursor=cursor
        )
        assert page.warnings == ()
        found += page.results
        if not (cursor := page.next_cursor):
            break
    assert [named(hit) for hit in found] == [named(hit) for hit in whole.results]
    assert next(sizes) == 50  # the cursor ended with the results


async def test_nothing_comes_twice_or_is_missed_where_something_is_written(ferries: Memory) -> None:
    chance, found, cursor = random.Random(5), list[str](), ""
    there = {note.note_id for note in (await ferries.list(100))[0]}
    before = frozenset(there)
    for number in range(40):
        page = await ferries.search("ferry late", top_k=2, cursor=cursor)
        found += map(named, page.results)
        if not (cursor := page.next_cursor):
            break
        await ferries.update(
            chance.choice(found), f"the ferry {number} late late late", None, ALONE
        )
        if number < 4:  # what is new is found if it has not been shown
            there.add((await ferries.save(f"late ferry new {number}", (), ALONE)).note.note_id)
            waiting = sorted(before - {*found})
            gone = chance.choice(waiting)
            await ferries.delete(gone)
            there.discard(gone)
            before -= {gone}
    assert len(found) == len({*found})
    assert before <= {*found} <= there


@pytest.mark.parametrize(
    "other",
    [
        {"query": "ferries late"},
        {"tags": ["boat"]},
        {"include_conversation": True},
        {"only": Only(superseded=True)},
        {"only": Only(chosen=Period.of("2026-11-21", "").limits("UTC"))},
    ],
)
async def test_a_cursor_of_another_search_is_refused(
    ferries: Memory, other: dict[str, Any]
) -> None:
    cursor = (await ferries.search("ferry late")).next_cursor
    with pytest.raises(
        ValueError, match=r"^cursor: not from an earlier search with the same words"
    ):
        await ferries.search(**{"query": "ferry late", **other}, cursor=cursor)
    bob = Memory(ferries.store, "bob")
    with pytest.raises(ValueError, match=r"^cursor: "):
        await bob.search("ferry late", cursor=cursor)


async def test_a_damaged_cursor_is_refused(ferries: Memory) -> None:
    cursor = (await ferries.search("ferry late")).next_cursor
    swapped = cursor[:4] + cursor[8:12] + cursor[4:8] + cursor[12:]
    for bad in ("x", "?", cursor[:-4], cursor + "AAAA", swapped, cursor.lower(), "é", "=", "\0"):
        with pytest.raises(ValueError, match=r"^cursor: "):
            await ferries.search("ferry late", cursor=bad)
    again = Only(session_id="s2", asked_in="t9", asked="another question")
    await ferries.search("ferry late", cursor=cursor, only=again)


async def test_the_next_page_is_from_the_same_time(ferries: Memory) -> None:
    today = Only(chosen=Period.of("2026-11-21", "").limits("UTC"))
    never = Only(chosen=Period.of("", "2020-11-21").limits("UTC"))
    page = await ferries.search("ferry", top_k=15, only=today, or_anytime=True)
    assert page.warnings == ()
    for hit in (await ferries.list(100))[0]:
        if hit.note_id not in {hit.note_id for hit in page.results}:
            await ferries.delete(hit.note_id)
    rest = await ferries.search("ferry", only=today, or_anytime=True, cursor=page.next_cursor)
    assert (rest.results, rest.next_cursor) == ((), "")
    page = await ferries.search("ferry", top_k=10, only=never, or_anytime=True)
    rest = await ferries.search("ferry", only=never, or_anytime=True, cursor=page.next_cursor)
    assert page.warnings == rest.warnings
    assert rest.warnings[0].startswith(NOTHING_THEN)
    assert len({hit.note_id for hit in (*page.results, *rest.results)}) == 15


async def test_weak_results_are_pages_too(tmp_path: Path) -> None:
    embedder = FakeEmbedder(dimensions=512)
    embedder.aliases = {"cats": "animal", "dogs": "animal", "quagga": "animal"}
    async with opened(tmp_path / "weak.db", embedder, min_similarity=0.9) as memory:
        for text in ("cats purr at night", "dogs bark at noon", "the sea is blue"):
            await memory.save(text, (), ALONE)
        first = await memory.search("quagga", top_k=1, weak=True)
        second = await memory.search("quagga", top_k=1, weak=True, cursor=first.next_cursor)
    found = [(hit.text.split()[0], hit.matched_by) for hit in (*first.results, *second.results)]
    assert sorted(found) == [("cats", "weak"), ("dogs", "weak")]
    assert second.next_cursor == ""


async def test_a_cursor_is_of_bounded_length(memory: Memory) -> None:
    for number in range(SHOWN_MAX + 20):
        await memory.save(f"ferry number {number}", (), ALONE)
    cursor, found = "", 0
    while True:
        page = await memory.search("ferry", top_k=50, cursor=cursor)
        found += len(page.results)
        if not (cursor := page.next_cursor):
            break
        assert len(cursor) <= CURSOR_MAX_CHARS
    assert found == SHOWN_MAX // 50 * 50 + 50
    assert page.warnings == (f"a search lists at most {SHOWN_MAX} results: narrow it",)
