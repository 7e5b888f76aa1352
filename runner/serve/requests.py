"""Bodies of requests: read within bounds of size and time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from wire.errors import Code
from wire.text import parsed_json

from runner.serve.failures import Refusal

SMALL: Final = 64 * 1024
LARGE: Final = 24 * 1024 * 1024
"""A message of the largest size that gateways take, with its bytes as base64."""
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
            raise asyncio.CancelledError from None
        if piece is None:
            return
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        yield piece


async def json_object(request: Request, limit: int = SMALL) -> dict[str, Any]:
    """The body as a JSON object. Raises `Refusal` for anything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415,
            Code.INVALID_ARGUMENT,
            f"this is no JSON: Content-Type {kind[:80]!r}",
            resolution="send Content-Type: application/json",
        )
    body = b"".join([piece async for piece in pieces(request, limit)])
    try:
        content = parsed_json(body or b"{}")
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
