"""A connection to another guest, which may be started anew somewhere else."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
from wire.endpoint import LOST_AFTER_S
from wire.identity import Peer
from wire.transport import open_channel

GRACE_S: Final = 2.0 * LOST_AFTER_S
"""How long calls to a guest that was replaced may go on. Where it is gone, they end before."""


class Connection:
    """Opens with the first call, and reconnects by itself where the guest is started again at the
    same place.

    Args:
        stub: The generated class of its service.
    """

    def __init__(self, peer: Peer, stub: Callable[[grpc.aio.Channel], Any]) -> None:
        self.peer = peer
        self._make = stub
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._moved = asyncio.Event()
        self._leaving: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    @property
    def stub(self) -> Any:
        """The service, where the guest is now. It is not to be kept."""
        self._opened()
        return self._stub

    def move(self, peer: Peer) -> None:
        """Make new calls to `peer`. Calls under way go on where they are, for a while."""
        self.peer = peer
        self._moved.set()
        self._moved = asyncio.Event()
        if (channel := self._channel) is not None:
            self._channel = None
            leaving = self._leaving[channel] = asyncio.create_task(_close_later(channel))
            leaving.add_done_callback(lambda _: self._leaving.pop(channel, None))

    async def ready(self) -> None:
        """Wait until the guest answers, also if it moves in the meantime."""
        while True:
            moved = asyncio.create_task(self._moved.wait())
            ready = asyncio.create_task(self._opened().channel_ready())
            try:
                await asyncio.wait({ready, moved}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ready.cancel()
                moved.cancel()
            if not moved.done():
                return ready.result()

    async def close(self) -> None:
        """End it, and every call that is under way."""
        left = dict(self._leaving)
        for leaving in left.values():
            leaving.cancel()
        for channel in (*left, *filter(None, [self._channel])):
            await channel.close()

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = open_channel(self.peer)
            self._stub = self._make(self._channel)
        return self._channel


async def _close_later(channel: grpc.aio.Channel) -> None:
    """Not with gRPC's own grace: then nothing could close the channel before that."""
    await asyncio.sleep(GRACE_S)
    await channel.close()
