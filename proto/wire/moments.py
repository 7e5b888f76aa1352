"""Times as people write them."""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from wire import zones

A_TIME: Final = (
    'a time such as "2026-12-04 09:00", "tomorrow 18:30", "friday 9:00" or "in 20 minutes"'
)
_MORNING: Final = time(9)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LATER: Final = re.compile(
    r"(?:in |\+) ?(an?|\d{1,5}) ?(m|h|d|w|min|minutes?|hours?|days?|weeks?)", re.IGNORECASE
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMED: Final = re.compile(
    rf"(?:on )?(today|tomorrow|{'|'.join(_WEEKDAYS)})(?:,? (?:at )?(\d{{1,2}})(?::(\d\d))?)?",
    re.IGNORECASE,
)


def moment(words: str, zone: str, now: datetime) -> datetime:
    """The moment that `words` name to somebody in `zone`. A day without a time is its morning.
    Raises `ValueError`."""
    try:
        there = zones.zone(zone)
        found = _moment(words, now.astimezone(there))
        return instant(found, there) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{words[:80]!r} is not {A_TIME}") from None


def _moment(words: str, here: datetime) -> datetime:
    """A moment, without a zone where it is in that of the person."""
    if later := _LATER.fullmatch(words):
        unit = _UNITS[later[2][0].lower()]
        distance = timedelta(**{unit: int(later[1]) if later[1].isdigit() else 1})
        if unit in ("minutes", "hours"):
            return here + distance
        return here.replace(tzinfo=None) + distance
    if named := _NAMED.fullmatch(words):
        hour = time(int(named[2]), int(named[3] or 0)) if named[2] else _MORNING
        return datetime.combine(_next_day(named[1].lower(), here.date()), hour)
    with suppress(ValueError):
        return datetime.combine(date.fromisoformat(words), _MORNING)
    return datetime.fromisoformat(words)


def _next_day(name: str, today: date) -> date:
    """The next day of that name, not today for one of the week."""
    if name in ("today", "tomorrow"):
        return today + timedelta(days=int(name == "tomorrow"))
    return today + timedelta(days=(_WEEKDAYS.index(name) - today.weekday() - 1) % 7 + 1)


def instant(wall: datetime, zone: tzinfo | None) -> datetime:
    """The first moment at which a clock in the zone shows this time; where none does, the first one
    after."""
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    # the clock is put forward over it: the offset of before gives a moment after the change
    low, high = moment - timedelta(days=2), moment
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return high
