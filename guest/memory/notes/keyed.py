"""Working memory: notes with a key, at most one per user and key."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, Literal, cast

from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS
from wire.zones import begins

from guest.errors import StorageError
from guest.memory import validation
from guest.memory.models import FIXED, Change, Note, NoteNotFound, Origin, StaleVersion, at
from guest.memory.notes.repository import Draft, NoteRepository
from guest.memory.notes.writer import NoteWriter
from guest.memory.storage.changes import RETRIES

Mode = Literal["replace", "append"]


@dataclass(frozen=True)
class Activity:
    """One write to a keyed note: when (RFC 3339), which note, which mode, which version."""

    at: str
    key: str
    change: Change
    version: int


class KeyedNotes:
    """The keyed notes of a user.

    They are ordinary notes otherwise: with versions and passages, and found by every search.
    """

    def __init__(self, notes: NoteRepository, writer: NoteWriter) -> None:
        self._notes = notes
        self._writer = writer

    async def write(
        self, key: str, text: str, mode: Mode, origin: Origin, tags: Sequence[str] = ()
    ) -> Note:
        """Replace a note's text or append to it; creates the note if it does not exist.

        Concurrent appends are retried, so none is lost. Text marked as material stays marked after
        an append. The note gets these tags beside its own, a fixed one that is replaced them alone.
        Raises `ValueError` with the limit if the text would be too long; `MemoryFull`,
        `StorageError`.
        """
        validation.check_key(key)
        validation.check_text("text", text)
        for _ in range(RETRIES):
            before = await self._notes.find_by_key(key)
            full_text, made_by = text, origin
            if mode == "append" and before is not None and before.superseded is None:
                full_text = f"{before.text}\n{text}"
                _check_room(key, before.text, full_text)
                made_by = _of_both(before.origin, origin)
            keeps = before is not None and (mode == "append" or key not in FIXED)
            all_tags = (*(before.tags if before and keeps else ()), *tags)
            draft = Draft(full_text, all_tags, made_by, key=key, change=mode)
            if before is None:
                saved = await self._writer.save(draft)
                if saved.created:
                    return saved.note
                continue  # another write has created it meanwhile
            draft.note_id, draft.replaces = before.note_id, before.version
            with suppress(StaleVersion, NoteNotFound):
                return (await self._writer.update(draft))[0]
        raise StorageError(
            Code.CONFLICT,
            f"the note {key} could not be written",
            details="every attempt met another write of the same note",
            resolution="write it again, with fewer writes at the same time",
        )

    async def read(self, key: str) -> Note | None:
        """The note with this key; None if it was never written, or was cleared or superseded."""
        note = await self._notes.find_by_key(key)
        return None if note is None or note.superseded else note

    async def clear(self, key: str, origin: Origin | None = None) -> bool:
        """Delete the note for good, with its versions; false if there is none."""
        note = await self._notes.find_by_key(key)
        if note is None:
            return False
        try:
            await self._writer.delete(note.note_id, origin=origin)
        except NoteNotFound:
            return False
        return True

    async def activity(self, day: date, time_zone: str = "UTC") -> list[Activity]:
        """Writes on this day, oldest first, except to the handoff note and the scratchpad.
        Derived from the notes, so a deleted note leaves no trace here."""
        ends = (at(begins(each, time_zone)) for each in (day, day + timedelta(days=1)))
        rows = await self._notes.activity(*ends)
        return [Activity(*cast("tuple[Any, ...]", row)) for row in rows]


def _of_both(before: Origin, appended: Origin) -> Origin:
    """The origin of a text after an append. It is the user's, and not material, only if both
    parts are."""
    if before.material and not appended.material:
        appended = replace(appended, material=True, link=before.link)
    return replace(appended, actor=before.actor) if appended.actor == "user" else appended


def _check_room(key: str, before: str, full_text: str) -> None:
    if len(full_text) > NOTE_MAX_CHARS:
        raise ValueError(
            f"text: the note {key} has {len(before)} characters and would have {len(full_text)}; "
            f"at most {NOTE_MAX_CHARS} are accepted; replace it with a shorter text"
        )
