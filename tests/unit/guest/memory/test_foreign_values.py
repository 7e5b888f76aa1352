"""What another program wrote where memory writes something else: nothing fails because of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from guest.gateway import convert
from guest.memory.memory import Memory
from guest.memory.models import Details
from guest.memory.transfer import format as lines
from guest.memory.usage import Amount, Cap, ModelRequest
from guest.notices.outbox import Outbox
from guest.schedules.scheduler import Ran, Scheduler, receipt
from guest.schedules.store import Schedule, Schedules, Slot
from guest.schedules.timing import stored
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)

TEXTS = {
    "bytes": "x'fffe'",
    "text in bytes": "CAST('2026-01-02 03:04:05' AS BLOB)",
    "no UTF-8": "CAST(x'61fffe' AS TEXT)",
    "NUL": "CAST(x'610062' AS TEXT)",
    "empty": "''",
    "number": "42",
}
NUMBERS = {
    "word": "'abc'",
    "bytes": "x'fffe'",
    "no UTF-8": "CAST(x'61fffe' AS TEXT)",
    "infinite": "9e999",
    "negative": "-9e999",
    "below": "-3",
    "large": "9223372036854775807",
    "fraction": "1.5",
}
COLUMNS = {
    "notes": (
        "content content_hash tags type rationale source origin_actor origin_channel origin_session"
        " origin_turn origin_link change created_at updated_at ordered_at accessed_at superseded_by"
        " superseded_reason superseded_at key scope_session due_at",
        "version confidence importance origin_material restores access_count",
    ),
    "note_versions": (
        "content tags type rationale source origin_actor origin_channel origin_session origin_turn"
        " origin_link change written_at replaced_at superseded_by superseded_reason superseded_at"
        " due_at",
        "version confidence importance origin_material restores",
    ),
    "sessions": ("title channel created_at updated_at archived_at parent_id", "turns"),
    "session_state": ("name value updated_at", "epoch"),
    "conversation_events": ("turn_id text payload created_at", ""),
    "chunks": ("context body words neighbours", "position"),
    "receipts": ("turn_id action outcome note_id asked_by created_at", "version"),
    "notices": ("key kind text session_id turn_id note_id created_at read_at", ""),
    "schedules": (
        "name instructions timing zone starts session_id tools made_by made_in material created_at"
        " handled due spent_on condition seen model project",
        "budget again queue paused spent spent_month spent_day day_budget capped",
    ),
    "slots": (
        "state owner session_id turn_id began ended detail",
        "attempt renewed cost calls notes missed told",
    ),
    "model_requests": (
        "provider model sent_at day",
        "input_tokens cached_tokens output_tokens cost",
    ),
}


async def fill(memory: Memory) -> str:
    """A note with a history and a receipt, beside another; a session; a request to a model."""
    await memory.conversations.create("s1", "t", "test")
    for role, text in (("user", "tea for Ada"), ("assistant", "Ada likes tea")):
        await memory.conversations.append("s1", turn_id="t1", role=role, text=text, payload="[]")
    await memory.state_of.swap("s1", "plan", "{}", 0)
    note = (await memory.save("Ada drinks tea", ["tea"], ORIGIN, Details("decision", 0.5))).note
    await memory.update(note.note_id, "Ada drinks green tea", None, ORIGIN)
    await memory.save("Bob drinks tea with milk", ["tea"], ORIGIN)
    for each in ("r1", "r2"):
        await memory.usage.settle(replace(REQUEST, request_id=each), Amount(9, 5, 1, 7), "reported")
    for each in ("k1", "k2"):
        await Outbox(memory.store.database, memory.user_id).add("guest", "tea is out", key=each)
    schedule = await schedules(memory).create(
        Schedule("", "tea", "make tea", "every 30 minutes", "UTC", BEGAN.isoformat()), BEGAN
    )
    await schedules(memory).claim(Slot(schedule.schedule_id, stored(BEGAN), "running"))
    await embedded(memory, 4)
    return note.note_id


REQUEST = ModelRequest("r1", "s1", "t1", "answer", "openai", "m", "2026-01-02", "2026-01-02")


def schedules(memory: Memory) -> Schedules:
    return Schedules(memory.store.database, memory.store.eraser, memory.user_id, "host")


async def never(schedule: Schedule, slot: Slot) -> Ran:
    return Ran(failed=True, text="never")


async def use(memory: Memory) -> set[str]:
    """All that reads. Returns the texts that were listed, found, recalled and exported."""
    listed, _ = await memory.list(10, include_superseded=True)
    for query in ("tea", "green tea", "drinks"):
        found = await memory.search(query, include_conversation=True, weak=True)
        for hit in found.results:
            convert.result(hit).SerializeToString()
    await memory.search("tea", tags=["tea"])
    recalled = await memory.typed.recall(query="tea", min_confidence=0.1)
    newest = await memory.typed.recall(limit=10)
    for note in (*listed, *recalled.notes, *newest.notes):
        assert isinstance(note.text, str)
        shown = convert.note(note)
        assert shown.text == note.text
        assert shown.created_at
    changes, _ = await memory.history.changes()
    for each in changes:
        assert convert.change(each).at
    await memory.review()
    for session in await memory.conversations.list(include_archived=True):
        convert.session(session)
        for event in await memory.conversations.history("s1", 10):
            convert.event(event)
    await memory.conversations.latest(10)
    await memory.receipts.of_turns("s1", ["t1"])
    for by in ("day", "session", "model", "kind"):
        await memory.usage.sums(by)
    await memory.usage.used(Cap("month", "tokens", 1), "s1", "2026-01-02")
    await memory.state_of.read("s1", "plan")
    for notice in await Outbox(memory.store.database, memory.user_id).newest(10):
        assert isinstance(notice.text, str)
    for schedule in await schedules(memory).page(10):
        assert isinstance(schedule.instructions, str)
        for slot in await schedules(memory).runs(schedule.schedule_id, 10):
            assert isinstance(receipt(slot), str)
    await Scheduler(schedules(memory), Outbox(memory.store.database, memory.user_id), never).tick()
    await memory.statistics()
    parts = [part async for part in memory.export()]
    for line in b"".join(part.lines for part in parts).splitlines():
        with suppress(lines.BadLine):  # an import reports it, and goes on
            lines.read(line)
    return {note.text for note in listed}


@pytest.fixture
async def filled(path: Path) -> AsyncIterator[Memory]:
    async with opened(path, FakeEmbedder()) as memory:
        await fill(memory)
        yield memory


@pytest.mark.parametrize(
    ("table", "columns", "values"),
    [
        (table, columns, values)
        for table, kinds in COLUMNS.items()
        for columns, values in zip(kinds, (TEXTS, NUMBERS), strict=True)
        if columns
    ],
)
async def test_every_value_in_every_column_is_read(
    filled: Memory, table: str, columns: str, values: dict[str, str]
) -> None:
    database = filled.store.database
    only = f" WHERE rowid = (SELECT MIN(rowid) FROM {table})"
    if table == "model_requests":  # which has no rowid
        only = " WHERE request_id = 'r1'"
    failed = []
    for column in columns.split():
        before = (await database.execute(f"SELECT {column} AS vector FROM {table}{only}")).rows
        for name, value in values.items():
            await database.execute(f"UPDATE {table} SET {column} = {value}{only}")
            try:
                async with asyncio.timeout(60):
                    assert "Bob drinks tea with milk" in await use(filled)
            except Exception as error:
                failed.append((column, name, repr(error)))
            await database.execute(f"UPDATE {table} SET {column} = ?{only}", before[0])
    assert failed == []


async def test_some_values_in_some_columns_are_read(filled: Memory) -> None:
    """What differs between an engine and a server."""
    database = filled.store.database
    for column, value in (
        ("content", "x'fffe'"),
        ("tags", "CAST(x'61fffe' AS TEXT)"),
        ("rationale", "CAST(x'610062' AS TEXT)"),
        ("confidence", "9e999"),
        ("version", "9223372036854775807"),
        ("updated_at", "x'fffe'"),
    ):
        await database.execute(f"UPDATE notes SET {column} = {value} WHERE seq = 1")
        assert "Bob drinks tea with milk" in await use(filled)
    await database.execute("UPDATE conversation_events SET text = CAST(x'61fffe' AS TEXT)")
    await use(filled)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("version", value) for value in NUMBERS.values()],
        *[("content", value) for value in TEXTS.values()],
        ("tags", "x'fffe'"),
        ("updated_at", "x'fffe'"),
        ("confidence", "'abc'"),
    ],
)
async def test_such_a_note_can_be_changed_and_forgotten(
    filled: Memory, column: str, value: str
) -> None:
    database = filled.store.database
    for _ in range(2):
        await database.execute(f"UPDATE notes SET {column} = {value}")
        note = (await filled.list(10))[0][-1]
        changed = await filled.update(
            note.note_id, "Ada drinks coffee", None, ORIGIN, expected_version=note.version
        )
        assert (changed.note.text, changed.note.version) == ("Ada drinks coffee", note.version + 1)
    await database.execute(f"UPDATE notes SET {column} = {value}")
    for note in (await filled.list(10))[0]:
        await filled.delete(note.note_id, expected_version=note.version)
    assert await filled.list(10) == ([], "")


async def test_the_log_says_once_whose_row_it_is_and_what_removes_it(
    filled: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    note_id = (await filled.list(10))[0][-1].note_id
    change = "UPDATE notes SET content = {} WHERE note_id = ?"
    await filled.store.database.execute(change.format("CAST('tea' AS BLOB)"), (note_id,))
    await use(filled)
    assert caplog.messages == []  # nothing is lost of it
    await filled.store.database.execute(change.format("CAST(x'74fffe' AS TEXT)"), (note_id,))
    await use(filled)
    assert caplog.messages == [
        f"another program wrote to {note_id} what cannot be read; "
        f"to remove it: runner memory forget {note_id}"
    ]
    assert (await filled.notes.get(note_id)).text == "t" + 2 * "\N{REPLACEMENT CHARACTER}"


async def test_an_export_of_such_notes_is_imported_but_for_what_says_nothing(
    filled: Memory, path: Path
) -> None:
    for column, value in (("type", "x'fffe'"), ("confidence", "9e999"), ("accessed_at", "'now'")):
        await filled.store.database.execute(f"UPDATE notes SET {column} = {value}")
    await filled.store.database.execute("UPDATE notes SET content = '' WHERE version = 2")
    exported = b"".join([part.lines async for part in filled.export()])
    async with opened(path.with_name("other.db")) as other:
        report = await other.importer().feed(exported)
        assert [why for _, why in report.problems] == ["current.content: must not be blank"]
        (note,) = (await other.list(10))[0]
        assert (note.text, note.details.type) == ("Bob drinks tea with milk", "fact")


async def test_a_time_of_another_form_is_the_same_time(filled: Memory) -> None:
    for value, read in (
        ("2026-01-02 03:04:05", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05.000000Z"),
        ("yesterday", "1970-01-01T00:00:00.000000Z"),
    ):
        await filled.store.database.execute("UPDATE notes SET updated_at = ?", (value,))
        assert {note.updated_at for note in (await filled.list(10))[0]} == {read}


async def test_the_history_goes_on_behind_a_change_without_a_time(filled: Memory) -> None:
    await filled.store.database.execute("UPDATE notes SET ordered_at = 'zzz' WHERE version = 2")
    seen, cursor = await filled.history.changes(limit=1)
    while cursor:
        more, cursor = await filled.history.changes(limit=1, cursor=cursor)
        seen += more
    assert [(each.version, each.at[:4] == "1970") for each in seen] == [
        *((2, True), (1, False), (1, False))
    ]


async def test_a_state_whose_number_is_none_is_replaced(filled: Memory) -> None:
    await filled.store.database.execute("UPDATE session_state SET epoch = 'abc'")
    found = await filled.state_of.read("s1", "plan")
    assert found == ("{}", 1)
    assert await filled.state_of.swap("s1", "plan", "{1}", 1)
    assert await filled.state_of.read("s1", "plan") == ("{1}", 2)
