"""Connections of the HTTP server: as uvicorn has them, with bounds on how many and how slow."""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 1_000
HEAD_MAX_BYTES: Final = 16 * 1024
HEAD_S: Final = 10.0
"""How long the head of a request may take, from the connection or from its first byte."""
STALL_S: Final = 60.0
"""How long a client may read nothing of what waits for it."""


class Connection(H11Protocol):
    """One connection. It is cut off if there are too many, if a request's head does not arrive in
    time, or if nothing of an answer is read."""

    _head: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._head = self.loop.call_later(HEAD_S, self._cut)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._head = self._head or self.loop.call_later(HEAD_S, self._cut)
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_S, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _cut(self) -> None:
        self.transport.abort()
