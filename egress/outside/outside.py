"""The outside as one configuration reaches it: its clients, for as long as they are used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from wire.identity import Party

from egress.outside.dialing import Dialer, checked_addresses


class Outside:
    """The clients for HTTP of one configuration, made when they are first used.

    The agent's connections are kept for later requests, and so are those to upstreams, which
    nobody else uses; a command's are not. When another configuration counts, they are closed as
    soon as nobody uses them.
    """

    def __init__(self, dialer: Dialer) -> None:
        self.dialer = dialer
        self._clients: dict[tuple[str, bool], aiohttp.ClientSession] = {}
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def client(
        self, role: str, addresses: tuple[str, ...], *, upstream: bool
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """The client for a request of `role` to a host at `addresses`. An `upstream` was named by
        the operator, so its addresses are not checked."""
        checked_addresses.set(addresses)
        key = (role, upstream)
        if key not in self._clients:
            self._clients[key] = self.dialer.client(
                checked=not upstream, pooled=role == Party.AGENT
            )
        self._users += 1
        try:
            yield self._clients[key]
        finally:
            self._users -= 1
            self._close_if_done()

    def retire(self) -> None:
        """Close everything when the last one who uses it is done."""
        self._retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._retired and not self._users and self._closing is None:
            self._closing = asyncio.create_task(self.close())

    async def close(self) -> None:
        """Close everything now. Idempotent."""
        for client in self._clients.values():
            await client.close()
