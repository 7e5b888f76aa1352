"""Schema 7: what older notes become, and what triggers count."""

import shutil
from pathlib import Path

import pytest
from schema_fixture import FIXTURES

from guest.memory.factory import prepare
from guest.memory.memory import Memory
from guest.memory.models import Details
from guest.memory.replica import triggers
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, migrate
from tests.unit.memory_support import ORIGIN, FakeEmbedder, opened, rows

ALICE, BOB = "alice", "bob"
_USED = "SELECT namespace, notes, bytes FROM usage ORDER BY namespace"
_UPDATED = "notes_update_counted"
_COUNTED = """
SELECT namespace, SUM(note), SUM(length(CAST(content AS BLOB))) FROM (
    SELECT namespace, 1 AS note, content FROM notes
    UNION ALL SELECT namespace, 0, content FROM note_versions)
    GROUP BY namespace ORDER BY namespace
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


async def test_older_notes_have_a_kind_a_change_and_are_counted(path: Path) -> None:
    shutil.copyfile(FIXTURES / "v6.db", path)
    async with opened(path, FakeEmbedder()) as memory:
        notes, _ = await memory.list(ALICE, 100)
        assert {note.details for note in notes} == {Details()}
        assert {(note.version, note.change) for note in notes} == {(1, "save"), (3, "update")}
        assert all(note.origin == ORIGIN and not note.origin.link for note in notes)
        assert {note.accessed_at for note in notes} == {""}
        assert (await memory.conversations.get(ALICE, "s1")).parent_id == ""
    versions = rows(path, "SELECT version, change, restores FROM note_versions ORDER BY version")
    assert versions == [(1, "save", 0), (2, "update", 0)]
    assert rows(path, _USED) == rows(path, _COUNTED)


async def test_notes_superseded_before_say_when(path: Path) -> None:
    shutil.copyfile(FIXTURES / "v6.db", path)
    database = await LocalDatabase.open(path)
    await database.execute("UPDATE notes SET superseded_by = 'note-x' WHERE seq = 1")
    await database.close()
    async with opened(path) as memory:
        listed, _ = await memory.list(ALICE, 100, include_superseded=True)
        assert listed[-1].superseded is not None
        assert listed[-1].superseded.at == listed[-1].updated_at


async def test_what_is_used_is_counted_whatever_happens(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        first = (await memory.save(ALICE, "grün", [], ORIGIN)).note
        await memory.save(ALICE, "grün", [], ORIGIN)
        await memory.save(BOB, "a longer text", [], ORIGIN)
        scoped = await memory.save(ALICE, "of one session", [], ORIGIN, Details(scope_session="s"))
        await memory.update(ALICE, first.note_id, "hellgrün", None, ORIGIN)
        await memory.keyed.write(ALICE, "plan", "to be cleared", "append", ORIGIN)
        await memory.keyed.write(ALICE, "plan", "at once", "replace", ORIGIN)
        await memory.keyed.clear(ALICE, "plan")
        await memory.delete(ALICE, scoped.note.note_id)
    assert rows(path, _USED) == [("memory:alice", 1, 5 + 9), ("memory:bob", 1, 13)]
    assert rows(path, _USED) == rows(path, _COUNTED)


async def test_a_counting_store_of_schema_6_counts_changes_of_new_columns(path: Path) -> None:
    """As on a server, where copies of the memory learn by it what they lack."""
    database = await LocalDatabase.open(path)
    try:
        await migrate(database, MIGRATIONS[:6])
        await database.execute(
            f"CREATE TRIGGER {_UPDATED} AFTER UPDATE OF content ON notes BEGIN SELECT 1; END"
        )
        await prepare(database)
        (sql,) = (
            await database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (_UPDATED,))
        ).rows[0]
        for column in ("origin_material", "superseded_reason", "scope_session", "key"):
            assert column in str(sql)
        assert "accessed_at" not in str(sql)
        assert "access_count" not in str(sql)
    finally:
        await database.close()


async def test_a_recall_is_no_change_for_copies(path: Path) -> None:
    async with opened(path) as memory:
        database = memory._database
        await triggers.count(database)
        await memory.save(ALICE, "tea", [], ORIGIN)
        before = await changes(memory)
        await database.execute("UPDATE notes SET access_count = 1, accessed_at = 'now'")
        assert await changes(memory) == before
        await database.execute("UPDATE notes SET superseded_by = ''")
        assert await changes(memory) == before + 1


async def changes(memory: Memory) -> int:
    result = await memory._database.execute("SELECT SUM(changes) FROM revisions")
    (count,) = result.rows[0]
    assert isinstance(count, int)
    return count
