"""The gateway's methods as JSON over HTTP: `POST /api/users/{user}/{Method}`.

Requests and replies are the contract's messages with their field names; fields that have their
default are left out. Fields that this version does not know are ignored, and named in the header
`X-Oxydra-Ignored` of the answer. A method that streams answers with one message a line, `{}` now
and then so that the line is known to be open, and where it fails an `error` as the last one.

Files of a user's shared directory are at `GET` and `PUT /api/users/{user}/files/{path}`, those of
projects at `/api/users/{user}/projects/{name}/{path}`. What comes out was written by an agent, a
command or a page. A browser saves it; it shows none of it but pictures whose content says that they
are, and those without any right of this server's pages.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from wire.errors import Code, WireError
from wire.limits import FILE_MAX_BYTES
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.access.callers import Callers, Replies
from runner.access.exchange import (
    INTERNAL,
    KEEP_ALIVE_S,
    SMALL,
    UNBUFFERED,
    kept_alive,
    pieces,
    plain,
    read_object,
    told,
    whole,
)
from runner.access.scopes import METHODS
from runner.client.calls import IGNORED_HEADER, SERVICE, body_max_bytes
from runner.serve.login.authenticator import Authenticator

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = KEEP_ALIVE_S
_IGNORED_MAX: Final = 10
"""How many fields are named that were ignored."""


class Bridge:
    """Answers calls of the gateway's methods for whoever is let in."""

    def __init__(self, authenticator: Authenticator, callers: Callers) -> None:
        self._authenticator = authenticator
        self._callers = callers
        self.routes = [Route("/api/users/{user}/{method}", self._call, methods=["POST"])]

    async def _call(self, request: Request) -> Response:
        caller = self._authenticator.caller(request)
        user_id = request.path_params["user"]
        caller.check_user(user_id)
        described = SERVICE.methods_by_name.get(request.path_params["method"])
        if described is None:
            raise WireError(
                Code.NOT_FOUND,
                "the gateway has no such method",
                details=request.path_params["method"][:80],
            )
        method = METHODS[described.name]
        method.check(caller.scopes)
        limit = body_max_bytes(described)
        if int(request.headers.get("content-length") or limit) <= SMALL:
            message, ignored = _message(described, request, await whole(request, SMALL))
        else:
            async with self._callers.large(caller):
                body = await whole(request, limit)
                message, ignored = await asyncio.to_thread(_message, described, request, body)
        log.debug("%s by %s calls %s", caller.user_id, caller.channel, method.name)
        replies = self._callers.call(caller, user_id, method, message)
        headers = {IGNORED_HEADER: ", ".join(ignored)} if ignored else {}
        if described.server_streaming:
            lines = kept_alive(_lines(replies), b"{}\n", HEARTBEAT_S)
            headers |= UNBUFFERED
            return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")
        try:
            reply = await replies.read()
        finally:
            replies.cancel()
        return JSONResponse(plain(reply or method.reply()), headers=headers)


async def _lines(replies: Replies) -> AsyncGenerator[bytes, None]:
    """Replies as they come. Who leaves ends the call."""
    try:
        while (reply := await replies.read()) is not None:
            yield _json(plain(reply))
    except WireError as error:
        yield _json(told(error))
    except Exception:
        log.exception("unexpected failure in a stream")
        yield _json(told(INTERNAL()))
    finally:
        replies.cancel()


def _message(
    described: MethodDescriptor, request: Request, body: bytes
) -> tuple[Message, list[str]]:
    """The request as a message, and the fields of it that this version does not know."""
    content = read_object(request, body)
    try:
        message = ParseDict(
            content, GetMessageClass(described.input_type)(), ignore_unknown_fields=True
        )
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"invalid {described.input_type.name}",
            details=str(error)[:300],
            resolution="proto/wire/v1/gateway.proto says which fields there are",
        ) from None
    return message, _unknown(described.input_type, content)


def _unknown(kind: Descriptor, content: Mapping[str, Any]) -> list[str]:
    """The names in `content` that are no fields of `kind`, as a header can hold them."""
    known = {*kind.fields_by_name, *kind.fields_by_camelcase_name}
    names = [name for name in content if name not in known]
    return [re.sub(r"[^A-Za-z0-9_.-]", "?", name[:40]) for name in names[:_IGNORED_MAX]]


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


_WHOLE_S: Final = 3_600.0
_PIECE_BYTES: Final = 256 * 1024
_ROOTS: Final = {"files": "/shared", "projects": "/projects"}
_PICTURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Files:
    """Answers for the files of whoever is let in."""

    def __init__(self, authenticator: Authenticator, callers: Callers) -> None:
        self._authenticator = authenticator
        self._callers = callers
        self.routes = [
            Route(f"/api/users/{{user}}/{root}/{{path:path}}", partial(do, at), methods=[method])
            for root, at in _ROOTS.items()
            for method, do in (("GET", self._read), ("PUT", self._write))
        ]

    async def _read(self, root: str, request: Request) -> Response:
        asked = gateway_pb2.ReadFileRequest(path=f"{root}/{request.path_params['path']}")
        call: Any = self._agent(request).ReadFile(asked)
        try:
            first = await call.read()
        except BaseException:
            call.cancel()
            raise
        if first is grpc.aio.EOF:
            first = gateway_pb2.FilePart()
        kind = picture(first.data)
        name = quote(first.file.name, safe="")
        shown = "inline" if kind else "attachment"
        return StreamingResponse(
            _content(first.data, call),
            headers={
                "Content-Disposition": f"{shown}; filename*=UTF-8''{name}",
                "Content-Length": str(first.file.bytes),
                "Content-Security-Policy": "default-src 'none'; sandbox",
            },
            media_type=kind or "application/octet-stream",
        )

    async def _write(self, root: str, request: Request) -> Response:
        agent = self._agent(request)
        overwrite = request.query_params.get("overwrite") == "true"
        message = gateway_pb2.WriteFileRequest(
            path=f"{root}/{request.path_params['path']}", overwrite=overwrite
        )
        async for piece in _of_size(pieces(request, FILE_MAX_BYTES, _WHOLE_S)):
            if len(message.data) == _PIECE_BYTES:
                reply = await agent.WriteFile(message)
                message.upload_id, message.offset = reply.upload_id, reply.received
            message.data = piece
        message.last = True
        reply = await agent.WriteFile(message)
        return JSONResponse(plain(reply.file))

    def _agent(self, request: Request) -> Any:
        caller = self._authenticator.caller(request)
        channel = self._callers.agent(caller, request.path_params["user"])
        return gateway_pb2_grpc.GatewayStub(channel)


def picture(beginning: bytes) -> str:
    """The kind of picture that begins so; empty if it is none that is shown."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _PICTURES if beginning.startswith(mark)), "")


async def _content(first: bytes, call: Any) -> AsyncIterator[bytes]:
    """A file from its first part on. If it breaks off, the answer is too short, which tells."""
    try:
        yield first
        async for part in call:
            yield part.data
    except WireError as error:
        log.info("a file was not sent to its end: %s", error)
    finally:
        call.cancel()


async def _of_size(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `_PIECE_BYTES`, but for the last one."""
    held = bytearray()
    async for piece in body:
        held += piece
        while len(held) >= _PIECE_BYTES:
            yield bytes(held[:_PIECE_BYTES])
            del held[:_PIECE_BYTES]
    if held:
        yield bytes(held)
