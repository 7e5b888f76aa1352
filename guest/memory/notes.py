"""Notes as rows: every change is one atomic batch that needs no reading first."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from guest.errors import StorageError
from guest.memory.database.base import Database, Result, Row, Statement
from guest.memory.database.damage import noticed
from guest.memory.instant import now
from guest.memory.types import Note, NoteNotFound, Origin

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_REQUIRE_NEW: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE EXISTS (SELECT 1 FROM notes WHERE namespace = ? AND content_hash = ?
                               AND superseded_by IS NULL)
"""
_INSERT: Final = """
INSERT INTO notes (namespace, note_id, content, content_hash, tags, source,
                   origin_actor, origin_channel, origin_session, origin_turn,
                   created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)
"""
_INSERT_CHUNKS: Final = """
INSERT INTO chunks (namespace, note_id, position, body)
    SELECT ?, ?, key, value FROM json_each(?) RETURNING chunk_id, position
"""
_DELETE_CHUNKS: Final = """
DELETE FROM chunks WHERE namespace = ? AND note_id = ? RETURNING chunk_id
"""
_FIND_CHUNKS: Final = """
SELECT chunk_id, body FROM chunks WHERE namespace = ? AND note_id = ? ORDER BY position
"""
_DELETE: Final = "DELETE FROM notes WHERE namespace = ? AND note_id = ?"
_REQUIRE: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM notes WHERE namespace = ? AND note_id = ?)
"""
_REQUIRE_VERSION: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM notes
                               WHERE namespace = ? AND note_id = ? AND version = ?)
"""
_KEEP_VERSION: Final = """
INSERT INTO note_versions (namespace, note_id, version, content, tags, type, confidence,
                           rationale, importance, source, origin_actor, origin_channel,
                           origin_session, origin_turn, written_at, replaced_at)
    SELECT namespace, note_id, version, content, tags, type, confidence,
           rationale, importance, source, origin_actor, origin_channel,
           origin_session, origin_turn, updated_at, ?
    FROM notes WHERE namespace = ? AND note_id = ?
"""
_UPDATE: Final = """
UPDATE notes SET content = ?, content_hash = ?, tags = COALESCE(?, tags), origin_actor = ?,
                 origin_channel = ?, origin_session = ?, origin_turn = ?,
                 version = version + 1, updated_at = ?
    WHERE namespace = ? AND note_id = ?
"""
_COLUMNS: Final = """
notes.note_id, notes.content, notes.tags, notes.version, notes.created_at, notes.updated_at,
notes.source, notes.origin_actor, notes.origin_channel, notes.origin_session, notes.origin_turn,
NOT EXISTS (SELECT 1 FROM chunks LEFT JOIN chunks_vec USING (chunk_id)
            WHERE chunks.namespace = notes.namespace AND chunks.note_id = notes.note_id
                AND chunks_vec.chunk_id IS NULL),
notes.seq
"""
_GET: Final = f"SELECT {_COLUMNS} FROM notes WHERE namespace = ? AND note_id = ?"  # noqa: S608
_BY_CONTENT: Final = f"""
SELECT {_COLUMNS} FROM notes
    WHERE namespace = ? AND content_hash = ? AND superseded_by IS NULL ORDER BY seq LIMIT 1
"""  # noqa: S608
_LIST: Final = f"""
SELECT {_COLUMNS} FROM notes WHERE seq IN (
    SELECT seq FROM notes WHERE namespace = ? AND superseded_by IS NULL AND seq < ?
    ORDER BY seq DESC LIMIT ?)
    ORDER BY seq DESC
"""  # noqa: S608
_TRACES: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM chunks WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM chunks_vec WHERE chunk_id IN (SELECT value FROM json_each(?3)))
     + (SELECT COUNT(*) FROM chunks_fts_docsize WHERE id IN (SELECT value FROM json_each(?3)))
"""


@dataclass(frozen=True)
class Draft:
    """A note about to be stored, cut into its passages. `replaces` is the version that an
    update follows; None: whichever is there."""

    note_id: str
    text: str
    tags: Sequence[str] | None
    origin: Origin
    passages: Sequence[str]
    replaces: int | None = None

    written_at: str = field(default_factory=now)

    @property
    def content_hash(self) -> str:
        return hash_of(self.text)

    def as_saved(self, user_id: str, *, embedded: bool) -> Note:
        """The note that storing this as a new one has made."""
        return Note(
            note_id=self.note_id,
            user_id=user_id,
            text=self.text,
            tags=tuple(self.tags or ()),
            version=1,
            created_at=self.written_at,
            updated_at=self.written_at,
            source=self.origin.actor,
            origin=self.origin,
            embedded=embedded,
        )


@dataclass(frozen=True)
class Change:
    """What a batch did to a note's passages: new ids in the order of the text."""

    added: Sequence[int]
    removed: Sequence[int] = ()


async def insert(database: Database, namespace: str, draft: Draft) -> Change:
    """Store a new note.

    Raises `ConstraintViolated` where a note says exactly this already.
    """
    origin, content_hash = draft.origin, draft.content_hash
    note = (
        namespace,
        draft.note_id,
        draft.text,
        content_hash,
        _to_json(draft.tags or ()),
        origin.actor,
        origin.actor,
        origin.channel,
        origin.session_id,
        origin.turn_id,
        draft.written_at,
    )
    results = await database.batch(
        (
            require_new(namespace, content_hash),
            Statement(_INSERT, note),
            insert_passages(namespace, draft.note_id, draft.passages),
        )
    )
    return Change(_in_order(results[2]))


async def update(database: Database, namespace: str, draft: Draft) -> Change:
    """Replace a note's text, and its tags unless None, keeping what it said before.

    Raises `ConstraintViolated` where the note does not exist or has another version than
    `draft` replaces.
    """
    origin = draft.origin
    results = await database.batch(
        (
            _require(namespace, draft),
            Statement(_KEEP_VERSION, (draft.written_at, namespace, draft.note_id)),
            Statement(
                _UPDATE,
                (
                    draft.text,
                    draft.content_hash,
                    None if draft.tags is None else _to_json(draft.tags),
                    origin.actor,
                    origin.channel,
                    origin.session_id,
                    origin.turn_id,
                    draft.written_at,
                    namespace,
                    draft.note_id,
                ),
            ),
            delete_passages(namespace, draft.note_id),
            insert_passages(namespace, draft.note_id, draft.passages),
        )
    )
    return Change(added=_in_order(results[4]), removed=_ids(results[3]))


async def delete(database: Database, namespace: str, note_id: str) -> Change:
    """Remove a note with everything of it; its content is to be erased afterwards.

    Raises `ConstraintViolated` where the note does not exist.
    """
    results = await database.batch(
        (
            Statement(_REQUIRE, (namespace, note_id)),
            delete_passages(namespace, note_id),
            Statement(_DELETE, (namespace, note_id)),
            Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
        )
    )
    return Change(added=(), removed=_ids(results[1]))


async def find_change(database: Database, namespace: str, draft: Draft) -> Change:
    """What a batch did that stored `draft` and whose answer was lost: ids that belong to
    its passages. None, where that cannot be told: the indexer finds them then."""
    try:
        result = await database.execute(_FIND_CHUNKS, (namespace, draft.note_id))
    except StorageError:
        return Change(added=())
    if [row[1] for row in result.rows] != list(draft.passages):
        return Change(added=())
    return Change(_ids(result))


async def traces(database: Database, namespace: str, note_id: str, chunk_ids: Sequence[int]) -> int:
    """How many rows of any kind still hold something of a deleted note."""
    result = await database.execute(_TRACES, (namespace, note_id, _to_json(chunk_ids)))
    return cast(int, result.rows[0][0])


async def get(database: Database, namespace: str, user_id: str, note_id: str) -> Note:
    """One note, superseded or not. Raises `NoteNotFound`."""
    result = await database.execute(_GET, (namespace, note_id))
    if not result.rows:
        raise NoteNotFound(note_id)
    return _note(user_id, result.rows[0])


async def find_by_text(
    database: Database, namespace: str, user_id: str, draft: Draft
) -> Note | None:
    """The oldest note that says exactly what `draft` says."""
    result = await database.execute(_BY_CONTENT, (namespace, draft.content_hash))
    return _note(user_id, result.rows[0]) if result.rows else None


async def page(
    database: Database, namespace: str, user_id: str, limit: int, before: int
) -> tuple[list[Note], int]:
    """Up to `limit` notes, newest first, and where the next page begins; 0 at the end."""
    result = await database.execute(_LIST, (namespace, before, limit + 1))
    rows = result.rows[:limit]
    following = cast(int, rows[-1][-1]) if len(result.rows) > limit else 0
    return [_note(user_id, row) for row in rows], following


def hash_of(text: str) -> str:
    """What is compared to find a note that says exactly the same."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_new(namespace: str, content_hash: str) -> Statement:
    """Fail the batch where a note, not superseded, says exactly this already."""
    return Statement(_REQUIRE_NEW, (namespace, content_hash))


def insert_passages(namespace: str, note_id: str, passages: Sequence[str]) -> Statement:
    """Index a note's text; the ids of the passages come back, each with its position."""
    return Statement(_INSERT_CHUNKS, (namespace, note_id, _to_json(passages)))


def delete_passages(namespace: str, note_id: str) -> Statement:
    """Take a note's text out of the index; the ids of its passages come back."""
    return Statement(_DELETE_CHUNKS, (namespace, note_id))


def _require(namespace: str, draft: Draft) -> Statement:
    if draft.replaces is None:
        return Statement(_REQUIRE, (namespace, draft.note_id))
    return Statement(_REQUIRE_VERSION, (namespace, draft.note_id, draft.replaces))


def _to_json(values: Sequence[object]) -> str:
    return _ENCODER.encode(list(values))


def _ids(result: Result) -> list[int]:
    return [cast(int, row[0]) for row in result.rows]


def _in_order(result: Result) -> list[int]:
    return [cast(int, row[0]) for row in sorted(result.rows, key=lambda row: cast(int, row[1]))]


def _note(user_id: str, row: Row) -> Note:
    with noticed("a note"):
        return _read(user_id, row)


def _read(user_id: str, row: Row) -> Note:
    note_id, text, tags, version, created, updated, source, actor, channel, session, turn = cast(
        "tuple[Any, ...]", row[:11]
    )
    return Note(
        note_id=note_id,
        user_id=user_id,
        text=text,
        tags=tuple(json.loads(tags)),
        version=version,
        created_at=created,
        updated_at=updated,
        source=source,
        origin=Origin(actor, channel, session, turn),
        embedded=bool(row[11]),
    )
