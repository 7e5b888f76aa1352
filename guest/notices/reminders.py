"""Reminders: notes with a time at which the person is told of them. No model is involved."""

import asyncio
import logging
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from typing import Final, cast

from wire.zones import minute, told, zone

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Details, Note, Origin, User, at
from guest.memory.storage.changes import Background
from guest.notices.outbox import KEPT_MAX, Outbox

log = logging.getLogger(__name__)

ACCEPTED: Final = (
    'a time such as "2026-12-04 09:00", "tomorrow 18:30", "friday 9:00" or "in 20 minutes"'
)
_MORNING: Final = time_of_day(9)
_LOOK_AGAIN_S: Final = 60.0
"""How late a clock that jumped, or a change by another agent on the server, is seen."""
_LATE: Final = timedelta(minutes=5)
_AT_ONCE: Final = 100
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LATER: Final = re.compile(
    r"(?:in |\+) ?(\d{1,5}) ?(m|h|d|w|min|minutes?|hours?|days?|weeks?)", re.IGNORECASE
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY: Final = re.compile(
    rf"(?:on )?(today|tomorrow|{'|'.join(_WEEKDAYS)})(?:,? (?:at )?(\d{{1,2}})(?::(\d\d))?)?",
    re.IGNORECASE,
)
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
    WHERE namespace = ? AND due_at <> '' AND due_at > ? AND superseded_by IS NULL
"""


def due_at(words: str, time_zone: str, now: datetime) -> str:
    """The moment that `words` name to somebody in `time_zone`, as it is stored.

    A day without a time is its morning. Raises `ValueError` for what is no time, or has passed.
    """
    words, here = " ".join(words.split()), now.astimezone(zone(time_zone))
    try:
        moment = _moment(words, here)
        if moment.tzinfo is None:
            there = zone(time_zone)
            moment = moment.replace(tzinfo=there) if there else moment.astimezone()
        found = at(moment.astimezone(UTC))
    except (ValueError, OverflowError):
        raise ValueError(f"due: {words[:80]!r} is not {ACCEPTED}") from None
    if found <= at(now):
        raise ValueError(f"due: {words[:80]!r} has passed: it is {told(now, time_zone)}")
    return found


def _moment(words: str, here: datetime) -> datetime:
    """A moment, without a zone where it is in that of the person."""
    if later := _LATER.fullmatch(words):
        unit = _UNITS[later[2][0].lower()]
        distance = timedelta(**{unit: int(later[1])})
        if unit in ("minutes", "hours"):
            return here + distance
        return here.replace(tzinfo=None) + distance
    if named := _DAY.fullmatch(words):
        hour = time_of_day(int(named[2]), int(named[3] or 0)) if named[2] else _MORNING
        return datetime.combine(_day(named[1].lower(), here.date()), hour)
    with suppress(ValueError):
        return datetime.combine(date.fromisoformat(words), _MORNING)
    return datetime.fromisoformat(words)


def _day(name: str, today: date) -> date:
    """The next day of that name, not today for one of the week."""
    if name in ("today", "tomorrow"):
        return today + timedelta(days=int(name == "tomorrow"))
    return today + timedelta(days=(_WEEKDAYS.index(name) - today.weekday() - 1) % 7 + 1)


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
        moment = at(now.astimezone(UTC))
        which = (self._user.notes, moment, self._user.id, _AT_ONCE, KEPT_MAX)
        while rows := (await self._memory.store.database.execute(_DUE, which)).rows:
            for note_id, text, due, material in cast("tuple[tuple[str, str, str, int], ...]", rows):
                late = now - datetime.fromisoformat(due) > _LATE
                when = f" (was due {minute(due)})" if late else ""
                read = " (comes from what was read)" if material else ""
                key = f"reminder:{note_id}:{due}"
                await outbox.add("reminder", f"{text}{when}{read}", key=key, note_id=note_id)


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
            except StorageError as error:
                self.next_due = None
                log.info("reminders cannot be looked up now: %s", error.brief)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait)
