"""The schema's history."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.replica.replica import open_copy
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, Migration, migrate, schema_version
from tests.support.memory.migrations import LATER

FIRST = Migration(1, "first", ("CREATE TABLE a (x)", "INSERT INTO a VALUES (1)"))
SECOND = Migration(2, "second", ("ALTER TABLE a ADD COLUMN y", "UPDATE a SET y = x"))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[LocalDatabase]:
    database = await LocalDatabase.open(tmp_path / "memory.db")
    yield database
    await database.close()


async def history(database: LocalDatabase) -> list[tuple[object, object]]:
    result = await database.execute("SELECT version, name FROM memory_migrations ORDER BY version")
    return [(row[0], row[1]) for row in result.rows]


def test_versions_count_from_one_without_gaps() -> None:
    assert [m.version for m in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert len({m.name for m in MIGRATIONS}) == len(MIGRATIONS)


async def test_all_are_applied_in_order_once(database: LocalDatabase) -> None:
    assert await migrate(database, (FIRST,)) == 1
    assert await migrate(database, (FIRST, SECOND)) == 2
    assert await migrate(database, (FIRST, SECOND)) == 2
    assert await history(database) == [(1, "first"), (2, "second")]
    assert (await database.execute("SELECT x, y FROM a")).rows == ((1, 1),)


async def test_the_schema_has_what_the_design_names(database: LocalDatabase) -> None:
    await migrate(database)
    result = await database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = {row[0] for row in result.rows}
    assert tables >= {
        "sessions",
        "conversation_events",
        "session_state",
        "notes",
        "note_versions",
        "chunks",
        "chunks_vec",
        "chunks_fts",
        "memory_migrations",
        "guards",
    }
    options = await database.execute("SELECT v FROM chunks_fts_config WHERE k = 'secure-delete'")
    assert options.rows == ((1,),)


async def test_a_migration_that_fails_leaves_nothing(database: LocalDatabase) -> None:
    await migrate(database, (FIRST,))
    broken = Migration(2, "broken", ("CREATE TABLE b (x)", "INSERT INTO a VALUES (2)", "NONSENSE"))
    with pytest.raises(StorageError):
        await migrate(database, (FIRST, broken))
    assert await history(database) == [(1, "first")]
    assert (await database.execute("SELECT x FROM a")).rows == ((1,),)
    assert await migrate(database, (FIRST, SECOND)) == 2


async def test_an_interrupted_migration_is_done_at_the_next_start(tmp_path: Path) -> None:
    for delay in (0.0, 0.0005, 0.001, 0.003):
        database = await LocalDatabase.open(tmp_path / f"{delay}.db")
        task = asyncio.create_task(migrate(database))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await database.close()
        database = await LocalDatabase.open(tmp_path / f"{delay}.db")
        assert await migrate(database) == len(MIGRATIONS)
        assert await history(database) == [(m.version, m.name) for m in MIGRATIONS]
        await database.close()


async def test_migrating_at_the_same_moment_applies_once(database: LocalDatabase) -> None:
    versions = await asyncio.gather(*(migrate(database) for _ in range(5)))
    assert set(versions) == {len(MIGRATIONS)}
    assert len(await history(database)) == len(MIGRATIONS)


async def test_a_newer_schema_is_refused_and_left_alone(database: LocalDatabase) -> None:
    await migrate(database, (FIRST, SECOND))
    with pytest.raises(StorageError, match="schema version 2; this program knows up to 1") as error:
        await migrate(database, (FIRST,))
    assert error.value.code is Code.DATA_LOSS
    assert "newer version" in error.value.resolution
    assert await schema_version(database) == 2
    assert await history(database) == [(1, "first"), (2, "second")]


async def test_a_copy_of_an_older_schema_is_thrown_away(tmp_path: Path) -> None:
    """Only the server knows the values of what the new schema has added."""
    found = []
    for migrations in (MIGRATIONS, MIGRATIONS, LATER):
        copy = await open_copy(tmp_path / "replica.db", "", "http://server", migrations)
        found.append(len((await copy.execute("SELECT 1 FROM replica_progress")).rows))
        await copy.execute("INSERT INTO replica_progress VALUES (?, '{}')", (f"n{len(found)}",))
        await copy.close()
    assert found == [0, 1, 0]
