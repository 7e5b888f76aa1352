"""Every kind of memory in the one table of notes.

- `scope_session`: the only session that sees a note; empty: all of its user's do.
- `origin_link`, `origin_material`: where a text comes from, and whether it is what
  was read (a file, a page, a command's output) rather than what somebody said.
- `change`: how a version came to be ("save", "update", "replace", "append",
  "undo"); `restores`: the version whose text an undo has brought back, else 0.
- `superseded_by`: NULL while a note is current; empty where it was superseded by
  nothing; else the id of the note that replaces it.
- `accessed_at`: when `recall` last gave the note; empty: never.
- `notes_by_age` has superseded notes, too, for lists that show them.
- `usage`: how many notes a namespace has, and the bytes of their text in all versions,
  kept by triggers so that a quota costs one look.
- `sessions.parent_id`: the session that work was delegated from; empty: none.

Where changes of notes are counted for copies, the trigger goes that does not know the
new columns; `guest.memory.replica.triggers` makes it anew.
"""

from typing import Final

NAME: Final = "kinds of memory"

STATEMENTS: Final = (
    "ALTER TABLE notes ADD COLUMN scope_session TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE notes ADD COLUMN origin_link TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE notes ADD COLUMN origin_material INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE notes ADD COLUMN change TEXT NOT NULL DEFAULT 'save'",
    "ALTER TABLE notes ADD COLUMN restores INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE notes ADD COLUMN accessed_at TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE notes ADD COLUMN superseded_at TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE note_versions ADD COLUMN origin_link TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE note_versions ADD COLUMN origin_material INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE note_versions ADD COLUMN change TEXT NOT NULL DEFAULT 'save'",
    "ALTER TABLE note_versions ADD COLUMN restores INTEGER NOT NULL DEFAULT 0",
    "UPDATE notes SET change = 'update' WHERE version > 1",
    "UPDATE note_versions SET change = 'update' WHERE version > 1",
    "UPDATE notes SET superseded_at = updated_at WHERE superseded_by IS NOT NULL",
    "DROP TRIGGER IF EXISTS notes_update_counted",
    "DROP INDEX notes_by_age",
    "CREATE INDEX notes_by_age ON notes (namespace, seq, superseded_by)",
    "CREATE INDEX notes_by_scope ON notes (scope_session) WHERE scope_session <> ''",
    "CREATE INDEX notes_by_replacement ON notes (namespace, superseded_by) "
    "WHERE superseded_by IS NOT NULL",
    "CREATE INDEX notes_by_supersession ON notes (namespace, superseded_at) "
    "WHERE superseded_by IS NOT NULL",
    "CREATE INDEX notes_by_change ON notes (namespace, updated_at)",
    "CREATE INDEX versions_by_change ON note_versions (namespace, written_at)",
    """
    CREATE TABLE usage (
        namespace TEXT PRIMARY KEY,
        notes INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    """
    INSERT INTO usage (namespace, notes, bytes)
        SELECT namespace, SUM(note), SUM(length(CAST(content AS BLOB))) FROM (
            SELECT namespace, 1 AS note, content FROM notes
            UNION ALL SELECT namespace, 0, content FROM note_versions)
        GROUP BY namespace
    """,
    """
    CREATE TRIGGER note_used AFTER INSERT ON notes BEGIN
        INSERT INTO usage (namespace, notes, bytes)
            VALUES (new.namespace, 1, length(CAST(new.content AS BLOB)))
            ON CONFLICT (namespace) DO UPDATE
                SET notes = notes + 1, bytes = bytes + excluded.bytes;
    END
    """,
    """
    CREATE TRIGGER note_use_changed AFTER UPDATE OF content ON notes BEGIN
        UPDATE usage SET bytes = bytes + length(CAST(new.content AS BLOB))
                                       - length(CAST(old.content AS BLOB))
            WHERE namespace = new.namespace;
    END
    """,
    """
    CREATE TRIGGER note_use_ended AFTER DELETE ON notes BEGIN
        UPDATE usage SET notes = notes - 1, bytes = bytes - length(CAST(old.content AS BLOB))
            WHERE namespace = old.namespace;
    END
    """,
    """
    CREATE TRIGGER version_used AFTER INSERT ON note_versions BEGIN
        UPDATE usage SET bytes = bytes + length(CAST(new.content AS BLOB))
            WHERE namespace = new.namespace;
    END
    """,
    """
    CREATE TRIGGER version_use_ended AFTER DELETE ON note_versions BEGIN
        UPDATE usage SET bytes = bytes - length(CAST(old.content AS BLOB))
            WHERE namespace = old.namespace;
    END
    """,
    "ALTER TABLE sessions ADD COLUMN parent_id TEXT NOT NULL DEFAULT ''",
)
