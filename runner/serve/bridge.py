"""The gateway's methods as JSON over HTTP: `POST /api/users/{user}/{Method}`.

Requests and replies are the contract's messages with their field names; fields that have their
default are left out. Fields that this version does not know are ignored, and named in the header
`X-Oxydra-Ignored` of the answer. A method that streams answers with one message a line, `{}` now
and then so that the line is known to be open, and where it fails an `error` as the last one.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from wire.errors import Code, WireError

from runner.access.callers import Callers, Replies
from runner.access.exchange import (
    INTERNAL,
    KEEP_ALIVE_S,
    SMALL,
    UNBUFFERED,
    kept_alive,
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

    @property
    def routes(self) -> list[Route]:
        return [Route("/api/users/{user}/{method}", self._call, methods=["POST"])]

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
