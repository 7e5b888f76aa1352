"""When schedules are due; cron's lines at changes of the clock, against a model of their own."""

from datetime import UTC, datetime, timedelta

import pytest

from guest.schedules.store import Schedule
from guest.schedules.timing import Cron, Slots, parse, too_late
from tests.support.schedules.model import ZONES, CronModel, changes

LINES = (
    *("0 * * * *", "*/15 * * * *", "* 2 * * *", "5 */2 * * *", "0 */6 * * *", "* 0 * * *"),
    *("30 2 * * *", "0,30 0-3 * * *", "15 0 * * *", "0 0 * * *", "0 7 * * 1-5", "30 1 1 * 1"),
    *("45 23 * * *", "*/20 0,1,2 * * *", "*/30 0 * * 5", "0 0 * * 5", "10 1-5/2 */2 * 0"),
)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAYS = timedelta(days=2)


def walked(cron: Cron, after: datetime, until: datetime) -> list[datetime]:
    found, slot = [], cron.next(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = cron.next(slot)
    return found


@pytest.mark.parametrize("zone", [*ZONES, "America/Havana", "Africa/Casablanca"])
def test_lines_of_cron_are_due_when_the_model_says(zone: str) -> None:
    for change in changes(zone, 2026) or [NOON]:
        for line in LINES:
            after, until = change - DAYS, change + DAYS
            expected = CronModel(line, zone).slots(after, until)
            cron = Cron(line, zone)
            assert walked(cron, after, until) == expected, line
            ends = (expected[0], expected[-1]) if expected else (None, None)
            assert cron.between(after, until) == Slots(len(expected), *ends), line


def test_a_night_on_which_the_clock_changes_is_as_with_debians_cron() -> None:
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    day = timedelta(days=1)
    fixed, hourly = Cron("30 2 * * *", "Europe/Berlin"), Cron("0 * * * *", "Europe/Berlin")
    assert fixed.next(spring) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert fixed.between(autumn, autumn + day).number == 1
    assert fixed.next(autumn) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    midnight = datetime(2026, 10, 24, 22, tzinfo=UTC) - timedelta(minutes=1)
    assert hourly.between(midnight, midnight + timedelta(hours=25)).number == 25


@pytest.mark.parametrize(
    ("when", "slot"),
    [
        ("every 30 minutes", datetime(2026, 6, 1, 12, 30, tzinfo=UTC)),
        ("Every hour", datetime(2026, 6, 1, 13, tzinfo=UTC)),
        ("every 2 weeks", datetime(2026, 6, 15, 12, tzinfo=UTC)),
        ("2026-12-24 18:00", datetime(2026, 12, 24, 17, tzinfo=UTC)),
        ("2026-12-24T18:00:00+00:00", datetime(2026, 12, 24, 18, tzinfo=UTC)),
        ("tomorrow", datetime(2026, 6, 2, 7, tzinfo=UTC)),
        ("in an hour", datetime(2026, 6, 1, 13, tzinfo=UTC)),
        ("2027-03-28 02:30", datetime(2027, 3, 28, 1, tzinfo=UTC)),
        ("0 7 * * mon-fri", datetime(2026, 6, 2, 5, tzinfo=UTC)),
        ("0 0 29 2 *", datetime(2028, 2, 28, 23, tzinfo=UTC)),
    ],
)
def test_what_people_write_is_read_and_written_again(when: str, slot: datetime) -> None:
    times = parse(when, "Europe/Berlin", NOON)
    assert times.next(NOON) == slot
    assert parse(times.text, "Europe/Berlin", NOON).next(NOON) == slot
    assert times.between(NOON, slot).newest == slot
    assert times.between(NOON, slot - timedelta(seconds=1)).number == 0


@pytest.mark.parametrize(
    "when",
    [
        *(
            "",
            "soon",
            "friday 25:00",
            "* * * *",
            "0 0 30 2 *",
            "* * */20 * 1L",
            "61 * * * *",
            "9999-99-99",
        ),
        *("every 0 minutes", "every 9 years", "every 60 weeks", "1 2 3 4 /", "x" * 200),
    ],
)
def test_what_is_never_due_is_refused(when: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(when, "UTC", NOON)


def test_a_slot_is_too_late_after_half_its_interval_or_twelve_hours() -> None:
    hour, late = timedelta(hours=1), timedelta(seconds=1)
    for when, most in (
        ("every 1 hours", hour / 2),
        ("0 7 * * 1", 12 * hour),
        ("2026-07-01", 12 * hour),
    ):
        times = parse(when, "UTC", NOON)
        slot = times.next(NOON)
        assert slot is not None
        assert not too_late(times, slot, slot + most)
        assert too_late(times, slot, slot + most + late)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("every 1 hours", "every hour"),
        ("every 60 minutes", "every hour"),
        ("every 90 minutes", "every 90 minutes"),
        ("0 7 * * 1-5", "0 7 * * 1-5"),
        ("2026-12-24 18:00", "2026-12-24 18:00"),
    ],
)
def test_a_time_is_shown_as_a_person_writes_it_in_the_zone_of_its_schedule(
    given: str, shown: str
) -> None:
    text = parse(given, "Asia/Tokyo", NOON).text
    assert Schedule("", "", "", text, "Asia/Tokyo", NOON.isoformat()).when == shown
