"""Every slot at most once, and none silently missed: a week in every run, a year in a long one."""

from datetime import UTC, datetime, timedelta

import pytest

from guest.schedules import scheduler
from tests.support.examples import SEED, scaled
from tests.support.schedules.model import ZONES
from tests.support.schedules.simulation import WEEK, Simulation

BEGINS = datetime(2026, 10, 24, 18, tzinfo=UTC)
"""Three of the five zones change their clocks within the week after."""
LONG = scaled(100) > 100


@pytest.mark.timeout(3600 if LONG else 120)
async def test_every_slot_runs_at_most_once_and_none_is_silently_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "RETRY_S", 0.0)
    lines: tuple[str, ...] = WEEK
    length = timedelta(days=8)
    if LONG:
        lines, length = (*WEEK, "*/12 * * * *"), timedelta(days=365)
    simulation = Simulation(SEED, BEGINS, rate=0.002)
    await simulation.run(ZONES, lines, length)
    assert simulation.kills > 3
    assert len(simulation.ran) > 1_000
