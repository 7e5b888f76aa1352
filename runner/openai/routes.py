"""The paths of OpenAI's API under `/v1`, for callers with an access token of the scope chat.

A turn of the agent is a chat completion, whole or in chunks. The agent's own calls are no
tool_calls, which a client would have to run: they stand, like receipts and notices, in the field
`oxydra` of the completion or of its last chunk.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from wire.errors import Code, WireError
from wire.settings import OpenAISettings
from wire.v1 import gateway_pb2 as pb

from runner.access.callers import Caller, Callers
from runner.access.exchange import KEEP_ALIVE_S, UNBUFFERED, kept_alive, plain, while_there, whole
from runner.client.gateway import GatewayClient
from runner.client.turn import TurnSoFar, error_of
from runner.openai import conversations
from runner.openai.requests import (
    OWN_MODEL,
    Asked,
    BadRequest,
    CallRef,
    body_of,
    chat_request,
    json_object,
    responses_request,
    status_of,
)
from runner.openai.responses import ResponseWriter, seconds
from runner.openai.turns import Answering, Answers, ResponseRef, counted, own_field, unknown

_REASONS: Final = {"length": "length", "filtered": "content_filter"}


class ChatWriter:
    """Writes one completion. `add` returns the chunks that it adds to the stream.

    Attributes:
        failed: Why there is no completion, once the turn has failed.
    """

    def __init__(self, ref: ResponseRef, asked: Asked) -> None:
        self._ref = ref
        self._asked = asked
        self._head = {
            "id": ref.response_id.replace("resp_", "chatcmpl-", 1),
            "created": int(time.time()),
            "model": asked.model,
        }
        self._turn = TurnSoFar()
        self._calls: list[dict[str, Any]] = []
        self._finish = "stop"
        self._usage: dict[str, Any] | None = None
        self.failed: pb.TurnFailed | None = None

    def begin(self, session_id: str = "") -> list[dict[str, Any]]:
        self._turn.session_id = session_id
        return [self._chunk({"role": "assistant", "content": ""})]

    def add(self, event: pb.TurnEvent) -> Iterator[dict[str, Any]]:
        kind = event.WhichOneof("event")
        self._turn.add(event)
        if kind == "text":
            yield self._chunk({"content": event.text.text})
        elif kind == "client_call":
            yield self._chunk({"tool_calls": [self._client_call(event)]})
            self._finish = "tool_calls"
            self._usage = counted(event.client_call, "prompt", "completion")
            yield from self._end()
        elif kind == "completed":
            self._usage = counted(event.completed, "prompt", "completion")
            yield from self._end()
        elif kind == "incomplete":
            self._usage = counted(event.incomplete.so_far, "prompt", "completion")
            self._finish = _REASONS.get(event.incomplete.reason, "length")
            yield from self._end()
        elif kind == "failed":
            self.failed = event.failed

    @property
    def completion(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._turn.text}
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {
            "index": 0,
            "message": {**message, "refusal": None},
            "finish_reason": self._finish,
            "logprobs": None,
        }
        usage = {"usage": self._usage} if self._usage else {}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            **usage,
            "oxydra": self._own(),
        }

    def _own(self) -> dict[str, Any]:
        own = own_field(self._ref, self._turn)
        finished = [call.finished for call in self._turn.calls if call.finished.tool]
        own["calls"] = [plain(each) for each in finished]
        return own

    def _client_call(self, event: pb.TurnEvent) -> dict[str, Any]:
        asked = event.client_call
        call = {
            "id": CallRef(self._ref.turn_id, event.index).call_id,
            "type": "function",
            "function": {"name": asked.tool, "arguments": asked.arguments_json},
        }
        self._calls.append(call)
        return {"index": 0, **call}

    def _end(self) -> Iterator[dict[str, Any]]:
        yield {**self._chunk({}, self._finish), "oxydra": self._own()}
        if self._asked.with_usage and self._usage:
            yield {**self._chunk({}), "choices": [], "usage": self._usage}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


log = logging.getLogger(__name__)

BODY_MAX_BYTES: Final = 16 * 1024 * 1024
RETRY_AFTER_S: Final = "5"
_DONE: Final = "data: [DONE]\n\n"

Handler = Callable[[Request, Caller, GatewayClient], Awaitable[Response]]


@dataclass(repr=False, eq=False)
class OpenAI:
    """Serves the users of one host, with `routes` to be mounted under `/v1`. `caller` says by its
    token who makes a request, or raises."""

    callers: Callers
    caller: Callable[[Request], Caller]
    settings: OpenAISettings
    keep_alive_s: float = KEEP_ALIVE_S

    def __post_init__(self) -> None:
        self._answers = Answers(self.settings)
        one = "/responses/{response_id}"
        paths: list[tuple[str, str, Handler]] = [
            ("POST", "/responses", self._create_response),
            ("GET", one, self._get_response),
            ("POST", f"{one}/cancel", self._cancel_response),
            ("GET", f"{one}/input_items", self._input_items),
            ("POST", "/conversations", self._create_conversation),
            ("GET", "/conversations/{session_id}", self._get_conversation),
            ("POST", "/chat/completions", self._create_completion),
            ("GET", "/models", self._list_models),
            ("GET", "/models/{model:path}", self._get_model),
        ]
        known = [
            Route(path, self._checked(handler), methods=[method]) for method, path, handler in paths
        ]
        anything = self._checked(_no_such_path)
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        self.routes = [*known, Route("/{path:path}", anything, methods=methods)]

    def _checked(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """`handler`, for callers with a token, with errors as OpenAI's SDKs read them."""

        async def endpoint(request: Request) -> Response:
            try:
                caller = self.caller(request)
                gateway = GatewayClient(self.callers.agent(caller), caller.channel)
                return await handler(request, caller, gateway)
            except WireError as error:
                return _refused(error)

        return endpoint

    async def _create_response(
        self, request: Request, caller: Caller, gateway: GatewayClient
    ) -> Response:
        asked = responses_request(await self._body(request, caller))
        answering = await self._answers.begin(caller, gateway, asked, request.headers)
        writer = ResponseWriter(answering.ref, asked, int(time.time()))
        if asked.stream:
            return self._stream(_events(writer, answering))
        if asked.background:
            writer.begin(answering.session_id)
            return JSONResponse(writer.response)
        await while_there(request.receive, _consume(writer, answering))
        return JSONResponse(writer.response)

    async def _get_response(self, request: Request, _: Caller, gateway: GatewayClient) -> Response:
        if request.query_params.get("stream", "false").lower() == "true":
            raise BadRequest(
                "stream",
                "a stored response is returned whole",
                "ask for it without stream, as often as needed",
            )
        ref = ResponseRef.read(request.path_params["response_id"])
        return JSONResponse(await _response(gateway, ref))

    async def _cancel_response(
        self, request: Request, _: Caller, gateway: GatewayClient
    ) -> Response:
        ref = ResponseRef.read(request.path_params["response_id"])
        await gateway.cancel_turn(ref.turn_id)
        return JSONResponse(await _response(gateway, ref))

    async def _input_items(self, request: Request, _: Caller, gateway: GatewayClient) -> Response:
        ref = ResponseRef.read(request.path_params["response_id"])
        session_id = (await _response(gateway, ref))["oxydra"].get("session_id", "")
        events = (await gateway.get_session(session_id, conversations.EVENTS_READ)).events
        texts = [
            each.text for each in events if each.turn_id == ref.turn_id and each.role == "user"
        ]
        items = [
            {
                "id": f"msg_{ref.response_id.removeprefix('resp_')}_input_{number}",
                "type": "message",
                "role": "user",
                "status": "completed",
                "content": [{"type": "input_text", "text": text}],
            }
            for number, text in enumerate(texts)
        ]
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
        return JSONResponse({"object": "list", "data": items, "has_more": False, **ends})

    async def _create_conversation(
        self, request: Request, caller: Caller, gateway: GatewayClient
    ) -> Response:
        sent = await self._body(request, caller)
        if sent.get("items"):
            raise BadRequest("items", "a conversation begins empty", "send them as input")
        return JSONResponse(_conversation(await gateway.create_session()))

    async def _get_conversation(
        self, request: Request, _: Caller, gateway: GatewayClient
    ) -> Response:
        history = await gateway.get_session(request.path_params["session_id"], 1)
        return JSONResponse(_conversation(history.session))

    async def _create_completion(
        self, request: Request, caller: Caller, gateway: GatewayClient
    ) -> Response:
        asked = chat_request(await self._body(request, caller))
        answering = await self._answers.begin(caller, gateway, asked, request.headers)
        writer = ChatWriter(answering.ref, asked)
        if asked.stream:
            return self._stream(_events(writer, answering))
        await while_there(request.receive, _consume(writer, answering))
        if writer.failed is not None:
            raise error_of(writer.failed)
        return JSONResponse(writer.completion)

    async def _list_models(self, _: Request, __: Caller, gateway: GatewayClient) -> Response:
        configured = (await gateway.resolve_model()).configured
        names = dict.fromkeys((OWN_MODEL, configured))
        return JSONResponse({"object": "list", "data": [_model(name) for name in names]})

    async def _get_model(self, request: Request, _: Caller, gateway: GatewayClient) -> Response:
        name = request.path_params["model"]
        await gateway.resolve_model("" if name == OWN_MODEL else name)
        return JSONResponse(_model(name))

    async def _body(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        async with self.callers.large(caller):
            body = await whole(request, BODY_MAX_BYTES)
            return await asyncio.to_thread(json_object, body or b"{}")

    def _stream(self, events: AsyncGenerator[str, None]) -> Response:
        return StreamingResponse(
            kept_alive(events, ": the agent is at work\n\n", self.keep_alive_s),
            media_type="text/event-stream",
            headers=UNBUFFERED,
        )


async def _no_such_path(request: Request, _: Caller, __: GatewayClient) -> Response:
    raise WireError(
        Code.NOT_FOUND,
        f"{request.method} {request.url.path[:200]} is not served",
        resolution="there are /v1/responses, /v1/conversations, /v1/chat/completions and "
        "/v1/models",
    )


def _refused(error: WireError) -> Response:
    status = status_of(error)
    headers = {"Retry-After": RETRY_AFTER_S} if status == 503 else {}
    return JSONResponse(body_of(error), status, headers)


async def _consume(
    writer: ResponseWriter | ChatWriter, answering: Answering, last: int | None = None
) -> bool:
    """Write what happens until the event `last`, or the end. Returns whether anything did."""
    writer.begin(answering.session_id)
    found = False
    async for event in answering.events():
        found = True
        list(writer.add(event))
        if last is not None and event.index >= last:
            break
    return found


async def _response(gateway: GatewayClient, ref: ResponseRef) -> dict[str, Any]:
    """A response as far as it has come. Raises NOT_FOUND."""
    listed = {turn.turn_id: turn for turn in await gateway.list_turns()}
    turn = listed.get(ref.turn_id)
    began_at = seconds(turn.started_at) if turn is not None else 0
    writer = ResponseWriter(ref, Asked(model=turn.model if turn else OWN_MODEL), began_at)
    last = turn.events - 1 if turn is not None and not turn.ended_at else None
    if not await _consume(writer, Answering(gateway, ref), last):
        raise unknown(ref.response_id)
    return writer.response


async def _events(
    writer: ResponseWriter | ChatWriter, answering: Answering
) -> AsyncGenerator[str, None]:
    """The lines of a stream: a failure is an event of a response, and the last chunk of a chat."""
    for each in writer.begin(answering.session_id):
        yield _line(each)
    try:
        async for event in answering.events():
            for each in writer.add(event):
                yield _line(each)
    except WireError as error:
        log.warning("an answer has broken off: %s", error)
        failed = pb.TurnFailed(
            code=str(error.code),
            message=error.brief,
            details=error.details,
            resolution=error.resolution,
        )
        for each in writer.add(pb.TurnEvent(failed=failed)):
            yield _line(each)
    if isinstance(writer, ChatWriter):
        if writer.failed is not None:
            yield _line(body_of(error_of(writer.failed)))
        yield _DONE


def _line(event: Mapping[str, Any]) -> str:
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event, ensure_ascii=False)}\n\n"


def _conversation(session: pb.Session) -> dict[str, Any]:
    return {
        "id": session.session_id,
        "object": "conversation",
        "created_at": int(seconds(session.created_at)),
        "metadata": {},
    }


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": OWN_MODEL}
