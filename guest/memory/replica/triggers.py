"""Counts the changes of a store, so that replicas learn what they lack.

Triggers count, so that no writer can forget to, and indexes find the rows that have changed. Both
exist only in stores that may have replicas: with the triggers a save takes about 15 percent longer,
the indexes are two pages more of each save and one of its vector, and a local file has no replica.
A migration that adds a column to a counted table drops the table's `…_update_counted`, and `count`
creates it again.
"""

from typing import Final

from guest.memory.notes.columns import ENDED, VERSIONED
from guest.memory.storage.base import Database, Statement

_WATCHED: Final = {
    "notes": ("seq", f"{VERSIONED}, key, scope_session, created_at, updated_at, {ENDED}"),
    "chunks": ("chunk_id", "position, context, body, words, neighbours"),
    "chunks_vec": ("chunk_id", "model_id, vector"),
}
"""Each table's key, and the columns whose changes count: `revision` and the recall of a
note do not."""


def _changed(table: str, event: str) -> str:
    key, columns = _WATCHED[table]
    watched = f" OF {columns}" if event == "UPDATE" else ""
    return f"""
    CREATE TRIGGER IF NOT EXISTS {table}_{event.lower()}_counted
        AFTER {event}{watched} ON {table} BEGIN
        INSERT INTO revisions (namespace, changes) VALUES (new.namespace, 1)
            ON CONFLICT (namespace) DO UPDATE SET changes = changes + 1;
        UPDATE {table} SET revision =
            (SELECT changes FROM revisions WHERE namespace = new.namespace)
            WHERE {key} = new.{key};
    END
    """  # noqa: S608


def _removed(table: str) -> str:
    return f"""
    CREATE TRIGGER IF NOT EXISTS {table}_delete_counted AFTER DELETE ON {table} BEGIN
        INSERT INTO revisions (namespace, removals) VALUES (old.namespace, 1)
            ON CONFLICT (namespace) DO UPDATE SET removals = removals + 1;
    END
    """  # noqa: S608


_TRIGGERS: Final = (
    *(_changed(table, event) for table in _WATCHED for event in ("INSERT", "UPDATE")),
    _removed("notes"),
    _removed("chunks"),
)
"""A vector goes with its passage and is not counted again."""

_INDEXES: Final = tuple(
    f"CREATE INDEX IF NOT EXISTS {name}_by_revision ON {table} (namespace, revision)"
    for name, table in (("notes", "notes"), ("chunks", "chunks"), ("vectors", "chunks_vec"))
)


_PRESENT: Final = """
SELECT COUNT(*) FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '%\\_counted' ESCAPE '\\'
"""


async def count(database: Database) -> None:
    """Start or resume counting; rows written before keep revision 0. Idempotent: writes nothing
    if counting has begun."""
    present = await database.execute(_PRESENT)
    if present.rows[0][0] != len(_TRIGGERS):
        await database.batch([Statement(sql) for sql in (*_INDEXES, *_TRIGGERS)])
