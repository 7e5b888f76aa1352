"""Schedules under a clock that jumps, with an agent that is killed and a store that fails, at any
moment; and the books about every slot, kept apart from what the schedules say."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from wire.errors import Code

from guest.errors import ChangeUnknownError, StorageError
from guest.memory.storage.base import Database, Result, Statement, Value
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import RamDatabase
from guest.memory.storage.migrations import MIGRATIONS
from guest.notices.outbox import Notice, Outbox
from guest.schedules.scheduler import Ran, Scheduler
from guest.schedules.store import Schedule, Schedules, Slot
from tests.support.schedules.model import MINUTE, CronModel

BACK = timedelta(hours=3)
"""So far the clock is set back at the most."""
EVERY = "every 45 minutes"
WEEK = (EVERY, "*/15 0-4 * * *", "0 * * * *", "30 2 * * *", "0 0 * * *", "0 7 * * 1-5")


class Killed(BaseException):
    """The agent's process has ended."""


class Failing:
    """A database whose agent may be killed, or whose answer may not come, at every call."""

    def __init__(self, inner: Database, dice: random.Random, rate: float) -> None:
        self._inner, self._dice, self._rate = inner, dice, rate
        self.killed = False

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        return (await self.batch([Statement(sql, args)]))[0]

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        if self.killed:
            raise Killed
        fails, done = self._dice.random() < self._rate, self._dice.random() < 0.5
        results = await self._inner.batch(statements) if done or not fails else []
        if not fails:
            return results
        if self._dice.random() < 0.5:
            self.killed = True
            raise Killed
        error = ChangeUnknownError if done or self._dice.random() < 0.5 else StorageError
        raise error(Code.UNAVAILABLE, "away")

    async def checkpoint(self) -> None:
        await self._inner.checkpoint()

    async def size_bytes(self) -> int:
        return 0

    async def close(self) -> None:
        """The next agent goes on with it."""


class Told(Outbox):
    """An outbox that also writes down what was told."""

    def __init__(self, database: Database, told: list[str]) -> None:
        super().__init__(database, "alice")
        self._told = told

    async def add(self, kind, text, *, key, session_id="", turn_id="", note_id="") -> Notice:  # type: ignore[no-untyped-def]
        notice = await super().add(
            kind, text, key=key, session_id=session_id, turn_id=turn_id, note_id=note_id
        )
        self._told.append(key)
        return notice


class Simulation:
    """One agent, killed and started anew, with schedules in several zones.

    Attributes:
        ran: How often each slot has begun to run, by schedule and slot.
        told: The keys of the notices that were stored.
    """

    def __init__(self, seed: int, begins: datetime, rate: float) -> None:
        self.now = self.begins = begins
        self.latest = begins
        self.ran: Counter[tuple[str, str]] = Counter()
        self.told: list[str] = []
        self.kills = 0
        self._dead = False
        self._dice = random.Random(seed)
        self._rate = rate
        self._store = RamDatabase([sql for each in MIGRATIONS for sql in each.statements])
        self._ending: dict[asyncio.Event, datetime] = {}

    async def run(self, zones: Sequence[str], lines: Sequence[str], length: timedelta) -> None:
        """Let the time pass, and check that each slot has run at most once and that none is missing
        without a word."""
        quiet = Schedules(self._store, Eraser(self._store), "alice", "host")
        made = [
            await quiet.create(
                Schedule("", line, "do it", line, zone, self._text, again=line == "0 * * * *"),
                self.now,
            )
            for zone in zones
            for line in lines
        ]
        ends = self.begins + length
        while self.now < ends:
            await self._live(ends)
        self._rate, self.now = 0.0, max(self.now, self.latest)
        await self._live(self.now)
        until = self.now.replace(second=0, microsecond=0)
        for each in made:
            self._check(each, until)
        await self._store.close()

    @property
    def _text(self) -> str:
        return self.now.isoformat()

    async def _live(self, ends: datetime) -> None:
        """One agent, from its start until it is killed."""
        self._dead = False
        database = Failing(self._store, self._dice, self._rate)
        scheduler = Scheduler(
            Schedules(database, Eraser(database), "alice", "host"),
            Told(database, self.told),
            self._begin,
            clock=lambda: self.now,
            at_once=1_000,
        )
        try:
            while not database.killed:
                try:
                    await scheduler.tick()
                except StorageError:
                    continue
                await self._settled()
                if database.killed or self.now >= ends:
                    break
                self._pass(scheduler.next_due)
        except Killed:
            self.kills += 1
        database.killed = self._dead = True
        while self._ending:
            self._ending.popitem()[0].set()
        with suppress(Killed):
            await scheduler.finish()

    def _pass(self, due: datetime | None) -> None:
        """Until the next slot, mostly; sometimes far beyond it, or back."""
        match self._dice.random():
            case chance if chance < 0.002:
                self.now += timedelta(minutes=self._dice.randrange(1, 40 * 60))
            case chance if chance < 0.004:
                self.now -= timedelta(minutes=self._dice.randrange(1, BACK // MINUTE))
            case _:
                beyond = timedelta(seconds=self._dice.randrange(20))
                self.now = max(self.now + MINUTE if due is None else due, self.now) + beyond
        self.latest = max(self.latest, self.now)

    async def _settled(self) -> None:
        """Runs go on until the store has answered them."""
        for event, end in list(self._ending.items()):
            if end <= self.now:
                del self._ending[event]
                event.set()
        for _ in range(3):
            await self._store.execute("SELECT 1")
            await asyncio.sleep(0)

    async def _begin(self, schedule: Schedule, slot: Slot) -> Ran:
        if self._dead:
            raise Killed
        self.ran[schedule.schedule_id, slot.slot] += 1
        if self._dice.random() < 0.05:
            self._ending[event := asyncio.Event()] = self.now + timedelta(
                minutes=self._dice.randrange(120)
            )
            await event.wait()
        return Ran(failed=False, text="done", cost=1, calls=1)

    def _check(self, schedule: Schedule, until: datetime) -> None:
        expected = self._expected(schedule, until)
        ran = {slot: n for (of, slot), n in self.ran.items() if of == schedule.schedule_id}
        most = 2 if schedule.again else 1
        assert all(n <= most for n in ran.values()), f"{schedule.name}: a slot ran twice"
        strange = sorted(ran.keys() - {*expected, *self._expected(schedule, self.begins, BACK)})
        assert not strange, f"{schedule.name} in {schedule.zone}: no such slots as {strange[:5]}"
        accounted = set(ran)
        missed = defaultdict[str, int](int)
        for key in self.told:
            _, of, slot, state, number = _parts(key)
            if of != schedule.schedule_id:
                continue
            if state == "missed" and int(number):
                missed[slot] = max(missed[slot], int(number))
            else:
                accounted.add(slot)
        places = {slot: place for place, slot in enumerate(expected)}
        for slot, times in missed.items():
            first = places[slot[: -len("000001Z")] + "000000Z"]
            accounted.update(expected[first : first + times])
        silent = [slot for slot in expected if slot not in accounted]
        assert not silent, f"{schedule.name} in {schedule.zone}: {silent[:5]}"

    def _expected(
        self, schedule: Schedule, until: datetime, before: timedelta = timedelta()
    ) -> list[str]:
        """The slots from the beginning on; where the clock was set back, from `before` it on."""
        if schedule.name == EVERY:
            step, slot, slots = timedelta(minutes=45), self.begins, []
            while (slot := slot + step) <= until:
                slots.append(slot)
        else:
            slots = CronModel(schedule.name, schedule.zone).slots(self.begins - before, until)
        return [f"{slot:%Y-%m-%dT%H:%M:%S}.000000Z" for slot in slots]


def _parts(key: str) -> tuple[str, str, str, str, str]:
    kind, of, rest = key.split(":", 2)
    slot, state, number = rest.rsplit(":", 2)
    return kind, of, slot, state, number
