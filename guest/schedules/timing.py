"""When a schedule is due. Pure: every question names its moments, and none asks the clock.

At changes of the clock, cron's lines mean what they mean to Debian's cron: a fixed time that comes
twice counts once, at first; one that never comes counts at the next instant; with a star at the
beginning of minute or hour, a line follows real time. `cronsim` reads the lines and knows their
days; why it does not count them is in docs/design/2026-11-28-schedules.md.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, cast

from wire import zones
from wire.moments import A_TIME, instant, moment

from guest.memory.models import at

LATEST: Final = timedelta(hours=12)
"""No slot begins later than this, or than half the time to the next one."""
EVERY_MIN: Final = timedelta(minutes=1)
EVERY_MAX: Final = timedelta(days=366)
WHEN_MAX_CHARS: Final = 100
ACCEPTED: Final = (
    f'{A_TIME}, an interval such as "every 30 minutes" (minutes, hours, days, weeks), or a cron '
    'line of five fields such as "0 7 * * 1-5"'
)

_DAY: Final = timedelta(days=1)
_SEARCHED: Final = 9 * 366
"""Within so many days each day of the calendar comes, also where a leap year is left out."""
_FIRST: Final = date(2024, 1, 1)
_DAYS_KNOWN: Final = 4
_FIELDS: Final = 5
_EVERY: Final = re.compile(r"every (?:(\d{1,6}) )?(minute|hour|day|week)s?", re.IGNORECASE)


class Slots(NamedTuple):
    """The slots of a time: how many, the first and the last."""

    number: int
    first: datetime | None
    newest: datetime | None


class Timing(Protocol):
    """When a schedule is due; immutable. Slots are in UTC, in whole seconds."""

    @property
    def text(self) -> str:
        """What `parse` reads as this; an interval's beginning is not in it."""

    def next(self, after: datetime) -> datetime | None:
        """The first slot after a moment; None if there is none."""

    def between(self, after: datetime, until: datetime) -> Slots:
        """The slots after a moment, up to and with another."""


@dataclass(frozen=True)
class Once:
    moment: datetime

    @property
    def text(self) -> str:
        return f"{self.moment:%Y-%m-%d %H:%M:%S}+00:00"

    def next(self, after: datetime) -> datetime | None:
        return self.moment if self.moment > after else None

    def between(self, after: datetime, until: datetime) -> Slots:
        slot = self.moment if after < self.moment <= until else None
        return Slots(int(slot is not None), slot, slot)


@dataclass(frozen=True)
class Every:
    """A slot whenever `step` of real time has passed since `start`."""

    step: timedelta
    start: datetime

    @property
    def text(self) -> str:
        for name in ("week", "day", "hour", "minute"):
            number, rest = divmod(self.step, timedelta(**{f"{name}s": 1}))
            if not rest:
                break
        return f"every {name}" if number == 1 else f"every {number} {name}s"

    def next(self, after: datetime) -> datetime | None:
        return self._slot(max(0, (after - self.start) // self.step) + 1)

    def between(self, after: datetime, until: datetime) -> Slots:
        first = max(0, (after - self.start) // self.step) + 1
        last = (until - self.start) // self.step
        if last < first:
            return Slots(0, None, None)
        return Slots(last - first + 1, self._slot(first), self._slot(last))

    def _slot(self, number: int) -> datetime:
        return self.start + number * self.step


class Cron:
    """A line of cron in a time zone. Raises `ValueError` for one that is never due."""

    def __init__(self, line: str, zone: str) -> None:
        from cronsim import CronSim, CronSimError  # only where there is a line

        fields = line.upper().split()
        self.text: Final = " ".join(fields)
        self._zone = zones.zone(zone) or UTC
        try:
            self._days = CronSim(self.text, datetime.combine(_FIRST, time.min))
        except (CronSimError, AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"{line!r:.80}: {error}") from None
        self._times = [(h, m) for h in sorted(self._days.hours) for m in sorted(self._days.minutes)]
        self._known: dict[date, list[datetime]] = {}
        self._real = fields[0].startswith("*") or fields[1].startswith("*")
        if not any(self._matching(_FIRST, _FIRST + _SEARCHED * _DAY)):
            raise ValueError(f"{line!r:.80} is never due")

    def next(self, after: datetime) -> datetime | None:
        day = after.astimezone(self._zone).date() - _DAY
        for each in self._matching(day, day + _SEARCHED * _DAY):
            if (slots := self._on(each)) and slots[-1] > after:
                return slots[bisect_right(slots, after)]
        return None

    def between(self, after: datetime, until: datetime) -> Slots:
        begins, ends = (each.astimezone(self._zone).date() for each in (after, until))
        count, first, newest = 0, None, None
        for each in self._matching(begins - _DAY, ends + _DAY):
            slots = self._on(each)
            begin, end = bisect_right(slots, newest or after), bisect_right(slots, until)
            if begin < end:
                count += end - begin
                first, newest = first or slots[begin], slots[end - 1]
        return Slots(count, first, newest)

    def _matching(self, begins: date, ends: date) -> Iterator[date]:
        """The days of the line, from one to another."""
        day = begins
        while day <= ends:
            if day.month in self._days.months and self._days.match_day(day):
                yield day
            day += _DAY

    def _on(self, day: date) -> list[datetime]:
        """The slots of a day of the line, in order; where the clock changes at its beginning or its
        end, some may lie beside it."""
        if day in self._known:
            return self._known[day]
        midnight = datetime.combine(day, time.min)
        offsets = {
            (midnight + timedelta(hours=hours)).replace(tzinfo=self._zone, fold=fold).utcoffset()
            for hours in (-3, 27)
            for fold in (0, 1)
        }
        walls = [midnight + timedelta(hours=h, minutes=m) for h, m in self._times]
        if len(offsets) == 1:
            offset = cast(timedelta, offsets.pop())
            slots = [(wall - offset).replace(tzinfo=UTC) for wall in walls]
        elif not self._real:
            slots = sorted({instant(wall, self._zone) for wall in walls})
        else:
            start, wanted = instant(midnight - timedelta(hours=3), self._zone), set(walls)
            minutes = (start + timedelta(minutes=number) for number in range(33 * 60))
            slots = [m for m in minutes if m.astimezone(self._zone).replace(tzinfo=None) in wanted]
        while len(self._known) >= _DAYS_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[day] = slots
        return slots


def parse(when: str, zone: str, now: datetime) -> Timing:
    """The timing that a person or a model writes as `when`; a time without an offset, and a line of
    cron, are in the zone `zone`. An interval begins `now`. Raises `ValueError`."""
    text = " ".join(when.split())
    if len(text) > WHEN_MAX_CHARS:
        raise ValueError(f"it has more than {WHEN_MAX_CHARS} characters")
    if every := _EVERY.fullmatch(text):
        step = timedelta(**{f"{every[2].lower()}s": int(every[1] or 1)})
        if not EVERY_MIN <= step <= EVERY_MAX:
            raise ValueError(f"{text!r} is not from one minute to {EVERY_MAX.days} days")
        return Every(step, now.replace(microsecond=0))
    if text.count(" ") == _FIELDS - 1:
        return _cron(text, zone)
    try:
        return Once(moment(text, zone, now).replace(microsecond=0))
    except ValueError:
        raise ValueError(f"{text!r:.80} is not {ACCEPTED}") from None


_cron: Final = lru_cache(64)(Cron)


def too_late(timing: Timing, slot: datetime, now: datetime) -> bool:
    """Whether a slot is not begun any more."""
    following = timing.next(slot)
    return now - slot > (min(LATEST, (following - slot) / 2) if following else LATEST)


def stored(moment: datetime | None) -> str:
    """A moment as it is stored; empty: none."""
    return "" if moment is None else at(moment.astimezone(UTC))


def read(text: str) -> datetime:
    """A moment that was `stored`."""
    return datetime.fromisoformat(text)
