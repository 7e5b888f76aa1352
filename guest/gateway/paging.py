"""Answers that fit into one message, however long what they tell of is."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.message import Message
from wire.limits import GRPC_MESSAGE_MAX_BYTES

REPLY_MAX_BYTES: Final = GRPC_MESSAGE_MAX_BYTES - 64 * 1024

_M = TypeVar("_M", bound=Message)


async def fitting(limit: int, page: Callable[[int], Awaitable[_M]]) -> _M:
    """What `page` gives for `limit`, or for as much less as fits."""
    reply = await page(limit)
    while reply.ByteSize() > REPLY_MAX_BYTES and limit > 1:
        limit //= 2
        reply = await page(limit)
    return reply
