"""Notes, conversations and what is searched in them.

- `notes`: one row per note, its newest version; `note_versions`: those before.
- `chunks`: passages of notes (`note_id`) and of conversation events
  (`session_id`, `sequence`). Ids are never used twice, so a late vector or a
  running search cannot meet another passage under an id it knew.
- `chunks_fts`, `conversation_fts`: full text over passages, kept in step by
  triggers. Two indexes, because a note's search must not pay for, nor be
  ranked by, the words of all conversations. Passages leave them before their
  rows go, by DELETE: FTS5's 'delete' command and its option 'secure-delete'
  together leave an index that its own integrity check refuses.
- `chunks_vec`: at most one vector per passage, little-endian float32.
- `guards`: always empty. A batch inserts 0 where a condition it relies on does
  not hold, and so fails as a whole.
- `erasures`: a row while deleted content may still lie in the files.
"""

from typing import Final

NAME: Final = "memory"

_FTS_OPTIONS = "content_rowid='chunk_id', tokenize='porter unicode61 remove_diacritics 2'"

STATEMENTS: Final = (
    "CREATE TABLE guards (ok INTEGER NOT NULL CHECK (ok = 1))",
    "CREATE TABLE erasures (requested_at TEXT NOT NULL)",
    """
    CREATE TABLE notes (
        seq INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        note_id TEXT NOT NULL,
        content TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        tags TEXT NOT NULL DEFAULT '[]',
        type TEXT NOT NULL DEFAULT 'fact',
        confidence REAL NOT NULL DEFAULT 1.0,
        rationale TEXT NOT NULL DEFAULT '',
        importance REAL NOT NULL DEFAULT 1.0,
        key TEXT,
        source TEXT NOT NULL,
        origin_actor TEXT NOT NULL,
        origin_channel TEXT NOT NULL,
        origin_session TEXT NOT NULL,
        origin_turn TEXT NOT NULL,
        version INTEGER NOT NULL DEFAULT 1,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        access_count INTEGER NOT NULL DEFAULT 0,
        superseded_by TEXT,
        superseded_reason TEXT NOT NULL DEFAULT '',
        UNIQUE (namespace, note_id)
    )
    """,
    "CREATE INDEX notes_by_content ON notes (namespace, content_hash)",
    "CREATE UNIQUE INDEX notes_by_key ON notes (namespace, key) WHERE key IS NOT NULL",
    """
    CREATE TABLE note_versions (
        namespace TEXT NOT NULL,
        note_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        content TEXT NOT NULL,
        tags TEXT NOT NULL,
        type TEXT NOT NULL,
        confidence REAL NOT NULL,
        rationale TEXT NOT NULL,
        importance REAL NOT NULL,
        source TEXT NOT NULL,
        origin_actor TEXT NOT NULL,
        origin_channel TEXT NOT NULL,
        origin_session TEXT NOT NULL,
        origin_turn TEXT NOT NULL,
        written_at TEXT NOT NULL,
        replaced_at TEXT NOT NULL,
        PRIMARY KEY (namespace, note_id, version),
        FOREIGN KEY (namespace, note_id) REFERENCES notes (namespace, note_id) ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY,
        user_id TEXT NOT NULL,
        title TEXT NOT NULL,
        channel TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX sessions_by_user ON sessions (user_id, updated_at)",
    """
    CREATE TABLE session_state (
        session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        updated_at TEXT NOT NULL,
        PRIMARY KEY (session_id, name)
    )
    """,
    """
    CREATE TABLE conversation_events (
        event_id INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
        sequence INTEGER NOT NULL
            CONSTRAINT sequence_within_bounds CHECK (sequence BETWEEN 1 AND 9007199254740991),
        turn_id TEXT NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
        text TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_at TEXT NOT NULL,
        UNIQUE (session_id, sequence)
    )
    """,
    "CREATE INDEX events_by_turn ON conversation_events (session_id, turn_id)",
    """
    CREATE TABLE chunks (
        chunk_id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        note_id TEXT,
        session_id TEXT,
        sequence INTEGER,
        position INTEGER NOT NULL,
        context TEXT NOT NULL DEFAULT '',
        body TEXT NOT NULL,
        CHECK ((note_id IS NULL) = (session_id IS NOT NULL AND sequence IS NOT NULL)),
        FOREIGN KEY (namespace, note_id) REFERENCES notes (namespace, note_id) ON DELETE CASCADE,
        FOREIGN KEY (session_id, sequence)
            REFERENCES conversation_events (session_id, sequence) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX chunks_by_note ON chunks (namespace, note_id)",
    """
    CREATE INDEX chunks_by_event ON chunks (session_id, sequence)
        WHERE session_id IS NOT NULL
    """,
    """
    CREATE TABLE chunks_vec (
        chunk_id INTEGER PRIMARY KEY REFERENCES chunks (chunk_id) ON DELETE CASCADE,
        namespace TEXT NOT NULL,
        model_id TEXT NOT NULL,
        vector BLOB NOT NULL
    )
    """,
    "CREATE INDEX vectors_by_model ON chunks_vec (namespace, model_id)",
    "CREATE VIEW note_passages AS SELECT chunk_id, body FROM chunks WHERE note_id IS NOT NULL",
    """
    CREATE VIEW conversation_passages AS
        SELECT chunk_id, context, body FROM chunks WHERE session_id IS NOT NULL
    """,
    f"CREATE VIRTUAL TABLE chunks_fts USING fts5(body, content='note_passages', {_FTS_OPTIONS})",
    f"""
    CREATE VIRTUAL TABLE conversation_fts
        USING fts5(context, body, content='conversation_passages', {_FTS_OPTIONS})
    """,
    "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('secure-delete', 1)",
    "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('secure-delete', 1)",
    """
    CREATE TRIGGER note_passage_added AFTER INSERT ON chunks WHEN new.note_id IS NOT NULL BEGIN
        INSERT INTO chunks_fts (rowid, body) VALUES (new.chunk_id, new.body);
    END
    """,
    """
    CREATE TRIGGER note_passage_removed BEFORE DELETE ON chunks WHEN old.note_id IS NOT NULL BEGIN
        DELETE FROM chunks_fts WHERE rowid = old.chunk_id;
    END
    """,
    """
    CREATE TRIGGER conversation_passage_added AFTER INSERT ON chunks
        WHEN new.session_id IS NOT NULL BEGIN
        INSERT INTO conversation_fts (rowid, context, body)
            VALUES (new.chunk_id, new.context, new.body);
    END
    """,
    """
    CREATE TRIGGER conversation_passage_removed BEFORE DELETE ON chunks
        WHEN old.session_id IS NOT NULL BEGIN
        DELETE FROM conversation_fts WHERE rowid = old.chunk_id;
    END
    """,
    "CREATE VIRTUAL TABLE chunks_terms USING fts5vocab('chunks_fts', 'row')",
)
