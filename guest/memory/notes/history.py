"""What has happened to a user's notes, newest first, and taking the last change back."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from guest.memory import validation
from guest.memory.models import Change, Details, Note, NoteType, Origin, StaleVersion, User
from guest.memory.notes import repository
from guest.memory.notes.repository import FIXED, VERSIONS_KEPT, Draft
from guest.memory.notes.supersession import Supersession
from guest.memory.notes.writer import NoteWriter
from guest.memory.search.vector_store import VectorStore
from guest.memory.storage.base import Database, Row, Statement, Value
from guest.memory.storage.changes import ATTEMPTS, afterwards, unexplained
from guest.memory.storage.errors import noticed

CHANGES_MAX: Final = 1000

_PAGE: Final = """
SELECT {at} AS at, note_id, {version}, {kind}, {change}, {text}, {tags}, {type}, {key},
       {actor}, {origin}, {current}, {by}
    FROM {table} WHERE {namespace} = ?1 AND {at} <= ?2
        AND ({at}, note_id, {version}, {kind}) < (?2, ?3, ?4, ?5){only}
    ORDER BY {at} DESC, note_id DESC, {version} DESC LIMIT ?
"""
_WHERE_FROM: Final = (
    "{0}.origin_channel, {0}.origin_session, {0}.origin_turn, {0}.origin_link, {0}.origin_material"
)
_OF_NOTE: Final = " AND {rows}.note_id = ?"
_START: Final = ("~", "", 0, 0)
"""Later than every moment."""

_Place = tuple[str, str, int, int]


@dataclass(frozen=True)
class ChangeEntry:
    """One change of a note, and what the note says since; of "supersede", which only an
    agent does, `text` is the reason. `current`: nothing has changed the note since."""

    note_id: str
    version: int
    change: Change | Literal["supersede"]
    text: str
    origin: Origin
    at: str
    key: str
    type: NoteType
    current: bool
    superseded_by: str
    tags: tuple[str, ...]


class NoteHistory:
    """The changes of a user's notes, of every session's scope: history is for the person
    whose notes they are."""

    def __init__(
        self, database: Database, vectors: VectorStore, writer: NoteWriter, user: User
    ) -> None:
        self._database = database
        self._user = user
        self._undo = Undo(database, writer, Supersession(database, vectors, user), user)

    async def changes(
        self,
        *,
        note_id: str = "",
        limit: int = 50,
        cursor: str = "",
        actor: str = "",
        material_only: bool = False,
        session_id: str = "",
    ) -> tuple[list[ChangeEntry], str]:
        """Up to `limit` changes, newest first, and the cursor of the next page; empty at the end.

        `actor`, `material_only` and `session_id` are about the origin of a version; where
        a note was superseded is not known, so nothing superseded is listed for a session.
        Raises `ValueError`, `StorageError`.
        """
        validation.check_range("limit", limit, CHANGES_MAX)
        place = _read_cursor(cursor) if cursor else _START
        only, values = "", list[Value]()
        for condition, value in (
            (_OF_NOTE, note_id),
            (" AND {actor} = ?", actor),
            (" AND {rows}.origin_session = ?", session_id),
        ):
            if value:
                only += condition
                values.append(value)
        if material_only:
            only += " AND {rows}.origin_material = 1"
        arguments = (self._user.notes, *place, *values, limit + 1)
        pages = [_current(only), _before(only)]
        if not (material_only or session_id):
            pages.append(_superseded(only))
        results = await self._database.batch([Statement(sql, arguments) for sql in pages])
        rows = sorted((row for result in results for row in result.rows), key=_place, reverse=True)
        with noticed("the history of notes"):
            entries = [_entry(row) for row in rows[:limit]]
        return entries, _cursor(_place(rows[limit - 1])) if len(rows) > limit else ""

    async def undo(
        self,
        note_id: str,
        *,
        expected_version: int | None = None,
        may_forget: bool = False,
        channel: str = "",
    ) -> "Undone":
        """Take the last change of a note back, as the user; once more goes further back.

        What it said before comes as a new version. A note that was superseded is current
        again instead. Where nothing was before, the note is forgotten for good, only with
        `may_forget`. Raises `NoteNotFound`; `StaleVersion` where the note has another
        version than expected; `UndoRefused`; `StorageError`. A full memory is no hindrance.
        """
        return await self._undo.undo(
            note_id,
            expected_version=expected_version,
            may_forget=may_forget,
            channel=channel,
        )


def _current(only: str) -> str:
    return _page(
        "notes",
        "notes",
        only,
        at="updated_at",
        change="change",
        text="content",
        current="superseded_by IS NULL",
    )


def _before(only: str) -> str:
    return _page(
        "note_versions AS before CROSS JOIN notes USING (namespace, note_id)",
        "before",
        only,
        # "+": the few versions of one note are sooner found by the note than by the time
        at="+before.written_at" if _OF_NOTE in only else "before.written_at",
        change="before.change",
        text="before.content",
        current="0",
    )


def _superseded(only: str) -> str:
    return _page(
        "notes",
        "notes",
        f"{only} AND superseded_by IS NOT NULL",
        at="superseded_at",
        kind="1",
        change="'supersede'",
        text="superseded_reason",
        actor="'agent'",
        origin="'', '', '', '', 0",
        current="1",
        by="superseded_by",
    )


def _page(table: str, rows: str, only: str, **parts: str) -> str:
    """The SQL of one page of changes of one kind; `only` is what follows its conditions."""
    chosen = {
        "table": table,
        "namespace": f"{rows}.namespace",
        "version": f"{rows}.version",
        "kind": "0",
        "tags": f"{rows}.tags",
        "type": f"{rows}.type",
        "key": "COALESCE(notes.key, '')",
        "actor": f"{rows}.origin_actor",
        "origin": _WHERE_FROM.format(rows),
        "by": "''",
    } | parts
    return _PAGE.format(**chosen, only=only.format(rows=rows, actor=chosen["actor"]))


def _place(row: Row) -> _Place:
    return cast(_Place, row[:4])


def _entry(row: Row) -> ChangeEntry:
    at, note_id, version, _, change, text, tags, kind, key = cast("tuple[Any, ...]", row[:9])
    actor, channel, session, turn, link, material, current, by = cast("tuple[Any, ...]", row[9:])
    return ChangeEntry(
        note_id=note_id,
        version=version,
        change=change,
        text=text,
        origin=Origin(actor, channel, session, turn, link, bool(material)),
        at=at,
        key=key,
        type=kind,
        current=bool(current),
        superseded_by=by,
        tags=tuple(json.loads(tags)),
    )


def _cursor(place: Sequence[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_cursor(cursor: str) -> _Place:
    try:
        place = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        place = None
    match place:
        case [str(at), str(note_id), int(version), int(kind)]:
            return at, note_id, version, kind
    raise ValueError("cursor: not one that an earlier list of changes has given")


_VERSION: Final = """
SELECT content, tags, type, confidence, rationale, importance, origin_link, origin_material,
       restores
    FROM note_versions WHERE namespace = ? AND note_id = ? AND version = ?
"""


class UndoRefused(Exception):  # noqa: N818 - a condition that callers expect and handle
    """There is nothing to go back to; the message is one sentence that says why. Nothing
    was changed."""


@dataclass(frozen=True)
class Undone:
    """What an undo has done, and the note as it is now; None where it is forgotten."""

    done: Literal["restored", "current_again", "forgotten"]
    note: Note | None


class Undo:
    """See `NoteHistory.undo`."""

    def __init__(
        self, database: Database, writer: NoteWriter, supersession: Supersession, user: User
    ) -> None:
        self._database = database
        self._user = user
        self._writer = writer
        self._supersession = supersession

    async def undo(
        self,
        note_id: str,
        *,
        expected_version: int | None,
        may_forget: bool,
        channel: str,
    ) -> "Undone":
        """Without an expected version, what is undone is the last change there is."""
        namespace = self._user.notes
        for _ in range(ATTEMPTS):
            note = await repository.get(self._database, namespace, note_id)
            if expected_version not in (None, note.version):
                raise StaleVersion(note)
            try:
                undone = await self._take_back(namespace, note, may_forget, channel)
            except StaleVersion:
                continue
            if undone is not None:
                return undone
        raise unexplained(f"the last change of {note_id} cannot be undone")

    async def _take_back(
        self, namespace: str, note: Note, may_forget: bool, channel: str
    ) -> Undone | None:
        """Undo the change that made `note` what it is; None, or `StaleVersion`, where
        something else happened to it meanwhile."""
        if note.superseded is not None:
            if not await self._supersession.revive(note):
                return None
            with afterwards(f"{note.note_id} is current again; it could not be read again"):
                current = await repository.get(self._database, namespace, note.note_id)
            return Undone("current_again", current)
        version = (note.restores or note.version) - 1
        if version:
            draft = await self._draft(namespace, note, version, channel)
            restored, _ = await self._writer.update(draft)
            return Undone("restored", restored)
        if not may_forget:
            raise UndoRefused(
                f"{note.note_id} says what it said first; to undo that is to forget the note"
            )
        await self._writer.delete(note.note_id, note.version)
        return Undone("forgotten", None)

    async def _draft(self, namespace: str, note: Note, version: int, channel: str) -> Draft:
        """What an earlier version said, to follow `note`. What was read stays marked so."""
        result = await self._database.execute(_VERSION, (namespace, note.note_id, version))
        if not result.rows:
            kept = f": of the {note.key} the last {VERSIONS_KEPT} are" if note.key in FIXED else ""
            raise UndoRefused(f"version {version} of {note.note_id} is not kept{kept}")
        with noticed("a version of a note"):
            text, tags, kind, confidence, rationale, importance, *origin = cast(
                "tuple[Any, ...]", result.rows[0]
            )
            link, material, restores = origin
            labels = json.loads(tags)
        return self._writer.draft(
            text,
            labels,
            Origin(actor="user", channel=channel, link=link, material=bool(material)),
            note_id=note.note_id,
            replaces=note.version,
            details=Details(kind, confidence, rationale, importance, note.details.scope_session),
            key=note.key,
            change="undo",
            restores=restores or version,  # to go back further must skip what was undone
        )
