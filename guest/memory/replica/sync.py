"""Fetches what a replica lacks from the store and adds it, page by page; and counts a store's
changes.

Rows are ordered by revision, so a replica's progress is one number (and an id) per kind. A page is
applied in one transaction with its progress.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Final, cast

from guest.memory.models import HIDDEN, User, now
from guest.memory.notes.columns import ENDED, VERSIONED
from guest.memory.storage.base import Database, Result, Row, Statement, nearest

PAGE_ROWS: Final = (250, 1000, 1000)
"""Of each kind. Notes may be long, and a server's answer must not become too large."""

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS replica_of (source TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS replica_progress (namespace TEXT PRIMARY KEY, state TEXT NOT NULL)",
    "DROP INDEX IF EXISTS notes_by_key",
)
"""How a replica's schema differs. It has no unique keys: a note may arrive before the note
with the same key that it replaces is removed."""

_COUNTERS: Final = """
SELECT namespace, changes, removals FROM revisions
    WHERE namespace IN (SELECT value FROM json_each(?))
"""
_IDS: Final = f"""
SELECT (SELECT json_group_array(chunk_id) FROM chunks WHERE namespace = ?1 AND NOT {HIDDEN}),
       (SELECT json_group_array(seq) FROM notes WHERE namespace = ?1)
"""  # noqa: S608
_NOTE: Final = (
    *("note_id", *VERSIONED.split(", "), "key", "scope_session", "created_at", "updated_at"),
    *("ordered_at", *ENDED.split(", ")),
)
"""The note columns of a replica: all but the count and time of recalls, which change with
every recall and which no search needs."""

_PULL: Final = (
    f"""
    SELECT revision, seq, {", ".join(_NOTE)}
        FROM notes WHERE namespace = ? AND (revision, seq) > (?, ?)
        ORDER BY revision, seq LIMIT ?
    """,  # noqa: S608
    f"""
    SELECT chunks.revision, chunks.chunk_id, chunks.note_id, chunks.session_id, chunks.sequence,
           chunks.position, chunks.context, chunks.body, chunks.words,
           event.role, event.created_at
        FROM chunks LEFT JOIN conversation_events AS event USING (session_id, sequence)
        WHERE chunks.namespace = ? AND (chunks.revision, chunks.chunk_id) > (?, ?)
            AND NOT {HIDDEN}
        ORDER BY chunks.revision, chunks.chunk_id LIMIT ?
    """,  # noqa: S608
    """
    SELECT revision, chunk_id, model_id, vector
        FROM chunks_vec WHERE namespace = ? AND (revision, chunk_id) > (?, ?)
            AND typeof(vector) = 'blob' AND length(vector) % 4 = 0
        ORDER BY revision, chunk_id LIMIT ?
    """,
)
"""Notes, passages, vectors: each stands on the one before, so a page of one kind
counts only if the kinds before it are complete."""


def _values(first: int, end: int) -> str:
    return ", ".join(f"row.value ->> {place}" for place in range(first, end))


_PUT_NOTES: Final = f"""
INSERT INTO notes (namespace, content_hash, seq, {", ".join(_NOTE)})
    SELECT ?1, '', {_values(1, len(_NOTE) + 2)} FROM json_each(?2) AS row WHERE true
    ON CONFLICT (seq) DO UPDATE SET namespace = excluded.namespace,
        {", ".join(f"{column} = excluded.{column}" for column in _NOTE)}
"""  # noqa: S608
_PUT_SESSIONS: Final = """
INSERT INTO sessions (session_id, user_id, title, channel, created_at, updated_at)
    SELECT row.value ->> 3, ?1, '', '', '', '' FROM json_each(?2) AS row
        WHERE row.value ->> 3 IS NOT NULL
    ON CONFLICT (session_id) DO NOTHING
"""
_PUT_EVENTS: Final = """
INSERT INTO conversation_events (session_id, sequence, role, created_at, turn_id, text, payload)
    SELECT row.value ->> 3, row.value ->> 4, row.value ->> 9, row.value ->> 10, '', '', ''
        FROM json_each(?1) AS row WHERE row.value ->> 3 IS NOT NULL
    ON CONFLICT (session_id, sequence) DO NOTHING
"""
_PUT_CHUNKS: Final = f"""
INSERT INTO chunks (namespace, chunk_id, note_id, session_id, sequence, position, context, body,
                    words)
    SELECT ?1, {_values(1, 9)} FROM json_each(?2) AS row WHERE true
    ON CONFLICT (chunk_id) DO UPDATE SET
        position = excluded.position, context = excluded.context, body = excluded.body,
        words = excluded.words
"""  # noqa: S608
_PUT_VECTORS: Final = """
INSERT INTO chunks_vec (namespace, chunk_id, model_id, vector, digest)
    SELECT ?1, row.value ->> 0, row.value ->> 1,
        COALESCE(substr(?3, row.value ->> 2, row.value ->> 3), x''), 0
        FROM json_each(?2) AS row WHERE true
    ON CONFLICT (chunk_id) DO UPDATE SET
        model_id = excluded.model_id, vector = excluded.vector
"""
"""The vectors of a page are one blob; a row has its first byte, from 1, and its length. The engine
takes an empty blob for NULL."""
_BLOBS_TOO: Final = re.compile(r"row\.value ->> (\d+)")
_ANY_VALUE: Final = (
    r"IIF(json_type(row.value, '$[\1]') = 'object', "
    r"unhex(row.value ->> '$[\1].blob'), row.value ->> \1)"
)
"""What reads a value that may be a blob."""
_REMOVE: Final = (
    "DELETE FROM chunks WHERE namespace = ? AND chunk_id IN (SELECT value FROM json_each(?))",
    "DELETE FROM notes WHERE namespace = ? AND seq IN (SELECT value FROM json_each(?))",
)
_REMOVE_BARE: Final = (
    """
    DELETE FROM conversation_events WHERE NOT EXISTS (
        SELECT 1 FROM chunks WHERE chunks.session_id = conversation_events.session_id
            AND chunks.sequence = conversation_events.sequence)
    """,
    """
    DELETE FROM sessions WHERE NOT EXISTS (
        SELECT 1 FROM conversation_events AS event WHERE event.session_id = sessions.session_id)
    """,
)
_SET_PROGRESS: Final = """
INSERT INTO replica_progress (namespace, state) VALUES (?, ?)
    ON CONFLICT (namespace) DO UPDATE SET state = excluded.state
"""


@dataclass(frozen=True)
class Progress:
    """The progress of the replica of one namespace.

    `places` are the revision and id of the last row of each kind. `changes` and `removals` are the
    store's counters when the replica was last complete, -1 before; `synced_at` is when the store
    last confirmed that.
    """

    places: tuple[tuple[int, int], ...] = ((-1, 0),) * len(_PULL)
    changes: int = -1
    removals: int = 0
    synced_at: str = ""

    @property
    def complete_once(self) -> bool:
        return self.changes >= 0

    @property
    def begun(self) -> bool:
        return self != Progress()

    def statement(self, namespace: str) -> Statement:
        return Statement(_SET_PROGRESS, (namespace, json.dumps(asdict(self))))


@dataclass(frozen=True)
class Page:
    """Rows read from the store at one moment.

    `ids` are those of all passages and notes, if requested.
    """

    counters: tuple[int, int]
    ids: tuple[frozenset[int], frozenset[int]] | None
    kinds: tuple[Sequence[Row], ...]

    @property
    def complete(self) -> bool:
        """Whether the store has no rows beyond this page."""
        return len(self.kinds) == len(_PULL) and not _full(self.kinds)

    @property
    def next_kinds(self) -> int:
        """How many kinds to request next: none after an incomplete one."""
        return min(len(_PULL), len(self.kinds) + (not _full(self.kinds)))


@dataclass(frozen=True)
class Applied:
    """How a page changed the replica's passages. `vectors` are as read from the store: revision,
    passage, model, vector."""

    progress: Progress
    added: int
    removed: Sequence[int] = ()
    vectors: Sequence[Row] = field(default=())


async def progress_of(copy: Database) -> dict[str, Progress]:
    """A replica's progress by namespace."""
    result = await copy.execute("SELECT namespace, state FROM replica_progress")
    found = {}
    for namespace, state in cast("Sequence[tuple[str, str]]", result.rows):
        values = json.loads(state)
        places = tuple((place[0], place[1]) for place in values.pop("places"))
        found[namespace] = Progress(places, **values)
    return found


async def counters(store: Database, namespaces: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The number of changes and of removed rows of each namespace."""
    result = await store.execute(_COUNTERS, (json.dumps(list(namespaces)),))
    rows = cast("Sequence[tuple[str, int, int]]", result.rows)
    known = {namespace: (changes, removals) for namespace, changes, removals in rows}
    return {namespace: known.get(namespace, (0, 0)) for namespace in namespaces}


async def pull(
    store: Database, namespace: str, progress: Progress, *, kinds: int, ids: bool
) -> Page:
    """The next rows of the first `kinds` kinds; with `ids`, the ids of all rows as well."""
    statements = [
        Statement(_COUNTERS, (json.dumps([namespace]),)),
        *(
            Statement(sql, (namespace, *place, most))
            for sql, place, most in zip(_PULL[:kinds], progress.places, PAGE_ROWS, strict=False)
        ),
    ]
    if ids:
        statements.append(Statement(_IDS, (namespace,)))
    counted, *pulled = await store.batch(statements)
    known = cast("tuple[str, int, int]", counted.rows[0])[1:] if counted.rows else (0, 0)
    there = _id_sets(pulled.pop()) if ids else None
    rows: list[Sequence[Row]] = []
    for result in pulled:
        rows.append(result.rows)
        if _full(rows):
            break
    return Page(known, there, tuple(rows))


async def put(copy: Database, namespace: str, progress: Progress, page: Page) -> Applied:
    """Apply a page to the replica, completely or not at all.

    Raises `ConstraintViolated` if the replica conflicts with the store.
    """
    wanted = [cast(int, row[1]) for row in page.kinds[1]] if len(page.kinds) > 1 else []
    gone = await _gone(copy, namespace, page)
    present = await copy.execute(
        "SELECT COUNT(*) FROM chunks WHERE chunk_id IN (SELECT value FROM json_each(?))",
        (json.dumps(wanted),),
    )
    after = moved(progress, page)
    first = (*_removing(namespace, gone), after.statement(namespace))
    try:
        await copy.batch([*first, *_putting(namespace, page.kinds)])
    except (ValueError, TypeError):  # another program has written to the store
        rows = [[tuple(map(nearest, row)) for row in each] for each in page.kinds]
        foreign = (
            Statement(_BLOBS_TOO.sub(_ANY_VALUE, each.sql), each.args)
            for each in _putting(namespace, rows, lambda value: {"blob": bytes(value).hex()})
        )
        await copy.batch([*first, *foreign])
    return Applied(
        after,
        added=len(wanted) - cast(int, present.rows[0][0]),
        removed=gone[0],
        vectors=page.kinds[2] if len(page.kinds) > 2 else (),
    )


async def _gone(copy: Database, namespace: str, page: Page) -> tuple[list[int], list[int]]:
    if page.ids is None:
        return [], []
    here = _id_sets(await copy.execute(_IDS, (namespace,)))
    return sorted(here[0] - page.ids[0]), sorted(here[1] - page.ids[1])


def _removing(namespace: str, gone: tuple[list[int], list[int]]) -> list[Statement]:
    if not any(gone):
        return []
    return [
        *(
            Statement(sql, (namespace, json.dumps(ids)))
            for sql, ids in zip(_REMOVE, gone, strict=True)
        ),
        *map(Statement, _REMOVE_BARE),
        Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
    ]


def _putting(
    namespace: str,
    kinds: Sequence[Sequence[Row]],
    other: Callable[[Any], object] | None = None,
) -> Iterator[Statement]:
    """One statement for all rows of a kind: the engine takes longer to understand each than to
    write a row. `other` makes something of a value that is none of JSON's; without it, such a value
    raises `TypeError`, and what cannot be stored `ValueError`."""
    listed = partial(json.dumps, ensure_ascii=False, allow_nan=False, default=other)
    notes, passages, vectors = (*kinds, (), ())[:3]
    if notes:
        yield Statement(_PUT_NOTES, (namespace, listed(notes)))
    if passages:
        rows = listed(passages)
        yield Statement(_PUT_SESSIONS, (User.of(namespace).id, rows))
        yield Statement(_PUT_EVENTS, (rows,))
        yield Statement(_PUT_CHUNKS, (namespace, rows))
    if vectors:
        blobs = [row[3] if isinstance(row[3], bytes) else b"" for row in vectors]
        starts = accumulate(map(len, blobs), initial=1)
        placed = [
            (*row[1:3], start, len(blob))
            for row, start, blob in zip(vectors, starts, blobs, strict=False)
        ]
        yield Statement(_PUT_VECTORS, (namespace, listed(placed), b"".join(blobs)))


def moved(progress: Progress, page: Page) -> Progress:
    places = list(progress.places)
    for kind, rows in enumerate(page.kinds):
        if rows:
            places[kind] = cast("tuple[int, int]", tuple(rows[-1][:2]))
    moved = replace(progress, places=tuple(places))
    if page.ids is not None or not progress.begun:
        moved = replace(moved, removals=page.counters[1])
    if page.complete:
        moved = replace(moved, changes=page.counters[0], synced_at=now())
    return moved


def _full(kinds: Sequence[Sequence[Row]]) -> bool:
    """Whether there may be more rows of the last kind."""
    return len(kinds[-1]) == PAGE_ROWS[len(kinds) - 1]


async def discard(copy: Database, namespace: str) -> None:
    """Empty one namespace, to fetch it again."""
    await copy.batch(
        [
            Statement("DELETE FROM chunks WHERE namespace = ?", (namespace,)),
            Statement("DELETE FROM notes WHERE namespace = ?", (namespace,)),
            *map(Statement, _REMOVE_BARE),
            Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
            Progress().statement(namespace),
        ]
    )


def _id_sets(result: Result) -> tuple[frozenset[int], frozenset[int]]:
    chunks, notes = cast("tuple[Any, Any]", result.rows[0])
    return frozenset(json.loads(chunks)), frozenset(json.loads(notes))


# A store counts its own changes by triggers, so that no writer can forget to, and indexes find the
# rows that have changed. Both exist only in stores that may have replicas: with the triggers a save
# takes about 15 percent longer, the indexes are two pages more of each save and one of its vector,
# and a local file has no replica. A migration that adds a column to a counted table drops the
# table's `…_update_counted`, and `count_changes` creates it again.

_WATCHED: Final = {
    "notes": ("seq", f"{VERSIONED}, key, scope_session, created_at, updated_at, {ENDED}"),
    "chunks": ("chunk_id", "position, context, body, words"),
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


async def count_changes(database: Database) -> None:
    """Start or resume counting; rows written before keep revision 0. Idempotent: writes nothing
    if counting has begun."""
    present = await database.execute(_PRESENT)
    if present.rows[0][0] != len(_TRIGGERS):
        await database.batch([Statement(sql) for sql in (*_INDEXES, *_TRIGGERS)])
