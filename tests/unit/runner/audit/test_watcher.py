"""A guest is believed about its own calls and in nothing else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from wire.identity import Party
from wire.v1 import gateway_pb2 as pb

from runner.audit import watcher as watching
from runner.audit.calls import Calls
from runner.audit.log import AuditLog, LogLocation
from runner.audit.reading import verify
from runner.audit.watcher import CallRecorder
from tests.support import parties


@pytest.fixture
def place(tmp_path: Path) -> LogLocation:
    return LogLocation(tmp_path, "alice")


@pytest.fixture
async def watcher(place: LogLocation) -> AsyncIterator[CallRecorder]:
    log = AuditLog(place, 365)
    log.open()
    made = CallRecorder(log)
    yield made
    await made.close()
    log.close()


def begun(call_id: str = "call-1", **fields: str) -> pb.CallReport:
    made = pb.CallBegun(call_id=call_id, must_be_recorded=True)
    for name, value in fields.items():
        setattr(made, name, value)
    return pb.CallReport(begun=made)


def ended(call_id: str = "call-1", outcome: str = "ok") -> pb.CallReport:
    return pb.CallReport(ended=pb.CallEnded(call_id=call_id, outcome=outcome))


def test_what_does_not_fit_is_not_recorded_as_it_was_said(
    watcher: CallRecorder, place: LogLocation
) -> None:
    watcher.recorded(
        begun(
            tool="shell exec\n",
            safety="harmless",
            session_id="x" * 500,
            channel='","user":"bob',
            actor="operator",
            about='line\n{"n":9,"user":"bob"}\x1b[2J' + "y" * 5000,
        )
    )
    watcher.recorded(ended(outcome="splendid"))
    (call,) = Calls(place).list().calls
    assert (call.user_id, call.tool, call.safety, call.session_id) == ("alice", "?", "?", "?")
    assert (call.channel, call.actor, call.outcome) == ("?", "?", "?")
    assert "\n" not in call.about
    assert "\x1b" not in call.about
    assert len(call.about) < 1000
    assert verify(place).findings == ()


def test_a_call_that_a_person_was_asked_about_is_recorded_as_such(
    watcher: CallRecorder, place: LogLocation
) -> None:
    watcher.recorded(begun("call-1"))
    watcher.recorded(pb.CallReport(ended=pb.CallEnded(call_id="call-1", outcome="ok", asked=True)))
    watcher.recorded(begun("call-2"))
    watcher.recorded(ended("call-2"))
    assert [call.asked for call in Calls(place).list().calls] == [False, True]


def test_an_id_twice_or_odd_is_refused(watcher: CallRecorder) -> None:
    def refused(event: pb.CallReport) -> bool:
        reply = watcher.recorded(event)
        return reply is not None and bool(reply.refused)

    assert not refused(begun())
    assert refused(begun())
    assert refused(begun("../../x"))
    assert refused(begun(""))
    watcher.recorded(ended())
    assert not refused(begun())


def test_an_end_of_no_call_is_not_recorded(watcher: CallRecorder, place: LogLocation) -> None:
    watcher.recorded(ended("call-of-another"))
    assert Calls(place).list().calls == ()
    assert verify(place).last == 1


def test_a_guest_cannot_have_any_number_of_calls_open(
    watcher: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "OPEN_MAX", 3)
    replies = [watcher.recorded(begun(f"call-{number}")) for number in range(5)]
    assert [bool(reply and reply.refused) for reply in replies] == [False] * 3 + [True] * 2


def test_lost_calls_are_noted(watcher: CallRecorder, place: LogLocation) -> None:
    watcher.recorded(pb.CallReport(lost_calls=7))
    assert b'"event":"lost"' in place.files()[-1].read_bytes()


async def test_what_is_open_when_the_guest_ends_was_interrupted(
    watcher: CallRecorder, place: LogLocation
) -> None:
    watcher.recorded(begun())
    watcher.ended()
    assert [call.outcome for call in Calls(place).list().calls] == ["interrupted"]


async def test_a_guest_is_left_also_where_a_cancellation_is_lost(
    watcher: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As gRPC does in the moment in which a call begins."""
    lost = 0

    async def hear(_channel: grpc.aio.Channel, _token: str) -> None:
        nonlocal lost
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost += 1
            if lost > 1:
                raise

    monkeypatch.setattr(watcher, "hear", hear)
    await watcher.attend(parties.peer("unix:/nowhere.sock", Party.EGRESS, "token"))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await watcher.close()
    assert lost
