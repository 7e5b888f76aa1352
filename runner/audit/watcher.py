"""What an agent guest tells of its calls, checked and recorded by the host.

The guest is believed in what it says about its own calls and in nothing else: the user and the time
are the host's, every field is bounded, and a guest that tells too much is heard more slowly.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from wire.errors import WireError
from wire.identity import Peer
from wire.limits import ID_PATTERN, TOKEN_METADATA_KEY
from wire.text import visible_name
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.audit.attendance import ODD, Attendance, Pace, fitting
from runner.audit.log import AuditLog
from runner.errors import HostError

log = logging.getLogger(__name__)

BURST: Final = 2_000
PER_SECOND: Final = 200
"""Events of one guest: as many at once, and so many more each second."""
OPEN_MAX: Final = 5_000
_ABOUT_CHARS: Final = 300
_NOTES_MAX: Final = 64
_DURATION_MAX_MS: Final = 2**31
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_TOOL: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}", re.ASCII)
_SAFETIES: Final = ("read_only", "side_effecting", "privileged", "")
_ACTORS: Final = ("agent", "automatic")
_OUTCOMES: Final = ("ok", "refused", "failed", "cancelled")


@dataclass(frozen=True)
class _Open:
    number: int
    began: float


class Steps(Protocol):
    """What wants the steps of turns and calls: `runner.telemetry.telemetry.Telemetry`."""

    def take(self, batch: pb.SpanBatch) -> None: ...


class Watcher:
    """Records the calls of one user's agent, through all its launches, and passes its steps on.

    `attend` begins with a launch that answers; `ended` closes what it has left open. The log is
    the caller's.
    """

    def __init__(self, audit: AuditLog, steps: Steps | None = None) -> None:
        self._audit = audit
        self._steps = steps
        self._open: dict[str, _Open] = {}
        self._attendance = Attendance("the agent", self._hear)
        self._syncing = asyncio.create_task(audit.keep_synced())
        self._pace = Pace(BURST, PER_SECOND)

    async def attend(self, peer: Peer) -> None:
        """Hear the guest behind `peer` instead of an earlier one."""
        await self._attendance.leave()
        self._close_open()
        self._attendance.begin(peer)

    def ended(self) -> None:
        """The guest has ended: what it had begun was interrupted."""
        self._attendance.cancel()
        self._close_open()

    async def close(self) -> None:
        """Stop hearing. Idempotent."""
        await self._attendance.leave()
        self._close_open()
        self._syncing.cancel()
        await asyncio.wait({self._syncing})

    async def _hear(self, channel: grpc.aio.Channel, token: str) -> None:
        gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
        call = gateway.Witness(metadata=((TOKEN_METADATA_KEY, token),))
        try:
            await call.write(pb.WitnessReply(wants_spans=self._steps is not None))
            async for event in call:
                await self._pace.slow_down()
                if (reply := self.recorded(event)) is not None:
                    await call.write(reply)
        finally:
            call.cancel()

    def recorded(self, event: pb.WitnessEvent) -> pb.WitnessReply | None:
        """Record one event; returns what the guest waits to hear."""
        match event.WhichOneof("event"):
            case "begun":
                return self._begun(event.begun)
            case "ended":
                self._ended(event.ended)
            case "spans" if self._steps is not None:
                self._steps.take(event.spans)
            case "lost_calls":
                self._noted("lost", count=event.lost_calls)
        return None

    def _begun(self, begun: pb.CallBegun) -> pb.WitnessReply | None:
        call_id = begun.call_id
        if not _ID.fullmatch(call_id) or call_id in self._open or len(self._open) >= OPEN_MAX:
            return _refused(call_id, "the agent tells of more calls than it can have")
        try:
            number = self._audit.note(
                "begin",
                call=call_id,
                tool=fitting(_TOOL, begun.tool),
                safety=_one_of(_SAFETIES, begun.safety),
                session=fitting(_ID, begun.session_id),
                turn=fitting(_ID, begun.turn_id),
                channel=fitting(_ID, begun.channel),
                actor=_one_of(_ACTORS, begun.actor),
                about=visible_name(begun.about[:_ABOUT_CHARS]),
            )
        except HostError as error:
            if begun.must_be_recorded:
                return _refused(call_id, error.brief, error.details, error.resolution)
            return None
        self._open[call_id] = _Open(number, time.monotonic())
        return pb.WitnessReply(call_id=call_id) if begun.must_be_recorded else None

    def _ended(self, ended: pb.CallEnded) -> None:
        begun = self._open.pop(ended.call_id, None)
        if begun is None:
            return
        self._noted(
            "end",
            begin=begun.number,
            call=ended.call_id,
            outcome=_one_of(_OUTCOMES, ended.outcome),
            duration_ms=min(ended.duration_ms, _DURATION_MAX_MS),
            notes=[fitting(_ID, each) for each in ended.note_ids[:_NOTES_MAX]],
        )

    def _close_open(self) -> None:
        for call_id, begun in self._open.items():
            self._noted(
                "end",
                begin=begun.number,
                call=call_id,
                outcome="interrupted",
                duration_ms=round((time.monotonic() - begun.began) * 1000),
            )
        self._open.clear()

    def _noted(self, event: str, **fields: Any) -> None:
        try:
            self._audit.note(event, **fields)
        except WireError as error:
            log.error("%s: %s", error.brief, error.details)


def _refused(call_id: str, why: str, details: str = "", resolution: str = "") -> pb.WitnessReply:
    return pb.WitnessReply(
        call_id=call_id, refused=why, details=details, resolution=resolution or "runner logs"
    )


def _one_of(accepted: Iterable[str], text: str) -> str:
    return text if text in accepted else ODD
