"""What has happened to a user's notes, newest first; derived from the notes and their
versions, so that a note that is forgotten leaves nothing here either."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from guest.memory import arguments, namespaces
from guest.memory.database.base import Database, Row, Statement, Value
from guest.memory.database.damage import noticed
from guest.memory.supersession import Supersession
from guest.memory.types import Change, NoteType, Origin
from guest.memory.undo import Undo, Undone
from guest.memory.vector_store import VectorStore
from guest.memory.writer import NoteWriter

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
    """The changes of all users' notes; every method sees only those of its `user_id`, and
    of these, notes of every session's scope: history is for the person whose notes they are."""

    def __init__(self, database: Database, vectors: VectorStore, writer: NoteWriter) -> None:
        self._database = database
        self._undo = Undo(database, writer, Supersession(database, vectors))

    async def changes(
        self,
        user_id: str,
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
        arguments.check_range("limit", limit, CHANGES_MAX)
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
        arguments_ = (namespaces.notes_of(user_id), *place, *values, limit + 1)
        pages = [_current(only), _before(only)]
        if not (material_only or session_id):
            pages.append(_superseded(only))
        results = await self._database.batch([Statement(sql, arguments_) for sql in pages])
        rows = sorted((row for result in results for row in result.rows), key=_place, reverse=True)
        with noticed("the history of notes"):
            entries = [_entry(row) for row in rows[:limit]]
        return entries, _cursor(_place(rows[limit - 1])) if len(rows) > limit else ""

    async def undo(
        self,
        user_id: str,
        note_id: str,
        *,
        expected_version: int | None = None,
        may_forget: bool = False,
        channel: str = "",
    ) -> Undone:
        """Take the last change of a note back, as the user; once more goes further back.

        What it said before comes as a new version. A note that was superseded is current
        again instead. Where nothing was before, the note is forgotten for good, only with
        `may_forget`. Raises `NoteNotFound`; `StaleVersion` where the note has another
        version than expected; `UndoRefused`; `StorageError`. A full memory is no hindrance.
        """
        return await self._undo.undo(
            user_id,
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
