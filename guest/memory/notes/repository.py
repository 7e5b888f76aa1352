"""All SQL on notes: rows, pages, quotas, and one atomic batch for each change."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from guest.errors import StorageError
from guest.memory.models import (
    Change,
    Details,
    MemoryAction,
    MemoryConfig,
    MemoryFull,
    Note,
    NoteNotFound,
    Origin,
    Superseded,
    now,
)
from guest.memory.notes import receipts
from guest.memory.storage.base import INTEGER_MAX, Database, Result, Row, Statement, Value
from guest.memory.storage.errors import noticed

HANDOFF: Final = "session-handoff"
SCRATCHPAD: Final = "scratchpad"
FIXED: Final = (HANDOFF, SCRATCHPAD)

VERSIONS_KEPT: Final = 20
"""How many earlier versions of each of them are kept: they are overwritten by contract."""

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

    def as_saved(self, *, embedded: bool) -> Note:
        """The note that storing this as a new one has made."""
        return Note(
            note_id=self.note_id,
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


async def get(database: Database, namespace: str, note_id: str) -> Note:
    """One note, superseded or not. Raises `NoteNotFound`."""
    result = await database.execute(_GET, (namespace, note_id))
    if not result.rows:
        raise NoteNotFound(note_id)
    return note_of(result.rows[0])


async def get_many(database: Database, namespace: str, note_ids: Sequence[str]) -> list[Note]:
    """Those of the notes that there are, superseded or not, in the order asked for."""
    result = await database.execute(_GET_MANY, (to_json(note_ids), namespace))
    return [note_of(row) for row in result.rows]


async def find_by_text(database: Database, namespace: str, draft: Draft) -> Note | None:
    """The oldest note that makes saving `draft` once more needless."""
    result = await database.execute(_BY_TEXT, (namespace, draft.content_hash, draft.scope))
    return note_of(result.rows[0]) if result.rows else None


async def find_by_key(database: Database, namespace: str, key: str) -> Note | None:
    """The note of this name in working memory."""
    result = await database.execute(_BY_KEY, (namespace, key))
    return note_of(result.rows[0]) if result.rows else None


async def twin_of(database: Database, namespace: str, note: Note, text: str) -> str:
    """The oldest other note that `note` would be the duplicate of if it said `text`; empty:
    none."""
    if note.key:
        return ""
    same = (namespace, hash_of(text), note.details.scope_session, note.note_id)
    result = await database.execute(_TWIN, same)
    return cast(str, result.rows[0][0]) if result.rows else ""


def note_of(row: Row) -> Note:
    """The note in a row that begins with `COLUMNS`. Raises `StorageError` for damage."""
    with noticed("a note"):
        return _read(row)


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


def _read(row: Row) -> Note:
    note_id, text, tags, version, created, updated, source, *rest = cast("tuple[Any, ...]", row)
    actor, channel, session, turn, link, material, *rest = rest
    kind, confidence, rationale, importance, scope, key, change, restores, *rest = rest
    count, accessed, by, reason, at, embedded = rest[:6]
    return Note(
        note_id=note_id,
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


_PAGE: Final = f"""
SELECT {COLUMNS}, notes.seq FROM notes WHERE seq IN (
    SELECT seq FROM notes WHERE namespace = ? AND seq < ? {{only}} ORDER BY seq DESC LIMIT ?)
    ORDER BY seq DESC
"""  # noqa: S608
_TAGGED: Final = "EXISTS (SELECT 1 FROM json_each(notes.tags) WHERE value = ?)"


@dataclass(frozen=True)
class Filter:
    """Which notes a list has; empty: whichever. Notes of every session's scope are among
    them: a list is for the person whose notes they are."""

    include_superseded: bool = False
    type: str = ""
    actor: str = ""
    material_only: bool = False
    tag: str = ""

    def conditions(self) -> tuple[str, tuple[Value, ...]]:
        """SQL that follows other conditions, and its arguments."""
        chosen: list[str] = []
        if not self.include_superseded:
            chosen.append("superseded_by IS NULL")
        if self.material_only:
            chosen.append("origin_material = 1")
        arguments: list[Value] = []
        for condition, value in (
            ("type = ?", self.type),
            ("origin_actor = ?", self.actor),
            (_TAGGED, self.tag),
        ):
            if value:
                chosen.append(condition)
                arguments.append(value)
        return "".join(f" AND {condition}" for condition in chosen), tuple(arguments)


async def page(
    database: Database, namespace: str, limit: int, before: int, only: Filter
) -> tuple[list[Note], int]:
    """Up to `limit` notes, newest first, and where the next page begins; 0 at the end."""
    conditions, arguments = only.conditions()
    sql = _PAGE.format(only=conditions)
    result = await database.execute(sql, (namespace, before, *arguments, limit + 1))
    rows = result.rows[:limit]
    following = cast(int, rows[-1][-1]) if len(result.rows) > limit else 0
    return [note_of(row) for row in rows], following


_KEEP: Final = """
INSERT INTO guards (ok)
    SELECT 0 FROM usage WHERE namespace = ? AND (notes > ? OR bytes > ?)
"""
_HOW_TO_FREE: Final = "delete notes that are not needed (memory_delete, or runner memory forget)"
USED: Final = "SELECT notes, bytes FROM usage WHERE namespace = ?"


@dataclass(frozen=True)
class Used:
    """How many notes there are, and the UTF-8 bytes of their text in all its versions; or
    how much more."""

    notes: int = 0
    text_bytes: int = 0

    def __add__(self, more: "Used") -> "Used":
        return Used(self.notes + more.notes, self.text_bytes + more.text_bytes)


ANOTHER_NOTE: Final = Used(1, 1)
ANOTHER_VERSION: Final = Used(0, 1)


@dataclass(frozen=True)
class Quota:
    """What one user may keep: notes of any kind, superseded ones too, and UTF-8 bytes of
    their text, that of earlier versions too: who writes in a loop fills no disk."""

    notes: int
    text_bytes: int

    @classmethod
    def of(cls, config: MemoryConfig) -> "Quota":
        return cls(config.settings.max_notes, round(config.settings.max_text_mb * 2**20))

    def keep(self, namespace: str, more: Used) -> Statement:
        """Fail the batch that has added `more` before this statement, if there is too much
        now of what it has added."""
        notes = self.notes if more.notes > 0 else INTEGER_MAX
        text_bytes = self.text_bytes if more.text_bytes > 0 else INTEGER_MAX
        return Statement(_KEEP, (namespace, notes, text_bytes))

    async def check(self, database: Database, namespace: str, more: Used) -> None:
        """Raise `MemoryFull` where `more` does not fit beside what there is."""
        self.refuse(used_of(await database.execute(USED, (namespace,))), more)

    def refuse(self, used: Used, more: Used) -> None:
        """Raise `MemoryFull` where `more` does not fit beside `used`, with the numbers."""
        if more.notes > 0 and used.notes + more.notes > self.notes:
            raise MemoryFull(
                f"the memory is full: {used.notes:,} notes of at most {self.notes:,}; superseded "
                f"ones count too: {_HOW_TO_FREE}, or raise memory.max_notes"
            )
        if more.text_bytes > 0 and used.text_bytes + more.text_bytes > self.text_bytes:
            raise MemoryFull(
                f"the memory is full: {used.text_bytes:,} bytes of text of at most "
                f"{self.text_bytes:,}, and this needs {more.text_bytes:,} more; earlier versions "
                f"and superseded notes count too: {_HOW_TO_FREE}, which frees all of their text, "
                "or raise memory.max_text_mb"
            )


def used_of(result: Result) -> Used:
    """What `USED` has given."""
    return Used(*cast("tuple[int, int]", result.rows[0])) if result.rows else Used()


_INSERT: Final = """
INSERT INTO notes (namespace, note_id, content, content_hash, tags, type, confidence, rationale,
                   importance, scope_session, key, source, origin_actor, origin_channel,
                   origin_session, origin_turn, origin_link, origin_material, change, restores,
                   created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
            ?19, ?20, ?20)
"""
_FIND_CHUNKS: Final = """
SELECT chunk_id, body FROM chunks WHERE namespace = ? AND note_id = ? ORDER BY position
"""
_DELETE: Final = "DELETE FROM notes WHERE namespace = ? AND note_id = ?"
_UNREPLACE: Final = """
UPDATE notes SET superseded_by = '' WHERE namespace = ? AND superseded_by = ?
"""
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
                           origin_session, origin_turn, origin_link, origin_material, change,
                           restores, written_at, replaced_at)
    SELECT namespace, note_id, version, content, tags, type, confidence,
           rationale, importance, source, origin_actor, origin_channel,
           origin_session, origin_turn, origin_link, origin_material, change,
           restores, updated_at, ?
    FROM notes WHERE namespace = ? AND note_id = ?
"""
_UPDATE: Final = """
UPDATE notes SET content = ?, content_hash = ?, tags = COALESCE(?, tags),
                 type = COALESCE(?, type), confidence = COALESCE(?, confidence),
                 rationale = COALESCE(?, rationale), importance = COALESCE(?, importance),
                 origin_actor = ?, origin_channel = ?, origin_session = ?, origin_turn = ?,
                 origin_link = ?, origin_material = ?, change = ?, restores = ?,
                 superseded_by = NULL, superseded_reason = '', superseded_at = '',
                 version = version + 1, updated_at = ?
    WHERE namespace = ? AND note_id = ?
"""
_OUTDATED: Final = f"""
FROM note_versions WHERE namespace = ? AND note_id = ?
    AND version < (SELECT version - {VERSIONS_KEPT} FROM notes
                   WHERE namespace = ? AND note_id = ?)
"""  # noqa: S608
_ERASE_OUTDATED: Final = f"""
INSERT INTO erasures (requested_at) SELECT ? {_OUTDATED} LIMIT 1
"""
_DROP_OUTDATED: Final = f"DELETE {_OUTDATED}"
_TRACES: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND superseded_by = ?2)
     + (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM chunks WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM chunks_vec WHERE chunk_id IN (SELECT value FROM json_each(?3)))
     + (SELECT COUNT(*) FROM chunks_fts_docsize WHERE id IN (SELECT value FROM json_each(?3)))
"""


@dataclass(frozen=True)
class Passages:
    """What a batch did to a note's passages: new ids in the order of the text. `outdated`:
    it has also removed versions, whose text is to be erased."""

    added: Sequence[int]
    removed: Sequence[int] = ()
    outdated: bool = False


async def insert(database: Database, namespace: str, draft: Draft, quota: Quota) -> Passages:
    """Store a new note.

    Raises `ConstraintViolated` where a note says exactly this already, or has this key,
    and where it would go over `quota`.
    """
    scope = draft.scope
    new = () if draft.key else (require_new(namespace, draft.content_hash, scope),)
    *_, inserted, _ = await database.batch(
        (
            *new,
            Statement(_INSERT, _row(namespace, draft)),
            *receipts.of_change(namespace, draft.origin, "saved", draft.note_id),
            insert_passages(namespace, draft.note_id, draft.passages),
            quota.keep(namespace, ANOTHER_NOTE),
        )
    )
    return Passages(_in_order(inserted))


async def update(database: Database, namespace: str, draft: Draft, quota: Quota) -> Passages:
    """Replace a note's text, and its tags and details unless None, keeping what it said before.

    A superseded note counts again: who writes it anew means what it says. Of a note with
    a fixed key the oldest versions go. An undo is a person's, and takes nothing away.
    Raises `ConstraintViolated` where the note does not exist or has another version than
    `draft` replaces, and, unless it is an undo, where that would go over `quota`.
    """
    details = draft.details
    action: MemoryAction = "restored" if draft.change == "undo" else "updated"
    ending: list[Statement] = []
    if draft.change != "undo":
        if draft.key in FIXED:
            ending += _drop_outdated(namespace, draft)
        ending.append(quota.keep(namespace, ANOTHER_VERSION))
    results = await database.batch(
        (
            _require(namespace, draft.note_id, draft.replaces),
            Statement(_KEEP_VERSION, (draft.written_at, namespace, draft.note_id)),
            Statement(
                _UPDATE,
                (
                    draft.text,
                    draft.content_hash,
                    None if draft.tags is None else to_json(draft.tags),
                    *((None,) * 4 if details is None else _known(details)),
                    *_origin(draft),
                    draft.written_at,
                    namespace,
                    draft.note_id,
                ),
            ),
            delete_passages(namespace, draft.note_id),
            insert_passages(namespace, draft.note_id, draft.passages),
            *receipts.of_change(namespace, draft.origin, action, draft.note_id),
            *ending,
        )
    )
    return Passages(
        added=_in_order(results[4]),
        removed=_ids(results[3]),
        outdated=len(ending) > 1 and results[-2].rows_affected > 0,
    )


async def delete(
    database: Database,
    namespace: str,
    note_id: str,
    version: int | None = None,
    origin: Origin | None = None,
) -> Passages:
    """Remove a note with everything of it; its content is to be erased afterwards.

    A note that it has replaced stays superseded, by nothing from now on. Raises
    `ConstraintViolated` where the note does not exist, or not in this version.
    """
    results = await database.batch(
        (
            _require(namespace, note_id, version),
            delete_passages(namespace, note_id),
            Statement(_DELETE, (namespace, note_id)),
            Statement(_UNREPLACE, (namespace, note_id)),
            Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
            *receipts.of_change(namespace, origin, "deleted", note_id),
        )
    )
    return Passages(added=(), removed=_ids(results[1]))


async def find_passages(database: Database, namespace: str, draft: Draft) -> Passages:
    """What a batch did that stored `draft` and whose answer was lost: ids that belong to
    its passages. None, where that cannot be told: the indexer finds them then."""
    try:
        result = await database.execute(_FIND_CHUNKS, (namespace, draft.note_id))
    except StorageError:
        return Passages(added=())
    if [row[1] for row in result.rows] != list(draft.passages):
        return Passages(added=())
    return Passages(_ids(result))


async def traces(database: Database, namespace: str, note_id: str, chunk_ids: Sequence[int]) -> int:
    """How many rows of any kind still hold something of a deleted note."""
    result = await database.execute(_TRACES, (namespace, note_id, to_json(chunk_ids)))
    return cast(int, result.rows[0][0])


def _row(namespace: str, draft: Draft) -> tuple[str | float | None, ...]:
    return (
        namespace,
        draft.note_id,
        draft.text,
        draft.content_hash,
        to_json(draft.tags or ()),
        *_known(draft.details or Details()),
        draft.scope,
        draft.key or None,
        *_origin(draft),
        draft.written_at,
    )


def _known(details: Details) -> tuple[str, float, str, float]:
    return details.type, details.confidence, details.rationale, details.importance


def _origin(draft: Draft) -> tuple[str | int, ...]:
    origin = draft.origin
    who = (origin.actor, origin.channel, origin.session_id, origin.turn_id)
    return *who, origin.link, int(origin.material), draft.change, draft.restores


def _drop_outdated(namespace: str, draft: Draft) -> tuple[Statement, Statement]:
    which = (namespace, draft.note_id, namespace, draft.note_id)
    return (
        Statement(_ERASE_OUTDATED, (draft.written_at, *which)),
        Statement(_DROP_OUTDATED, which),
    )


def _require(namespace: str, note_id: str, version: int | None) -> Statement:
    if version is None:
        return Statement(_REQUIRE, (namespace, note_id))
    return Statement(_REQUIRE_VERSION, (namespace, note_id, version))


def _ids(result: Result) -> list[int]:
    return [cast(int, row[0]) for row in result.rows]


def _in_order(result: Result) -> list[int]:
    return [cast(int, row[0]) for row in sorted(result.rows, key=lambda row: cast(int, row[1]))]
