"""Working memory: notes with a fixed name, of which a user has one each."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, Literal, cast

from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS

from guest.errors import StorageError
from guest.memory import validation
from guest.memory.models import Change, Note, NoteNotFound, Origin, StaleVersion
from guest.memory.notes.repository import NoteRepository
from guest.memory.notes.writer import NoteWriter
from guest.memory.storage.changes import RETRIES
from guest.memory.storage.errors import noticed

Mode = Literal["replace", "append"]


@dataclass(frozen=True)
class Activity:
    """A keyed note was written: when (RFC 3339), which one, how, as which version."""

    at: str
    key: str
    change: Change
    version: int


class KeyedNotes:
    """The notes of a user that have a name.

    They are notes like all others, found by every search, with versions and passages.
    """

    def __init__(self, notes: NoteRepository, writer: NoteWriter) -> None:
        self._notes = notes
        self._writer = writer

    async def write(self, key: str, text: str, mode: Mode, origin: Origin) -> Note:
        """Replace what the note says, or append lines to it; the first write makes it.

        Whoever writes at the same time, nothing appended is lost: an append that meets
        another write is made again after it. What was read stays marked, whoever appends to
        it. Raises `ValueError` where the note would be too long, which says how long it
        may be; `MemoryFull`, `StorageError`.
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
            try:
                return await self._store(key, full_text, mode, made_by, before)
            except (_Overtaken, StaleVersion, NoteNotFound):
                continue
        raise StorageError(
            Code.CONFLICT,
            f"the note {key} could not be written",
            details="each time another write of it came first",
            resolution="write it again, and not so often at once",
        )

    async def read(self, key: str) -> Note | None:
        """The note of this name; None where it was never written, was cleared or was
        superseded since."""
        note = await self._notes.find_by_key(key)
        return None if note is None or note.superseded else note

    async def clear(self, key: str, origin: Origin | None = None) -> bool:
        """Delete the note for good, with its versions; false where there is none."""
        note = await self._notes.find_by_key(key)
        if note is None:
            return False
        try:
            await self._writer.delete(note.note_id, origin=origin)
        except NoteNotFound:
            return False
        return True

    async def activity(self, day: date) -> list[Activity]:
        """What was written on this day in UTC, in order, except to the handoff note and the
        scratchpad. Derived from the notes: what is forgotten leaves no line."""
        rows = await self._notes.activity(day.isoformat(), (day + timedelta(days=1)).isoformat())
        with noticed("what was written to working memory"):
            return [Activity(*cast("tuple[Any, ...]", row)) for row in rows]

    async def _store(
        self, key: str, text: str, mode: Mode, origin: Origin, before: Note | None
    ) -> Note:
        if before is None:
            draft = self._writer.draft(text, (), origin, key=key, change=mode)
            outcome = await self._writer.save(draft)
            if not outcome.created:
                raise _Overtaken
            return outcome.note
        draft = self._writer.draft(
            text,
            None,
            origin,
            note_id=before.note_id,
            replaces=before.version,
            key=key,
            change=mode,
        )
        note, _ = await self._writer.update(draft)
        return note


class _Overtaken(Exception):  # noqa: N818 - a condition that `write` expects and handles
    """Another write has made the note meanwhile."""


def _of_both(before: Origin, appended: Origin) -> Origin:
    """The origin of a text that was there and what is appended to it: the user's, and free
    of what was read, only where both are."""
    if before.material and not appended.material:
        appended = replace(appended, material=True, link=before.link)
    return replace(appended, actor=before.actor) if appended.actor == "user" else appended


def _check_room(key: str, before: str, full_text: str) -> None:
    if len(full_text) > NOTE_MAX_CHARS:
        raise ValueError(
            f"text: the note {key} has {len(before)} characters and would have {len(full_text)}; "
            f"at most {NOTE_MAX_CHARS} are accepted; replace it with a shorter text"
        )
