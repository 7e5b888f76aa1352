"""A turn of a conversation is found by the words of the turns around it, too.

- `chunks.around`: what was said just before the first passage of an event, and
  just after its last one; `guest.memory.conversations.store` says how much. Empty in notes.
- `conversation_fts` has it as a third column, which counts half as much as
  the passage's own words; speaker and day count twice.
- `chunks.context` of a conversation names the day in words, too.

The triggers follow a change of `around`: what is said next belongs to passages
that are there already.
"""

from typing import Final

NAME: Final = "conversation context"

_BEFORE_AND_AFTER: Final = """
UPDATE chunks SET around = (
    SELECT COALESCE(group_concat(substr(said.text, 1, 400), char(10)), '') FROM (
        SELECT text FROM (
            SELECT sequence, text FROM (
                SELECT sequence, text FROM conversation_events AS event
                    WHERE event.session_id = chunks.session_id AND role <> 'tool'
                        AND event.sequence < chunks.sequence AND chunks.position = 0
                    ORDER BY sequence DESC LIMIT 2)
            UNION ALL
            SELECT sequence, text FROM (
                SELECT sequence, text FROM conversation_events AS event
                    WHERE event.session_id = chunks.session_id AND role <> 'tool'
                        AND event.sequence > chunks.sequence
                        AND NOT EXISTS (
                            SELECT 1 FROM chunks AS later
                                WHERE later.session_id = chunks.session_id
                                    AND later.sequence = chunks.sequence
                                    AND later.position > chunks.position)
                    ORDER BY sequence LIMIT 2))
        ORDER BY sequence) AS said)
    WHERE session_id IS NOT NULL
"""

_DAY_IN_WORDS: Final = """
UPDATE chunks SET context = substr(context, 1, length(context) - 1)
        || ', ' || ('["Sunday","Monday","Tuesday","Wednesday","Thursday","Friday","Saturday"]'
            ->> CAST(strftime('%w', substr(context, -11, 10)) AS INTEGER))
        || ' ' || CAST(substr(context, -3, 2) AS INTEGER)
        || ' ' || ('["January","February","March","April","May","June","July","August",'
            || '"September","October","November","December"]'
            ->> (CAST(substr(context, -6, 2) AS INTEGER) - 1)) || ')'
    WHERE session_id IS NOT NULL AND context LIKE '%(____-__-__)'
"""

STATEMENTS: Final = (
    "ALTER TABLE chunks ADD COLUMN around TEXT NOT NULL DEFAULT ''",
    "DROP TRIGGER conversation_passage_added",
    "DROP TRIGGER conversation_passage_removed",
    "DROP TABLE conversation_fts",
    "DROP VIEW conversation_passages",
    """
    CREATE VIEW conversation_passages AS
        SELECT chunk_id, context, body, around FROM chunks WHERE session_id IS NOT NULL
    """,
    """
    CREATE VIRTUAL TABLE conversation_fts
        USING fts5(context, body, around, content='conversation_passages',
                   content_rowid='chunk_id', tokenize='porter unicode61 remove_diacritics 2')
    """,
    "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('secure-delete', 1)",
    "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('rank', 'bm25(2.0, 1.0, 0.5)')",
    _BEFORE_AND_AFTER,
    _DAY_IN_WORDS,
    "INSERT INTO conversation_fts (conversation_fts) VALUES ('rebuild')",
    """
    CREATE TRIGGER conversation_passage_added AFTER INSERT ON chunks
        WHEN new.session_id IS NOT NULL BEGIN
        INSERT INTO conversation_fts (rowid, context, body, around)
            VALUES (new.chunk_id, new.context, new.body, new.around);
    END
    """,
    """
    CREATE TRIGGER conversation_passage_removed BEFORE DELETE ON chunks
        WHEN old.session_id IS NOT NULL BEGIN
        DELETE FROM conversation_fts WHERE rowid = old.chunk_id;
    END
    """,
    """
    CREATE TRIGGER conversation_passage_changing BEFORE UPDATE OF around ON chunks
        WHEN old.session_id IS NOT NULL AND old.around <> new.around BEGIN
        DELETE FROM conversation_fts WHERE rowid = old.chunk_id;
    END
    """,
    """
    CREATE TRIGGER conversation_passage_changed AFTER UPDATE OF around ON chunks
        WHEN new.session_id IS NOT NULL AND old.around <> new.around BEGIN
        INSERT INTO conversation_fts (rowid, context, body, around)
            VALUES (new.chunk_id, new.context, new.body, new.around);
    END
    """,
)
