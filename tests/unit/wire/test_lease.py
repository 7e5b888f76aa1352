"""A lease, by a clock that only the test moves."""

import argparse
import asyncio

import pytest
from wire.identity import Party
from wire.lease import Lease, add_arguments


class Clock:
    """The running loop's own; `now` moves by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    async def advance(self, seconds: float, step: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step
            for _ in range(3):
                await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def lease(ended: list[str]) -> Lease:
    return Lease(60.0, lambda: ended.append("it is over"))


async def test_it_ends_once_after_silence(clock: Clock, lease: Lease, ended: list[str]) -> None:
    await clock.advance(100)
    lease.begin()
    await clock.advance(60)
    assert ended == []
    await clock.advance(2)
    assert ended == ["it is over"]
    await clock.advance(200)
    assert len(ended) == 1


async def test_every_call_of_the_runner_renews_it(
    clock: Clock, lease: Lease, ended: list[str]
) -> None:
    lease.begin()
    for _ in range(10):
        await clock.advance(50)
        lease.renew(Party.RUNNER)
    await clock.advance(60)
    assert ended == []
    await clock.advance(2)
    assert ended == ["it is over"]


@pytest.mark.parametrize("party", sorted(set(Party) - {Party.RUNNER}))
async def test_nobody_elses_does(
    clock: Clock, lease: Lease, ended: list[str], party: Party
) -> None:
    lease.begin()
    for _ in range(12):
        await clock.advance(5.5)
        lease.renew(party)
    assert ended == ["it is over"]


async def test_a_call_that_came_while_the_guest_stood_still_counts(
    clock: Clock, lease: Lease, ended: list[str]
) -> None:
    lease.begin()
    await clock.advance(1000, step=1000)
    lease.renew(Party.RUNNER)
    await clock.advance(50)
    assert ended == []
    await clock.advance(12)
    assert ended == ["it is over"]


async def test_one_that_was_ended_or_has_no_end_stays_quiet(
    clock: Clock, lease: Lease, ended: list[str]
) -> None:
    lease.end()
    lease.begin()
    lease.end()
    endless = Lease(None, lambda: ended.append("never"))
    endless.begin()
    endless.renew(Party.RUNNER)
    endless.end()
    await clock.advance(10_000, step=100)
    assert ended == []


def test_the_argument_is_a_positive_number_and_excludes_the_other_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args([]).lease is None
    assert parser.parse_args(["--lease", "60"]).lease == 60.0
    bad = [["--lease", each] for each in ("0", "-1", "nan", "inf", "x", "")]
    for arguments in (*bad, ["--lease", "1", "--exit-with-parent"]):
        with pytest.raises(SystemExit):
            parser.parse_args(arguments)
    assert "not allowed with argument" in capsys.readouterr().err
