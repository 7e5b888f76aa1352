"""What an egress guest tells of requests, recorded by the host; and its questions, put to people.

The user and the time are the host's, a guest can tell only of whom it serves, and every field is
checked and bounded: what goes into the record was chosen by whoever made the request.
"""

import asyncio
import contextlib
import ipaddress
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
from wire.egress.rules import PRESETS
from wire.errors import WireError
from wire.limits import ID_PATTERN, TOKEN_METADATA_KEY
from wire.text import visible_name
from wire.v1 import egress_pb2 as pb
from wire.v1 import egress_pb2_grpc, gateway_pb2

from runner.audit.log import AuditLog
from runner.audit.watcher import ODD, GuestWatcher, fitting
from runner.egress.log import Spent
from runner.errors import HostError

if TYPE_CHECKING:
    from runner.telemetry import Telemetry

BURST: Final = 20_000
PER_SECOND: Final = 1_000
"""Events of one guest: as many at once, and so many more each second."""
OPEN_MAX: Final = 20_000
QUESTIONS_MAX: Final = 64
BEHIND_MAX: Final = 1_000
"""How many events wait for somebody who follows slowly; beyond, the oldest are left out."""
TOOL: Final = "network"
_TEXT_CHARS: Final = 300
_TEXT_BYTES: Final = 400
_CUT: Final = "…"
_BYTES_MAX: Final = 2**62
_ROLES: Final = ("agent", "shell", "runner")
_SCHEMES: Final = ("http", "https", "tunnel")
_OUTCOMES: Final = ("done", "cut", "limit", "credential", "refused", "failed")
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_METHOD: Final = re.compile(r"[A-Z][A-Z-]{0,31}", re.ASCII)
_HOST: Final = re.compile(r"[a-z0-9_.:*\[\]-]{1,255}", re.ASCII)
_RULE: Final = re.compile(
    r"preset [a-z]{1,32}|https?://([a-z0-9_.-]{1,255}|\[[0-9a-f:.]{2,60}\])(:[0-9]{1,5})?",
    re.ASCII,
)
_PRESET: Final = "preset "
_IN_LINE: Final = {"id": "request", "session_id": "session", "turn_id": "turn"}
"""How a line of the record calls what has another name on the wire."""

Ask = Callable[[gateway_pb2.AskRequest], Awaitable[gateway_pb2.AskReply]]
"""Asks a person through the agent. Raises `WireError` where that cannot be done."""


@dataclass(frozen=True)
class _Open:
    number: int
    role: str
    host: str
    began: float


@dataclass(repr=False, eq=False)
class EgressWatcher(GuestWatcher):
    """Records what one egress guest of a user lets out and refuses.

    `granted` is told the role and the rule that a person has allowed for a session; it raises
    `WireError` where that cannot be kept. `renewed` hears of renewed logins. `roles` are those that
    the guest serves. With a watcher `beside`, of another guest of the user, it shares who follows,
    and the day's count. What a `tool` guest sends is recorded under its name."""

    audit: AuditLog
    ask: Ask
    granted: Callable[[str, pb.EgressGrant], None]
    traffic: "Telemetry | None" = None
    _: KW_ONLY
    roles: Collection[str] = _ROLES
    renewed: Callable[[pb.EgressRenewed], None] = lambda _: None
    beside: "EgressWatcher | None" = None
    tool: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.audit, "egress", BURST, PER_SECOND)
        beside = self.beside
        self._spent: Spent = beside._spent if beside is not None else Spent(self.audit.place)
        self._before = self._today()
        self._open: dict[int, _Open] = {}
        self._questions: dict[int, asyncio.Task[None]] = {}
        self._followers: set[asyncio.Queue[pb.EgressEvent]] = (
            beside._followers if beside is not None else set()
        )

    def ended(self) -> None:
        super().ended()
        self._before = self._today()

    def _today(self) -> list[pb.EgressSpent]:
        roles = {self.tool or role: role for role in self.roles}
        found = [each for each in self._spent.today() if each.role in roles]
        for each in found:
            each.role = roles[each.role]
        return found

    @property
    def spent(self) -> Sequence[pb.EgressSpent]:
        """What left today before this launch of the guest, which counts for itself."""
        return self._before

    @property
    def questions(self) -> int:
        """How many questions people are asked now."""
        return len(self._questions)

    async def follow(self) -> AsyncGenerator[pb.EgressEvent]:
        """What begins, ends and is refused from now on, each by the number of its line. Questions
        are not among it."""
        behind: asyncio.Queue[pb.EgressEvent] = asyncio.Queue(BEHIND_MAX)
        self._followers.add(behind)
        try:
            while True:
                yield await behind.get()
        finally:
            self._followers.discard(behind)

    async def hear(self, channel: grpc.aio.Channel, token: str) -> None:
        egress: Any = egress_pb2_grpc.EgressStub(channel)
        call = egress.Watch(metadata=((TOKEN_METADATA_KEY, token),))
        writing = asyncio.Lock()

        async def write(reply: pb.EgressReply) -> None:
            async with writing:
                await call.write(reply)

        try:
            async for event in call:
                await self._pace.wait()
                match event.WhichOneof("event"):
                    case "begun":
                        await write(self._begun(event.begun))
                    case "ended":
                        self._ended(event.ended)
                    case "renewed":
                        self.renewed(event.renewed)
                    case "question":
                        self._put(event.question, write)
                    case "withdrawn":
                        if (asking := self._questions.get(event.withdrawn.question)) is not None:
                            asking.cancel()
        finally:
            for asking in self._questions.values():
                asking.cancel()
            call.cancel()

    def _begun(self, begun: pb.EgressBegun) -> pb.EgressReply:
        if begun.id in self._open or len(self._open) >= OPEN_MAX:
            return _unrecorded(begun.id, "egress reports more requests than it can have")
        checked = _checked(begun, self.roles)
        checked.role = self.tool or checked.role
        try:
            number = self._audit.note("egress", **_fields(checked))
        except HostError as error:
            return _unrecorded(begun.id, str(error))
        if checked.decision == "allowed":
            self._open[begun.id] = _Open(number, checked.role, checked.host, time.monotonic())
            self._spent.add(checked.role, checked.host, 1, 0)
        if self.traffic is not None:
            self.traffic.left(checked.role, checked.decision)
        checked.id = number  # several guests count their requests
        self._tell(pb.EgressEvent(begun=checked))
        return pb.EgressReply(recorded=begun.id)

    def _ended(self, ended: pb.EgressEnded) -> None:
        begun = self._open.pop(ended.id, None)
        if begun is None:
            return
        checked = pb.EgressEnded(
            id=begun.number,
            sent=min(ended.sent, _BYTES_MAX),
            received=min(ended.received, _BYTES_MAX),
            status=ended.status if ended.status < 1000 else 0,
            outcome=ended.outcome if ended.outcome in _OUTCOMES else ODD,
            reason=_text(ended.reason),
            duration_ms=min(ended.duration_ms, _BYTES_MAX),
        )
        self._note_end(begun, checked)

    def close_open(self) -> None:
        """What was open was cut. How many bytes it moved is not known."""
        for begun in self._open.values():
            took = round((time.monotonic() - begun.began) * 1000)
            ended = pb.EgressEnded(
                id=begun.number, outcome="cut", reason="egress ended", duration_ms=took
            )
            self._note_end(begun, ended)
        self._open.clear()

    def _note_end(self, begun: _Open, ended: pb.EgressEnded) -> None:
        fields: dict[str, Any] = {"begin": begun.number, "outcome": ended.outcome}
        told = {name: getattr(ended, name) for name in ("status", "sent", "received", "reason")}
        fields |= {name: value for name, value in told.items() if value}
        self._note("egress-end", **fields, duration_ms=ended.duration_ms)
        self._spent.add(begun.role, begun.host, 0, ended.sent + ended.received)
        if self.traffic is not None:
            self.traffic.moved(begun.role, ended.sent, ended.received)
        self._tell(pb.EgressEvent(ended=ended))

    def _tell(self, event: pb.EgressEvent) -> None:
        for behind in self._followers:
            if behind.full():
                behind.get_nowait()
            behind.put_nowait(event)

    def _put(
        self, question: pb.EgressQuestion, write: Callable[[pb.EgressReply], Awaitable[None]]
    ) -> None:
        """Put a question to a person; the answer is written when there is one."""

        async def put() -> None:
            answer = await self._answer(question)
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                await write(pb.EgressReply(answer=answer))

        asking = self._questions[question.id] = asyncio.create_task(put())
        asking.add_done_callback(lambda _: self._questions.pop(question.id, None))

    async def _answer(self, question: pb.EgressQuestion) -> pb.EgressAnswer:
        answer = pb.EgressAnswer(question=question.id)
        asks = question.role in self.roles and not self.tool
        if (request := _request(question)) is None or not asks:
            answer.reason = "the question cannot be put: it names no host"
        elif len(self._questions) > QUESTIONS_MAX:
            answer.reason = f"{QUESTIONS_MAX} questions are open already"
        else:
            try:
                reply = await self.ask(request)
                if reply.approved:
                    grant = pb.EgressGrant(rule=question.rule, session_id=question.session_id)
                    self.granted(question.role, grant)
            except WireError as error:
                answer.reason = f"nobody could be asked: {visible_name(error.brief[:_TEXT_CHARS])}"
            else:
                answer.allowed = reply.approved
                answer.reason = "" if reply.approved else why_not(reply)
        return answer


def _checked(begun: pb.EgressBegun, roles: Collection[str]) -> pb.EgressBegun:
    """What was told, with nothing in it that could deceive a reader."""
    return pb.EgressBegun(
        id=begun.id,
        role=begun.role if begun.role in roles else ODD,
        session_id=fitting(_ID, begun.session_id),
        turn_id=fitting(_ID, begun.turn_id),
        upstream=fitting(_NAME, begun.upstream),
        method=fitting(_METHOD, begun.method),
        scheme=begun.scheme if begun.scheme in _SCHEMES else ODD,
        host=_host(begun.host),
        port=begun.port if begun.port < 2**16 else 0,
        path=_text(begun.path),
        decision="allowed" if begun.decision == "allowed" else "refused",
        rule=_text(begun.rule),
        reason=_text(begun.reason),
        at=begun.at if len(begun.at) <= 40 and begun.at.isascii() else "",
        address=_address(begun.address),
    )


def _fields(begun: pb.EgressBegun) -> dict[str, Any]:
    """The line for what has begun; what is empty is left out."""
    names = (descriptor.name for descriptor in begun.DESCRIPTOR.fields)
    line = {_IN_LINE.get(name, name): getattr(begun, name) for name in names if name != "at"}
    return {name: value for name, value in line.items() if value}


def _request(question: pb.EgressQuestion) -> gateway_pb2.AskRequest | None:
    """What a person is asked; None where it is no question of ours."""
    rule = question.rule
    if not _RULE.fullmatch(rule) or not _ID.fullmatch(question.session_id):
        return None
    if question.turn_id and not _ID.fullmatch(question.turn_id):
        return None
    asked = rule
    if rule.startswith(_PRESET):
        hosts = PRESETS.get(rule.removeprefix(_PRESET))
        if hosts is None:
            return None
        asked = f"{rule} ({', '.join(each.partition('://')[2] or each for each in hosts)})"
    arguments = {
        "host": _host(question.host),
        "port": question.port,
        "method": fitting(_METHOD, question.method),
        "path": visible_name(question.path[:_TEXT_CHARS]),
        "for": {"shell": "a command", "agent": "the agent"}.get(question.role, ODD),
    }
    return gateway_pb2.AskRequest(
        tool=TOOL,
        arguments_json=json.dumps({key: value for key, value in arguments.items() if value}),
        session_id=question.session_id,
        turn_id=question.turn_id,
        question=f"allow {asked} for this session?",
    )


def why_not(reply: gateway_pb2.AskReply) -> str:
    """Why it was not allowed."""
    return {
        "person": "a person said no",
        "expiry": "a person was asked and did not answer in time",
    }.get(reply.by, "the question was withdrawn")


def _unrecorded(number: int, reason: str) -> pb.EgressReply:
    return pb.EgressReply(unrecorded=pb.EgressUnrecorded(id=number, reason=reason))


def _host(host: str) -> str:
    return host if _HOST.fullmatch(host) else _text(host)


def _text(text: str) -> str:
    """What a guest has said, as it is shown; no longer than `_TEXT_BYTES` in a line of the log."""
    shown = visible_name(text[:_TEXT_CHARS])
    while (size := len(json.dumps(shown))) > _TEXT_BYTES:
        shown = shown[: min(len(shown) - 2, len(shown) * _TEXT_BYTES // size)] + _CUT
    return shown


def _address(text: str) -> str:
    if not text:
        return ""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ODD
