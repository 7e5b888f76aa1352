"""What changes notes: each change is one atomic batch that needs no reading first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from guest.errors import StorageError
from guest.memory import keys, notes
from guest.memory.database.base import Database, Result, Statement
from guest.memory.instant import now
from guest.memory.notes import Draft
from guest.memory.quota import ANOTHER_NOTE, ANOTHER_VERSION, Quota
from guest.memory.types import Details

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
    AND version < (SELECT version - {keys.VERSIONS_KEPT} FROM notes
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
    new = () if draft.key else (notes.require_new(namespace, draft.content_hash, scope),)
    *_, inserted, _ = await database.batch(
        (
            *new,
            Statement(_INSERT, _row(namespace, draft)),
            notes.insert_passages(namespace, draft.note_id, draft.passages),
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
    ending: list[Statement] = []
    if draft.change != "undo":
        if draft.key in keys.FIXED:
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
                    None if draft.tags is None else notes.to_json(draft.tags),
                    *((None,) * 4 if details is None else _known(details)),
                    *_origin(draft),
                    draft.written_at,
                    namespace,
                    draft.note_id,
                ),
            ),
            notes.delete_passages(namespace, draft.note_id),
            notes.insert_passages(namespace, draft.note_id, draft.passages),
            *ending,
        )
    )
    return Passages(
        added=_in_order(results[4]),
        removed=_ids(results[3]),
        outdated=len(ending) > 1 and results[-2].rows_affected > 0,
    )


async def delete(
    database: Database, namespace: str, note_id: str, version: int | None = None
) -> Passages:
    """Remove a note with everything of it; its content is to be erased afterwards.

    A note that it has replaced stays superseded, by nothing from now on. Raises
    `ConstraintViolated` where the note does not exist, or not in this version.
    """
    results = await database.batch(
        (
            _require(namespace, note_id, version),
            notes.delete_passages(namespace, note_id),
            Statement(_DELETE, (namespace, note_id)),
            Statement(_UNREPLACE, (namespace, note_id)),
            Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
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
    result = await database.execute(_TRACES, (namespace, note_id, notes.to_json(chunk_ids)))
    return cast(int, result.rows[0][0])


def _row(namespace: str, draft: Draft) -> tuple[str | float | None, ...]:
    return (
        namespace,
        draft.note_id,
        draft.text,
        draft.content_hash,
        notes.to_json(draft.tags or ()),
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
