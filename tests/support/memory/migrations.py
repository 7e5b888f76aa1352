"""A later schema than this program's, made up for tests of migrating."""

from collections.abc import Sequence
from typing import Final

from guest.memory.storage.migrations import MIGRATIONS, Migration

LATEST: Final = MIGRATIONS[-1].version
LATER: Final = (
    *MIGRATIONS,
    Migration(
        LATEST + 1,
        "made up: a column, a table that is filled, an index that is built anew",
        (
            "ALTER TABLE notes ADD COLUMN mood TEXT NOT NULL DEFAULT ''",
            "UPDATE notes SET mood = 'as ' || type",
            "CREATE TABLE moods (mood TEXT PRIMARY KEY, notes INTEGER NOT NULL)",
            "INSERT INTO moods SELECT mood, COUNT(*) FROM notes GROUP BY mood",
            "INSERT INTO conversation_fts (conversation_fts) VALUES ('rebuild')",
            "DROP TRIGGER IF EXISTS notes_update_counted",
        ),
    ),
    Migration(LATEST + 2, "made up: one more", ("CREATE INDEX notes_by_mood ON notes (mood)",)),
)
COPY: Final = f"before-v{LATEST + 1}"
"""How the name ends of the copy that is made before the migration to `LATER`."""


def versions(migrations: Sequence[Migration]) -> list[int]:
    """The rows that the history has after all of `migrations`."""
    return [migration.version for migration in migrations]
