"""Bodies of requests: read within bounds of size and time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from wire.errors import Code
from wire.text import bounded_json

from runner.serve.failures import Refusal

SMALL: Final = 16 * 1024
VALUES_MAX: Final = 1_000
"""How many values the JSON of a request may have; the largest messages have some hundreds."""
PIECE_S: Final = 20.0
"""How long the next piece of a body may take."""
WHOLE_S: Final = 300.0


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
            f"this is no JSON: Content-Type {kind[:80]!r}",
            resolution="send Content-Type: application/json",
        )
    try:
        content = bounded_json(body or b"{}", VALUES_MAX)
    except ValueError as error:
        raise Refusal(
            400, Code.INVALID_ARGUMENT, "the request is no JSON", details=str(error)[:200]
        ) from None
    if not isinstance(content, dict):
        raise Refusal(400, Code.INVALID_ARGUMENT, "the request is no JSON object")
    return content


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        Code.INVALID_ARGUMENT,
        "the request is too large",
        details=f"at most {limit} bytes are read here",
    )
