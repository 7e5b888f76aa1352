"""What triggers count: the size of a memory, and its changes for copies."""

from pathlib import Path

from guest.memory.factory import prepare
from guest.memory.memory import Memory
from guest.memory.models import Details
from guest.memory.replica import sync
from guest.memory.storage.local import LocalDatabase
from tests.support.memory.migrations import LATER
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened, rows

ALICE, BOB = "alice", "bob"
_USED = "SELECT namespace, notes, bytes FROM usage ORDER BY namespace"
_UPDATED = "notes_update_counted"
_COUNTED = """
SELECT namespace, SUM(note), SUM(length(CAST(content AS BLOB))) FROM (
    SELECT namespace, 1 AS note, content FROM notes
    UNION ALL SELECT namespace, 0, content FROM note_versions)
    GROUP BY namespace ORDER BY namespace
"""


async def test_what_is_used_is_counted_whatever_happens(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        first = (await memory.save("grün", [], ORIGIN)).note
        await memory.save("grün", [], ORIGIN)
        await Memory(memory.store, BOB).save("a longer text", [], ORIGIN)
        scoped = await memory.save("of one session", [], ORIGIN, Details(scope_session="s"))
        await memory.update(first.note_id, "hellgrün", None, ORIGIN)
        await memory.keyed.write("plan", "to be cleared", "append", ORIGIN)
        await memory.keyed.write("plan", "at once", "replace", ORIGIN)
        await memory.keyed.clear("plan")
        await memory.delete(scoped.note.note_id)
    assert rows(path, _USED) == [("memory:alice", 1, 5 + 9), ("memory:bob", 1, 13)]
    assert rows(path, _USED) == rows(path, _COUNTED)


async def test_a_counting_store_counts_on_after_a_migration(path: Path) -> None:
    """As on a server, where copies of the memory learn by it what they lack."""
    database = await LocalDatabase.open(path)
    try:
        await prepare(database)
        await prepare(database, LATER)
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
        database = memory.store.database
        await sync.count_changes(database)
        await memory.save("tea", [], ORIGIN)
        before = await changes(memory)
        await database.execute("UPDATE notes SET access_count = 1, accessed_at = 'now'")
        assert await changes(memory) == before
        await database.execute("UPDATE notes SET superseded_by = ''")
        assert await changes(memory) == before + 1


async def changes(memory: Memory) -> int:
    result = await memory.store.database.execute("SELECT SUM(changes) FROM revisions")
    (count,) = result.rows[0]
    assert isinstance(count, int)
    return count
