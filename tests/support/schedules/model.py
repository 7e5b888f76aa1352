"""When lines of cron are due, by looking at every minute: Debian's rules, written down anew."""

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # by half an hour
    "Africa/Cairo",  # at midnight
    "Asia/Kolkata",  # never
)


@cache
def _field(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for each in text.split(","):
        term, _, step = each.partition("/")
        begin, _, end = ("-".join(map(str, (low, high))) if term == "*" else term).partition("-")
        last = int(end) if end else (high if step else int(begin))
        found |= set(range(int(begin), last + 1, int(step or 1)))
    return frozenset(found)


class CronModel:
    """A line in a zone, of numbers, stars, ranges and steps."""

    def __init__(self, line: str, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        fields = line.split()
        bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
        sets = [_field(text, *bound) for text, bound in zip(fields, bounds, strict=True)]
        self._minutes, self._hours, self._days, self._months, weekdays = sets
        self._weekdays = {day % 7 for day in weekdays}
        self._both = fields[2][0] == "*" or fields[4][0] == "*"
        self._is_real = fields[0][0] == "*" or fields[1][0] == "*"

    def slots(self, after: datetime, until: datetime) -> list[datetime]:
        """The slots after a moment, up to and with another; both are whole minutes."""
        found: list[datetime] = []
        moment = after - timedelta(days=2)
        shown: set[datetime] = set()
        before = self._wall(moment)
        while moment < until:
            moment += MINUTE
            wall = self._wall(moment)
            if self._is_real:
                due = self._matches(wall)
            else:  # each time of the clock counts when it is first reached or jumped over
                jumped = [before + n * MINUTE for n in range(1, (wall - before) // MINUTE + 1)]
                due = any(self._matches(each) and each not in shown for each in jumped or [wall])
                shown.update(jumped or [wall])
            before = wall
            if due and moment > after:
                found.append(moment)
        return found

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None)

    def _matches(self, wall: datetime) -> bool:
        if wall.minute not in self._minutes or wall.hour not in self._hours:
            return False
        day, weekday = wall.day in self._days, (wall.weekday() + 1) % 7 in self._weekdays
        fits = day and weekday if self._both else day or weekday
        return fits and wall.month in self._months


def changes(zone: str, year: int) -> list[datetime]:
    """The moments, to the hour, at which clocks change in a year."""
    hours = (datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(366 * 24))
    there, hour = ZoneInfo(zone), timedelta(hours=1)
    return [
        each
        for each in hours
        if each.astimezone(there).utcoffset() != (each + hour).astimezone(there).utcoffset()
    ]
