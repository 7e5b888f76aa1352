"""Reminders: when they are due, that they are told once, and what becomes of them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from guest.errors import ToolError
from guest.memory.memory import Memory
from guest.memory.models import Filter, Origin
from guest.notices import outbox, reminders
from guest.notices.outbox import Outbox
from guest.notices.reminders import ReminderLoop, Reminders, due_at
from guest.tools.base import ToolContext
from guest.tools.memory.reminders import reminder_tools
from tests.support.memory.store import ORIGIN, opened

BERLIN = "Europe/Berlin"
SATURDAY = datetime(2026, 11, 28, 4, 0, tzinfo=UTC)
SOON, LATER = "2026-11-28T05:00:00.000000Z", "2026-12-04T08:00:00.000000Z"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db") as memory:
        yield memory


def box(memory: Memory) -> Outbox:
    return Outbox(memory.store.database, memory.user_id)


async def told(memory: Memory, at: datetime) -> list[str]:
    """The texts of all notices, after everything due was told."""
    await Reminders(memory).tell(box(memory), at)
    return [each.text for each in await box(memory).after(0, 99)]


@pytest.mark.parametrize(
    ("words", "due"),
    [
        ("2026-12-04 09:00", "2026-12-04T08:00"),
        ("2026-12-04T09:00:00+00:00", "2026-12-04T09:00"),
        ("2026-12-04", "2026-12-04T08:00"),
        ("2027-06-04", "2027-06-04T07:00"),
        ("friday 9:00", "2026-12-04T08:00"),
        ("on Friday at 9", "2026-12-04T08:00"),
        ("saturday", "2026-12-05T08:00"),
        ("today 18:30", "2026-11-28T17:30"),
        ("tomorrow", "2026-11-29T08:00"),
        ("in 20 minutes", "2026-11-28T04:20"),
        ("+2h", "2026-11-28T06:00"),
        ("in 130 days", "2027-04-07T03:00"),  # at the same time of the day, an hour earlier in UTC
    ],
)
def test_the_moment_that_a_person_names(words: str, due: str) -> None:
    assert due_at(words, BERLIN, SATURDAY) == f"{due}:00.000000Z"


@pytest.mark.parametrize(
    "words", ["", "soon", "yesterday", "2026-11-27", "today 4:59", "99999 weeks", "friday 25:00"]
)
def test_what_is_no_time_or_has_passed_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"due: .*(is not a time such as|has passed: it is Sat)"):
        due_at(words, BERLIN, SATURDAY)


async def test_a_reminder_is_told_once_for_its_time(memory: Memory) -> None:
    reminders = Reminders(memory)
    note = await reminders.set("call Ada", SOON, (), ORIGIN)
    assert (await reminders.set("call Ada", SOON, (), ORIGIN)) == note
    await memory.save("no reminder", [], ORIGIN)
    assert await told(memory, SATURDAY) == []
    assert await reminders.next_due(SATURDAY) == SOON
    hour = timedelta(hours=1)
    for _ in range(2):
        assert await told(memory, SATURDAY + hour) == ["call Ada"]
    assert await reminders.next_due(SATURDAY + hour) == ""
    moved = await reminders.move(note.note_id, LATER, ORIGIN)
    assert (moved.text, moved.version, moved.details.due_at) == ("call Ada", 2, LATER)
    late = datetime(2026, 12, 6, tzinfo=UTC)
    first, second = await told(memory, late)
    assert first == "call Ada"
    assert second.startswith("call Ada (was due 2026-12-04 ")
    assert len(await memory.list(9, only=Filter(due=True))) == 2


async def due_by_another(memory: Memory, due: str) -> None:
    note = (await memory.save("tea", [], ORIGIN)).note
    changing = ("UPDATE notes SET due_at = ? WHERE note_id = ?", (due, note.note_id))
    await memory.store.database.execute(*changing)


@pytest.mark.parametrize(
    "due", ["-3", "2026-01-01", "2026-01-01T00:00:00Z", "2026-99-99T99", "soon"]
)
async def test_a_time_that_another_program_has_written_keeps_no_other_from_being_told(
    memory: Memory, due: str
) -> None:
    await due_by_another(memory, due)
    await Reminders(memory).set("call Ada", SOON, (), ORIGIN)
    async with asyncio.timeout(60):
        for _ in range(2):
            texts = await told(memory, SATURDAY + timedelta(hours=1))
            assert texts[-1] == "call Ada"
            assert len(texts) == 2 - (due > SOON)
    assert await Reminders(memory).next_due(SATURDAY + timedelta(hours=1)) in ("", "2026-99-99T99")


async def test_one_is_told_also_if_another_was_told_for_its_time(memory: Memory) -> None:
    hour = SATURDAY + timedelta(hours=1)
    await Reminders(memory).set("call Ada", SOON, (), ORIGIN)
    assert await told(memory, hour) == ["call Ada"]
    await Reminders(memory).set("water the flowers", SOON, (), ORIGIN)
    for _ in range(2):
        assert await told(memory, hour) == ["call Ada", "water the flowers"]


async def test_one_whose_notice_went_as_the_oldest_is_not_told_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "KEPT_MAX", 3)
    monkeypatch.setattr(reminders, "KEPT_MAX", 3)
    for text in ("call Ada", "water the flowers", "buy bread", "sell the car", "learn Greek"):
        await Reminders(memory).set(text, "2026-01-02T03:04:05.000000Z", (), ORIGIN)
    async with asyncio.timeout(60):
        assert len(await told(memory, SATURDAY)) == 3
    for number in range(3):
        await box(memory).add("guest", f"failed {number}", key=f"{number}")
    left = await told(memory, SATURDAY)
    assert [text[:8] for text in left] == ["failed 0", "failed 1", "failed 2"]


async def test_what_is_done_or_forgotten_is_told_no_more(memory: Memory) -> None:
    reminders = Reminders(memory)
    done = await reminders.set("one", SOON, (), ORIGIN)
    forgotten = await reminders.set("two", SOON, (), ORIGIN)
    await reminders.done(done.note_id, ORIGIN)
    (two,) = await told(memory, SATURDAY + timedelta(days=1))
    assert two.startswith("two (was due ")
    await memory.delete(forgotten.note_id)
    assert await told(memory, SATURDAY + timedelta(days=1)) == []
    await memory.history.undo(done.note_id)
    (again,) = await told(memory, SATURDAY + timedelta(days=1))
    assert again.startswith("one (was due ")


async def test_material_stays_material_when_its_time_is_moved(memory: Memory) -> None:
    read = Origin("agent", "cli", "s1", "t1", link="/shared/page.md", material=True)
    note = await Reminders(memory).set("pay them", SOON, (), read)
    moved = await Reminders(memory).move(note.note_id, LATER, ORIGIN)
    assert moved.origin.material
    (text,) = await told(memory, datetime(2026, 12, 4, 8, tzinfo=UTC))
    assert text == "pay them (comes from what was read)"


async def test_an_export_has_the_time_and_another_memory_tells_it(
    memory: Memory, tmp_path: Path
) -> None:
    reminders = Reminders(memory)
    note = await reminders.set("call Ada", LATER, (), ORIGIN)
    await reminders.move(note.note_id, SOON, ORIGIN)
    lines = b"".join([part.lines async for part in memory.export()])
    async with opened(tmp_path / "other.db") as other:
        report = await other.importer().feed(lines)
        assert not report.problems
        assert (await told(other, SATURDAY + timedelta(hours=1))) == ["call Ada"]
        await other.history.undo(note.note_id)
        assert (await other.notes.get(note.note_id)).details.due_at == LATER


async def test_one_that_was_due_while_nothing_ran_is_told_at_the_start(memory: Memory) -> None:
    note = await Reminders(memory).set("call Ada", "2026-01-02T03:04:05.000000Z", (), ORIGIN)
    outbox = box(memory)
    loop = ReminderLoop(memory, outbox)
    loop.start()
    try:
        async with asyncio.timeout(60):
            first = await anext(outbox.follow(0))
            assert (first.kind, first.note_id) == ("reminder", note.note_id)
            soon = datetime.now(UTC) + timedelta(milliseconds=300)
            due = soon.isoformat(timespec="microseconds").replace("+00:00", "Z")
            await loop.reminders.set("now", due, (), ORIGIN)  # wakes the loop
            assert (await anext(outbox.follow(first.number))).text == "now"
    finally:
        await loop.stop()


async def test_a_time_that_cannot_be_read_does_not_end_the_telling(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await due_by_another(memory, "9999-99-99T99")
    outbox = box(memory)
    loop = ReminderLoop(memory, outbox)
    loop.start()
    try:
        async with asyncio.timeout(60):
            while "reminders cannot be looked up now" not in caplog.text:
                await asyncio.sleep(0.01)
            assert loop.next_due is None
            await loop.reminders.set("call Ada", "2026-01-02T03:04:05.000000Z", (), ORIGIN)
            assert (await anext(outbox.follow(0))).text.startswith("call Ada")
    finally:
        await loop.stop()


async def test_the_tools_set_list_move_and_end_reminders(memory: Memory) -> None:
    set_, list_ = reminder_tools(memory)
    context = ToolContext(memory.user_id, "", "t1", "test", time_zone=BERLIN)

    async def call(**given: str) -> Any:
        return (await set_.run(context, set_.arguments(**given))).data

    made = await call(content="call Ada", due="2126-12-04 09:00")
    assert made["message"].endswith("due 2126-12-04T09:00:00+01:00")
    await call(note_id=made["note_id"], due="2126-12-05")
    (listed,) = (await list_.run(context, list_.arguments())).data
    assert (listed["text"], listed["due_at"]) == ("call Ada", "2126-12-05T09:00:00+01:00")
    await call(note_id=made["note_id"], due="done")
    assert (await list_.run(context, list_.arguments())).data == []
    for wrong, told in (
        ({"due": "friday"}, "content: what to be reminded of"),
        ({"content": "x", "due": "soon"}, "is not a time such as"),
        ({"content": "x", "due": "done"}, "call reminder_list first"),
        ({"note_id": "note-1", "due": "friday"}, "note not found"),
    ):
        with pytest.raises(ToolError, match=told):
            await call(**wrong)


async def test_of_many_reminders_the_soonest_are_listed_and_how_many_more_there_are(
    memory: Memory,
) -> None:
    _, list_ = reminder_tools(memory)
    for day in range(52, 0, -1):
        at = datetime(2126, 12, 1, 8, tzinfo=UTC) + timedelta(days=day)
        await Reminders(memory).set(f"day {day}", f"{at:%Y-%m-%dT%H:%M:%S}.000000Z", (), ORIGIN)
    listed = await list_.run(ToolContext(memory.user_id, "s", "t", "cli"), list_.arguments())
    assert [each["text"] for each in listed.data] == [f"day {day}" for day in range(1, 51)]
    assert listed.notes == ("2 more are due later: find them by a query",)
    assert listed.summary == "52 reminders"
