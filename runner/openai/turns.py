"""Turns of the agent for requests of OpenAI's API: which session, which turn, which events."""

import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from wire.branches import branch_of, told_in, told_so
from wire.errors import Code, WireError
from wire.settings import OpenAISettings
from wire.v1 import gateway_pb2 as pb

from runner.access.callers import Caller
from runner.access.exchange import plain
from runner.client.following import followed
from runner.client.gateway import GatewayClient, new_turn_id
from runner.client.turn import TurnSoFar
from runner.openai import conversations
from runner.openai.conversations import Conversations, Known
from runner.openai.requests import OWN_MODEL, Asked, CallRef, Exchange, not_shown

_RESPONSE_ID: Final = re.compile(r"resp_([0-9a-f]{32})(?:_([0-9]{1,9}))?")
_ENDS: Final = frozenset({"completed", "incomplete", "failed"})
_UNNAMED: Final = re.compile(r"new|null|none|undefined|\{\{.*", re.IGNORECASE)
"""What programs send where a conversation has no name yet."""
_RETRIES: Final = "x-stainless-retry-count"
_WHOLE: Final = "x-openwebui-chat-id"


@dataclass(frozen=True)
class ResponseRef:
    """What a response's id names: a turn, from the event `after` on."""

    turn_id: str
    after: int = 0

    @property
    def response_id(self) -> str:
        own = uuid.UUID(self.turn_id.removeprefix("turn-")).hex
        return f"resp_{own}_{self.after}" if self.after else f"resp_{own}"

    @classmethod
    def read(cls, response_id: str) -> "ResponseRef":
        """Raises `WireError` (NOT_FOUND) for an unknown id."""
        if (match := _RESPONSE_ID.fullmatch(response_id)) is None:
            raise unknown(response_id)
        return cls(f"turn-{uuid.UUID(match[1])}", int(match[2] or 0))


def unknown(response_id: str) -> WireError:
    """There is no such response for this user."""
    return WireError(Code.NOT_FOUND, f"there is no response {response_id[:80]!r}")


def advise(failure: pb.TurnFailed | WireError, brief: str, asked: Asked) -> None:
    """Where a client has asked for a model of its own that cannot answer, name the one that can."""
    refused = failure.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION)
    if refused and asked.agent_model and repr(asked.agent_model) in brief:
        failure.resolution = f'use the model "{OWN_MODEL}", which is the agent with its own model'


def counted(took: pb.TurnCompleted | pb.ClientCall, sent: str, said: str) -> dict[str, Any]:
    """What a response took, with the API's words for the tokens that were `sent` and `said`."""
    cached = took.cached_tokens if isinstance(took, pb.TurnCompleted) else 0
    return {
        f"{sent}_tokens": took.input_tokens,
        f"{said}_tokens": took.output_tokens,
        "total_tokens": took.input_tokens + took.output_tokens,
        f"{sent}_tokens_details": {"cached_tokens": cached},
    }


def own_field(ref: ResponseRef, turn: TurnSoFar) -> dict[str, Any]:
    """What of a turn stands in the field `oxydra` of answers, which OpenAI's API does not know."""
    own: dict[str, Any] = {
        "turn_id": ref.turn_id,
        "receipts": [plain(each) for each in turn.receipts],
        "notices": list(turn.notices),
    }
    if turn.files is not None:
        own["files"] = plain(turn.files)
    if turn.session_id:
        own["session_id"] = turn.session_id
    if turn.expires_at:
        own["expires_at"] = turn.expires_at
    if turn.done is not None:
        own["notices"] += [turn.problem] if turn.problem else []
        own |= {"cost_usd": turn.done.cost_usd, "answered_by": turn.done.model}
    return own


@dataclass
class Answering:
    """A turn that answers a request.

    Attributes:
        ref: What the response's id names.
        session_id: Empty for a request without a trace.
        known: What this server remembers of the question.
        asked: What is answered.
        after: The call with which the response before this one of the turn ended.
    """

    gateway: GatewayClient
    ref: ResponseRef
    session_id: str = ""
    known: Known | None = None
    asked: Asked = field(default_factory=lambda: Asked(OWN_MODEL))
    after: pb.ClientCall | None = None

    async def events(self) -> AsyncIterator[pb.TurnEvent]:
        """The events of this response: until the turn ends, or waits for a tool of the client.

        Whoever leaves before that leaves the turn running. A connection to the agent that is lost
        is made again; a turn that was lost with it ends as interrupted.
        """
        ended = False
        for each in self.asked.unshown:
            yield pb.TurnEvent(notice=pb.Notice(text=each))
        if (words := not_shown(self.asked.unshown)) and self.asked.form is None:
            yield pb.TurnEvent(text=pb.TextDelta(text=words))
        try:
            async with aclosing(followed(self.gateway, self.ref.turn_id)) as events:
                async for event in events:
                    kind = event.WhichOneof("event")
                    if kind == "started":
                        self.session_id = event.started.session_id
                    if kind == "text" and self.known is not None:
                        self.known.told(event.text.text)
                    if kind == "failed":
                        advise(event.failed, event.failed.message, self.asked)
                    if event.index >= self.ref.after:
                        ended = kind in _ENDS or kind == "client_call"
                        if self.known is not None:
                            self.known.called = kind == "client_call"
                        self._count(event)
                        yield event
                        if event.notice.attachment and self.asked.form is None:
                            said = not_shown([event.notice.text])
                            yield pb.TurnEvent(text=pb.TextDelta(text=said))
                    if ended:
                        return
        finally:
            if self.known is not None:
                self.known.left = not ended

    def _count(self, event: pb.TurnEvent) -> None:
        """Have an event say what this response took, and not the whole turn until there."""
        took: pb.TurnCompleted | pb.ClientCall = event.completed
        if (kind := event.WhichOneof("event")) == "client_call":
            took = event.client_call
        elif kind == "incomplete":
            took = event.incomplete.so_far
        if self.after is not None and kind in ("client_call", "incomplete", "completed"):
            took.input_tokens = max(took.input_tokens - self.after.input_tokens, 0)
            took.output_tokens = max(took.output_tokens - self.after.output_tokens, 0)


class Answers:
    """Begins turns for the requests of all callers."""

    def __init__(self, settings: OpenAISettings) -> None:
        self._conversations = Conversations()
        self._session_headers = settings.session_headers
        self._untraced = [re.compile(each, re.IGNORECASE) for each in settings.untraced]

    async def begin(
        self, caller: Caller, gateway: GatewayClient, asked: Asked, headers: Mapping[str, str]
    ) -> Answering:
        """Answer a call of the agent, or start a turn. Raises `WireError`."""
        try:
            answering = await self._begin(caller, gateway, asked, headers)
        except WireError as error:
            advise(error, error.brief, asked)
            raise
        answering.asked = asked
        return answering

    async def _begin(
        self, caller: Caller, gateway: GatewayClient, asked: Asked, headers: Mapping[str, str]
    ) -> Answering:
        if asked.call is not None:
            return await self._go_on(caller, gateway, asked, asked.call)
        if self._leaves_no_trace(asked):
            turn_id = new_turn_id()
            request = pb.StartTurnRequest(
                text=asked.question,
                turn_id=turn_id,
                model=asked.agent_model,
                untraced=True,
                instructions=asked.instructions,
            )
            await gateway.start_turn(request)
            return Answering(gateway, ResponseRef(turn_id))
        if headers.get(_RETRIES, "0") != "0":
            again = self._conversations.asked(caller.user_id, asked.talk)
            if again is not None and again.left:
                again.said = ""
                return Answering(gateway, ResponseRef(again.turn_id), again.session_id, again)
        session_id, earlier = await self._session(caller, gateway, asked, headers)
        return await self._start(caller, gateway, asked, session_id, earlier)

    def _leaves_no_trace(self, asked: Asked) -> bool:
        if asked.form or asked.pictures or asked.unshown:  # an answer without a trace has none
            return False
        texts = (asked.question.lstrip(), asked.instructions.lstrip())
        return any(pattern.match(text) for pattern in self._untraced for text in texts)

    async def _session(
        self, caller: Caller, gateway: GatewayClient, asked: Asked, headers: Mapping[str, str]
    ) -> tuple[str, str]:
        """The session of a question, and what is to be told of what was said elsewhere."""
        if asked.previous:
            return await _after(gateway, asked.previous)
        named = asked.conversation
        if named:
            await gateway.get_session(named, 1)
            return named, ""
        named, whole = self._named_by(headers)
        before = asked.talk[:-1]
        if named:
            return await self._in_chat(caller, gateway, named, before, whole=whole)
        if (known := self._conversations.before(caller.user_id, asked.talk)) is not None:
            return known.session_id, ""
        created = await gateway.create_session()
        return created.session_id, conversations.as_context(before)

    def _named_by(self, headers: Mapping[str, str]) -> tuple[str, bool]:
        """What a header calls the conversation, and whether its programs send it whole each time;
        of others, a message alone goes on."""
        for each in self._session_headers:
            if (name := headers.get(each, "")) and not _UNNAMED.fullmatch(name):
                return name, each.lower() == _WHOLE
        return "", False

    async def _in_chat(
        self,
        caller: Caller,
        gateway: GatewayClient,
        named: str,
        before: Sequence[Exchange],
        *,
        whole: bool,
    ) -> tuple[str, str]:
        """The session of a named conversation, of which the client tells what came `before`. Where
        that is not what its session holds, because it was edited or is answered anew, it goes on in
        a session beside it, whose name says how much it was told of."""
        current, told = (await gateway.create_session(named)).session_id, 0
        for session in await gateway.list_sessions(conversations.SESSIONS_LOOKED_AT):
            if (found := told_in(session.session_id, named)) is not None:
                current, told = session.session_id, found
                break
        last = self._conversations.last(caller.user_id, current)
        if left := last is not None and last.left:
            await _stop(gateway, last.turn_id)
        held = (await gateway.get_session(current, conversations.EVENTS_READ)).events
        earlier = conversations.as_context(before)
        if not held:
            return current, earlier
        if not before and not whole:
            return current, ""
        words = conversations.plain(conversations.as_context(before[:told]))
        if told_so(current, words) and conversations.go_on(held, before[told:], left=left):
            return current, ""
        words = conversations.plain(earlier)
        created = await gateway.create_session(branch_of(named, len(before), words))
        return created.session_id, earlier

    async def _start(
        self,
        caller: Caller,
        gateway: GatewayClient,
        asked: Asked,
        session_id: str,
        earlier: str,
    ) -> Answering:
        turn_id = new_turn_id()
        for path, data in asked.pictures.items():
            await gateway.write_file(path, data)
        request = pb.StartTurnRequest(
            session_id=session_id,
            text=asked.question,
            turn_id=turn_id,
            model=asked.agent_model,
            instructions=asked.instructions,
            material="\n\n".join(filter(None, (earlier, not_shown(asked.unshown)))),
            client_tools=asked.tools,
            attachments=asked.pictures,
            form=asked.form,
        )
        last = self._conversations.last(caller.user_id, session_id)
        try:
            await gateway.start_turn(request)
        except WireError as error:
            if error.code != Code.CONFLICT or last is None or not (last.left or last.called):
                raise
            await _stop(gateway, last.turn_id)
            await gateway.start_turn(request)
        known = Known(conversations.key_of(asked.talk), caller.user_id, session_id, turn_id)
        self._conversations.add(known)
        return Answering(gateway, ResponseRef(turn_id), session_id, known)

    async def _go_on(
        self, caller: Caller, gateway: GatewayClient, asked: Asked, call: CallRef
    ) -> Answering:
        """Give the agent what the client's tool gave back, and follow its turn from there."""
        event = await _first(gateway, call.turn_id, call.index)
        waiting = None if event is None or not event.HasField("client_call") else event.client_call
        if waiting is None or not await gateway.answer_call(
            pb.AnswerCallRequest(
                turn_id=call.turn_id,
                call_id=waiting.call_id,
                output=asked.answer,
                form=asked.form,
            )
        ):
            raise WireError(
                Code.CONFLICT,
                f"the agent does not wait for the output of {call.call_id} any more",
                details="its turn has ended"
                if waiting is None
                else f"it waited until {waiting.expires_at}, or was answered or stopped before",
                resolution="ask again without the call",
            )
        answering = Answering(gateway, ResponseRef(call.turn_id, call.index + 1), after=waiting)
        answering.known = self._conversations.of_turn(caller.user_id, call.turn_id)
        if answering.known is not None:
            answering.known.said = ""
        return answering


async def _first(gateway: GatewayClient, turn_id: str, after: int) -> pb.TurnEvent | None:
    """The first event of a turn from `after` on. Raises NOT_FOUND."""
    async with aclosing(gateway.follow_turn(turn_id, after)) as events:
        async for event in events:
            return event
    return None


async def _after(gateway: GatewayClient, response_id: str) -> tuple[str, str]:
    """The session that goes on from a response. Where it has gone on already it is another one,
    which is told what was said until there."""
    ref = ResponseRef.read(response_id)
    first = await _first(gateway, ref.turn_id, 0)
    session_id = first.started.session_id if first is not None else ""
    if not session_id:
        raise unknown(response_id)
    events = list((await gateway.get_session(session_id, conversations.EVENTS_READ)).events)
    turns = [event.turn_id for event in events]
    if ref.turn_id not in turns:
        raise WireError(
            Code.FAILED_PRECONDITION,
            f"its session has gone on too far from response {response_id}",
            resolution=f"go on at its end: conversation {session_id!r}",
        )
    if turns[-1] == ref.turn_id:
        return session_id, ""
    until = len(turns) - turns[::-1].index(ref.turn_id)
    said = conversations.exchanges(events[:until])
    earlier = conversations.as_context(said)
    created = await gateway.create_session(branch_of(session_id, len(said), earlier))
    return created.session_id, earlier


async def _stop(gateway: GatewayClient, turn_id: str) -> None:
    """Stop a turn that its client has left, and wait until it has ended."""
    await gateway.cancel_turn(turn_id)
    async for _ in gateway.follow_turn(turn_id):
        pass
