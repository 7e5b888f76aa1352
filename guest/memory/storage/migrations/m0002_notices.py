"""What a person is told outside of turns: one outbox for each user.

- `notices`: what is to be told, in order; `number` is never used twice. `key` names what happened,
  so that it is told once. `note_id` and `session_id`: whose text it may have; it goes with them.
  `read_at`: when the person has read it; empty: not yet.
- `notice_marks`: up to which number a surface has told them.
"""

from typing import Final

NAME: Final = "notices"

STATEMENTS: Final = (
    """
    CREATE TABLE notices (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        user_id TEXT NOT NULL,
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        session_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        note_id TEXT NOT NULL,
        created_at TEXT NOT NULL,
        read_at TEXT NOT NULL DEFAULT '',
        UNIQUE (user_id, key)
    )
    """,
    "CREATE INDEX notices_by_user ON notices (user_id, number)",
    "CREATE INDEX notices_by_session ON notices (session_id) WHERE session_id <> ''",
    "CREATE INDEX notices_by_note ON notices (note_id) WHERE note_id <> ''",
    """
    CREATE TABLE notice_marks (
        user_id TEXT NOT NULL,
        surface TEXT NOT NULL,
        told INTEGER NOT NULL,
        updated_at TEXT NOT NULL,
        PRIMARY KEY (user_id, surface)
    ) WITHOUT ROWID
    """,
    """
    CREATE TRIGGER noticed_note_gone AFTER DELETE ON notes BEGIN
        DELETE FROM notices WHERE note_id <> '' AND note_id = old.note_id
            AND 'memory:' || user_id = old.namespace;
    END
    """,
)
