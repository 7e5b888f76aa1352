"""The gateway's methods as JSON over HTTP: `POST /api/users/{user}/{Method}`.

Requests and replies are the contract's messages with their field names; fields that have their
default are left out. A method that streams answers with one message a line, `{}` now and then so
that the line is known to be open, and where it fails an `error` as the last one.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.access.agents import Replies
from runner.access.callers import Caller, Callers
from runner.access.relay import INTERNAL
from runner.access.scopes import METHODS
from runner.serve.failures import told
from runner.serve.login.door import Door
from runner.serve.requests import SMALL, read_object, whole

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 15.0
_LARGEST: Final = 24 * 1024 * 1024
"""A message of the largest size that gateways take, with its bytes as base64."""
_BODY_BYTES: Final[Mapping[str, int]] = {
    "ImportMemory": _LARGEST,
    "WriteFile": _LARGEST,
    "StartTurn": 4 * 1024 * 1024,
    "RunTurn": 4 * 1024 * 1024,
    "CallTool": 4 * 1024 * 1024,
    "AnswerCall": 4 * 1024 * 1024,
}
_BODY_BYTES_OTHERWISE: Final = 256 * 1024
_SERVICE: Final = gateway_pb2.DESCRIPTOR.services_by_name["Gateway"]
_STREAM: Final = (
    (b"content-type", b"application/x-ndjson"),
    (b"x-accel-buffering", b"no"),  # nginx passes each line on at once
)


class Bridge:
    """Answers calls of the gateway's methods for whoever is let in."""

    def __init__(self, door: Door, callers: Callers) -> None:
        self._door = door
        self._callers = callers

    @property
    def routes(self) -> list[Route]:
        return [Route("/api/users/{user}/{method}", self._call, methods=["POST"])]

    async def _call(self, request: Request) -> Response:
        caller = self._door.caller(request)
        user_id = request.path_params["user"]
        caller.check_user(user_id)
        described = _SERVICE.methods_by_name.get(request.path_params["method"])
        if described is None:
            raise WireError(
                Code.NOT_FOUND,
                "the gateway has no such method",
                details=request.path_params["method"][:80],
            )
        method = METHODS[f"/{_SERVICE.full_name}/{described.name}"]
        method.check(caller.scopes)
        limit = _BODY_BYTES.get(described.name, _BODY_BYTES_OTHERWISE)
        if int(request.headers.get("content-length") or limit) <= SMALL:
            message = _message(described, request, await whole(request, SMALL))
        else:
            async with self._callers.large(caller):
                body = await whole(request, limit)
                message = await asyncio.to_thread(_message, described, request, body)
        replies = self._callers.call(caller, user_id, method, message)
        read = GetMessageClass(described.output_type).FromString
        if described.server_streaming:
            return Lines(self._callers, caller, replies, lambda reply: _json(_plain(read(reply))))
        try:
            async with self._callers.running(caller):
                reply = await replies.read()
        finally:
            replies.cancel()
        return JSONResponse(_plain(read(reply or b"")))


class Lines(Response):
    """Replies as lines, as they come. Who leaves ends the call."""

    def __init__(self, callers: Callers, caller: Caller, replies: Replies, line: Any) -> None:
        super().__init__()
        self._callers = callers
        self._caller = caller
        self._replies = replies
        self._line = line

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_STREAM)})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._replies.cancel()
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})

    async def _send(self, send: Send) -> None:
        last = b""
        try:
            async with self._callers.running(self._caller):
                await self._send_replies(send)
        except WireError as error:
            last = _json(told(error))
        except Exception:
            log.exception("unexpected failure in a stream")
            last = _json(told(INTERNAL()))
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_replies(self, send: Send) -> None:
        reading: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(self._replies.read())
                done, _ = await asyncio.wait({reading}, timeout=HEARTBEAT_S)
                line = b"{}\n"
                if done:
                    reply = reading.result()
                    if reply is None:
                        return
                    line, reading = self._line(reply), None
                await send({"type": "http.response.body", "body": line, "more_body": True})
        finally:
            if reading is not None:
                reading.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _message(described: MethodDescriptor, request: Request, body: bytes) -> bytes:
    content = read_object(request, body)
    try:
        message = ParseDict(content, GetMessageClass(described.input_type)())
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"this is no {described.input_type.name}",
            details=str(error)[:300],
            resolution="proto/wire/v1/gateway.proto says which fields there are",
        ) from None
    return bytes(message.SerializeToString())


def _plain(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
