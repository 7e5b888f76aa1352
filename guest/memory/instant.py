"""Points in time as memory stores them."""

from datetime import UTC, datetime


def now() -> str:
    """The current time."""
    return at(datetime.now(UTC))


def at(moment: datetime) -> str:
    """A moment in UTC, in RFC 3339 with microseconds: of fixed width, so that
    comparing two as text compares them in time."""
    return moment.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"
