"""Tunnels: bytes that nobody reads here, between a client and the host that its TLS names."""

import asyncio
from collections.abc import Callable
from typing import Final

from wire.egress import hosts
from wire.egress.policy import Attempt

from egress.admission.admission import Admission, OutboundRequest
from egress.admission.record import Caller
from egress.proxy.client_hello import HelloReader
from egress.refusals import Refused

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
HELLO_S: Final = 15.0
"""How long a client has to begin with TLS."""
IDLE_S: Final = 300.0
"""How long a tunnel may be silent."""
_CHECK_S: Final = 30.0
_BUFFER: Final = 64 * 1024
_ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""TLS: fatal, access denied."""


class Tunnels:
    """Opens tunnels that `admission` lets out."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def run(self, client: asyncio.Transport, host: str, port: int, caller: Caller) -> None:
        """Carry bytes between `client`, which is not being read, and a host until one of them ends.

        Raises `Refused` as long as nothing was answered.
        """
        passage = await self._admission.admit(caller, Attempt("tunnel", host, port))
        tunnel = _Tunnel(self._admission, passage, client)
        try:
            async with passage.lasting():
                dialer = passage.configuration.outside.dialer
                await dialer.connect(host, port, passage.addresses, tunnel.far)
                tunnel.open()
                await tunnel.ended
        except Refused as refused:
            tunnel.outcome, tunnel.reason = "cut" if passage.forbidden else "failed", refused.why
            refused.recorded = True
            if tunnel.near.transport is None:  # nothing was answered
                raise
            tunnel.cut(refused.why)
        finally:
            tunnel.close()
            await self._admission.end(passage, tunnel.outcome, tunnel.reason)


class _Tunnel:
    """One tunnel. The client's first bytes wait until they are known to be TLS for the host."""

    def __init__(
        self, admission: Admission, passage: OutboundRequest, client: asyncio.Transport
    ) -> None:
        self._admission = admission
        self._passage = passage
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._hello = HelloReader()
        self._said: list[bytes] = []
        self._heard = self._loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self.near = _End(self._check)
        self.far = _End(self._to_client, silent=True)
        self.near.other, self.far.other = self.far, self.near
        self.near.on_lost = self.far.on_lost = self._lost
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.outcome, self.reason = "cut", "the client has left"

    def open(self) -> None:
        """Tell the client that it may begin."""
        self._client.set_protocol(self.near)
        self.near.connection_made(self._client)
        self._client.write(ESTABLISHED)
        self._client.resume_reading()
        self._deadline = self._loop.call_later(HELLO_S, self._late)

    def close(self) -> None:
        """End both sides. What was received is still delivered. Idempotent."""
        if self._deadline is not None:
            self._deadline.cancel()
        for end in (self.far, self.near):
            if end.transport is not None:
                end.transport.close()

    def cut(self, why: str, outcome: str = "cut") -> None:
        """End both sides at once."""
        if not self.ended.done():
            self.outcome, self.reason = outcome, why
            self.ended.set_result(None)
        if self.far.transport is not None:
            self.far.transport.abort()
        self._client.abort()

    def _check(self, data: bytes) -> None:
        """The client's first bytes."""
        self._said.append(data)
        try:
            hello = self._hello.feed(data)
            if hello is None:
                return
            self._check_name(hello.server_name)
        except ValueError as error:
            self._refuse(f"a tunnel carries TLS for its own host only: {error}")
            return
        assert self._deadline is not None
        self._deadline.cancel()
        self._deadline = self._loop.call_later(_CHECK_S, self._watch)
        self.near.take = self._to_server
        assert self.far.transport is not None
        self.far.transport.resume_reading()
        self._to_server(b"".join(self._said))
        self._said.clear()

    def _check_name(self, name: str) -> None:
        """Raises `ValueError`."""
        host = self._passage.attempt.host
        if not name and hosts.is_address(host):
            return
        if not name:
            raise ValueError("the client's hello does not name it")
        try:
            named = hosts.canonical(name)
        except ValueError as error:
            raise ValueError(f"the client's hello names {name[:80]!r}: {error}") from None
        if named != host:
            raise ValueError(f"the client's hello names {named}, CONNECT {host}")

    def _refuse(self, why: str) -> None:
        self._client.write(_ALERT)
        if not self.ended.done():
            self.outcome, self.reason = "refused", why
            self.ended.set_result(None)
        if self.far.transport is not None:
            self.far.transport.abort()

    def _to_server(self, data: bytes) -> None:
        assert self.far.transport is not None
        if self._passage.forbidden:
            return
        self.far.transport.write(data)
        self._heard = self._loop.time()
        if why := self._admission.passed(self._passage, sent=len(data)):
            self.cut(why, "limit")

    def _to_client(self, data: bytes) -> None:
        self._client.write(data)
        self._heard = self._loop.time()
        if why := self._admission.passed(self._passage, received=len(data)):
            self.cut(why, "limit")

    def _late(self) -> None:
        self._refuse("a tunnel carries TLS, and the client did not begin with it")

    def _watch(self) -> None:
        if self._loop.time() - self._heard > IDLE_S:
            self.cut(f"nothing passed for {IDLE_S:g} seconds")
        else:
            self._deadline = self._loop.call_later(_CHECK_S, self._watch)

    def _lost(self, end: "_End") -> None:
        if not self.ended.done():
            if self.near.take == self._to_server:
                self.outcome, self.reason = "done", ""
            elif end is self.far:
                self.outcome, self.reason = "failed", "the server has closed the connection"
            self.ended.set_result(None)


class _End(asyncio.Protocol):
    """One end of a tunnel. `take` gets what comes from it. It is not read while the other end does
    not take more, nor, if it is `silent`, before somebody resumes it."""

    other: "_End"
    on_lost: Callable[["_End"], None]

    def __init__(self, take: Callable[[bytes], None], *, silent: bool = False) -> None:
        self.take = take
        self._silent = silent
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_BUFFER)
        if self._silent:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.take(data)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.on_lost(self)
