"""What changed since somebody last looked, for copies of a memory kept elsewhere.

- `revisions`: two counters per namespace. `changes` grows with every row that
  is added or altered, `removals` with every one that goes.
- `revision` of a note, passage or vector: what `changes` was when the row last
  changed, so that a copy asks for the rows above the number it has seen.
- `chunks_by_namespace`: where many users share a store, the passages of one in order.

`guest.memory.replica.triggers` keeps both, in stores that have copies.
"""

from typing import Final

NAME: Final = "revisions"

STATEMENTS: Final = (
    """
    CREATE TABLE revisions (
        namespace TEXT PRIMARY KEY,
        changes INTEGER NOT NULL DEFAULT 0,
        removals INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    "ALTER TABLE notes ADD COLUMN revision INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE chunks ADD COLUMN revision INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE chunks_vec ADD COLUMN revision INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX chunks_by_namespace ON chunks (namespace, chunk_id)",
    "CREATE INDEX notes_by_revision ON notes (namespace, revision)",
    "CREATE INDEX chunks_by_revision ON chunks (namespace, revision)",
    "CREATE INDEX vectors_by_revision ON chunks_vec (namespace, revision)",
)
