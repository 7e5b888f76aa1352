"""The schema's history: numbered migrations; all that are pending run in one transaction.

A migration is a module with `NAME` and `STATEMENTS`; its version is its place
in `_MODULES`. Until the first release the first migration itself is edited; after
it a released migration never changes, and a new one is appended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.models import now
from guest.memory.storage.base import ConstraintViolated, Database, Statement, apply
from guest.memory.storage.migrations import (
    m0001_memory,
    m0002_notices,
    m0003_schedules,
    m0004_reminders,
    m0005_schedule_costs,
    m0006_conditions,
)


@dataclass(frozen=True)
class Migration:
    """One step; `version` counts from 1 without gaps."""

    version: int
    name: str
    statements: Sequence[str]


_MODULES: Final = (
    m0001_memory,
    m0002_notices,
    m0003_schedules,
    m0004_reminders,
    m0005_schedule_costs,
    m0006_conditions,
)
MIGRATIONS: Final = tuple(
    Migration(version, module.NAME, module.STATEMENTS)
    for version, module in enumerate(_MODULES, start=1)
)

_HISTORY = """
CREATE TABLE IF NOT EXISTS memory_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
)
"""
_RECORD = "INSERT INTO memory_migrations (version, name, applied_at) VALUES (?, ?, ?)"


async def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Migrate the schema to the current version.

    Idempotent. An interrupted migration has changed nothing. If none is pending, nothing is
    written: on a server, writes wait for each other.

    Returns:
        The schema's version.

    Raises:
        StorageError: DATA_LOSS if the schema is newer than this program.
    """
    known = migrations[-1].version
    while True:
        version = await found_version(database)
        if version > known:
            raise StorageError(
                Code.DATA_LOSS,
                f"the memory database has schema version {version}; this program knows up to "
                f"{known}",
                details="a newer version of Oxydra has used it, and an older one could damage it",
                resolution="start it with that newer version, or bring back what was kept before "
                "the upgrade: `runner memory restore` with the file whose name ends in "
                f".before-v{known + 1}, or with an older backup",
            )
        if version == known:
            return version
        await _apply(database, migrations[version:])


async def found_version(database: Database) -> int:
    """The `schema_version` of a database that may have no history table yet."""
    history = "SELECT 1 FROM sqlite_schema WHERE name = 'memory_migrations'"
    return await schema_version(database) if (await database.execute(history)).rows else 0


async def schema_version(database: Database) -> int:
    """The version of the last migration applied; 0 before the first."""
    result = await database.execute("SELECT COALESCE(MAX(version), 0) FROM memory_migrations")
    version = result.rows[0][0]
    assert isinstance(version, int)
    return version


async def _apply(database: Database, pending: Sequence[Migration]) -> None:
    statements = [Statement(_HISTORY)]
    for migration in pending:
        statements.append(Statement(_RECORD, (migration.version, migration.name, now())))
        statements += map(Statement, migration.statements)
    try:
        await apply(database, *statements)
    except ConstraintViolated:
        if await schema_version(database) < pending[0].version:
            raise
        # another program applied them at the same moment
