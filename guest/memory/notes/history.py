"""The history of a user's notes, newest first, and undo."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from wire.limits import SEQUENCE_MAX
from wire.text import parsed_json

from guest.memory import validation
from guest.memory.models import (
    FIXED,
    Change,
    Details,
    Note,
    NoteType,
    Origin,
    StaleVersion,
    Superseded,
    tags_of,
)
from guest.memory.notes.columns import VERSIONED_COUNT, Versioned, origin_of
from guest.memory.notes.repository import (
    VERSIONS_KEPT,
    ChangePlace,
    Draft,
    NoteRepository,
    change_place,
)
from guest.memory.notes.writer import NoteWriter
from guest.memory.storage.base import Row
from guest.memory.storage.changes import RETRIES, unexplained
from guest.memory.storage.sound import sound_time

CHANGES_MAX: Final = 1000

_START: Final = ("~", "", SEQUENCE_MAX, 0)
"""Sorts after every possible change."""


@dataclass(frozen=True)
class ChangeEntry:
    """One change of a note, and the text it gave the note. For "supersede", which only an agent
    does, `text` is the reason. `current` means that this is the note's latest change."""

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


class UndoRefused(Exception):  # noqa: N818 - a condition that callers expect and handle
    """Nothing can be undone; the message gives the reason. Nothing was changed."""


@dataclass(frozen=True)
class Undone:
    """What an undo did, and the note as it left it; None if it deleted the note."""

    done: Literal["restored", "current_again", "forgotten"]
    note: Note | None


class NoteHistory:
    """The history of a user's notes, whatever session they are scoped to: it is for their owner."""

    def __init__(self, notes: NoteRepository, writer: NoteWriter) -> None:
        self._notes = notes
        self._writer = writer

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

        Those of one note are in the order of its versions, all others by time. Times of one note
        never go back, whatever the clock did.

        `actor`, `material_only` and `session_id` filter by a version's origin. Supersessions store
        no session, so filtering by session leaves them out. Raises `ValueError`, `StorageError`.
        """
        validation.check_range("limit", limit, CHANGES_MAX)
        rows = await self._notes.changes(
            _read_cursor(cursor) if cursor else _START,
            limit + 1,
            note_id=note_id,
            actor=actor,
            material_only=material_only,
            session_id=session_id,
        )
        entries = [_entry(row) for row in rows[:limit]]
        return entries, _cursor(change_place(rows[limit - 1])) if len(rows) > limit else ""

    async def undo(
        self,
        note_id: str,
        *,
        expected_version: int | None = None,
        may_forget: bool = False,
        channel: str = "",
    ) -> Undone:
        """Undo a note's last change on behalf of the user; repeated calls go further back.

        The previous text becomes a new version. A superseded note becomes current again; one that
        was superseded, and counted again only because of the undone change, does not. Undoing the
        first version deletes the note for good, which needs `may_forget`. An undo works in a
        full memory, too.

        Raises `NoteNotFound`, `StaleVersion`, `StorageError`, and `UndoRefused` where there is
        nothing to undo.
        """
        for _ in range(RETRIES):
            note = await self._notes.get(note_id)
            if expected_version not in (None, note.version):
                raise StaleVersion(note)
            try:
                undone = await self._take_back(note, may_forget, channel)
            except StaleVersion:
                continue
            if undone is not None:
                return undone
        raise unexplained(f"the last change of {note_id} cannot be undone")

    async def _take_back(self, note: Note, may_forget: bool, channel: str) -> Undone | None:
        """Undo the change that made `note` what it is; None or `StaleVersion` if the note has
        changed again meanwhile."""
        if note.superseded is not None:
            if not await self._notes.revive(note):
                return None
            return Undone("current_again", replace(note, superseded=None))
        version = (note.restores or note.version) - 1
        if version:
            draft = await self._draft(note, version, channel)
            restored, _ = await self._writer.update(draft)
            return Undone("restored", restored)
        if not may_forget:
            raise UndoRefused(
                f"{note.note_id} says what it said first; to undo that is to forget the note"
            )
        await self._writer.delete(note.note_id, note.version)
        return Undone("forgotten", None)

    async def _draft(self, note: Note, version: int, channel: str) -> Draft:
        """A draft of an earlier version's text, to follow `note`. Material stays marked as such."""
        row = await self._notes.earlier_version(note.note_id, version)
        if row is None:
            kept = f": of the {note.key} the last {VERSIONS_KEPT} are" if note.key in FIXED else ""
            raise UndoRefused(f"version {version} of {note.note_id} is not kept{kept}")
        said = Versioned.of(row[:VERSIONED_COUNT])
        by, reason, at = cast("tuple[Any, ...]", row[VERSIONED_COUNT:])
        superseded = None if by is None else Superseded(by, reason, at)
        if superseded and await self._notes.leads_to(superseded.by, note.note_id):
            raise UndoRefused(
                f"{superseded.by} would replace {note.note_id} again, which has replaced it since; "
                f"undo the last change of {superseded.by} first"
            )
        return Draft(
            said.content,
            said.tags,
            replace(said.origin, actor="user", channel=channel, session_id="", turn_id=""),
            note_id=note.note_id,
            replaces=note.version,
            details=Details(**said.details, scope_session=note.details.scope_session),
            key=note.key,
            change="undo",
            restores=said.restores or version,  # so that the next undo goes further back
            superseded=superseded,
        )


def _entry(row: Row) -> ChangeEntry:
    at, note_id, version, _, change, text, tags, kind, key = cast("tuple[Any, ...]", row[:9])
    current, by = cast("tuple[Any, ...]", row[15:])
    return ChangeEntry(
        *(note_id, version, change, text, origin_of(row[9:15]), sound_time(at), key, kind),
        *(bool(current), by, tags_of(tags)),
    )


def _cursor(place: Sequence[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_cursor(cursor: str) -> ChangePlace:
    try:
        place = parsed_json(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        place = None
    match place:
        case [str(at), str(note_id), int(version), int(kind)]:
            return at, note_id, version, kind
    raise ValueError("cursor: not from an earlier list of changes")
