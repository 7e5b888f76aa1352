"""Requests and answers over HTTP, as the console, OpenAI's API and MCP all have them.

Bodies are read within bounds of size and time. Errors become a status and JSON. An answer that
takes long is kept alive while there is nothing to say, and ended when nobody listens.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive
from wire.errors import Code, WireError
from wire.text import bounded_json

SMALL: Final = 16 * 1024
VALUES_MAX: Final = 1_000
"""How many values the JSON of a request may have; the largest messages have some hundreds."""
PIECE_S: Final = 20.0
"""How long the next piece of a body may take."""
WHOLE_S: Final = 300.0
KEEP_ALIVE_S: Final = 15.0
UNBUFFERED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers with which nginx passes each piece on at once."""
STATUS_OF: Final[Mapping[Code, int]] = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.CONFLICT: 409,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.FAILED_PRECONDITION: 412,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
    Code.TIMEOUT: 504,
    Code.CANCELLED: 499,
    Code.DATA_LOSS: 500,
    Code.INTERNAL: 500,
}
INTERNAL: Final = partial(
    WireError,
    Code.INTERNAL,
    "internal error",
    resolution="tell the person who runs this host; its log has the traceback",
)
_BEARER: Final = "bearer "

_T = TypeVar("_T")


class Refusal(WireError):  # noqa: N818 - an answer, not a bug
    """What a request is refused with, where the code alone does not say the status."""

    def __init__(self, status: int, code: Code, brief: str, **more: str) -> None:
        super().__init__(code, brief, **more)
        self.status = status


def told(error: WireError) -> dict[str, Any]:
    """What is said of `error`, in an answer or as the last line of a stream."""
    return {"error": error.fields()}


def answer(error: WireError) -> JSONResponse:
    """The answer to a request that failed. It does not close the connection of a caller who was let
    in: what is still sent of the request is read and dropped, so that a client which sends all of
    it before it reads gets the answer. `runner.serve.connections` bounds how long."""
    status = error.status if isinstance(error, Refusal) else STATUS_OF[error.code]
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(told(error), status, headers)


def plain(message: Message, *, whole: bool = False) -> dict[str, Any]:
    """A message as JSON has it; `whole`: with the fields that have their default, too."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=whole
    )


def bearer(request: Request) -> str | None:
    """The access token that a request carries; None: it carries none."""
    given = request.headers.get("authorization", "")
    return given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else None


async def pieces(request: Request, limit: int, whole_s: float = WHOLE_S) -> AsyncIterator[bytes]:
    """The body, of at most `limit` bytes, which arrives within `whole_s`.

    Raises `Refusal` for one that is larger, or too slow.
    """
    if int(request.headers.get("content-length") or 0) > limit:
        raise _too_large(limit)
    size = 0
    body = request.stream()
    loop = asyncio.get_running_loop()
    end = loop.time() + whole_s
    while True:
        try:
            async with asyncio.timeout_at(min(loop.time() + PIECE_S, end)):
                piece = await anext(body, None)
        except TimeoutError:
            raise Refusal(408, Code.TIMEOUT, "the request did not arrive in time") from None
        except ClientDisconnect:
            raise Refusal(499, Code.CANCELLED, "the client has left") from None
        if piece is None:
            return
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        yield piece


async def whole(request: Request, limit: int) -> bytes:
    """The body; see `pieces`."""
    body = bytearray()
    async for piece in pieces(request, limit):
        body += piece
    return bytes(body)


async def json_object(request: Request, limit: int = SMALL) -> dict[str, Any]:
    """The body as a JSON object. Raises `Refusal` for anything else."""
    return read_object(request, await whole(request, limit))


def read_object(request: Request, body: bytes) -> dict[str, Any]:
    """The `body` of `request` as a JSON object. Raises `Refusal` for anything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415,
            Code.INVALID_ARGUMENT,
            f"the body is not JSON: Content-Type {kind[:80]!r}",
            resolution="send Content-Type: application/json",
        )
    try:
        content = bounded_json(body or b"{}", VALUES_MAX)
    except ValueError as error:
        raise Refusal(
            400, Code.INVALID_ARGUMENT, "the request is not JSON", details=str(error)[:200]
        ) from None
    if not isinstance(content, dict):
        raise Refusal(400, Code.INVALID_ARGUMENT, "the request is not a JSON object")
    return content


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        Code.INVALID_ARGUMENT,
        "the request is too large",
        details=f"at most {limit} bytes are read here",
    )


async def kept_alive(
    pieces: AsyncGenerator[_T, None], idle: _T, every_s: float
) -> AsyncGenerator[_T, None]:
    """`pieces`, with `idle` whenever there was none for a while, as when a person is asked."""
    waiting: asyncio.Task[_T | None] | None = None
    async with aclosing(pieces):
        try:
            while True:
                waiting = waiting or asyncio.create_task(_next(pieces))
                done, _ = await asyncio.wait({waiting}, timeout=every_s)
                if not done:
                    yield idle
                    continue
                piece, waiting = waiting.result(), None
                if piece is None:
                    return
                yield piece
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.wait({waiting})


async def while_there(receive: Receive, work: Awaitable[_T]) -> _T:
    """Do `work` while the client is there. Raises `WireError` (CANCELLED) when it has left."""

    async def leaving() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    doing, left = asyncio.ensure_future(work), asyncio.ensure_future(leaving())
    try:
        await asyncio.wait((doing, left), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise WireError(Code.CANCELLED, "the client has left")
        return doing.result()
    finally:
        doing.cancel()
        left.cancel()
        await asyncio.wait((doing, left))


async def _next(pieces: AsyncGenerator[_T, None]) -> _T | None:
    return await anext(pieces, None)
