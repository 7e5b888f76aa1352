"""Schedules and what became of their slots, in the user's memory.

A slot runs once or not at all: `claim` writes its row, under a unique key, before its turn begins.
On a memory server the row is there when the server says so; no copy and no queue stands in.
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast

from wire import zones
from wire.errors import Code

from guest.errors import GuestError
from guest.memory.models import now
from guest.memory.storage.base import (
    ConstraintViolated,
    Database,
    Statement,
    apply,
    failing,
)
from guest.memory.storage.erasure import Eraser
from guest.schedules import timing
from guest.schedules.timing import Once, Timing, stored

State = Literal[
    "running", "done", "failed", "unknown", "missed", "skipped", "idle", "unchecked", "capped"
]
"""What became of a slot. "unknown": its agent ended before it did. The last three are without a
run: the condition was not met, or could not be checked, or the day's cap is reached."""

SCHEDULES_MAX: Final = 10_000
KEPT_SLOTS: Final = 500
"""How many slots of a schedule are kept; older ones are never run again."""
LOST_AFTER_S: Final = 300
"""A run that its agent has not renewed for so long has no agent any more."""
NAME_MAX_CHARS: Final = 80
INSTRUCTIONS_MAX_CHARS: Final = 4_000
DUE_AT_ONCE: Final = 100


@dataclass(frozen=True)
class Schedule:
    """A schedule; the columns of its table. `budget` of a run and `day_budget` of a day are in
    billionths of a US dollar, 0: none of its own. `tools` are the only ones of its runs; empty: all
    but those for schedules. `again`: a run that was lost is begun once more. `queue`: a slot waits
    for the run before it. `spent`: what its runs have cost, also those whose slots are not kept;
    see `costs`."""

    schedule_id: str
    name: str
    instructions: str
    timing: str
    zone: str
    starts: str
    session_id: str = ""
    tools: tuple[str, ...] = ()
    budget: int = 0
    again: bool = False
    queue: bool = False
    made_by: str = "user"
    made_in: str = ""
    material: tuple[str, ...] = ()
    created_at: str = ""
    paused: bool = False
    handled: str = ""
    due: str = ""
    spent: int = 0
    spent_month: int = 0
    spent_day: int = 0
    spent_on: str = ""
    condition: str = ""
    seen: str = ""
    model: str = ""
    project: str = ""
    day_budget: int = 0
    capped: bool = False

    @property
    def when(self) -> str:
        """Its timing for a person: a moment as it is in its zone."""
        once = isinstance(self.times, Once)
        return zones.minute(self.timing, self.zone) if once else self.timing

    def day(self, moment: datetime) -> str:
        """The date of a moment in its zone; that of the day after where costs are counted there
        already, because a clock was set back over midnight: no day has two caps."""
        days = (moment, moment + timedelta(days=1))
        today, next_day = (zones.local(stored(each), self.zone)[:10] for each in days)
        return next_day if self.spent_on == next_day else today

    def costs(self, moment: datetime) -> tuple[int, int, int]:
        """What its runs have cost: all, those of the month and those of the day."""
        day, month = self.day(moment), self.day(moment)[:7]
        of_month = self.spent_month if self.spent_on[:7] == month else 0
        return self.spent, of_month, self.spent_day if self.spent_on == day else 0

    def left(self, moment: datetime) -> int | None:
        """The most that a run may cost at a moment; None: it has no limit of its own."""
        limits = [self.budget] if self.budget else []
        if self.day_budget:
            full = self.capped and self.spent_on == self.day(moment)
            limits.append(0 if full else max(0, self.day_budget - self.costs(moment)[2]))
        return min(limits, default=None)

    @property
    def times(self) -> Timing:
        return timing.parse(self.timing, self.zone, timing.read(self.starts))

    def upcoming(self, count: int) -> list[datetime]:
        """The next slots, of which there may be fewer."""
        slots: list[datetime] = []
        slot = timing.read(self.due) if self.due else None
        while slot is not None and len(slots) < count:
            slots.append(slot)
            slot = self.times.next(slot)
        return slots


@dataclass(frozen=True)
class Slot:
    """What became of a slot; the columns of its table. `cost` is in billionths of a US dollar."""

    schedule_id: str
    slot: str
    state: State
    owner: str = ""
    attempt: int = 1
    session_id: str = ""
    turn_id: str = ""
    began: str = ""
    ended: str = ""
    cost: int = 0
    calls: int = 0
    notes: int = 0
    missed: int = 0
    detail: str = ""
    told: int = 0


_SCHEDULE: Final = ", ".join(each.name for each in fields(Schedule))
_SLOT: Final = ", ".join(each.name for each in fields(Slot))
_CREATE: Final = f"""
INSERT INTO schedules (user_id, {_SCHEDULE}) VALUES (?{", ?" * len(fields(Schedule))})
"""  # noqa: S608
_FULL: Final = failing(
    "SELECT 1 FROM schedules WHERE user_id = ? GROUP BY user_id HAVING COUNT(*) >= ?"
)
_FIND: Final = f"""
SELECT {_SCHEDULE} FROM schedules WHERE user_id = ? AND (schedule_id = ?2 OR name = ?2
    OR (length(?2) >= 4 AND substr(schedule_id, 1, length(?2)) = ?2)) ORDER BY created_at LIMIT 2
"""  # noqa: S608
_LIST: Final = f"""
SELECT {_SCHEDULE} FROM schedules WHERE user_id = ? AND (created_at, schedule_id) > (?, ?)
    ORDER BY created_at, schedule_id LIMIT ?
"""  # noqa: S608
_DUE: Final = f"""
SELECT {_SCHEDULE} FROM schedules WHERE user_id = ? AND due <> '' AND due <= ? ORDER BY due LIMIT ?
"""  # noqa: S608
_NEXT: Final = """
SELECT (SELECT MIN(due) FROM schedules WHERE user_id = ?1 AND due <> ''),
       (SELECT MIN(due) FROM schedules WHERE user_id = ?1 AND due <> '' AND due > ?2)
"""
_OLDEST: Final = "SELECT slot FROM slots WHERE schedule_id = ? ORDER BY slot DESC LIMIT 1 OFFSET ?"
_AHEAD: Final = f"SELECT {_SCHEDULE} FROM schedules WHERE user_id = ? AND handled > ?"  # noqa: S608
_TIMED: Final = ("timing", "zone", "paused")
_DELETE: Final = "DELETE FROM schedules WHERE schedule_id = ? AND user_id = ?"
_DELETE_SLOTS: Final = "DELETE FROM slots WHERE schedule_id = ?"
_ERASE: Final = "INSERT INTO erasures (requested_at) VALUES (?)"

_EXISTS: Final = failing(
    "SELECT 1 FROM schedules WHERE schedule_id = ? AND user_id = ?", without=True
)
_STILL_DUE: Final = failing(
    "SELECT 1 FROM schedules WHERE schedule_id = ? AND user_id = ? AND due = ?", without=True
)
_ON: Final = failing("SELECT 1 FROM slots WHERE schedule_id = ? AND state = 'running'")
_ADVANCE: Final = """
UPDATE schedules SET handled = ?4, due = ?5 WHERE schedule_id = ?1 AND user_id = ?2 AND due = ?3
"""
_NEW: Final = f"""
INSERT INTO slots (renewed, {_SLOT}) VALUES (unixepoch(){", ?" * len(fields(Slot))})
"""  # noqa: S608
_NEW_IF_NONE: Final = f"""
{_NEW} ON CONFLICT (schedule_id, slot) DO UPDATE
    SET missed = excluded.missed, told = excluded.told WHERE missed < excluded.missed
"""  # noqa: S608
_TRIM: Final = """
DELETE FROM slots WHERE schedule_id = ?1 AND state <> 'running' AND told > 0 AND slot < (
    SELECT slot FROM slots WHERE schedule_id = ?1 ORDER BY slot DESC LIMIT 1 OFFSET ?2 - 1)
"""
_GET_SLOT: Final = f"SELECT {_SLOT} FROM slots WHERE schedule_id = ? AND slot = ?"  # noqa: S608
_RETAKE: Final = """
UPDATE slots SET owner = ?3, attempt = attempt + 1, turn_id = ?4, session_id = ?5,
    renewed = unixepoch() WHERE turn_id = ?2 AND schedule_id = ?1 AND state = 'running'
"""
_STILL_RUNNING: Final = failing(
    "SELECT 1 FROM slots WHERE schedule_id = ? AND turn_id = ? AND state = 'running'", without=True
)
_SPEND: Final = """
UPDATE schedules SET spent = spent + ?3, spent_on = ?4, seen = COALESCE(?5, seen),
    capped = ?6 OR (capped AND spent_on = ?4), spent_day = iif(spent_on = ?4, spent_day, 0)
        + ?3, spent_month = iif(substr(spent_on, 1, 7) = substr(?4, 1, 7), spent_month, 0) + ?3
    WHERE schedule_id = ?1 AND EXISTS (
        SELECT 1 FROM slots WHERE schedule_id = ?1 AND turn_id = ?2 AND state = 'running')
"""
_END: Final = """
UPDATE slots SET state = ?3, ended = ?4, cost = ?5, calls = ?6, notes = ?7, detail = ?8, told = ?9,
    missed = ?10
    WHERE schedule_id = ?1 AND turn_id = ?2
"""
_BEFORE: Final = "(SELECT MAX(slot) FROM slots WHERE schedule_id = ?1 AND slot < ?2)"
_COUNT: Final = f"""
UPDATE slots SET state = ?3, detail = ?4, ended = ?5, (missed, told, began) = (
        SELECT 1 + TOTAL(before.missed), COALESCE(MAX(before.told), ?6),
            COALESCE(MAX(before.began), slots.began)
        FROM slots AS before
        WHERE before.schedule_id = ?1 AND before.state = ?3 AND before.slot = {_BEFORE})
    WHERE schedule_id = ?1 AND slot = ?2 AND state = 'running'
"""  # noqa: S608
_COUNTED: Final = f"""
DELETE FROM slots WHERE schedule_id = ?1 AND state = ?3 AND slot = {_BEFORE}
    AND EXISTS (SELECT 1 FROM slots WHERE schedule_id = ?1 AND slot = ?2 AND state = ?3)
"""  # noqa: S608
_TELL: Final = "UPDATE slots SET told = 1 WHERE schedule_id = ? AND slot = ? AND state = ?"
_RENEW: Final = "UPDATE slots SET renewed = unixepoch() WHERE state = 'running' AND owner = ?"
_OF_USER: Final = "schedule_id IN (SELECT schedule_id FROM schedules WHERE user_id = ?)"
_SPENT_BY: Final = """(SELECT CAST(TOTAL(cost) AS INTEGER) FROM model_requests AS request
    WHERE request.session_id = slots.session_id AND request.turn_id = slots.turn_id
        OR request.sent_at >= slots.began AND request.session_id IN
            (SELECT session_id FROM sessions WHERE parent_id = slots.session_id))"""
_LOST: Final = f"""
SELECT {_SLOT.replace("cost", _SPENT_BY)} FROM slots WHERE {_OF_USER} AND state = 'running'
    AND (owner = ? OR renewed < unixepoch() - ?)
"""  # noqa: S608
_UNTOLD: Final = f"""
SELECT {_SLOT} FROM slots WHERE {_OF_USER} AND told = 0 AND state <> 'running' LIMIT ?
"""  # noqa: S608
_RUNS: Final = f"""
SELECT {_SLOT} FROM slots WHERE schedule_id = ? AND (?2 = '' OR slot < ?2)
    AND EXISTS (SELECT 1 FROM schedules WHERE schedule_id = ?1 AND user_id = ?3)
    ORDER BY slot DESC LIMIT ?4
"""  # noqa: S608

ANSWER_MAX_CHARS: Final = 4_000
_ANSWERS_MAX_CHARS: Final = 200_000
"""Of all the answers that are read at once, so that a reply can hold them."""
_ANSWERS: Final = """
SELECT turn_id, substr(text, 1, ?2), MAX(sequence) FROM conversation_events
    WHERE role = 'assistant' AND text <> '' AND (session_id, turn_id) IN
        (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) GROUP BY turn_id
"""


def owner_of(directory: Path) -> str:
    """The name of the agent whose own directory this is; the same after it was started anew."""
    path = directory / "schedules-owner"
    try:
        return path.read_text("ascii")
    except (OSError, ValueError):
        name = uuid.uuid4().hex
        with suppress(OSError):  # then what is begun here is known as lost only after a while
            path.write_text(name, "ascii")
        return name


class Schedules:
    """One user's schedules. `owner` is this agent: the same after it was started anew.

    Every method raises `StorageError`. Where a memory server may have stored a change although its
    answer never came, that is a `ChangeUnknownError`.
    """

    def __init__(self, database: Database, eraser: Eraser, user_id: str, owner: str) -> None:
        self._database = database
        self._eraser = eraser
        self._user_id = user_id
        self.owner: Final = owner

    async def create(self, schedule: Schedule, moment: datetime) -> Schedule:
        """Store a new schedule, which gets an id. Raises `GuestError` if it can never be due, or
        there are `SCHEDULES_MAX`."""
        schedule = _timed(
            replace(schedule, schedule_id=uuid.uuid4().hex[:12], created_at=now()), moment
        )
        full = Statement(_FULL, (self._user_id, SCHEDULES_MAX))
        if not await self._may(full, Statement(_CREATE, (self._user_id, *_row(schedule)))):
            raise GuestError(
                Code.RESOURCE_EXHAUSTED,
                f"there are {SCHEDULES_MAX:,} schedules already",
                resolution="delete one: runner schedules delete ID",
            )
        return schedule

    async def change(self, before: Schedule, after: Schedule, moment: datetime) -> Schedule:
        """Store what has changed of a schedule, and nothing else, of which a run may change some
        meanwhile. With another time its slots are those after `moment`. Raises `GuestError`."""
        if any(getattr(before, each) != getattr(after, each) for each in _TIMED):
            after = _timed(after, moment)
        names = [each.name for each in fields(Schedule)]
        values = {name: getattr(after, name) for name in names}
        changed = {name: _value(x) for name, x in values.items() if x != getattr(before, name)}
        if changed:
            columns = ", ".join(f"{name} = ?" for name in changed)
            sql = f"UPDATE schedules SET {columns} WHERE schedule_id = ? AND user_id = ?"  # noqa: S608
            key = (after.schedule_id, self._user_id)
            await apply(self._database, Statement(sql, (*changed.values(), *key)))
        return after

    async def delete(self, schedule_id: str) -> None:
        """Remove a schedule with its slots, and erase every byte of its instructions."""
        await apply(
            self._database,
            Statement(_DELETE_SLOTS, (schedule_id,)),
            Statement(_DELETE, (schedule_id, self._user_id)),
            Statement(_ERASE, (now(),)),
        )
        await self._eraser.erase()

    async def find(self, named: str) -> Schedule:
        """The schedule with this id, its beginning, or this name. Raises `GuestError`."""
        found = await self._schedules(_FIND, self._user_id, named)
        exact = [each for each in found if each.schedule_id == named] or found
        if len(exact) != 1:
            several = "several schedules are called" if exact else "there is no schedule"
            raise GuestError(
                Code.NOT_FOUND,
                f"schedule: {several} {named!r:.100}",
                resolution="name one by its id: runner schedules list",
            )
        return exact[0]

    async def page(self, limit: int, after: Schedule | None = None) -> list[Schedule]:
        """Up to `limit` schedules, in the order in which they were made, after one."""
        behind = (after.created_at, after.schedule_id) if after else ("", "")
        return await self._schedules(_LIST, self._user_id, *behind, limit)

    async def due(self, moment: datetime) -> list[Schedule]:
        """Schedules that are due, those that are due for longest first."""
        return await self._schedules(_DUE, self._user_id, stored(moment), DUE_AT_ONCE)

    async def next_due(self, after: datetime) -> tuple[datetime | None, datetime | None]:
        """The next slot of all schedules, which may wait already; and that after a moment."""
        row = (await self._database.execute(_NEXT, (self._user_id, stored(after)))).rows[0]
        first, later = (_moment(cast(str, due)) if due else None for due in row)
        return first, later

    async def rewind(self, moment: datetime) -> None:
        """The clock says `moment`: no schedule waits for a later one that was handled already. What
        has run is not run again."""
        for each in await self._schedules(_AHEAD, self._user_id, stored(moment)):
            kept = await self._database.execute(_OLDEST, (each.schedule_id, KEPT_SLOTS - 1))
            since = max(stored(moment), *(cast(str, slot) for (slot,) in kept.rows), "")
            try:
                following = None if each.paused else each.times.next(timing.read(since))
            except ValueError:  # another program has written it
                following = None
            key = (each.schedule_id, self._user_id, each.due)
            place = (since, stored(following))
            await apply(self._database, Statement(_ADVANCE, (*key, *place)))

    async def claim(
        self, slot: Slot, due: Schedule | None = None, following: datetime | None = None
    ) -> bool:
        """Claim a slot for a run, durably; with `due`, the schedule that is due for it, which goes
        on to the slot that follows. False, with nothing changed: another run of the schedule is on,
        the slot was claimed before, or the schedule has changed."""
        claimed = [
            Statement(_ON, (slot.schedule_id,)),
            Statement(_NEW, _row(slot)),
            Statement(_TRIM, (slot.schedule_id, KEPT_SLOTS)),
        ]
        if due is not None:
            claimed = [*claimed, *self._advance(due, following, slot.began)]
        else:
            claimed.append(Statement(_EXISTS, (slot.schedule_id, self._user_id)))
        return await self._may(*claimed)

    async def pass_by(
        self, due: Schedule, slot: Slot | None, following: datetime | None, moment: datetime
    ) -> bool:
        """Write what became of a slot that is not run, and go on to the one that follows. What is
        there of that slot already stays. False, with nothing changed, if the schedule has."""
        written = [Statement(_NEW_IF_NONE, _row(slot))] if slot else []
        return await self._may(*written, *self._advance(due, following, stored(moment)))

    async def slot(self, schedule_id: str, slot: str) -> Slot | None:
        return next(iter(await self._slots(_GET_SLOT, schedule_id, slot)), None)

    async def lost(self, *, begins: bool) -> list[Slot]:
        """The runs that no agent runs any more, with what they have cost; those of this one, too,
        when it `begins`."""
        own = self.owner if begins else ""
        return await self._slots(_LOST, self._user_id, own, LOST_AFTER_S)

    async def retake(self, slot: Slot, anew: Slot) -> bool:
        """Claim a run that was lost; false if somebody else has."""
        was, own = (slot.schedule_id, slot.turn_id), (self.owner, anew.turn_id, anew.session_id)
        return await self._may(Statement(_STILL_RUNNING, was), Statement(_RETAKE, (*was, *own)))

    async def count(self, slot: Slot) -> Slot:
        """Write that a claimed slot has passed without a run; several such that follow each other
        are one row. Returns that."""
        key = (slot.schedule_id, slot.slot, slot.state)
        passed = Statement(_COUNT, (*key, slot.detail, now(), slot.told))
        await apply(self._database, passed, Statement(_COUNTED, key))
        return await self.slot(slot.schedule_id, slot.slot) or slot

    async def end(
        self, slot: Slot, day: str, *, seen: str | None = None, capped: bool = False
    ) -> None:
        """Write how a run ended, and what it cost, on the day of its schedule; what its condition
        has `seen`, and whether no other run fits into what is left of that day."""
        key = (slot.schedule_id, slot.turn_id)
        done = (
            slot.state,
            now(),
            slot.cost,
            slot.calls,
            slot.notes,
            slot.detail,
            slot.told,
            slot.missed,
        )
        spend = Statement(_SPEND, (*key, slot.cost, day, seen, int(capped)))
        await apply(self._database, spend, Statement(_END, (*key, *done)))

    async def renew(self) -> None:
        """Say that the runs of this agent are on."""
        await apply(self._database, Statement(_RENEW, (self.owner,)))

    async def untold(self) -> list[Slot]:
        """Slots whose notice is not stored yet."""
        return await self._slots(_UNTOLD, self._user_id, DUE_AT_ONCE)

    async def told(self, slot: Slot) -> None:
        """The notice of a slot is stored."""
        key = (slot.schedule_id, slot.slot, slot.state)
        await apply(self._database, Statement(_TELL, key))

    async def runs(self, schedule_id: str, limit: int, before: str = "") -> list[Slot]:
        """What became of a schedule's slots, the newest first."""
        return await self._slots(_RUNS, schedule_id, before, self._user_id, limit)

    async def answers(self, runs: Sequence[Slot]) -> dict[str, str]:
        """The beginning of what the turns of these runs have answered, by their ids."""
        turns = json.dumps([(each.session_id, each.turn_id) for each in runs if each.session_id])
        most = min(ANSWER_MAX_CHARS, _ANSWERS_MAX_CHARS // max(1, len(runs)))
        found = await self._database.execute(_ANSWERS, (turns, most))
        return {cast(str, turn): cast(str, text) for turn, text, _ in found.rows}

    async def _may(self, *statements: Statement) -> bool:
        """Apply them; False, with nothing changed, if one of them says that it may not be."""
        try:
            await apply(self._database, *statements)
        except ConstraintViolated:
            return False
        return True

    def _advance(self, due: Schedule, following: datetime | None, now: str) -> list[Statement]:
        key, place = (due.schedule_id, self._user_id, due.due), (now, stored(following))
        return [Statement(_STILL_DUE, key), Statement(_ADVANCE, (*key, *place))]

    async def _schedules(self, sql: str, *args: Any) -> list[Schedule]:
        rows = cast("Sequence[tuple[Any, ...]]", (await self._database.execute(sql, args)).rows)
        return [_schedule(row) for row in rows]

    async def _slots(self, sql: str, *args: Any) -> list[Slot]:
        rows = cast("Sequence[tuple[Any, ...]]", (await self._database.execute(sql, args)).rows)
        return [Slot(*row) for row in rows]


def _timed(schedule: Schedule, moment: datetime) -> Schedule:
    """The schedule with its slots after `moment`. Raises `GuestError`."""
    following = schedule.times.next(moment)
    if following is None and not schedule.paused:
        shown = zones.local(stored(cast(Once, schedule.times).moment), schedule.zone)
        raise GuestError(
            Code.INVALID_ARGUMENT,
            f"when: {shown} has passed",
            resolution="give a time that is still to come",
        )
    due = "" if schedule.paused else stored(following)
    return replace(schedule, handled=stored(moment), due=due)


def _moment(due: str) -> datetime | None:
    """None for what another program has written."""
    try:
        return timing.read(due)
    except ValueError:
        return None


def _row(given: Schedule | Slot) -> tuple[Any, ...]:
    return tuple(map(_value, (getattr(given, each.name) for each in fields(given))))


def _value(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, tuple) else value


def _schedule(row: Iterable[Any]) -> Schedule:
    given = dict(zip((each.name for each in fields(Schedule)), row, strict=True))
    for name in ("tools", "material"):
        try:
            given[name] = tuple(map(str, json.loads(given[name])))
        except (ValueError, TypeError):
            given[name] = ("",)  # no tool, and nobody's own words
    for name in ("again", "queue", "paused", "capped"):
        given[name] = bool(given[name])
    return Schedule(**given)
