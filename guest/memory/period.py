"""A time that a search is limited to: days of the user."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

from wire import zones
from wire.text import shortened

from guest.memory.models import Filter


def checked_day(value: str) -> str:
    """`value`, if it is a day such as 2026-11-22 or empty; else raises `ValueError`."""
    with suppress(ValueError):
        if not value or date.fromisoformat(value).isoformat() == value:
            return value
    raise ValueError(f"{shortened(value, 80)!r} is not a day such as 2026-11-22")


def day_in(value: str) -> str:
    """The day of a moment such as `2026-11-22 17:50 (Etc/UTC)`, which models copy from a prompt;
    else `value`."""
    return value[:10] if len(value) > 10 and value[10] in " T" else value


@dataclass(frozen=True)
class Period:
    """From the first day to the last; None: without a limit."""

    since: date | None = None
    until: date | None = None

    @classmethod
    def of(cls, since: str, until: str) -> "Period":
        """The days as they are written; empty: without a limit. Raises `ValueError`."""
        if since and until and until < since:
            raise ValueError(f"until: {until} is before since, {since}")
        first, last = (date.fromisoformat(day) if day else None for day in (since, until))
        return cls(first, last)

    def __str__(self) -> str:
        first, last = (
            f"{day.day} {day:%B} {day.year}" if day else "" for day in (self.since, self.until)
        )
        if first and last:
            return f"on {first}" if first == last else f"from {first} to {last}"
        return f"since {first}" if first else f"until {last}"

    def limits(self, time_zone: str) -> Filter:
        """The filter for what was written on these days in `time_zone`."""
        since, until = (day.isoformat() if day else "" for day in (self.since, self.until))
        return Filter(since=begins(since, time_zone), before=begins(until, time_zone, later=1))


def begins(day: str, time_zone: str = "", *, later: int = 0) -> str:
    """The moment in UTC at which `day`, or one so much `later`, begins in `time_zone` (empty: the
    user's own); empty for none, and for the first and the last that there are."""
    with suppress(OverflowError):
        if day:
            moment = zones.begins(date.fromisoformat(day) + timedelta(later), time_zone)
            return moment.isoformat()[:19]
    return ""
