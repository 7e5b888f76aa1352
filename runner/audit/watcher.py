"""What a guest tells of what it does, checked and recorded by the host: the base of what hears one,
and what hears an agent of its calls.

The guest is believed in what it says about its own calls and in nothing else: the user and the time
are the host's, every field is bounded, and a guest that tells too much is heard more slowly.
"""

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from wire.errors import WireError, in_a_line
from wire.identity import Peer
from wire.limits import ID_PATTERN, TOKEN_METADATA_KEY
from wire.status import from_rpc_error
from wire.text import visible_name
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.audit.log import AuditLog
from runner.errors import HostError

log = logging.getLogger(__name__)

ODD: Final = "?"
"""In the place of what a guest said where it has not the form that it should have."""
_AGAIN_S: Final = 0.2

BURST: Final = 2_000
PER_SECOND: Final = 200
"""Events of one guest: as many at once, and so many more each second."""
OPEN_MAX: Final = 5_000
BRINGING_MAX: Final = 64
_ABOUT_CHARS: Final = 300
_NOTES_MAX: Final = 64
_DURATION_MAX_MS: Final = 2**31
_Write = Callable[[pb.CallReportReply], Awaitable[None]]
Answers = Mapping[str, Callable[[Any], Awaitable[pb.CallReportReply | None]]]
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_TOOL: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}", re.ASCII)
_SAFETIES: Final = ("read_only", "side_effecting", "privileged", "")
_ACTORS: Final = ("agent", "automatic", "person")
_OUTCOMES: Final = ("ok", "refused", "failed", "cancelled")


class GuestWatcher(ABC):
    """Hears one guest of a user through all its launches, again and again when the connection
    breaks, and closes what a launch has left open.

    Args:
        audit: The user's log, which is the caller's.
        what: The guest in words, for the log of the host.
        burst: How many events of it may come at once.
        per_second: How many more may come each second; a guest that tells more is heard more
            slowly.
    """

    def __init__(self, audit: AuditLog, what: str, burst: int, per_second: int) -> None:
        self._audit = audit
        self._what = what
        self._pace = RateLimit(burst, per_second)
        self._attending: asyncio.Task[None] | None = None

    @abstractmethod
    async def hear(self, channel: grpc.aio.Channel, token: str) -> None:
        """Open the guest's stream with this token, and handle it to its end."""

    @abstractmethod
    def close_open(self) -> None:
        """Record the end of what the guest has begun and not ended."""

    async def attend(self, peer: Peer) -> None:
        """Hear the guest behind `peer`, a launch that answers, instead of an earlier one."""
        await self._leave()
        self._attending = asyncio.create_task(self._attend(peer))

    def ended(self) -> None:
        """The guest has ended: what it had begun was cut."""
        if self._attending is not None:
            self._attending.cancel()
        self.close_open()

    async def close(self) -> None:
        """Hear no more. Idempotent."""
        await self._leave()

    async def _leave(self) -> None:
        """Hear no more, and close what is open.

        Cancels more than once, because gRPC loses a cancellation in the moment in which a call
        begins (`_prepare_rpc` of grpc.aio).
        """
        while self._attending is not None and not self._attending.done():
            self._attending.cancel()
            await asyncio.wait({self._attending}, timeout=_AGAIN_S)
        self._attending = None
        self.close_open()

    async def _attend(self, peer: Peer) -> None:
        channel = open_channel(peer)
        told = ""
        try:
            while True:
                try:
                    await self.hear(channel, peer.token)
                except grpc.RpcError as error:
                    if (why := from_rpc_error(error).brief) != told:
                        log.info("%s is not heard: %s", self._what, why)
                    told = why
                await asyncio.sleep(_AGAIN_S)
        finally:
            await channel.close()

    def _note(self, event: str, **fields: Any) -> None:
        """Record what cannot be refused any more; where that fails, the host's log says so."""
        try:
            self._audit.note(event, **fields)
        except WireError as error:
            log.error("%s: %s", error.brief, error.details)


class RateLimit:
    """Lets `burst` events pass at once, and `per_second` more each second."""

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst
        self._per_second = per_second
        self._credit = float(burst)
        self._credited = time.monotonic()

    async def wait(self) -> None:
        now = time.monotonic()
        earned = (now - self._credited) * self._per_second
        self._credit = min(self._burst, self._credit + earned) - 1
        self._credited = now
        if self._credit < 0:
            await asyncio.sleep(-self._credit / self._per_second)


def fitting(pattern: re.Pattern[str], text: str) -> str:
    """What a guest said, if it has the form that such a word has."""
    return text if not text or pattern.fullmatch(text) else ODD


@dataclass(frozen=True)
class _Open:
    number: int
    began: float


class Steps(Protocol):
    """What wants the steps of turns and calls: `runner.telemetry.Telemetry`."""

    def take(self, batch: pb.SpanBatch) -> None: ...


class CallRecorder(GuestWatcher):
    """Records the calls of one user's agent, passes its steps on, and has other events answered by
    those of their kind in `answers`, which raise `WireError`."""

    def __init__(
        self, audit: AuditLog, steps: Steps | None = None, answers: Answers | None = None
    ) -> None:
        super().__init__(audit, "the agent", BURST, PER_SECOND)
        self._steps = steps
        self._answers = answers or {}
        self._bringing: set[asyncio.Task[None]] = set()
        self._open: dict[str, _Open] = {}
        self._syncing = asyncio.create_task(audit.keep_synced())

    async def close(self) -> None:
        await super().close()
        self._syncing.cancel()
        await asyncio.wait({self._syncing})

    async def hear(self, channel: grpc.aio.Channel, token: str) -> None:
        gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
        call = gateway.ReportCalls(metadata=((TOKEN_METADATA_KEY, token),))
        writing = asyncio.Lock()

        async def write(reply: pb.CallReportReply) -> None:
            async with writing:
                await call.write(reply)

        try:
            await write(pb.CallReportReply(wants_spans=self._steps is not None))
            async for event in call:
                await self._pace.wait()
                kind = event.WhichOneof("event")
                if kind in self._answers and len(self._bringing) < BRINGING_MAX:
                    bringing = asyncio.create_task(self._bring(kind, getattr(event, kind), write))
                    self._bringing.add(bringing)
                    bringing.add_done_callback(self._bringing.discard)
                elif (reply := self.recorded(event)) is not None:
                    await write(reply)
        finally:
            for bringing in self._bringing:
                bringing.cancel()
            call.cancel()

    async def _bring(self, kind: str, asked: Any, write: _Write) -> None:
        try:
            reply = await self._answers[kind](asked)
        except WireError as error:
            reply = refused(asked.call_id, in_a_line(error))
        if reply is not None:
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await write(reply)

    def recorded(self, event: pb.CallReport) -> pb.CallReportReply | None:
        """Record one event; returns what the guest waits to hear."""
        match event.WhichOneof("event"):
            case "begun":
                return self._begun(event.begun)
            case "ended":
                self._ended(event.ended)
            case "spans" if self._steps is not None:
                self._steps.take(event.spans)
            case "lost_calls":
                self._note("lost", count=event.lost_calls)
        return None

    def _begun(self, begun: pb.CallBegun) -> pb.CallReportReply | None:
        call_id = begun.call_id
        if not _ID.fullmatch(call_id) or call_id in self._open or len(self._open) >= OPEN_MAX:
            return refused(call_id, "the agent reports more calls than it can have")
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
                return refused(call_id, error.brief, error.details, error.resolution)
            return None
        self._open[call_id] = _Open(number, time.monotonic())
        return pb.CallReportReply(call_id=call_id) if begun.must_be_recorded else None

    def _ended(self, ended: pb.CallEnded) -> None:
        if (begun := self._open.pop(ended.call_id, None)) is None:
            return
        self._note(
            "end",
            begin=begun.number,
            call=ended.call_id,
            outcome=_one_of(_OUTCOMES, ended.outcome),
            duration_ms=min(ended.duration_ms, _DURATION_MAX_MS),
            notes=[fitting(_ID, each) for each in ended.note_ids[:_NOTES_MAX]],
            **({"asked": True} if ended.asked else {}),
            **{
                name: visible_name(text[:_ABOUT_CHARS])
                for name, text in (("granted", ended.granted), ("receipt", ended.receipt))
                if text
            },
        )

    def close_open(self) -> None:
        for call_id, begun in self._open.items():
            self._note(
                "end",
                begin=begun.number,
                call=call_id,
                outcome="interrupted",
                duration_ms=round((time.monotonic() - begun.began) * 1000),
            )
        self._open.clear()


def refused(call_id: str, why: str, details: str = "", resolution: str = "") -> pb.CallReportReply:
    return pb.CallReportReply(
        call_id=call_id, refused=why, details=details, resolution=resolution or "runner logs"
    )


def _one_of(accepted: Iterable[str], text: str) -> str:
    return text if text in accepted else ODD
