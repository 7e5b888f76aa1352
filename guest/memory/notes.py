"""Notes as rows: what is about to be stored, and what is read again."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from guest.memory.database.base import Database, Row, Statement
from guest.memory.database.damage import noticed
from guest.memory.instant import now
from guest.memory.types import Change, Details, Note, NoteNotFound, Origin, Superseded

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_SAME: Final = """
namespace = ? AND content_hash = ? AND scope_session = ? AND key IS NULL
    AND superseded_by IS NULL
"""
_REQUIRE_NEW: Final = f"""
INSERT INTO guards (ok) SELECT 0 WHERE EXISTS (SELECT 1 FROM notes WHERE {_SAME})
"""  # noqa: S608
_INSERT_CHUNKS: Final = """
INSERT INTO chunks (namespace, note_id, position, body)
    SELECT ?, ?, key, value FROM json_each(?) RETURNING chunk_id, position
"""
_DELETE_CHUNKS: Final = """
DELETE FROM chunks WHERE namespace = ? AND note_id = ? RETURNING chunk_id
"""
COLUMNS: Final = """
notes.note_id, notes.content, notes.tags, notes.version, notes.created_at, notes.updated_at,
notes.source, notes.origin_actor, notes.origin_channel, notes.origin_session, notes.origin_turn,
notes.origin_link, notes.origin_material, notes.type, notes.confidence, notes.rationale,
notes.importance, notes.scope_session, notes.key, notes.change, notes.restores,
notes.access_count, notes.accessed_at, notes.superseded_by, notes.superseded_reason,
notes.superseded_at,
NOT EXISTS (SELECT 1 FROM chunks LEFT JOIN chunks_vec USING (chunk_id)
            WHERE chunks.namespace = notes.namespace AND chunks.note_id = notes.note_id
                AND chunks_vec.chunk_id IS NULL)
"""
"""What `note_of` reads, of a query that selects from `notes`."""

_GET: Final = f"SELECT {COLUMNS} FROM notes WHERE namespace = ? AND note_id = ?"  # noqa: S608
_GET_MANY: Final = f"""
SELECT {COLUMNS} FROM json_each(?) AS wanted
    CROSS JOIN notes ON notes.namespace = ? AND notes.note_id = wanted.value
    ORDER BY wanted.key
"""  # noqa: S608
_BY_TEXT: Final = f"SELECT {COLUMNS} FROM notes WHERE {_SAME} ORDER BY seq LIMIT 1"  # noqa: S608
_BY_KEY: Final = f"SELECT {COLUMNS} FROM notes WHERE namespace = ? AND key = ?"  # noqa: S608
_TWIN: Final = f"SELECT note_id FROM notes WHERE {_SAME} AND note_id <> ? ORDER BY seq LIMIT 1"  # noqa: S608


@dataclass(frozen=True)
class Draft:
    """A note about to be stored, cut into its passages.

    `replaces` is the version that an update follows; None: whichever is there. Tags and
    details that are None are the usual ones of a new note, and kept by an update, which
    changes neither the key nor the scope of a note.
    """

    note_id: str
    text: str
    tags: Sequence[str] | None
    origin: Origin
    passages: Sequence[str]
    replaces: int | None = None
    details: Details | None = None
    key: str = ""
    change: Change = "save"
    restores: int = 0

    written_at: str = field(default_factory=now)

    @property
    def content_hash(self) -> str:
        return hash_of(self.text)

    @property
    def scope(self) -> str:
        """The only session that is to see it; empty: all of the user's."""
        return "" if self.details is None else self.details.scope_session

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
            details=self.details or Details(),
            key=self.key,
            change=self.change,
            restores=self.restores,
        )


async def get(database: Database, namespace: str, user_id: str, note_id: str) -> Note:
    """One note, superseded or not. Raises `NoteNotFound`."""
    result = await database.execute(_GET, (namespace, note_id))
    if not result.rows:
        raise NoteNotFound(note_id)
    return note_of(user_id, result.rows[0])


async def get_many(
    database: Database, namespace: str, user_id: str, note_ids: Sequence[str]
) -> list[Note]:
    """Those of the notes that there are, superseded or not, in the order asked for."""
    result = await database.execute(_GET_MANY, (to_json(note_ids), namespace))
    return [note_of(user_id, row) for row in result.rows]


async def find_by_text(
    database: Database, namespace: str, user_id: str, draft: Draft
) -> Note | None:
    """The oldest note that makes saving `draft` once more needless."""
    result = await database.execute(_BY_TEXT, (namespace, draft.content_hash, draft.scope))
    return note_of(user_id, result.rows[0]) if result.rows else None


async def find_by_key(database: Database, namespace: str, user_id: str, key: str) -> Note | None:
    """The note of this name in working memory."""
    result = await database.execute(_BY_KEY, (namespace, key))
    return note_of(user_id, result.rows[0]) if result.rows else None


async def twin_of(database: Database, namespace: str, note: Note, text: str) -> str:
    """The oldest other note that `note` would be the duplicate of if it said `text`; empty:
    none."""
    if note.key:
        return ""
    same = (namespace, hash_of(text), note.details.scope_session, note.note_id)
    result = await database.execute(_TWIN, same)
    return cast(str, result.rows[0][0]) if result.rows else ""


def note_of(user_id: str, row: Row) -> Note:
    """The note in a row that begins with `COLUMNS`. Raises `StorageError` for damage."""
    with noticed("a note"):
        return _read(user_id, row)


def hash_of(text: str) -> str:
    """What is compared to find a note that says exactly the same."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_new(namespace: str, content_hash: str, scope: str = "") -> Statement:
    """Fail the batch where a note says exactly this already: one without a key, for the
    same sessions, and not superseded."""
    return Statement(_REQUIRE_NEW, (namespace, content_hash, scope))


def insert_passages(namespace: str, note_id: str, passages: Sequence[str]) -> Statement:
    """Index a note's text; the ids of the passages come back, each with its position."""
    return Statement(_INSERT_CHUNKS, (namespace, note_id, to_json(passages)))


def delete_passages(namespace: str, note_id: str) -> Statement:
    """Take a note's text out of the index; the ids of its passages come back."""
    return Statement(_DELETE_CHUNKS, (namespace, note_id))


def to_json(values: Sequence[object]) -> str:
    """`values` as a JSON array, as statements and columns take lists."""
    return _ENCODER.encode(list(values))


def _read(user_id: str, row: Row) -> Note:
    note_id, text, tags, version, created, updated, source, *rest = cast("tuple[Any, ...]", row)
    actor, channel, session, turn, link, material, *rest = rest
    kind, confidence, rationale, importance, scope, key, change, restores, *rest = rest
    count, accessed, by, reason, at, embedded = rest[:6]
    return Note(
        note_id=note_id,
        user_id=user_id,
        text=text,
        tags=tuple(json.loads(tags)),
        version=version,
        created_at=created,
        updated_at=updated,
        source=source,
        origin=Origin(actor, channel, session, turn, link, bool(material)),
        embedded=bool(embedded),
        details=Details(kind, confidence, rationale, importance, scope),
        key=key or "",
        change=change,
        restores=restores,
        access_count=count,
        accessed_at=accessed,
        superseded=None if by is None else Superseded(by, reason, at),
    )
