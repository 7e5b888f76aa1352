"""Points in time as memory stores them."""

from datetime import UTC, datetime


def now() -> str:
    """The current time in RFC 3339, UTC, microseconds: of fixed width, so that
    comparing two as text compares them in time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"
