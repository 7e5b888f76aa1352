"""One stream to a guest, kept open through all its launches, and how fast it may tell of events."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

import grpc
from wire.identity import Peer
from wire.status import from_rpc_error
from wire.transport import open_channel

log = logging.getLogger(__name__)

ODD: Final = "?"
_AGAIN_S: Final = 0.2


class Attendance:
    """Hears a guest, again and again when the connection breaks.

    Args:
        what: Whose voice it is, in words, for the log.
        hear: Opens the stream over a channel and handles it to its end; it is given the token that
            the call must carry.
    """

    def __init__(self, what: str, hear: Callable[[grpc.aio.Channel, str], Awaitable[None]]) -> None:
        self._what = what
        self._hear = hear
        self._attending: asyncio.Task[None] | None = None

    def begin(self, peer: Peer) -> None:
        """Hear the guest behind `peer`, from now on; an earlier one must have been left."""
        self._attending = asyncio.create_task(self._attend(peer))

    def cancel(self) -> None:
        """Hear no more, without waiting for it."""
        if self._attending is not None:
            self._attending.cancel()

    async def leave(self) -> None:
        """Hear no more. Idempotent.

        Cancels more than once, because gRPC loses a cancellation in the moment in which a call
        begins (`_prepare_rpc` of grpc.aio).
        """
        while self._attending is not None and not self._attending.done():
            self._attending.cancel()
            await asyncio.wait({self._attending}, timeout=_AGAIN_S)
        self._attending = None

    async def _attend(self, peer: Peer) -> None:
        channel = open_channel(peer)
        told = ""
        try:
            while True:
                try:
                    await self._hear(channel, peer.token)
                except grpc.RpcError as error:
                    if (why := from_rpc_error(error).brief) != told:
                        log.info("%s is not heard: %s", self._what, why)
                    told = why
                await asyncio.sleep(_AGAIN_S)
        finally:
            await channel.close()


class Pace:
    """Lets `burst` events pass at once, and `per_second` more each second."""

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst
        self._per_second = per_second
        self._credit = float(burst)
        self._credited = time.monotonic()

    async def slow_down(self) -> None:
        """Wait until the next event may pass."""
        now = time.monotonic()
        earned = (now - self._credited) * self._per_second
        self._credit = min(self._burst, self._credit + earned) - 1
        self._credited = now
        if self._credit < 0:
            await asyncio.sleep(-self._credit / self._per_second)


def fitting(pattern: re.Pattern[str], text: str) -> str:
    """What a guest said, if it has the form that such a word has."""
    return text if not text or pattern.fullmatch(text) else ODD
