"""Answers that take long: kept alive while there is nothing to say, and ended when nobody listens.

The console, OpenAI's API and MCP stream by these.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Final, TypeVar

from starlette.types import Receive
from wire.errors import Code, WireError

KEEP_ALIVE_S: Final = 15.0
UNBUFFERED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers with which nginx passes each piece on at once."""

_T = TypeVar("_T")


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
