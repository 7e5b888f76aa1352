"""The repository of notes: the SQL that reads or changes them, one atomic batch per change.

Besides this module, only storage (schema, erasure, statistics), search, transfer and the replica
know the table.
"""

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS

from guest.errors import AfterChangeError, StorageError
from guest.memory import validation
from guest.memory.indexing.chunking import passages_of
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.indexing.words import index_text
from guest.memory.models import (
    FIXED,
    READ,
    STAYS_HERE,
    Change,
    Details,
    Erasure,
    Filter,
    MemoryAction,
    Note,
    NoteNotFound,
    Only,
    Origin,
    Superseded,
    User,
    now,
    stays_here,
)
from guest.memory.notes import receipts
from guest.memory.notes.columns import (
    DETAILS,
    ENDED,
    ORIGIN,
    VERSIONED,
    VERSIONED_COUNT,
    VERSIONED_OF,
    VERSIONED_PLACES,
    Versioned,
    origin_row,
    to_json,
)
from guest.memory.notes.quota import ANOTHER_NOTE, ANOTHER_VERSION, Quota, Used
from guest.memory.storage.base import (
    INTEGER_MAX,
    AnswerLost,
    ConstraintViolated,
    Database,
    Result,
    Row,
    Statement,
    Value,
    apply,
    failing,
    remove_rows,
)
from guest.memory.storage.changes import change_was_made
from guest.memory.storage.sound import VERSION

log = logging.getLogger(__name__)

VERSIONS_KEPT: Final = 20
"""How many earlier versions the notes with a fixed key keep: they are overwritten often."""

_SAME: Final = """
namespace = ? AND content_hash IN (SELECT value FROM json_each(?)) AND scope_session = ?
    AND key IS NULL
    AND superseded_by IS NULL
"""
_REQUIRE_NEW: Final = failing(f"SELECT 1 FROM notes WHERE {_SAME}")  # noqa: S608
_INSERT_CHUNKS: Final = """
INSERT INTO chunks (namespace, note_id, position, body, words)
    SELECT ?, ?, key, value ->> 0, value ->> 1 FROM json_each(?) RETURNING chunk_id, position
"""
_DELETE_CHUNKS: Final = """
DELETE FROM chunks WHERE namespace = ? AND note_id = ? RETURNING chunk_id
"""
_KEPT: Final = (
    *("notes.key", "notes.scope_session", "notes.created_at", "notes.updated_at"),
    *("notes.access_count", "notes.accessed_at"),
    *("notes.superseded_by", "notes.superseded_reason", "notes.superseded_at"),
)
"""The columns of a note that its earlier versions lack, or have with another meaning."""
COLUMNS: Final = f"""
notes.note_id, {VERSIONED_OF.format("notes")}, {", ".join(_KEPT)},
NOT EXISTS (SELECT 1 FROM chunks LEFT JOIN chunks_vec USING (chunk_id)
            WHERE chunks.namespace = notes.namespace AND chunks.note_id = notes.note_id
                AND chunks_vec.chunk_id IS NULL)
"""  # noqa: S608
"""The columns that `note_of` reads."""

_GET: Final = f"SELECT {COLUMNS} FROM notes WHERE namespace = ? AND note_id = ?"  # noqa: S608
_GET_MANY: Final = f"""
SELECT {COLUMNS} FROM json_each(?) AS wanted
    CROSS JOIN notes ON notes.namespace = ? AND notes.note_id = wanted.value
    ORDER BY wanted.key
"""  # noqa: S608
_BEGIN_WITH: Final = """
SELECT note_id FROM notes WHERE namespace = ? AND note_id >= ? AND note_id < ?
    AND (? OR scope_session IN ('', ?)) ORDER BY note_id LIMIT 3
"""
_SHORT_ID: Final = re.compile(r"(?:note-)?([0-9a-f]{8}[0-9a-f-]{0,28})")
_DIGITS: Final = 36
SHORT_CHARS: Final = len("note-") + 8
"""How much of an id people are shown."""
_BY_TEXT: Final = f"SELECT {COLUMNS} FROM notes WHERE {_SAME} ORDER BY seq LIMIT 1"  # noqa: S608
_BY_KEY: Final = f"SELECT {COLUMNS} FROM notes WHERE namespace = ? AND key = ?"  # noqa: S608
_DUPLICATE: Final = f"SELECT note_id FROM notes WHERE {_SAME} AND note_id <> ? ORDER BY seq LIMIT 1"  # noqa: S608
_PAGE: Final = f"""
SELECT {COLUMNS}, notes.seq FROM notes WHERE seq IN (
    SELECT seq FROM notes WHERE namespace = ? AND seq < ? {{only}} ORDER BY seq DESC LIMIT ?)
    ORDER BY seq DESC
"""  # noqa: S608
_NEWEST: Final = f"""
SELECT {COLUMNS} FROM notes
    WHERE namespace = ?1 AND scope_session IN ('', ?2) AND (superseded_by IS NULL OR ?3)
        AND confidence >= ?4 AND (?5 = '[]' OR type IN (SELECT value FROM json_each(?5)))
        AND (key IS NULL OR key NOT IN {FIXED})
        AND (?7 = '' OR content GLOB ?7)
    ORDER BY ordered_at DESC, seq DESC LIMIT ?6
"""  # noqa: S608
_RECALLED: Final = """
UPDATE notes SET access_count = access_count + 1, accessed_at = ?
    WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""
_ACTIVITY: Final = f"""
SELECT notes.ordered_at, notes.key, notes.change, notes.version FROM notes
    WHERE notes.namespace = ?1 AND notes.ordered_at >= ?2 AND notes.ordered_at < ?3
        AND notes.key NOT IN {FIXED} AND notes.superseded_by IS NULL AND NOT {STAYS_HERE}
UNION ALL
SELECT before.written_at, notes.key, before.change, before.version
    FROM note_versions AS before JOIN notes USING (namespace, note_id)
    WHERE before.namespace = ?1 AND before.written_at >= ?2 AND before.written_at < ?3
        AND notes.key NOT IN {FIXED} AND notes.superseded_by IS NULL AND NOT {STAYS_HERE}
ORDER BY 1, 2, 4
"""  # noqa: S608
_PASSAGES: Final = """
SELECT chunks.chunk_id, notes.note_id, notes.scope_session FROM chunks CROSS JOIN notes
    ON notes.namespace = chunks.namespace AND notes.note_id = chunks.note_id
    WHERE chunks.namespace = ? AND chunks.chunk_id < ?
        AND notes.superseded_by IS NULL AND notes.key IS NULL
    ORDER BY chunks.chunk_id DESC LIMIT ?
"""
_TEXTS: Final = """
SELECT seq, note_id, scope_session, substr(content, 1, ?4) FROM notes
    WHERE namespace = ?1 AND seq < ?2 AND superseded_by IS NULL AND key IS NULL
    ORDER BY seq DESC LIMIT ?3
"""
_STALE: Final = f"""
SELECT {COLUMNS} FROM notes
    WHERE namespace = ?1 AND ordered_at < ?2 AND accessed_at < ?2 AND superseded_by IS NULL
        AND (key IS NULL OR key NOT IN {FIXED})
    ORDER BY ordered_at, seq LIMIT ?3
"""  # noqa: S608
_INSERT: Final = f"""
INSERT INTO notes (namespace, note_id, {VERSIONED}, content_hash, scope_session, key, created_at,
                   updated_at, ordered_at)
    VALUES (?, ?, {VERSIONED_PLACES}, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608
_FIND_CHUNKS: Final = """
SELECT chunk_id, body FROM chunks WHERE namespace = ? AND note_id = ? ORDER BY position
"""
_DELETE: Final = "DELETE FROM notes WHERE namespace = ? AND note_id = ?"
_SUPERSEDABLE: Final = ("notes", "note_versions")
_UNREPLACE: Final = """
UPDATE {} SET superseded_by = '' WHERE namespace = ? AND superseded_by = ?
"""
_IS_THERE: Final = "SELECT 1 FROM notes WHERE namespace = ? AND note_id = ?"
_REQUIRE: Final = failing(_IS_THERE, without=True)
_REQUIRE_VERSION: Final = failing(f"{_IS_THERE} AND {VERSION} = ?", without=True)
_KEEP_VERSION: Final = f"""
INSERT INTO note_versions (namespace, note_id, {VERSIONED}, {ENDED}, written_at, replaced_at)
    SELECT namespace, note_id, {VERSIONED}, {ENDED}, ordered_at, MAX(?, ordered_at)
    FROM notes WHERE namespace = ? AND note_id = ? ON CONFLICT DO NOTHING
"""  # noqa: S608
_UPDATE: Final = f"""
UPDATE notes SET content = ?, content_hash = ?,
                 {", ".join(f"{each} = COALESCE(?, {each})" for each in ("tags", *DETAILS))},
                 {", ".join(f"{each} = ?" for each in (*ORIGIN, "change", "restores"))},
                 superseded_by = CASE WHEN EXISTS (
                     SELECT 1 FROM notes AS other
                         WHERE other.namespace = notes.namespace AND other.note_id = ?
                 ) THEN ? ELSE ? END,
                 superseded_reason = ?, superseded_at = iif(?, MAX(?, ordered_at), ''),
                 version = {VERSION} + 1, updated_at = ?, ordered_at = MAX(?, ordered_at)
    WHERE namespace = ? AND note_id = ?
"""  # noqa: S608
"""Sets a replacement that is gone to none. In the history, a version never comes before the one it
replaces, even if the clock was set back."""
_OUTDATED: Final = f"""
FROM note_versions WHERE namespace = ?1 AND note_id = ?2 AND CASE ?3
    WHEN 0 THEN version < (SELECT version - {VERSIONS_KEPT} FROM notes
                           WHERE namespace = ?1 AND note_id = ?2)
    ELSE ?3 IN (version, restores)
        AND (SELECT COUNT(*) FROM note_versions
             WHERE namespace = ?1 AND note_id = ?2) > {VERSIONS_KEPT} END
"""  # noqa: S608
_ERASE_OUTDATED: Final = f"""
INSERT INTO erasures (requested_at) SELECT ?4 {_OUTDATED} LIMIT 1
"""
_DROP_OUTDATED: Final = f"DELETE {_OUTDATED}"
"""Of too many versions an undo drops the one that it brings back: the note says that again. So no
other is lost, and further undos reach as far back as before."""
_TRACES: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND superseded_by = ?2)
     + (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1 AND superseded_by = ?2)
     + (SELECT COUNT(*) FROM chunks WHERE namespace = ?1 AND note_id = ?2)
     + (SELECT COUNT(*) FROM chunks_vec WHERE chunk_id IN (SELECT value FROM json_each(?3)))
     + (SELECT COUNT(*) FROM chunks_fts_docsize WHERE id IN (SELECT value FROM json_each(?3)))
"""
_ERASURE: Final = """
SELECT version,
       1 + (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1 AND note_id = ?2),
       (SELECT COUNT(*) FROM chunks WHERE namespace = ?1 AND note_id = ?2),
       (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND superseded_by = ?2)
    FROM notes WHERE namespace = ?1 AND note_id = ?2
"""
_MENTIONS: Final = """
SELECT session_id, mentions FROM (
    SELECT sessions.session_id, sessions.updated_at, (
        SELECT COUNT(*) FROM conversation_events AS event
            WHERE event.session_id = sessions.session_id AND EXISTS (
                SELECT 1 FROM (
                    SELECT content FROM notes WHERE namespace = ?1 AND note_id = ?2 UNION ALL
                    SELECT content FROM note_versions WHERE namespace = ?1 AND note_id = ?2)
                    WHERE instr(event.text, content))) AS mentions
    FROM sessions WHERE user_id = ?3)
    WHERE mentions > 0 ORDER BY updated_at DESC
"""
_SEEN: Final = """
SELECT note_id, superseded_by, scope_session, superseded_reason, superseded_at FROM notes
    WHERE namespace = ? AND note_id IN (?, ?) AND scope_session IN ('', ?)
"""
_REQUIRE_CURRENT: Final = failing(
    f"{_IS_THERE} AND scope_session IN ('', ?) AND superseded_by IS NULL", without=True
)
_CHAIN: Final = """
WITH RECURSIVE chain (note_id) AS (
    SELECT ?2
    UNION
    SELECT notes.superseded_by FROM chain CROSS JOIN notes
        ON notes.namespace = ?1 AND notes.note_id = chain.note_id
        WHERE notes.superseded_by <> '')
"""
_LEADS_TO: Final = f"{_CHAIN} SELECT 1 FROM chain WHERE note_id = ?3"  # noqa: S608
_REQUIRE_NO_CIRCLE: Final = failing(_LEADS_TO)
_REQUIRE_REPLACEMENT: Final = f"""
INSERT INTO guards (ok) {_CHAIN}
    SELECT 0 WHERE EXISTS (SELECT 1 FROM chain WHERE note_id = ?3) OR NOT EXISTS (
        SELECT 1 FROM notes WHERE namespace = ?1 AND note_id = ?2 AND scope_session IN ('', ?4))
"""  # noqa: S608
_SUPERSEDE: Final = """
UPDATE notes SET superseded_by = ?, superseded_reason = ?, superseded_at = MAX(?, ordered_at)
    WHERE namespace = ? AND note_id = ?
"""
_REQUIRE_SUPERSEDED: Final = failing(
    f"{_IS_THERE} AND {VERSION} = ? AND superseded_by = ?", without=True
)
_REVIVE: Final = """
UPDATE notes SET superseded_by = NULL, superseded_reason = '', superseded_at = ''
    WHERE namespace = ? AND note_id = ?
"""
_SCOPED: Final = "+notes.namespace = ? AND scope_session = ? AND scope_session <> ''"
"""Notes scoped to one session, found by the index on scope. That index needs the last condition;
the plus keeps the planner from scanning all notes of the user instead."""
_HIDE: Final = f"UPDATE notes SET superseded_by = '' WHERE {_SCOPED}"  # noqa: S608
_SCOPED_CHUNKS: Final = f"""
DELETE FROM chunks WHERE chunk_id IN (
    SELECT chunk_id FROM notes CROSS JOIN chunks USING (namespace, note_id)
        WHERE {_SCOPED} LIMIT ?)
    RETURNING chunk_id
"""  # noqa: S608
_UNREPLACE_SCOPED: Final = f"""
UPDATE {{}} SET superseded_by = ''
    WHERE namespace = ? AND superseded_by IN (SELECT note_id FROM notes WHERE {_SCOPED})
"""  # noqa: S608
_DELETE_SCOPED: Final = f"""
DELETE FROM notes WHERE seq IN (SELECT seq FROM notes WHERE {_SCOPED} LIMIT ?) RETURNING 1
"""  # noqa: S608
_VERSION: Final = f"""
SELECT {VERSIONED}, {ENDED} FROM note_versions WHERE namespace = ? AND note_id = ? AND version = ?
"""  # noqa: S608


class SupersessionState(NamedTuple):
    """The replacement of a note (None if it is current), the only session that sees it, and why
    and when it was superseded."""

    by: str | None
    scope: str
    reason: str
    at: str


ChangePlace = tuple[str, str, int, int]
"""A change's place in the history: time, note id, version and kind."""


@dataclass
class Draft:
    """A note to store. Raises `ValueError`, which names the invalid argument.

    Without `note_id` it is a new note. For an update, `replaces` is the version it must follow,
    None for any. Tags and details that are None get the defaults in a new note and are kept by an
    update. An update changes neither key nor scope. A superseded note becomes current again, unless
    the draft brings back a version that was superseded.
    """

    text: str
    tags: Sequence[str] | None
    origin: Origin
    note_id: str = field(default_factory=lambda: f"note-{uuid.uuid4()}")
    replaces: int | None = None
    details: Details | None = None
    key: str = ""
    change: Change = "save"
    restores: int = 0
    superseded: Superseded | None = None
    passages: Sequence[str] = field(init=False)
    written_at: str = field(default_factory=now)

    def __post_init__(self) -> None:
        validation.check_text("text", self.text)
        validation.check_length("text", self.text, NOTE_MAX_CHARS)
        if self.details is not None:
            validation.check_details(self.details)
        if self.tags is not None:
            self.tags = validation.checked_tags(self.tags)
        self.passages = passages_of(self.text)

    @property
    def content_hash(self) -> str:
        return hash_of(self.text)

    @property
    def alike(self) -> list[str]:
        """The hashes of texts that say the same: with or without a capital at the beginning or any
        capitals, spaces between words that are more than one, and the full stop."""
        spaced = {self.text, " ".join(self.text.split())}
        stopped = {end for each in spaced for end in (each, each.rstrip(".。"), f"{each}.")}
        return [
            hash_of(each)
            for text in sorted(stopped)
            for each in {text, text[:1].swapcase() + text[1:], text.lower()}
        ]

    @property
    def scope(self) -> str:
        """The only session that will see the note; empty for all sessions of the user."""
        return "" if self.details is None else self.details.scope_session

    def as_saved(self, *, embedded: bool) -> Note:
        """The note that results from storing this draft as a new one."""
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


@dataclass(frozen=True)
class Revision:
    """A note as an update left it, whatever came later, and the ids of its new passages in the
    order of the text. `outdated` means that versions were removed whose text must be erased."""

    note: Note
    passages: Sequence[int]
    outdated: bool = False


class NoteRepository:
    """One user's notes in one database.

    Each change is one atomic batch. All changes go through here, so that the resident vectors stay
    in step.
    """

    def __init__(self, database: Database, vectors: VectorStore, user: User, quota: Quota) -> None:
        self._database = database
        self._vectors = vectors
        self.namespace = user.notes
        self._user = user
        self._quota = quota

    async def get(self, note_id: str) -> Note:
        """One note, superseded or not. Raises `NoteNotFound`."""
        note = await self._one(_GET, note_id)
        if note is None:
            raise NoteNotFound(note_id)
        return note

    async def full_id(self, given: str, session_id: str | None = None) -> str:
        """The id that `given` stands for: one whole, or the first eight of its digits or more, as
        receipts show them, also without `note-`. `given` itself if no note has such an id.

        Notes that only another session sees than `session_id` do not count. Raises `ValueError`
        with the ids if there are several.
        """
        short = _SHORT_ID.fullmatch(given)
        if short is None:
            return given
        begin = f"note-{short[1]}"
        if len(short[1]) == _DIGITS:
            return begin
        scope = (session_id is None, session_id or "")
        which = (self.namespace, begin, f"{begin}~", *scope)
        rows = (await self._database.execute(_BEGIN_WITH, which)).rows
        found = [cast(str, row[0]) for row in rows]
        if len(found) > 1 and begin not in found:
            raise ValueError(f"note_id: {given} can mean {' and '.join(found)}: give all of it")
        return begin if begin in found else next(iter(found), given)

    async def get_many(self, note_ids: Sequence[str]) -> list[Note]:
        """The notes with these ids that exist, superseded or not, in the order of the ids."""
        result = await self._database.execute(_GET_MANY, (to_json(note_ids), self.namespace))
        return [note_of(row) for row in result.rows]

    async def find_by_key(self, key: str) -> Note | None:
        return await self._one(_BY_KEY, key)

    async def find_existing(self, draft: Draft) -> Note | None:
        """The note that makes saving `draft` unnecessary: the one with its key, else the oldest
        with the same text, or one alike."""
        if draft.key:
            return await self.find_by_key(draft.key)
        same = await self._one(_BY_TEXT, json.dumps([draft.content_hash]), draft.scope)
        return same or await self._one(_BY_TEXT, json.dumps(draft.alike), draft.scope)

    async def duplicate_of(self, note: Note, text: str) -> str:
        """The id of the oldest other note that already says `text`; empty if there is none."""
        if note.key:
            return ""
        same = (json.dumps([hash_of(text)]), note.details.scope_session, note.note_id)
        result = await self._database.execute(_DUPLICATE, (self.namespace, *same))
        return cast(str, result.rows[0][0]) if result.rows else ""

    async def page(
        self, limit: int, before: int, only: Filter, *, include_superseded: bool
    ) -> tuple[list[Note], int]:
        """Up to `limit` notes, newest first, and where the next page begins; 0 at the end."""
        conditions, arguments = only.conditions()
        if not include_superseded:
            conditions = f" AND superseded_by IS NULL{conditions}"
        sql = _PAGE.format(only=conditions)
        result = await self._database.execute(sql, (self.namespace, before, *arguments, limit + 1))
        rows = result.rows[:limit]
        following = cast(int, rows[-1][-1]) if len(result.rows) > limit else 0
        return [note_of(row) for row in rows], following

    async def newest(self, limit: int, only: Only, holding: str = "") -> list[Note]:
        """The notes that `only` allows, last written first, without those that have a fixed key;
        with `holding`, only those with this text in them, in small or capital letters."""
        allowed = (only.session_id, only.superseded, only.min_confidence, json.dumps(only.types))
        pattern = f"*{''.join(map(_in_any_case, holding))}*" if holding else ""
        result = await self._database.execute(_NEWEST, (self.namespace, *allowed, limit, pattern))
        return [note_of(row) for row in result.rows]

    async def stale(self, before: str, limit: int) -> list[Note]:
        """Notes neither written nor recalled since `before`, oldest first."""
        result = await self._database.execute(_STALE, (self.namespace, before, limit))
        return [note_of(row) for row in result.rows]

    async def comparable_passages(self, limit: int, *, per_page: int) -> list[Row]:
        """The newest passages to compare in a review: (passage, note, scope)."""
        return await self._newest_rows(_PASSAGES, limit, per_page)

    async def comparable_texts(self, limit: int, *, per_page: int, chars: int) -> list[Row]:
        """The newest notes to compare in a review: (number, note, scope, the first `chars`
        characters)."""
        return await self._newest_rows(_TEXTS, limit, per_page, chars)

    async def changes(
        self,
        place: ChangePlace,
        limit: int,
        *,
        note_id: str = "",
        actor: str = "",
        material_only: bool = False,
        session_id: str = "",
    ) -> list[Row]:
        """Changes before `place`, newest first, as rows for the history: those of one note by
        version, else by time.

        Supersessions store no session, so filtering by session leaves them out.
        """
        only, values = "", list[Value]()
        for condition, value in (
            (" AND note_id = ?", note_id),
            (" AND {actor} = ?", actor),
            (" AND said.origin_session = ?", session_id),
        ):
            if value:
                only += condition
                values.append(value)
        if material_only:
            only += " AND said.origin_material = 1"
        kinds = [_CURRENT, _EARLIER]
        if not (material_only or session_id):
            kinds.append(_SUPERSEDED)
        arguments = (self.namespace, *place, *values, limit)
        results = await self._database.batch(
            [Statement(each.page(only, by_version=bool(note_id)), arguments) for each in kinds]
        )
        rows = (row for result in results for row in result.rows)
        order = itemgetter(*range(2 if note_id else 0, 4))
        return sorted(rows, key=order, reverse=True)[:limit]

    async def earlier_version(self, note_id: str, version: int) -> Row | None:
        """An earlier version as a row for the history; None if it is no longer stored."""
        result = await self._database.execute(_VERSION, (self.namespace, note_id, version))
        return result.rows[0] if result.rows else None

    async def activity(self, since: str, before: str) -> list[Row]:
        """Writes to keyed notes: time, key, mode and version."""
        result = await self._database.execute(_ACTIVITY, (self.namespace, since, before))
        return list(result.rows)

    async def check_quota(self, draft: Draft, *, notes: int = 0) -> None:
        """Raise `MemoryFull` if `draft` does not fit."""
        size = len(draft.text.encode())
        await self._quota.check(self._database, self.namespace, Used(notes, size))

    async def insert(self, draft: Draft) -> Sequence[int] | None:
        """Store a new note; returns the ids of its passages in the order of the text, None if one
        exists with this text, one alike or this key, or if the quota does not allow it."""
        namespace, vectors = self.namespace, self._vectors
        new = () if draft.key else (require_new(namespace, draft.alike, draft.scope),)
        try:
            async with vectors.changing(namespace):
                *_, inserted, _ = await self._database.batch(
                    (
                        *new,
                        Statement(_INSERT, _row(namespace, draft)),
                        *receipts.of_change(namespace, draft.origin, "saved", draft.note_id),
                        insert_passages(namespace, draft.note_id, draft.passages),
                        self._quota.keep(namespace, ANOTHER_NOTE),
                    )
                )
                vectors.added(namespace, len(inserted.rows))
        except ConstraintViolated:
            return None
        except AnswerLost:
            return await self._stored_passages(draft)
        return _in_order(inserted)

    async def update(self, draft: Draft) -> Revision | None:
        """Store the next version of a note and keep the previous one.

        Returns None if there is no such note, if it is not at the version that `draft` replaces, if
        the quota does not allow it, or if replacements would form a circle. A note with a fixed key
        loses its oldest versions, or in an undo the one that is brought back. An undo ignores the
        quota.
        Raises `AfterChangeError` if a server's answer was lost and others have changed the note
        since.
        """
        namespace, vectors = self.namespace, self._vectors
        details = draft.details
        action: MemoryAction = "restored" if draft.change == "undo" else "updated"
        ending: list[Statement] = []
        if draft.superseded is not None:
            circle = (namespace, draft.superseded.by, draft.note_id)
            ending.append(Statement(_REQUIRE_NO_CIRCLE, circle))
        if draft.key in FIXED:
            ending += _drop_outdated(namespace, draft)
        if draft.change != "undo":
            ending.append(self._quota.keep(namespace, ANOTHER_VERSION))
        new = (
            draft.text,
            draft.content_hash,
            None if draft.tags is None else to_json(draft.tags),
            *(None if details is None else getattr(details, name) for name in DETAILS),
            *(*origin_row(draft.origin), draft.change, draft.restores),
            *_ended(draft),
            draft.written_at,
            draft.written_at,
        )
        try:
            async with vectors.changing(namespace):
                results = await self._database.batch(
                    (
                        _require(namespace, draft.note_id, draft.replaces),
                        Statement(_KEEP_VERSION, (draft.written_at, namespace, draft.note_id)),
                        Statement(_UPDATE, (*new, namespace, draft.note_id)),
                        delete_passages(namespace, draft.note_id),
                        insert_passages(namespace, draft.note_id, draft.passages),
                        Statement(_GET, (namespace, draft.note_id)),
                        *receipts.of_change(namespace, draft.origin, action, draft.note_id),
                        *ending,
                    )
                )
                removed, added = _ids(results[3]), _in_order(results[4])
                vectors.removed(namespace, removed)
                vectors.added(namespace, len(added))
        except ConstraintViolated:
            return None
        except AnswerLost:
            return await self._stored_update(draft)
        outdated = len(ending) > 1 and results[-2].rows_affected > 0
        return Revision(note_of(results[5].rows[0]), added, outdated)

    async def delete(
        self, note_id: str, version: int | None = None, origin: Origin | None = None
    ) -> Sequence[int]:
        """Remove a note with everything that belongs to it; the caller must then erase the text.

        Notes that it replaced stay superseded, without a replacement. Raises `NoteNotFound` if
        there is no such note, or not in this version.

        Returns:
            The ids of the removed passages; empty if a server's answer was lost.
        """
        namespace = self.namespace
        try:
            async with self._vectors.changing(namespace):
                results = await self._database.batch(
                    (
                        _require(namespace, note_id, version),
                        delete_passages(namespace, note_id),
                        Statement(_DELETE, (namespace, note_id)),
                        *(
                            Statement(_UNREPLACE.format(table), (namespace, note_id))
                            for table in _SUPERSEDABLE
                        ),
                        *receipts.of_change(namespace, origin, "deleted", note_id),
                        Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
                    )
                )
                removed = _ids(results[1])
                self._vectors.removed(namespace, removed)
        except ConstraintViolated:
            raise NoteNotFound(note_id) from None
        except AnswerLost:
            log.info("the answer to the deletion of %s was lost; it is gone", note_id)
            return ()
        return removed

    async def erasure(self, note_id: str) -> Erasure:
        """What deleting a note would erase. Raises `NoteNotFound`."""
        note = (self.namespace, note_id)
        rows, mentions = await self._database.batch(
            [Statement(_ERASURE, note), Statement(_MENTIONS, (*note, self._user.id))]
        )
        if not rows.rows:
            raise NoteNotFound(note_id)
        found = cast("tuple[tuple[str, int], ...]", mentions.rows)
        return Erasure(
            *cast("tuple[int, int, int, int]", rows.rows[0]),
            mentions=sum(count for _, count in found),
            mentioned_in=tuple(session_id for session_id, _ in found),
        )

    async def traces(self, note_id: str, chunk_ids: Sequence[int]) -> int:
        """The number of rows, in any table, that still belong to a deleted note."""
        traces = (self.namespace, note_id, to_json(chunk_ids))
        return cast(int, (await self._database.execute(_TRACES, traces)).rows[0][0])

    async def supersession(
        self, note_ids: tuple[str, str], session_id: str
    ) -> Mapping[str, SupersessionState]:
        """The supersession states of two notes, as far as the session sees them."""
        found = await self._database.execute(_SEEN, (self.namespace, *note_ids, session_id))
        rows = cast("tuple[tuple[Any, ...], ...]", found.rows)
        return {note_id: SupersessionState(*state) for note_id, *state in rows}

    async def leads_to(self, note_id: str, other_id: str) -> bool:
        """Whether `other_id` replaces `note_id`, directly or through other notes."""
        chain = (self.namespace, note_id, other_id)
        return bool((await self._database.execute(_LEADS_TO, chain)).rows)

    async def supersede(
        self,
        note_id: str,
        *,
        reason: str,
        replacement_id: str,
        session_id: str,
        origin: Origin | None = None,
    ) -> bool:
        """Mark a note as superseded; false if the session does not see it or its replacement, if
        it is superseded already, or if the replacements would form a circle."""
        namespace = self.namespace
        guards = [Statement(_REQUIRE_CURRENT, (namespace, note_id, session_id))]
        if replacement_id:
            circle = (namespace, replacement_id, note_id, session_id)
            guards.append(Statement(_REQUIRE_REPLACEMENT, circle))
        state = (replacement_id, reason, now(), namespace, note_id)
        receipt = receipts.of_change(namespace, origin, "superseded", note_id)
        return await self._apply(*guards, Statement(_SUPERSEDE, state), *receipt)

    async def revive(self, note: Note) -> bool:
        """Make a superseded note current again; false if it has changed meanwhile."""
        assert note.superseded is not None
        same = (self.namespace, note.note_id, note.version, note.superseded.by)
        return await self._apply(
            Statement(_REQUIRE_SUPERSEDED, same), Statement(_REVIVE, (self.namespace, note.note_id))
        )

    async def count_recall(self, note_ids: Sequence[str]) -> None:
        recalled = (now(), self.namespace, to_json(note_ids))
        await apply(self._database, Statement(_RECALLED, recalled))

    def hide_session(self, session_id: str) -> Statement:
        """Supersede the notes that only this session sees: the first step of their removal."""
        return Statement(_HIDE, (self.namespace, session_id))

    async def remove_session(self, session_id: str) -> list[int]:
        """Remove the notes that only this session sees, in slices; the ids of the removed passages,
        as far as known.

        Notes that one of them replaced stay superseded, without a replacement.
        """
        scoped = (self.namespace, session_id)
        removed = await self._vectors.remove_passages(self.namespace, _SCOPED_CHUNKS, scoped)
        await apply(
            self._database,
            *(
                Statement(_UNREPLACE_SCOPED.format(table), (self.namespace, *scoped))
                for table in _SUPERSEDABLE
            ),
        )
        await remove_rows(self._database, _DELETE_SCOPED, scoped)
        return removed

    async def _newest_rows(self, sql: str, limit: int, per_page: int, *more: Value) -> list[Row]:
        """Rows by descending first column, read page by page so that other work is not blocked."""
        rows: list[Row] = []
        before = INTEGER_MAX
        while len(rows) < limit:
            arguments = (self.namespace, before, per_page, *more)
            page = (await self._database.execute(sql, arguments)).rows
            rows += page
            if len(page) < per_page:
                break
            before = cast(int, page[-1][0])
        return rows[:limit]

    async def _one(self, sql: str, *arguments: Value) -> Note | None:
        result = await self._database.execute(sql, (self.namespace, *arguments))
        return note_of(result.rows[0]) if result.rows else None

    async def _apply(self, *statements: Statement) -> bool:
        """Apply a change; false if another change came first."""
        try:
            async with self._vectors.changing(self.namespace):
                await apply(self._database, *statements)
        except ConstraintViolated:
            return False
        return True

    async def _stored_update(self, draft: Draft) -> Revision:
        """The outcome of an update that was stored but whose answer was lost."""
        with change_was_made(f"{draft.note_id} is updated; it could not be read again"):
            note = await self.get(draft.note_id)
        if (note.text, note.updated_at) != (draft.text, draft.written_at):
            raise AfterChangeError(
                Code.CONFLICT,
                f"{draft.note_id} is updated, and was changed again since",
                details="the answer was lost, and the note has another text now",
                resolution="read it again before changing it",
            )
        return Revision(note, await self._stored_passages(draft))

    async def _stored_passages(self, draft: Draft) -> Sequence[int]:
        """The passages of a batch that stored `draft` but whose answer was lost. Where they
        cannot be determined, the indexer finds them later."""
        try:
            result = await self._database.execute(_FIND_CHUNKS, (self.namespace, draft.note_id))
        except StorageError:
            return ()
        return _ids(result) if [row[1] for row in result.rows] == list(draft.passages) else ()


def _in_any_case(character: str) -> str:
    """What matches `character` in a pattern for GLOB; SQL's lower() knows ASCII alone."""
    cases = {character, character.lower(), character.upper(), character.title()}
    forms = "".join(each for each in cases if len(each) == 1)
    return f"[{forms}]" if len(forms) > 1 or forms in "*?[" else forms


def change_place(row: Row) -> ChangePlace:
    return cast(ChangePlace, row[:4])


def note_of(row: Row) -> Note:
    """Read a note from a row that begins with `COLUMNS`."""
    note_id, *rest = cast("tuple[Any, ...]", row)
    said, kept = Versioned.of(rest[:VERSIONED_COUNT]), rest[VERSIONED_COUNT:]
    if stays_here(said.tags):
        READ.get([]).append(note_id)
    key, scope, created, updated, accesses, accessed, by, reason, at, embedded = kept[:10]
    return Note(
        *(note_id, said.content, tuple(said.tags), said.version, created, updated, said.source),
        *(said.origin, bool(embedded), Details(**said.details, scope_session=scope), key or ""),
        *(said.change, said.restores, accesses, accessed),
        None if by is None else Superseded(by, reason, at),
    )


def hash_of(text: str) -> str:
    """The hash by which notes with exactly the same text are found."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_new(namespace: str, hashes: Sequence[str], scope: str = "") -> Statement:
    """Fail the batch if a current note without a key, in the same scope, has one of these."""
    return Statement(_REQUIRE_NEW, (namespace, json.dumps(hashes), scope))


def insert_passages(namespace: str, note_id: str, passages: Sequence[str]) -> Statement:
    """Index a note's text; returns each new passage's id and position."""
    indexed = [(passage, index_text(passage)) for passage in passages]
    return Statement(_INSERT_CHUNKS, (namespace, note_id, to_json(indexed)))


def delete_passages(namespace: str, note_id: str) -> Statement:
    """Remove a note's text from the index; returns the ids of its passages."""
    return Statement(_DELETE_CHUNKS, (namespace, note_id))


def _row(namespace: str, draft: Draft) -> tuple[Any, ...]:
    details = vars(draft.details or Details())
    said = Versioned(
        *(1, draft.text, draft.tags or (), details, draft.origin.actor, draft.origin),
        *(draft.change, draft.restores),
    )
    kept = (draft.content_hash, draft.scope, draft.key or None, *[draft.written_at] * 3)
    return namespace, draft.note_id, *said.row, *kept


def _ended(draft: Draft) -> tuple[str | None, ...]:
    """The values of `_UPDATE` that say whether, and how, the note is superseded afterwards."""
    ended = draft.superseded
    if ended is None:
        return "", None, None, "", "", ""
    return ended.by, ended.by, "", ended.reason, "1", draft.written_at


def _drop_outdated(namespace: str, draft: Draft) -> tuple[Statement, Statement]:
    which = (namespace, draft.note_id, draft.restores)
    return (
        Statement(_ERASE_OUTDATED, (*which, draft.written_at)),
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


_ORIGIN: Final = ", ".join(f"said.{each}" for each in ORIGIN[1:])


class _Kind(NamedTuple):
    """One kind of changes: the table whose rows are changes (`said`), and its columns."""

    table: str
    at: str
    current: str
    number: int = 0
    change: str = "said.change"
    text: str = "said.content"
    actor: str = "said.origin_actor"
    origin: str = _ORIGIN
    by: str = "''"
    only: str = ""

    def page(self, only: str, *, by_version: bool) -> str:
        """The SQL of one page; `only` is appended to its conditions."""
        before = f"(said.version, {self.number}) < (?4, ?5)"
        order = "said.version DESC"
        if not by_version:
            place = f"({self.at}, note_id, said.version, {self.number})"
            before = f"{self.at} <= ?2 AND {place} < (?2, ?3, ?4, ?5)"
            order = f"{self.at} DESC, note_id DESC, {order}"
        return f"""
            SELECT {self.at} AS at, note_id, said.version, {self.number}, {self.change},
                   {self.text}, said.tags, said.type, COALESCE(key, ''), {self.actor},
                   {self.origin}, {self.current}, {self.by}
                FROM {self.table}
                WHERE said.namespace = ?1 AND {before}{self.only}{only.format(actor=self.actor)}
                ORDER BY {order} LIMIT ?
        """  # noqa: S608


_CURRENT: Final = _Kind("notes AS said", "ordered_at", current="superseded_by IS NULL")
_EARLIER: Final = _Kind(
    "note_versions AS said CROSS JOIN notes USING (namespace, note_id)",
    "said.written_at",
    current="0",
)
_SUPERSEDED: Final = _Kind(
    "notes AS said",
    "superseded_at",
    current="1",
    number=1,
    change="'supersede'",
    text="superseded_reason",
    actor="'agent'",
    origin="'', '', '', '', 0",
    by="superseded_by",
    only=" AND superseded_by IS NOT NULL",
)
