"""Sessions can be put away, and their words are known one by one.

- `sessions.archived_at`: empty while a session is in the default list.
- `conversation_terms`: the terms of `conversation_fts`, against which an erasure
  compares what stands between the pages of that index.
- `retention_looks`: when conversations were last checked for their age, and
  before which moment none may be forgotten for it.
"""

from typing import Final

NAME: Final = "session archive"

STATEMENTS: Final = (
    "ALTER TABLE sessions ADD COLUMN archived_at TEXT NOT NULL DEFAULT ''",
    "CREATE VIRTUAL TABLE conversation_terms USING fts5vocab('conversation_fts', 'row')",
    """
    CREATE TABLE retention_looks (
        user_id TEXT PRIMARY KEY,
        looked_at TEXT NOT NULL,
        not_before TEXT NOT NULL DEFAULT ''
    )
    """,
)
