"""Runs what is due: one task, which sleeps until the next slot of any schedule."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from wire import zones
from wire.errors import Code, WireError
from wire.text import dollars, shortened

from guest.errors import ChangeUnknownError, GuestError, StorageError
from guest.memory.storage.changes import Background
from guest.memory.usage import UNITS_PER_DOLLAR
from guest.notices.outbox import Outbox
from guest.schedules import timing
from guest.schedules.store import DUE_AT_ONCE, Schedule, Schedules, Slot
from guest.schedules.timing import stored, too_late

log = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""How many runs of a user are on at once; further ones wait, and are told if it gets too late."""
SLEEP_MAX_S: Final = 60.0
"""So soon a clock that was set is seen."""
DETAIL_MAX_CHARS: Final = 300
SILENT: Final = 2
"""In `Slot.told`: there is nothing to tell."""
_INSTANT: Final = timedelta(microseconds=1)
_LOOK_AGAIN: Final = timedelta(minutes=5)
"""Schedules that another agent makes on the same memory server are found so late."""
RETRY_S: Final = 10.0
NOTHING: Final = "NOTHING_TO_TELL"
"""The answer of a run that has nothing to tell; no notice is made of it."""

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class Ran:
    """How a run has ended; `text` is the answer, or why it failed. `capped`: what is left of the
    day's cap was not enough. `interrupted`: the agent ended before it did."""

    failed: bool
    text: str
    cost: int = 0
    calls: int = 0
    notes: int = 0
    capped: bool = False
    interrupted: bool = False


Run = Callable[[Schedule, Slot], Awaitable[Ran]]
"""Runs a claimed slot as the turn `Slot.turn_id` in the session `Slot.session_id`. What it raises,
the run has failed with."""

Look = Callable[[Schedule], Awaitable[tuple[bool, str]]]
"""Whether the condition of a schedule is met, and what it has seen. Raises `WireError` where it
cannot be checked."""


def receipt(slot: Slot) -> str:
    """One line about a slot, for the user, in whose time zone its times are."""
    when, used = zones.minute(slot.slot), took(slot)
    match slot.state:
        case "running":
            return f"runs since {when}"
        case "done":
            return f"ran at {when}, {used}, sent {'no' if slot.told == SILENT else 1} notice"
        case "failed":
            return f"failed at {when}, {used}: {slot.detail}"
        case "unknown":
            cost = dollars(slot.cost / UNITS_PER_DOLLAR)
            return f"began at {when}, cost {cost}; how it ended is unknown: {slot.detail}"
        case "skipped":
            return f"skipped at {when}: the run before it was still on"
        case "idle" | "unchecked" | "capped":
            did = {"idle": "checked", "unchecked": "not checked", "capped": "not run"}[slot.state]
            why = slot.detail or "nothing to do"
            if slot.missed > 1:
                when = f"{zones.minute(slot.began)} to {when}"
                return f"{did} {slot.missed:,} times, {when}: {why}"
            return f"{did} at {when}: {why}"
        case "missed" if slot.missed > 1:
            return f"missed {slot.missed:,} times from {when} on: {slot.detail}"
    return f"missed at {when}: {slot.detail}"


def took(ran: Slot | Ran) -> str:
    """What a run took, and what it kept."""
    used = f"cost {dollars(ran.cost / UNITS_PER_DOLLAR)}, {ran.calls} {_plural(ran.calls, 'tool')}"
    return f"{used}, kept {ran.notes} {_plural(ran.notes, 'note')}" if ran.notes else used


def reason(brief: str, resolution: str) -> str:
    """Why something has failed and what mends it, which is there also where the first is long."""
    fix = f"; fix: {resolution}" if resolution else ""
    return f"{shortened(brief, max(0, DETAIL_MAX_CHARS - len(fix) - 1))}{fix}"[:DETAIL_MAX_CHARS]


def _plural(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"


def _capped(schedule: Schedule) -> str:
    return f"the day's cap of {dollars(schedule.day_budget / UNITS_PER_DOLLAR)} is reached"


_LATE: Final = "nobody was awake to run it in time"
_KILLED: Final = "the agent ended before it did; it is not run again"
_AWAY: Final = "the memory server was away, so it could not be claimed in time"


async def _nothing(schedule: Schedule, slot: Slot) -> Ran:  # noqa: ARG001
    return Ran(failed=True, text="nothing runs schedules here")


async def _met(schedule: Schedule) -> tuple[bool, str]:
    return True, schedule.seen


@dataclass(repr=False, eq=False)
class Scheduler:
    """Claims and runs due slots, and tells of those that are not run.

    `clock` gives the time in UTC. `shared`: other agents may change the schedules, too.
    """

    schedules: Schedules
    outbox: Outbox
    run: Run = _nothing
    _: KW_ONLY
    shared: bool = False
    clock: Clock = lambda: datetime.now(UTC)
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        self.look: Look = _met
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._unsure: list[tuple[Schedule, Slot]] = []
        self._waiting: set[str] = set()
        self._changed = asyncio.Event()
        self._background = Background()
        self.stop = self._background.stop
        """No more runs begin; those that are on end with their turns."""
        self._last: datetime | None = None
        self._recovered: datetime | None = None
        self._wakes_at: datetime | None = None
        self._look = self._interrupted = True
        self.next_due: datetime | None = None
        self.knows_due = False
        self.problem = ""

    @property
    def now(self) -> datetime:
        return self.clock()

    def start(self) -> None:
        self._background.begin(self._loop())

    async def finish(self) -> None:
        """Wait until the runs that are on are written."""
        await asyncio.gather(*self._runs.values(), return_exceptions=True)

    def wake(self) -> None:
        """Look at the schedules again: one has changed."""
        self._look = True
        self._changed.set()

    def is_running(self, schedule_id: str = "") -> bool:
        """Whether a run is on, here: of any schedule, if none is named."""
        return schedule_id in self._runs if schedule_id else bool(self._runs)

    async def run_now(self, schedule: Schedule) -> Slot:
        """Begin a run beside the slots, whatever its condition. Raises `GuestError` where one is
        on, or the day's cap is reached."""
        slot = self._new(schedule, self.clock())
        if schedule.left(self.clock()) == 0:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                _capped(schedule),
                resolution=f"runner schedules update {schedule.schedule_id} --day DOLLARS",
            )
        if schedule.schedule_id in self._runs or not await self.schedules.claim(slot):
            raise GuestError(
                Code.CONFLICT,
                f"a run of {schedule.name!r} is on",
                resolution="wait until it has ended, or cancel its turn: runner turns",
            )
        self._begin(schedule, slot, by_hand=True)
        return slot

    async def tick(self) -> None:
        """Do what is due now. Raises `StorageError`: what is due is then done by a later call."""
        try:
            await self._tick(self.clock())
        except StorageError:
            self._look = self._interrupted = True
            self.knows_due = False
            raise

    async def _tick(self, now: datetime) -> None:
        if self._last is None or now < self._last:
            await self.schedules.rewind(now)
            self._look = True
        stale = self.shared and now - (self._recovered or now) > _LOOK_AGAIN
        if stale or self._interrupted:
            await self._recover(now, begins=self._last is None)
        self._last = now
        if not self._look and not stale and (self._wakes_at is None or now < self._wakes_at):
            return
        self._look, moved = False, True
        while moved:
            found = await self.schedules.due(now)
            gone_on = [await self._try(each, now) for each in found]
            moved = len(found) == DUE_AT_ONCE and any(gone_on)
        self.next_due, self._wakes_at = await self.schedules.next_due(now)
        self.knows_due = True

    async def _loop(self) -> None:
        while True:
            self._changed.clear()
            pause = SLEEP_MAX_S
            try:
                await self.tick()
                if self._runs:
                    await self.schedules.renew()
                self.problem = ""
                if self._wakes_at is not None:
                    pause = (self._wakes_at - self.clock()).total_seconds()
            except StorageError as error:
                if error.brief != self.problem:
                    log.warning("schedules wait: %s", error)
                self.problem, pause = error.brief, RETRY_S
            except Exception:
                log.exception("looking at the schedules failed")
                self._look = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(max(pause, 0), SLEEP_MAX_S))

    async def _try(self, schedule: Schedule, now: datetime) -> bool:
        """Handle a schedule that is due; one that another program has written, and that cannot be
        read, is never due again."""
        try:
            return await self._handle(schedule, now)
        except ValueError as error:
            log.error("schedule %s is not run: %s", schedule.schedule_id, error)
            return await self.schedules.pass_by(schedule, None, None, now)

    async def _handle(self, schedule: Schedule, now: datetime) -> bool:
        """Claim the newest slot of a schedule that is due, and tell of those before it. False where
        it waits, for a run to end."""
        times, busy = schedule.times, schedule.schedule_id in self._runs
        first = timing.read(schedule.due)
        newest = times.between(first - _INSTANT, now).newest
        if newest is None:  # it was stored under other rules of its zone
            await self.schedules.pass_by(schedule, None, times.next(now), now)
            return True
        late = too_late(times, newest, now) and schedule.schedule_id not in self._waiting
        if not late and (schedule.queue if busy else len(self._runs) >= self.at_once):
            if busy:
                self._waiting.add(schedule.schedule_id)
            return False
        self._waiting.discard(schedule.schedule_id)
        following = times.next(newest)
        ends = now if late else newest - _INSTANT
        if missed := times.between(first - _INSTANT, ends).number:
            gone = replace(self._new(schedule, first + _INSTANT), state="missed", turn_id="")
            gone = replace(gone, missed=missed, detail=_AWAY if self.problem else _LATE)
            if schedule.condition and following:  # the next check sees what these had seen
                gone = replace(gone, told=SILENT)
            await self._pass_by(schedule, gone, following if late else newest)
            schedule = replace(schedule, due=stored(newest))
        if not late:
            slot = self._new(schedule, newest)
            if busy or not await self._claim(schedule, slot, following):
                there = await self.schedules.slot(slot.schedule_id, slot.slot)
                if there is None and schedule.queue:
                    self._waiting.add(schedule.schedule_id)
                    return False
                skipped = replace(slot, state="skipped", turn_id="")
                await self._pass_by(schedule, there or skipped, following)
        return True

    async def _claim(self, schedule: Schedule, slot: Slot, following: datetime | None) -> bool:
        try:
            claimed = await self.schedules.claim(slot, schedule, following)
        except ChangeUnknownError:
            self._unsure.append((schedule, slot))
            raise
        if claimed:
            self._begin(schedule, slot)
        return claimed

    async def _recover(self, now: datetime, *, begins: bool) -> None:
        """Go on from what was interrupted: claims without an answer, runs without an agent, and
        slots without a notice."""
        while self._unsure:
            schedule, slot = self._unsure[0]
            there = await self.schedules.slot(slot.schedule_id, slot.slot)
            if there is not None and there.turn_id == slot.turn_id and there.state == "running":
                if too_late(schedule.times, timing.read(slot.slot), now):
                    gone = replace(slot, state="missed", missed=1, detail=_AWAY)
                    await self.schedules.end(gone, schedule.day(now))
                else:
                    self._begin(schedule, slot)
            self._unsure.pop(0)
        for slot in await self.schedules.lost(begins=begins):
            schedule = await self.schedules.find(slot.schedule_id)
            late = now - timing.read(slot.slot) > timing.LATEST
            if schedule.again and slot.attempt == 1 and not late:
                anew = self._new(schedule, timing.read(slot.slot))
                if await self.schedules.retake(slot, anew):
                    anew = replace(anew, attempt=slot.attempt + 1, cost=slot.cost)
                    self._begin(schedule, anew)
            elif schedule.schedule_id not in self._runs:
                ended = replace(slot, state="unknown", detail=_KILLED)
                await self.schedules.end(ended, schedule.day(now))
        untold = await self.schedules.untold()
        for slot in untold:
            if slot.schedule_id not in self._runs:  # which would tell more
                await self._tell(await self.schedules.find(slot.schedule_id), slot)
        self._interrupted = any(slot.schedule_id in self._runs for slot in untold)
        self._recovered = now

    def _new(self, schedule: Schedule, moment: datetime) -> Slot:
        session = schedule.session_id or f"session-{uuid.uuid4()}"
        turn = f"turn-{uuid.uuid4()}"
        own = (self.schedules.owner, 1, session, turn, stored(self.clock()))
        return Slot(schedule.schedule_id, stored(moment), "running", *own)

    def _begin(self, schedule: Schedule, slot: Slot, *, by_hand: bool = False) -> None:
        driving = asyncio.create_task(self._drive(schedule, slot, by_hand), name=slot.turn_id)
        self._runs[schedule.schedule_id] = driving

    async def _drive(self, schedule: Schedule, slot: Slot, by_hand: bool) -> None:
        """Run a claimed slot, if there is something to do, and write what became of it."""
        passed, seen, ran = None, None, Ran(failed=False, text="")
        try:
            try:
                if schedule.condition or schedule.day_budget:  # now no other run changes it
                    schedule = await self.schedules.find(slot.schedule_id)
                passed, seen = await self._passed(schedule, slot, by_hand=by_hand)
                if passed is None:
                    ran = await self.run(schedule, slot)
                    if ran.interrupted:  # the next start goes on from it, as after a kill
                        return
            except WireError as error:
                ran = Ran(failed=True, text=reason(error.brief, error.resolution))
            except Exception:
                log.exception("a run of a schedule failed")
                ran = Ran(failed=True, text="internal error; runner logs has the details")
            silent = not ran.failed and ran.text.strip().strip("`*.\"'") == NOTHING
            ended = passed or replace(
                slot,
                state="failed" if ran.failed else "done",
                cost=slot.cost + ran.cost,
                calls=ran.calls,
                notes=ran.notes,
                detail=ran.text if ran.failed else "",
                told=SILENT if silent else 0,
            )
            while True:
                try:
                    day = schedule.day(self.clock())
                    if passed and not passed.cost:
                        ended = await self.schedules.count(passed)
                    else:
                        await self.schedules.end(ended, day, seen=seen, capped=ran.capped)
                    if not ended.told:
                        await self._tell(schedule, ended, "" if ran.failed else ran.text)
                    break
                except StorageError as error:
                    log.warning("how a run ended is not written yet: %s", error.brief)
                    await asyncio.sleep(RETRY_S)
        finally:
            del self._runs[schedule.schedule_id]
            self.wake()

    async def _passed(
        self, schedule: Schedule, slot: Slot, *, by_hand: bool
    ) -> tuple[Slot | None, str | None]:
        """The slot, if it passes without a run; and what the condition has seen, if it is met. It
        has cost something where a run before it was lost."""
        slot = replace(slot, missed=1)
        if schedule.left(self.clock()) == 0:
            return replace(slot, state="capped", detail=_capped(schedule)), None
        if by_hand or not schedule.condition:
            return None, None
        try:
            met, seen = await self.look(schedule)
        except WireError as error:
            detail = reason(error.brief, error.resolution)
            return replace(slot, state="unchecked", detail=detail), None
        return (None, seen) if met else (replace(slot, state="idle", told=SILENT), None)

    async def _pass_by(self, schedule: Schedule, slot: Slot, following: datetime | None) -> None:
        passed = await self.schedules.pass_by(schedule, slot, following, self.clock())
        if passed and not slot.told and slot.state != "running":  # whose end is told
            await self._tell(schedule, slot)

    async def _tell(self, schedule: Schedule, slot: Slot, text: str = "") -> None:
        """Store the notice of a slot, once."""
        said = f"{schedule.name}: {receipt(slot)}"
        await self.outbox.add(
            "schedule",
            f"{said}:\n\n{text}" if text else said,
            key=f"schedule:{slot.schedule_id}:{slot.slot}:{slot.state}:{slot.missed}",
            session_id=slot.session_id if slot.turn_id else "",
            turn_id=slot.turn_id,
        )
        await self.schedules.told(slot)
