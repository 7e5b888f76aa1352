"""When a person is reminded of a note: `due_at`, of a note and of each version; empty: never.

The trigger is made again by stores that have copies; see `guest.memory.replica.sync`.
"""

from typing import Final

NAME: Final = "reminders"

STATEMENTS: Final = (
    "ALTER TABLE notes ADD COLUMN due_at TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE note_versions ADD COLUMN due_at TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX notes_by_due ON notes (namespace, due_at) WHERE due_at <> ''",
    "DROP TRIGGER IF EXISTS notes_update_counted",
)
