"""How a guest begins and ends; a lease by a clock that only the test moves."""

import asyncio
import ctypes
import io
import json
import logging
import os
import resource
from collections.abc import Iterator
from functools import partial

import pytest
from wire import envelope, logs, program
from wire.errors import Code, WireError
from wire.identity import Party
from wire.logs import EXIT_OPERATOR, find_startup_failure
from wire.program import EXIT_BUG, Lease, Parser

from tests.support import parties


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


def test_the_argument_is_a_positive_number_and_excludes_the_other_way() -> None:
    parser = Parser("oxydra-guest", "")
    assert parser.parse_args(["--bootstrap-stdin"]).lease is None
    assert parser.parse_args(["--bootstrap-stdin", "--lease", "60"]).lease == 60.0
    for each in ("0", "-1", "nan", "inf", "x", ""):
        with pytest.raises(WireError, match="bad arguments: argument --lease"):
            parser.parse_args(["--bootstrap-stdin", "--lease", each])
    with pytest.raises(WireError, match="not allowed with argument"):
        parser.parse_args(["--bootstrap-stdin", "--lease", "1", "--exit-with-parent"])


def test_the_envelope_is_read_and_no_byte_more() -> None:
    sent = envelope.service("the-token", parties.identity(Party.SHELL))
    read, write = os.pipe()
    os.write(write, sent + b"next")
    os.close(write)
    try:
        assert program.received(envelope.read_service, read).token == "the-token"
        assert os.read(read, 100) == b"next"
    finally:
        os.close(read)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(logs, "configure", partial(logs.configure, stream=stream))
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE, whatever tests before have set
    yield stream
    logging.captureWarnings(False)
    ctypes.CDLL(None).prctl(4, 1)  # for the tests that follow


def test_no_core_of_a_guest_is_dumped(log: io.StringIO) -> None:
    assert program.run("agent", lambda: int(ctypes.CDLL(None).prctl(3))) == 0  # PR_GET_DUMPABLE


def test_another_runner_finds_the_one_that_all_share(
    log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[object] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: limits.append(limit))
    dumpable = partial(ctypes.CDLL(None).prctl, 3)  # PR_GET_DUMPABLE
    assert program.run("embedder", dumpable, concealed=False) == 1
    assert limits == [(resource.RLIMIT_CORE, (0, 0))]


def test_a_failure_is_the_last_line_of_the_log(log: io.StringIO) -> None:
    def refused() -> int:
        raise WireError(Code.INVALID_ARGUMENT, "no such place", resolution="make one")

    def broken() -> int:
        raise RuntimeError("a bug")

    assert program.run("shell", lambda: 3) == 3
    assert log.getvalue() == ""
    assert program.run("shell", refused) == EXIT_OPERATOR
    failure = find_startup_failure(log.getvalue())
    assert failure is not None
    assert (failure.brief, failure.resolution) == ("no such place", "make one")
    assert program.run("shell", broken) == EXIT_BUG
    line = json.loads(log.getvalue().splitlines()[-1])
    assert (line["role"], line["level"]) == ("shell", "error")
    assert "a bug" in line["traceback"]
