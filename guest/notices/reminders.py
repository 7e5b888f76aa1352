"""Reminders: notes with a time at which the person is told of them. No model is involved."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from wire.moments import moment
from wire.zones import minute, told

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Details, Note, Origin, User, at
from guest.memory.storage.changes import Background
from guest.notices.outbox import KEPT_MAX, Outbox

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 60.0
"""How late a clock that jumped, or a change by another agent on the server, is seen."""
_LATE: Final = timedelta(minutes=5)
_AT_ONCE: Final = 100
_DUE: Final = """
SELECT note_id, content, due_at, origin_material FROM notes
    WHERE namespace = ?1 AND due_at <> '' AND due_at <= ?2 AND superseded_by IS NULL
        AND NOT EXISTS (SELECT 1 FROM notices
            WHERE user_id = ?3 AND key = 'reminder:' || notes.note_id || ':' || notes.due_at)
        AND due_at > coalesce((SELECT created_at FROM notices WHERE user_id = ?3
            ORDER BY number DESC LIMIT 1 OFFSET ?5 - 1), '')
    ORDER BY due_at LIMIT ?4
"""
_NEXT: Final = """
SELECT MIN(due_at) FROM notes
    WHERE namespace = ? AND due_at <> '' AND due_at > ? AND due_at < ':' AND superseded_by IS NULL
"""


def due_at(words: str, time_zone: str, now: datetime) -> str:
    """The moment that `words` name to somebody in `time_zone`, as it is stored.

    A day without a time is its morning. Raises `ValueError` for what is no time, or has passed.
    """
    words = " ".join(words.split())
    try:
        found = at(moment(words, time_zone, now))
    except ValueError as error:
        raise ValueError(f"due: {error}") from None
    if found <= at(now):
        raise ValueError(f"due: {words[:80]!r} has passed: it is {told(now, time_zone)}")
    return found


class Reminders:
    """The notes of one user that have a time. All methods raise `StorageError`, `NoteNotFound`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @property
    def _user(self) -> User:
        return User(self._memory.user_id)

    async def set(self, text: str, due: str, tags: tuple[str, ...], origin: Origin) -> Note:
        """Save a note that is due at a moment. One with the same text gets the time."""
        saved = (await self._memory.save(text, tags, origin, Details(due_at=due))).note
        return await self.move(saved.note_id, due, origin)

    async def move(self, note_id: str, due: str, origin: Origin) -> Note:
        """Let a note be due at another moment. Who vouches for its text does not change."""
        note = await self._memory.notes.get(note_id)
        if note.details.due_at == due and note.superseded is None:
            return note
        whose = replace(origin, link=note.origin.link, material=note.origin.material)
        updated = await self._memory.update(
            *(note_id, note.text, None, whose),
            details=replace(note.details, due_at=due),
            expected_version=note.version,
        )
        return updated.note

    async def done(self, note_id: str, origin: Origin) -> None:
        """End a reminder: its note is superseded, and nobody is told of it any more."""
        await self._memory.typed.supersede(
            note_id, reason="done", session_id=origin.session_id, origin=origin
        )

    async def next_due(self, now: datetime) -> str:
        """The next moment after `now` at which a reminder is due, as it is stored; empty: none."""
        which = (self._user.notes, at(now.astimezone(UTC)))
        return cast(str, (await self._memory.store.database.execute(_NEXT, which)).rows[0][0] or "")

    async def tell(self, outbox: Outbox, now: datetime) -> None:
        """Put what is due, and was not told for its time, into the outbox."""
        moment, late = (at(each.astimezone(UTC)) for each in (now, now - _LATE))
        which = (self._user.notes, moment, self._user.id, _AT_ONCE, KEPT_MAX)
        seen = set[str]()  # a time that another program has written in its own form stays due
        while rows := [row for row in await self._rows(which) if row[0] not in seen]:
            for note_id, text, due, material in rows:
                seen.add(note_id)
                when = f" (was due {minute(due)})" if due < late else ""
                read = " (comes from what was read)" if material else ""
                key = f"reminder:{note_id}:{due}"
                await outbox.add("reminder", f"{text}{when}{read}", key=key, note_id=note_id)

    async def _rows(self, which: tuple[str | int, ...]) -> list[tuple[str, str, str, int]]:
        result = await self._memory.store.database.execute(_DUE, which)
        return cast("list[tuple[str, str, str, int]]", list(result.rows))


class ReminderLoop:
    """Tells of reminders as they become due: one task, which sleeps until the next one is."""

    def __init__(self, memory: Memory, outbox: Outbox) -> None:
        self._memory = memory
        self._outbox = outbox
        self.reminders: Final = Reminders(memory)
        self.next_due: str | None = None
        """As `Reminders.next_due` says; None: not known."""
        self._background = Background()
        self.stop: Final = self._background.stop

    def start(self) -> None:
        self._background.begin(self._run())

    async def _run(self) -> None:
        changed = self._memory.due_changed
        while True:
            changed.clear()
            wait = _LOOK_AGAIN_S
            try:
                now = datetime.now(UTC)
                await self.reminders.tell(self._outbox, now)
                self.next_due = await self.reminders.next_due(now)
                if self.next_due:
                    left = datetime.fromisoformat(self.next_due) - datetime.now(UTC)
                    wait = min(max(left.total_seconds(), 0.0), wait)
            except (StorageError, ValueError) as error:  # another program may have written it
                self.next_due = None
                log.info("reminders cannot be looked up now: %s", str(error).partition("\n")[0])
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait)
