"""What a user does costs no more because others use the same database, or because
there is much in it: every statement finds its rows by an index."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Final, get_args

import pytest

from guest.memory.factory import prepare
from guest.memory.memory import Memory
from guest.memory.models import SCRATCHPAD, Details, Filter, MemoryFull, Only, User
from guest.memory.notes.keyed import Mode
from guest.memory.replica import sync
from guest.memory.storage.base import Result, Statement, Value
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.remote import is_query
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

_SCAN: Final = re.compile(r"SCAN (?!CONSTANT ROW|\()(\w+)(?! VIRTUAL TABLE)\b")
_SORTED: Final = "USE TEMP B-TREE FOR ORDER BY"

EXEMPT: Final = {
    "SELECT 1 FROM chunks LIMIT 1": "reads one row",
    "SELECT COUNT(*) FROM erasures": "holds a row for each deletion under way",
    "FROM chunks_fts_idx": "only for deletions: whether the index still holds deleted words",
    "FROM conversation_fts_idx": "the same, for forgotten sessions",
    "WITH RECURSIVE chain": "no table, but the notes that replace each other",
    "SET spent = COALESCE(": "once, when schedules begin to know what they have cost",
}
"""Statements that may scan, by a part of them, and why."""

SORTING: Final = {
    "ORDER BY wanted.key": "as many notes as were asked for, each by its id",
    "ORDER BY kept.note_id, kept.version": "eight versions of each note of a page",
    "AND rowid > ? AND rowid <= ? ORDER BY rowid": "an export: the sessions of one user",
}
"""Statements that may sort."""

Plans = dict[str, list[str]]


class Recorder:
    """Keeps every statement that local databases are given, each with one set of arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, Sequence[Value]] = {}
        execute, batch = LocalDatabase.execute, LocalDatabase.batch

        async def recorded(database: LocalDatabase, sql: str, args: Sequence[Value] = ()) -> Result:
            self.seen[sql] = args
            return await execute(database, sql, args)

        async def batch_recorded(
            database: LocalDatabase, statements: Sequence[Statement]
        ) -> list[Result]:
            statements = tuple(statements)
            self.seen |= {statement.sql: statement.args for statement in statements}
            return await batch(database, statements)

        monkeypatch.setattr(LocalDatabase, "execute", recorded)
        monkeypatch.setattr(LocalDatabase, "batch", batch_recorded)

    async def plans(self, database: LocalDatabase) -> Plans:
        """How the engine carries out each statement on data: one line per table."""
        found = {}
        for sql, args in tuple(self.seen.items()):
            if sql.split()[0].upper() in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
                result = await database.execute(f"EXPLAIN QUERY PLAN {sql}", args)
                found[" ".join(sql.split())] = [str(row[-1]) for row in result.rows]
        return found


async def use(memory: Memory) -> None:
    """Everything that one user does."""
    first = (await memory.save(f"Cats of {memory.user_id}", ("pets",), ORIGIN)).note
    second = (await memory.save(f"Dogs of {memory.user_id}", (), ORIGIN)).note
    await memory.save(second.text, (), ORIGIN)
    await memory.update(first.note_id, "Cats", None, ORIGIN)
    await memory.update(first.note_id, "A cat", None, ORIGIN, expected_version=2)
    await memory.delete(second.note_id)
    await memory.notes.get(first.note_id)
    await memory.notes.full_id(first.note_id[:13])
    await memory.list(10)
    await memory.list(10, include_superseded=True)
    chosen = Filter("fact", "user", True, "pets", "s1", "cli", "2026-01-01", "2100-01-01")
    await memory.list(10, "", chosen)
    await memory.search("cat", only=Only(chosen=chosen))
    await memory.notes.erasure(first.note_id)
    for key, mode in product(("plan", SCRATCHPAD), get_args(Mode)):
        await memory.keyed.write(key, "Feed the cat", mode, ORIGIN)
    await memory.keyed.activity(datetime.now(UTC).date())
    await memory.keyed.clear("plan")
    await use_kinds(memory, first.note_id)
    with pytest.raises(MemoryFull):
        await memory.save("x" * 300, (), ORIGIN)
    with pytest.raises(MemoryFull):
        await memory.update(first.note_id, "x" * 300, None, ORIGIN)
    for words in ("cat", "hello"):
        session_id = (await memory.conversations.create()).session_id
        await memory.conversations.append(
            session_id, turn_id="t", role="user", text=words, payload="{}"
        )
    await memory.conversations.history(session_id, 10)
    await memory.conversations.list()
    await memory.sessions.rename(session_id, "Greeting")
    await memory.sessions.archive(session_id, archived=True)
    await memory.sessions.forget(session_id)
    export = b"".join([part.lines async for part in memory.export()])
    assert (await memory.importer().feed(export)).problems == []
    await memory.search("cat", tags=("pets",))
    await memory.search("cat", include_conversation=True)
    await memory.statistics()


async def use_kinds(memory: Memory, note_id: str) -> None:
    """What a user does with typed notes and their history."""
    other = (await memory.save("A dog", (), ORIGIN, Details("risk", 0.5))).note.note_id
    for query in ("cat", ""):
        await memory.typed.recall(query=query, types=("fact", "risk"), min_confidence=0.1)
    await memory.typed.supersede(other, replacement_id=note_id, reason="a cat after all")
    await memory.review(stale_days=1)
    await memory.history.changes()
    await memory.history.changes(session_id="s1")
    await memory.history.changes(note_id=note_id, actor="user", material_only=True)
    for undone in (other, note_id):
        await memory.history.undo(undone)
    await memory.history.undo(other, may_forget=True)


@pytest.fixture
async def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plans:
    path = tmp_path / "memory.db"
    recorder = Recorder(monkeypatch)
    async with opened(path, FakeEmbedder(), max_text_bytes=200) as memory:
        for user_id in ("anna", "bert", "cleo"):
            await use(Memory(memory.store, user_id))
    database = await LocalDatabase.open(path)
    try:
        await sync.count_changes(database)
        recorder.seen = {sql: args for sql, args in recorder.seen.items() if "_schema" not in sql}
        namespace = User("bert").notes
        await sync.counters(database, [namespace])
        await sync.pull(database, namespace, sync.Progress(), kinds=3, ids=True)
        return await recorder.plans(database)
    finally:
        await database.close()


async def test_no_table_is_read_from_end_to_end(plans: Plans) -> None:
    scanning = {sql: lines for sql, lines in plans.items() if any(map(_SCAN.search, lines))}
    assert {sql for sql in scanning if not any(part in sql for part in EXEMPT)} == set()
    assert {part for part in EXEMPT if not any(part in sql for sql in scanning)} == set()
    assert len(plans) > 40


async def test_nothing_is_sorted_that_an_index_has_in_order(plans: Plans) -> None:
    sorting = {sql: lines for sql, lines in plans.items() if _SORTED in lines}
    assert {sql for sql in sorting if not any(part in sql for part in SORTING)} == set()
    assert {part for part in SORTING if not any(part in sql for sql in sorting)} == set()


async def test_what_only_a_session_sees_is_found_without_the_notes_that_all_see(
    plans: Plans,
) -> None:
    looking = {sql: lines for sql, lines in plans.items() if "scope_session <> ''" in sql}
    assert len(looking) > 4
    for sql, lines in looking.items():
        assert any("notes USING INDEX notes_by_scope" in line for line in lines), sql
        assert not any("INDEX notes_by_change" in line for line in lines), sql


async def test_a_search_compares_the_namespace_of_matches_in_an_index(plans: Plans) -> None:
    matching = [lines for sql, lines in plans.items() if "_fts MATCH '" in sql]
    assert len(matching) > 1
    for lines in matching:
        assert any("COVERING INDEX chunks_by_namespace" in line for line in lines)


async def test_an_import_reads_no_events_of_other_sessions_of_the_user(plans: Plans) -> None:
    looking = [lines for sql, lines in plans.items() if "(session_id, sequence) IN (" in sql]
    assert len(looking) == 1
    assert not any("sessions USING INDEX sessions_by_user" in line for line in looking[0])


async def test_opening_a_store_again_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server a write waits for everybody else's, and whoever asks whether it is back
    must not stand in that queue."""
    database = await LocalDatabase.open(tmp_path / "memory.db")
    try:
        await prepare(database)
        recorder = Recorder(monkeypatch)
        await prepare(database)
        assert [sql for sql in recorder.seen if not is_query(sql)] == []
        assert recorder.seen
    finally:
        await database.close()
