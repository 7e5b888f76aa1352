"""Notes, conversations, what is searched in them, and what they take.

Notes:

- `notes`: one row per note, its newest version; `note_versions`: those before.
- `notes.scope_session`: the only session that sees a note; empty: all of its user's do.
- `origin_link`, `origin_material`: where a text comes from, and whether it is what
  was read (a file, a page, a command's output) rather than what somebody said.
- `change`: how a version came to be ("save", "update", "replace", "append",
  "undo"); `restores`: the version whose text an undo has brought back, else 0.
- `superseded_by`: NULL while a note is current; empty where it was superseded by
  nothing; else the id of the note that replaces it. In a version, how the note was
  superseded when an update made it current again, so that undoing that update can
  supersede it again; NULL where it was current.
- `ordered_at`: `updated_at`, but never before that of an earlier version, so that the
  history of a note is in order although a clock was set back. `written_at` of a version
  is what this was.
- `accessed_at`: when `recall` last gave the note; empty: never.
- `notes_by_session`: the notes that were saved in a session, in order, for finding what
  was saved beside a note (`guest.memory.search.neighbours`).
- `receipts`: what a change did in a turn of a conversation, stored in the batch of the
  change; without any text, and gone with its session.
- `usage`: how many notes a namespace has, and the bytes of their text in all
  versions. Triggers count, so that checking a quota reads one row.

Conversations:

- `sessions.archived_at`: empty while a session is in the default list.
- `sessions.parent_id`: the session that work was delegated from; empty: none.
- `model_requests`: what requests to models took: for which session and turn (empty once
  that is forgotten), on which day of the host, and how much. Money is in billionths of a US
  dollar, NULL for a model without a known price. What is only "reserved" counts as the
  most that it may take; "estimated" is what no provider has reported.
- `retention_checks`: when conversations were last checked for their age, and
  before which time none may be forgotten for it.

Search:

- `chunks`: passages of notes (`note_id`) and of conversation events
  (`session_id`, `sequence`). Ids are never used twice, so a late vector or a
  running search cannot meet another passage under an id it knew.
- `chunks.words`: what the full text has instead of `body`, from
  `guest.memory.indexing.words`; empty where that is `body` itself. `chunks.indexed` is
  the one that it has. Its marks are parts of words: in many scripts they are the vowels.
- `chunks.neighbours`: empty, and not read; earlier versions wrote what was said beside an
  event. Searches look it up (`guest.memory.search.neighbours`).
- `chunks_fts`, `conversation_fts`: full text over passages, updated by
  triggers. Two indexes, because a note's search must not pay for, nor be
  ranked by, the words of all conversations. Passages leave them before their
  rows go, by DELETE: FTS5's 'delete' command and its option 'secure-delete'
  together leave an index that its own integrity check refuses.
- `chunks_terms`, `conversation_terms`: the terms of the two indexes.
- `chunks_occurrences`, `conversation_occurrences`: where these terms occur. The first
  occurrence of a term is found without counting the others, so an erasure compares
  these with the separators between the index's pages.
- `chunks_vec`: at most one vector per passage, little-endian float32. `digest` is 0,
  and not read; earlier versions wrote a number made from the vector.

The store itself:

- `guards`: always empty. A batch inserts 0 where a condition it relies on does
  not hold, and so fails as a whole.
- `erasures`: a row while deleted content may still lie in the files.
- `batches`: the keys of applied batches on a server. Every batch that changes
  something there inserts one first, in the same transaction. A batch whose answer
  is lost is sent again, and the primary key tells whether it was applied before.
- `revisions`: two counters per namespace, for copies of a memory on a server.
  `changes` grows with every row that is added or altered, `removals` with every
  one that goes. The column `revision` of a row is what `changes` was when the row
  last changed, so a copy asks for the rows above the number it knows.
  `guest.memory.replica.sync` counts, and makes the indexes by revision, in stores
  that have copies.
"""

from typing import Final

NAME: Final = "memory"

_FTS_OPTIONS = (
    "content_rowid='chunk_id', "
    """tokenize="porter unicode61 remove_diacritics 2 categories 'L* M* N* Co'\""""
)

STATEMENTS: Final = (
    "CREATE TABLE guards (ok INTEGER NOT NULL CHECK (ok = 1))",
    "CREATE TABLE erasures (requested_at TEXT NOT NULL)",
    """
    CREATE TABLE batches (
        key TEXT PRIMARY KEY,
        applied_at INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE revisions (
        namespace TEXT PRIMARY KEY,
        changes INTEGER NOT NULL DEFAULT 0,
        removals INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
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
        scope_session TEXT NOT NULL DEFAULT '',
        source TEXT NOT NULL,
        origin_actor TEXT NOT NULL,
        origin_channel TEXT NOT NULL,
        origin_session TEXT NOT NULL,
        origin_turn TEXT NOT NULL,
        origin_link TEXT NOT NULL DEFAULT '',
        origin_material INTEGER NOT NULL DEFAULT 0,
        version INTEGER NOT NULL DEFAULT 1,
        change TEXT NOT NULL DEFAULT 'save',
        restores INTEGER NOT NULL DEFAULT 0,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        ordered_at TEXT NOT NULL DEFAULT '',
        access_count INTEGER NOT NULL DEFAULT 0,
        accessed_at TEXT NOT NULL DEFAULT '',
        superseded_by TEXT,
        superseded_reason TEXT NOT NULL DEFAULT '',
        superseded_at TEXT NOT NULL DEFAULT '',
        revision INTEGER NOT NULL DEFAULT 0,
        UNIQUE (namespace, note_id)
    )
    """,
    "CREATE INDEX notes_by_content ON notes (namespace, content_hash)",
    "CREATE UNIQUE INDEX notes_by_key ON notes (namespace, key) WHERE key IS NOT NULL",
    "CREATE INDEX notes_by_age ON notes (namespace, seq, superseded_by)",
    "CREATE INDEX notes_by_scope ON notes (scope_session) WHERE scope_session <> ''",
    "CREATE INDEX notes_by_replacement ON notes (namespace, superseded_by) "
    "WHERE superseded_by IS NOT NULL",
    "CREATE INDEX notes_by_supersession ON notes (namespace, superseded_at) "
    "WHERE superseded_by IS NOT NULL",
    """
    CREATE INDEX notes_by_session ON notes (namespace, origin_session)
        WHERE origin_session <> '' AND scope_session = '' AND superseded_by IS NULL
            AND key IS NULL
    """,
    "CREATE INDEX notes_by_change ON notes (namespace, ordered_at)",
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
        origin_link TEXT NOT NULL DEFAULT '',
        origin_material INTEGER NOT NULL DEFAULT 0,
        change TEXT NOT NULL DEFAULT 'save',
        restores INTEGER NOT NULL DEFAULT 0,
        written_at TEXT NOT NULL,
        replaced_at TEXT NOT NULL,
        superseded_by TEXT,
        superseded_reason TEXT NOT NULL DEFAULT '',
        superseded_at TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (namespace, note_id, version),
        FOREIGN KEY (namespace, note_id) REFERENCES notes (namespace, note_id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX versions_by_change ON note_versions (namespace, written_at)",
    "CREATE INDEX versions_by_replacement ON note_versions (namespace, superseded_by) "
    "WHERE superseded_by IS NOT NULL",
    """
    CREATE TABLE receipts (
        seq INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        session_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        action TEXT NOT NULL,
        outcome TEXT NOT NULL,
        note_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        asked_by TEXT NOT NULL,
        created_at TEXT NOT NULL
    )
    """,
    "CREATE INDEX receipts_by_turn ON receipts (session_id, turn_id)",
    """
    CREATE TABLE usage (
        namespace TEXT PRIMARY KEY,
        notes INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
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
    """
    CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY,
        user_id TEXT NOT NULL,
        title TEXT NOT NULL,
        channel TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0,
        archived_at TEXT NOT NULL DEFAULT '',
        parent_id TEXT NOT NULL DEFAULT ''
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
    CREATE TABLE model_requests (
        request_id TEXT PRIMARY KEY,
        user_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('answer', 'summary')),
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        sent_at TEXT NOT NULL,
        day TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost INTEGER,
        measure TEXT NOT NULL CHECK (measure IN ('reserved', 'estimated', 'reported'))
    ) WITHOUT ROWID
    """,
    "CREATE INDEX requests_by_day ON model_requests (user_id, day)",
    "CREATE INDEX requests_by_session ON model_requests (session_id)",
    """
    CREATE TABLE retention_checks (
        user_id TEXT PRIMARY KEY,
        checked_at TEXT NOT NULL,
        not_before TEXT NOT NULL DEFAULT ''
    )
    """,
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
        words TEXT NOT NULL DEFAULT '',
        indexed TEXT AS (COALESCE(NULLIF(words, ''), body)),
        neighbours TEXT NOT NULL DEFAULT '',
        revision INTEGER NOT NULL DEFAULT 0,
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
    "CREATE INDEX chunks_by_namespace ON chunks (namespace, chunk_id)",
    """
    CREATE TABLE chunks_vec (
        chunk_id INTEGER PRIMARY KEY REFERENCES chunks (chunk_id) ON DELETE CASCADE,
        namespace TEXT NOT NULL,
        model_id TEXT NOT NULL,
        vector BLOB NOT NULL,
        digest INTEGER NOT NULL,
        revision INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX vectors_by_model ON chunks_vec (namespace, model_id, chunk_id, digest)",
    """
    CREATE VIEW note_passages AS
        SELECT chunk_id, indexed AS body FROM chunks WHERE note_id IS NOT NULL
    """,
    """
    CREATE VIEW conversation_passages AS
        SELECT chunk_id, context, indexed AS body, neighbours
            FROM chunks WHERE session_id IS NOT NULL
    """,
    f"CREATE VIRTUAL TABLE chunks_fts USING fts5(body, content='note_passages', {_FTS_OPTIONS})",
    f"""
    CREATE VIRTUAL TABLE conversation_fts
        USING fts5(context, body, neighbours, content='conversation_passages', {_FTS_OPTIONS})
    """,
    "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('secure-delete', 1)",
    "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('secure-delete', 1)",
    "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('rank', 'bm25(2.0, 1.0, 0.5)')",
    """
    CREATE TRIGGER note_passage_added AFTER INSERT ON chunks WHEN new.note_id IS NOT NULL BEGIN
        INSERT INTO chunks_fts (rowid, body) VALUES (new.chunk_id, new.indexed);
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
        INSERT INTO conversation_fts (rowid, context, body, neighbours)
            VALUES (new.chunk_id, new.context, new.indexed, new.neighbours);
    END
    """,
    """
    CREATE TRIGGER conversation_passage_removed BEFORE DELETE ON chunks
        WHEN old.session_id IS NOT NULL BEGIN
        DELETE FROM conversation_fts WHERE rowid = old.chunk_id;
    END
    """,
    """
    CREATE TRIGGER conversation_passage_changing BEFORE UPDATE OF neighbours ON chunks
        WHEN old.session_id IS NOT NULL AND old.neighbours <> new.neighbours BEGIN
        DELETE FROM conversation_fts WHERE rowid = old.chunk_id;
    END
    """,
    """
    CREATE TRIGGER conversation_passage_changed AFTER UPDATE OF neighbours ON chunks
        WHEN new.session_id IS NOT NULL AND old.neighbours <> new.neighbours BEGIN
        INSERT INTO conversation_fts (rowid, context, body, neighbours)
            VALUES (new.chunk_id, new.context, new.indexed, new.neighbours);
    END
    """,
    "CREATE VIRTUAL TABLE chunks_terms USING fts5vocab('chunks_fts', 'row')",
    "CREATE VIRTUAL TABLE conversation_terms USING fts5vocab('conversation_fts', 'row')",
    "CREATE VIRTUAL TABLE chunks_occurrences USING fts5vocab('chunks_fts', 'instance')",
    "CREATE VIRTUAL TABLE conversation_occurrences USING fts5vocab('conversation_fts', 'instance')",
)
