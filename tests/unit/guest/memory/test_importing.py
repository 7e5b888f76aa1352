"""What becomes of the lines of an export, one rule at a time."""

import asyncio
import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guest.errors import GuestError
from guest.memory.memory import Memory
from guest.memory.transfer.importer import Report
from tests.support.memory.exports import (
    TIME,
    entities,
    event,
    exported,
    file,
    header,
    note,
    said,
    session,
)
from tests.support.memory.store import ORIGIN, embedded, opened

LATER = "2026-11-21T10:00:00.000000Z"
ORIGIN_LINE = said("x", 1)["origin"]


async def fed(memory: Memory, *lines: dict[str, Any], dry_run: bool = False) -> Report:
    return await memory.importer().feed(file(*lines), dry_run=dry_run)


async def only(memory: Memory) -> dict[str, Any]:
    """The one note that there is, as its line."""
    (line,) = entities(await exported(memory))
    found: dict[str, Any] = json.loads(line)
    return found


def outcome(report: Report) -> tuple[int, int, int, int]:
    return report.created, report.updated, report.unchanged, len(report.problems)


async def test_an_unknown_note_is_created_exactly_as_it_was(memory: Memory) -> None:
    line = note("n1", "green tea", 3, access_count=7, key="drink", superseded_reason="because")
    assert outcome(await fed(memory, line)) == (1, 0, 0, 0)
    assert await only(memory) == line


async def test_the_same_again_changes_nothing(memory: Memory) -> None:
    lines = (note("n1", "green tea", 3), session("s1"), event("s1", 1, "hello"))
    await fed(memory, *lines)
    before = await exported(memory)
    assert outcome(await fed(memory, *lines)) == (0, 0, 3, 0)
    assert entities(await exported(memory)) == entities(before)


async def test_a_newer_version_is_taken_over_and_what_was_there_is_history(memory: Memory) -> None:
    newer = note("n1", "black tea", 3, updated_at=LATER)
    newer["history"] = note("n1", "tea", 3)["history"]
    older = note("n1", "tea 2", 2)
    older["history"] = newer["history"][:1]
    await fed(memory, older)
    assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
    assert await only(memory) == newer
    (hit,) = (await memory.search("tea")).results
    assert hit.text == "black tea"
    assert outcome(await fed(memory, older)) == (0, 0, 1, 0)
    assert await only(memory) == newer


async def test_a_version_that_the_file_lacks_is_kept(memory: Memory) -> None:
    await fed(memory, note("n1", "tea 1", 1))
    newer = note("n1", "tea", 3, updated_at=LATER)
    newer["history"] = [newer["history"][1] | {"written_at": LATER}]
    assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
    kept = (await only(memory))["history"]
    assert [version["content"] for version in kept] == ["tea 1", "tea 2"]
    assert kept[0]["replaced_at"] == LATER


async def test_history_lines_complete_a_note(memory: Memory) -> None:
    whole = note("n1", "tea", 30)
    first = whole | {"history": whole["history"][-8:]}
    rest = [
        {"kind": "history", "note_id": "n1", "history": whole["history"][start : start + 8]}
        for start in (0, 8, 16)
    ]
    rest[2]["history"] = whole["history"][16:-8]
    for dry_run in (True, False):
        assert outcome(await fed(memory, first, *rest, dry_run=dry_run)) == (1, 0, 0, 0)
    statistics = await memory.statistics()
    assert statistics.note_versions == 29
    lines = [json.loads(line) for line in entities(await exported(memory))]
    numbers = sorted(version["version"] for line in lines for version in line["history"])
    assert numbers == list(range(1, 30))
    orphan = {"kind": "history", "note_id": "n2", "history": rest[0]["history"]}
    assert (await fed(memory, orphan)).problems == [(2, "the history's note n2 is not here")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (note("n1", "tea", 2, created_at=LATER), "another note has the id n1 here"),
        (note("n2", "tea"), "note n1 says exactly the same here, under that id"),
        (note("n1", "tea", 2, scope_session="s1"), "scope_session: another session sees note n1"),
        (event("s1", 1, "bye"), "event 1 of session s1 is another one here"),
        (event("s9", 1, "bye"), "the event's session s9 is not here"),
        (session("s1", created_at=LATER), "another session has the id s1 here"),
    ],
)
async def test_nothing_is_ever_overwritten(
    memory: Memory, line: dict[str, Any], problem: str
) -> None:
    await fed(memory, note("n1", "tea", 2), session("s1"), event("s1", 1, "hello"))
    before = entities(await exported(memory))
    for dry_run in (True, False):
        report = await fed(memory, note("n5", "milk"), line, dry_run=dry_run)
        assert outcome(report) == (1, 0, 0, 1)
        assert report.problems[0][0] == 3
        assert problem in report.problems[0][1]
    after = entities(await exported(memory))
    assert [each for each in after if b'"n5"' not in each] == before


@pytest.mark.parametrize(
    ("line", "texts", "told"),
    [
        (note("n1", "tea", 2) | {"current": said("coffee", 2)}, "tea 1, coffee, tea", ""),
        (
            note("n1", "tea", 2, updated_at=LATER) | {"current": said("coffee", 2)},
            "tea 1, tea, coffee",
            "",
        ),
        (note("n1", "x", 3), "tea 1, x 2, tea, x", "version 1 of note n1 says something else here"),
        (note("n1", "x", 1), "tea 1, x, tea", ""),
        (note("n1", "x", 1, updated_at=LATER), "tea 1, tea, x", ""),
    ],
)
async def test_where_both_changed_the_newer_counts_and_the_older_is_an_earlier_version(
    memory: Memory, line: dict[str, Any], texts: str, told: str
) -> None:
    await fed(memory, note("n1", "tea", 2))
    for dry_run in (True, False):
        report = await fed(memory, line, dry_run=dry_run)
        assert outcome(report) == (0, 1, 0, bool(told))
        assert told in str(report.problems)
    merged = await only(memory)
    found = [*merged["history"], merged["current"]]
    assert ", ".join(each["content"] for each in found) == texts
    assert [each["version"] for each in found] == sorted({each["version"] for each in found})
    (hit,) = (await memory.search(merged["current"]["content"])).results
    assert hit.text == merged["current"]["content"]
    assert outcome(await fed(memory, line)) == (0, 0, 1, bool(told))
    assert await only(memory) == merged


async def test_notes_that_said_the_same_there_may_do_so_here(memory: Memory) -> None:
    tea = (await memory.save("tea", [], ORIGIN)).note
    milk = (await memory.save("milk", [], ORIGIN)).note
    await memory.update(milk.note_id, "tea", None, ORIGIN)
    export = await exported(memory)
    bob = Memory(memory.store, "bob").importer()
    assert outcome(await bob.feed(export)) == (2, 0, 0, 0)
    found, _ = await Memory(memory.store, "bob").list(10)
    assert {each.note_id for each in found} == {tea.note_id, milk.note_id}


async def test_superseded_notes_in_any_order(memory: Memory) -> None:
    old = note("n1", "tea", superseded_by="n2", superseded_reason="coffee now")
    new = note("n2", "coffee")
    assert outcome(await fed(memory, old, new)) == (2, 0, 0, 0)
    assert [each.note_id for each in (await memory.list(10))[0]] == ["n2"]
    await fed(memory, note("n3", "cats"))
    late = note("n3", "cats", superseded_by="n4", superseded_reason="dogs")
    assert outcome(await fed(memory, late)) == (0, 1, 0, 0)
    assert outcome(await fed(memory, late)) == (0, 0, 1, 0)
    assert outcome(await fed(memory, note("n3", "cats"))) == (0, 0, 1, 0)
    assert outcome(await fed(memory, note("n3", "cats", superseded_by="n2"))) == (0, 0, 1, 0)
    later = note("n3", "cats", superseded_by="n2", superseded_at=LATER)
    assert outcome(await fed(memory, later)) == (0, 1, 0, 0)


async def test_a_session_follows_the_newer_side(memory: Memory) -> None:
    state = {"name": "summary", "value": "old", "epoch": 1, "updated_at": TIME}
    await fed(memory, session("s1", title="old", state=[state]))
    newer = session(
        "s1",
        title="new",
        turns=4,
        updated_at=LATER,
        archived_at=LATER,
        state=[state | {"value": "new", "epoch": 2}],
    )
    assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
    assert await only(memory) == newer
    assert outcome(await fed(memory, session("s1", title="old"))) == (0, 0, 1, 0)
    assert await only(memory) == newer


async def test_a_session_of_another_user_of_the_same_store_is_not_touched(memory: Memory) -> None:
    await Memory(memory.store, "bob").conversations.create("s1", "bob's")
    for dry_run in (True, False):
        report = await fed(memory, session("s1"), event("s1", 1, "x"), dry_run=dry_run)
        assert outcome(report) == (0, 0, 0, 2)
        assert "session_id: s1 is taken" in report.problems[0][1]
    assert (await Memory(memory.store, "bob").conversations.get("s1")).title == "bob's"
    assert (await Memory(memory.store, "bob").statistics()).conversation_events == 0


async def test_imported_words_are_found_and_get_their_vectors(memory: Memory) -> None:
    await memory.save("Tea.", [], ORIGIN)
    await embedded(memory, 1)
    await fed(memory, note("n1", "The violin."), session("s1"), event("s1", 5, "A zebra."))
    hits = (await memory.search("zebra", include_conversation=True)).results
    assert [hit.source for hit in hits][:1] == ["conversation"]
    await embedded(memory, 3)
    (first, *_) = (await memory.search("violin")).results
    assert (first.note_id, first.matched_by) == ("n1", "both")


async def test_events_go_on_after_what_was_imported(memory: Memory) -> None:
    await fed(memory, session("s1"), event("s1", 2**40, "far"), event("s1", 3, "near"))
    number = await memory.conversations.append(
        "s1", turn_id="t9", role="user", text="on", payload="{}"
    )
    assert number == 2**40 + 1
    assert [e.sequence for e in await memory.conversations.history("s1", 9)] == [
        3,
        2**40,
        2**40 + 1,
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not a line of JSON"),
        (b"\xff", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"3", "not a JSON object"),
        (b'{"kind":"end","lines":"x"}', "lines: input should be a valid integer"),
        (b'{"kind":"poem"}', "kind: is unknown; accepted are header, note, history"),
        (header().strip(), "kind: only the first line may be a header"),
    ],
)
async def test_a_bad_line_is_named_and_stops_no_other(
    memory: Memory, line: bytes, problem: str
) -> None:
    good = file(note("n1", "tea"))
    report = await memory.importer().feed(good + line + b"\n" + good.splitlines()[1])
    assert outcome(report) == (1, 0, 1, 1)
    number, told = report.problems[0]
    assert number == 3
    assert problem in told


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"role": "system"}, "role: input should be 'user', 'assistant' or 'tool'"),
        ({"sequence": 0}, "sequence: input should be greater than or equal to 1"),
        ({"sequence": 2**53}, "sequence: input should be less than or equal to"),
        ({"sequence": "1"}, "sequence: input should be a valid integer"),
        ({"text": "a\0b"}, "text: must not hold NUL characters"),
        ({"created_at": "yesterday"}, "created_at: must be a time in UTC such as"),
        ({"created_at": "2026-13-21T09:30:00.000000Z"}, "created_at: must be a time in UTC"),
        ({"session_id": "../x"}, "session_id: must be 1 to 64 of"),
        ({"colour": "red"}, "colour: is not a field of this line in version 1"),
        ({"a\nline 9: \x1b[2J": 1}, "a\\nline 9: \\x1b[2J: is not a field of this line"),
        ({"a" * 1000: 1}, "a" * 200 + ": is not a field of this line"),
    ],
)
async def test_a_bad_field_is_named_with_what_is_accepted(
    memory: Memory, change: dict[str, Any], problem: str
) -> None:
    report = await fed(memory, session("s1"), event("s1", 1, "x") | change)
    assert outcome(report) == (1, 0, 0, 1)
    assert report.problems[0][1].startswith(problem)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"current": said(" ", 1)}, "current.content"),
        ({"current": said("x" * 16_001, 1)}, "current.content"),
        ({"current": said("x", 1) | {"tags": ["t"] * 17}}, "current.tags"),
        ({"current": said("x", 1) | {"tags": ["t" * 65]}}, "current.tags.0"),
        ({"current": said("x", 1) | {"confidence": float("nan")}}, "current.confidence"),
        ({"current": said("x", 1) | {"confidence": 1.5}}, "current.confidence"),
        ({"current": said("x", 1) | {"type": "poem"}}, "current.type"),
        ({"current": said("x", 1) | {"change": "guess"}}, "current.change"),
        ({"history": [{}]}, "history.0.version"),
        ({"history": note("n1", "x", 2)["history"]}, "history: version 1 is not before version 1"),
        ({"current": said("x", 2**53 - 1)}, "current.version"),
        ({"current": said("x", 1) | {"importance": 2.0}}, "current.importance"),
        ({"current": said("x", 1) | {"rationale": "y" * 2001}}, "current.rationale"),
        ({"superseded_by": "", "superseded_reason": "y" * 2001}, "superseded_reason"),
        ({"key": "plan\u2028\nMemory"}, "key: must be one line"),
        *(
            ({"current": said("x", 1) | {"origin": ORIGIN_LINE | {name: "a\nNote: b"}}}, told)
            for name in ("channel", "session_id", "turn_id", "link")
            for told in [f"current.origin.{name}: must be one line"]
        ),
    ],
)
async def test_a_note_keeps_to_the_bounds_of_saving(
    memory: Memory, change: dict[str, Any], field: str
) -> None:
    report = await fed(memory, note("n1", "x") | change)
    assert re.match(f"{re.escape(field)}(: |$| )", report.problems[0][1])


async def test_what_another_user_said_is_imported_and_not_said_here(memory: Memory) -> None:
    tea = (await memory.save("tea", [], ORIGIN)).note.note_id
    await memory.update(tea, "green tea", None, replace(ORIGIN, actor="agent"))
    await memory.update(tea, "black tea", None, ORIGIN)
    export = await exported(memory)
    assert outcome(await Memory(memory.store, "bob").importer().feed(export)) == (1, 0, 0, 0)
    assert (await Memory(memory.store, "bob").notes.get(tea)).origin == replace(
        ORIGIN, actor="import"
    )
    changes, _ = await Memory(memory.store, "bob").history.changes()
    assert [each.origin.actor for each in changes] == ["import", "agent", "import"]
    assert outcome(await Memory(memory.store, "bob").importer().feed(export)) == (0, 0, 1, 0)
    assert outcome(await memory.importer().feed(export)) == (0, 0, 1, 0)
    there = await exported(Memory(memory.store, "bob"))
    assert outcome(await memory.importer().feed(there)) == (0, 0, 1, 0)
    assert (await memory.notes.get(tea)).origin == ORIGIN


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"hello",
        header(version=2),
        header(version=0),
        header(format="mbox"),
        file(note("n", "x"))[len(header()) :],
    ],
)
async def test_what_is_no_export_is_refused_as_a_whole(memory: Memory, first: bytes) -> None:
    with pytest.raises(GuestError, match="not an export of memory") as caught:
        await memory.importer().feed(first)
    assert "line 1: " in caught.value.details


async def test_a_dry_run_over_several_parts_says_what_the_import_then_does(memory: Memory) -> None:
    parts = [
        [session("s1"), note("n1", "tea", 1)],
        [event("s1", 1, "hello"), event("s2", 1, "lost"), note("n2", "tea")],
        [event("s1", 2, "hello"), note("n1", "tea", 1)],
    ]
    told = {}
    for dry_run in (True, False):
        importer = memory.importer()
        told[dry_run] = [await importer.feed(file(*part), dry_run=dry_run) for part in parts]
        if dry_run:
            assert entities(await exported(memory)) == []
    assert [outcome(report) for report in told[False]] == [
        (2, 0, 0, 0),
        (1, 0, 0, 2),
        (1, 0, 1, 0),
    ]
    assert [len(report.problems) for report in told[True]] == [0, 1, 0]


async def test_two_imports_at_once_make_everything_once(memory: Memory) -> None:
    lines = [note(f"n{number}", f"tea {number}", 2) for number in range(150)]
    lines += [session("s1"), *(event("s1", number, "x") for number in range(1, 150))]
    importer = memory.importer()
    first, second = await asyncio.gather(
        importer.feed(file(*lines)),
        importer.feed(file(*lines)),
    )
    assert first.created + second.created == 300
    assert first.unchanged + second.unchanged == 300
    assert first.problems + second.problems == []
    assert len(entities(await exported(memory))) == 300


async def test_a_save_of_the_same_text_at_the_same_moment_makes_one_note(memory: Memory) -> None:
    lines = [note(f"n{number}", f"tea {number}") for number in range(40)]
    saves = (memory.save(f"tea {number}", [], ORIGIN) for number in reversed(range(40)))
    report, _ = await asyncio.gather(fed(memory, *lines), asyncio.gather(*saves))
    assert report.created + len(report.problems) == 40
    assert (await memory.statistics()).notes == 40


async def test_an_import_beside_changes_of_the_same_notes_loses_none(memory: Memory) -> None:
    await fed(memory, *(note(f"n{number}", f"tea {number}") for number in range(40)))
    newer = []
    for number in range(40):
        line = note(f"n{number}", f"milk {number}", 2)
        line["history"][0] |= said(f"tea {number}", 1)
        newer.append(line)

    async def change() -> None:
        for number in range(40):
            await memory.update(f"n{number}", f"mine {number}", None, ORIGIN)

    report, _ = await asyncio.gather(fed(memory, *newer), change())
    texts = {}
    for line in map(json.loads, entities(await exported(memory))):
        texts[line["note_id"]] = [
            *(v["content"] for v in line["history"]),
            line["current"]["content"],
        ]
    assert report.problems == []
    for number in range(40):
        tea, mine, milk = f"tea {number}", f"mine {number}", f"milk {number}"
        assert texts[f"n{number}"] == [tea, milk, mine]


async def test_a_big_memory_goes_out_and_in_part_by_part(tmp_path: Path) -> None:
    events, payload = 500, json.dumps({"parts": ["x" * 48_000]})
    async with opened(tmp_path / "a.db") as source, opened(tmp_path / "b.db") as target:
        importer = source.importer()
        for first in range(1, events, 50):
            numbers = range(first, first + 50)
            said_here = (event("s1", number, "hello", payload=payload) for number in numbers)
            await importer.feed(file(session("s1"), *said_here))
        into = target.importer()
        size, header_line = 0, b""
        tracemalloc.start()
        try:
            async for part in source.export():
                lines = header_line + part.lines
                header_line = header_line or part.lines[: part.lines.index(b"\n") + 1]
                size += len(part.lines)
                await into.feed(lines)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size > 24_000_000
        assert peak < size / 2
        assert (await target.statistics()).conversation_events == events
