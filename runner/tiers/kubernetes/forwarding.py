"""What a runner that waits does with connections to its HTTP server: it leads them, unread, to the
runner that is active. So both replicas are ready, and a Service may lead to either."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from wire.errors import Code, WireError

from runner.errors import HostError
from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.leadership import holder
from runner.tiers.kubernetes.watching import address_of

log = logging.getLogger(__name__)

OPEN_MAX: Final = 256
"""Connections at a time; each further one is closed at once."""
LINGER_S: Final = 5.0
"""How long a client may take to close once it has the whole answer."""
_CONNECT_S: Final = 5.0
KNOWN_S: Final = 5.0
FAILED_S: Final = 1.0
_ASK_S: Final = 3.0
_BLOCK: Final = 64 * 1024

Target = Callable[[str], Awaitable[str]]
"""Where connections are led, empty for nowhere. Told the address that has just failed, or ""."""


@contextlib.asynccontextmanager
async def forwarding(host: str, port: int, target: Target) -> AsyncIterator[None]:
    """Lead connections to `host` and `port` to the same port of the address that `target` gives;
    where nobody answers they are closed.

    At the end all are cut off, and the port is free. Raises `HostError` if it is not at first.
    """
    forwarder = _Forwarder(port, target)
    try:
        server = await asyncio.start_server(forwarder.serve, host or None, port)
    except OSError as error:
        raise HostError(
            Code.UNAVAILABLE,
            f"cannot listen on {host}:{port}",
            details=str(error),
            resolution="name another address in runner.toml ([serve] listen), or end the program "
            "that is there",
        ) from None
    try:
        yield
    finally:
        server.close()
        await forwarder.close()


class Active:
    """The address of the runner that is active, as it was a moment ago. `identity` is this one."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self._cluster = cluster
        self._identity = identity
        self._asking = asyncio.Lock()
        self._address = ""
        self._asked_at = -KNOWN_S

    async def address(self, failed: str = "") -> str:
        """Empty if no other one is active. While the API server does not say, it is the one that
        was known last. It is asked sooner if the known one is that which has `failed`."""
        async with self._asking:
            age = asyncio.get_running_loop().time() - self._asked_at
            if age >= (FAILED_S if failed and failed == self._address else KNOWN_S):
                await self._ask()
                self._asked_at = asyncio.get_running_loop().time()
        return self._address

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(_ASK_S):
                self._address = await self._found()
        except (WireError, TimeoutError) as error:
            log.warning("nobody says where the active runner is: %s", error or "no answer")

    async def _found(self) -> str:
        name = await holder(self._cluster)
        if name in ("", self._identity):
            return ""
        pod = await self._cluster.find(
            f"read the pod {name}",
            self._cluster.core.read_namespaced_pod,
            name,
            self._cluster.namespace,
        )
        return address_of(pod or {})


class _Forwarder:
    def __init__(self, port: int, target: Target) -> None:
        self._port = port
        self._target = target
        self._open: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closed or len(self._open) >= OPEN_MAX:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            with contextlib.suppress(OSError):
                await self._lead(reader, writer)
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()  # what a client does not read would be waited for
        finally:
            self._open.discard(task)

    async def close(self) -> None:
        """Cut off all connections, also those that were accepted and not begun."""
        self._closed = True
        tasks = [*self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, there = await self._connect()
        asking = asyncio.create_task(_ask(reader, there))
        try:
            await _pass_on(answers, writer)
            await asyncio.wait({asking}, timeout=LINGER_S)
        finally:
            asking.cancel()
            there.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the active runner, which may have another address than a moment ago.
        Raises `OSError`."""
        address = await self._target("")
        try:
            return await self._connect_to(address)
        except OSError:
            again = await self._target(address)
            if again == address:
                raise
            return await self._connect_to(again)

    async def _connect_to(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not address:
            raise ConnectionRefusedError("no runner is active")
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(address, self._port)


async def _ask(reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
    """Pass on what a client says. If it goes without a word, so does its connection to `there`."""
    try:
        await _pass_on(reader, there)
    except OSError:
        there.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, which the other side is told. Raises `OSError`."""
    while block := await reader.read(_BLOCK):
        writer.write(block)
        await writer.drain()
    writer.write_eof()
