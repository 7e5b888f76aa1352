"""What a runner that waits does with connections to its HTTP server: it leads them, unread, to the
runner that is active. So both replicas are ready, and a Service may lead to either."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from wire.errors import WireError

from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.leadership import holder

log = logging.getLogger(__name__)

OPEN_MAX: Final = 256
"""Connections at a time; each further one is closed at once."""
_CONNECT_S: Final = 5.0
_KNOWN_S: Final = 5.0
_BLOCK: Final = 64 * 1024


@contextlib.asynccontextmanager
async def forwarding(
    host: str, port: int, target: Callable[[], Awaitable[str]]
) -> AsyncIterator[None]:
    """Lead connections to `host` and `port` to the same port of the address that `target` gives,
    which is empty while there is none: then they are closed."""
    forwarder = _Forwarder(port, target)
    server = await asyncio.start_server(forwarder.serve, host or None, port)
    try:
        yield
    finally:
        server.close()
        await forwarder.close()
        await server.wait_closed()


class Active:
    """The address of the runner that is active, as it was a moment ago."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asking = asyncio.Lock()
        self._address = ""
        self._asked_at = -_KNOWN_S

    async def address(self) -> str:
        """Empty if none is active, or if the API server does not say."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now - self._asked_at >= _KNOWN_S:
                self._address, self._asked_at = await self._ask(), now
        return self._address

    async def _ask(self) -> str:
        try:
            if not (name := await holder(self._cluster)):
                return ""
            pod = await self._cluster.ask(
                f"read the pod {name}",
                self._cluster.core.read_namespaced_pod,
                name,
                self._cluster.namespace,
            )
        except WireError as error:
            log.warning("nobody says where the active runner is: %s", error)
            return ""
        return str((pod.get("status") or {}).get("podIP") or "")


class _Forwarder:
    def __init__(self, port: int, target: Callable[[], Awaitable[str]]) -> None:
        self._port = port
        self._target = target
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        async with contextlib.aclosing(_Closing(writer)):
            if len(self._open) >= OPEN_MAX:
                return
            self._open.add(task)
            try:
                with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                    await self._lead(reader, writer)
            finally:
                self._open.discard(task)

    async def close(self) -> None:
        """End all connections."""
        tasks = [*self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not (address := await self._target()):
            return
        async with asyncio.timeout(_CONNECT_S):
            there = await asyncio.open_connection(address, self._port)
        async with contextlib.aclosing(_Closing(there[1])), asyncio.TaskGroup() as both:
            both.create_task(_pass_on(reader, there[1]))
            both.create_task(_pass_on(there[0], writer))


class _Closing:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def aclose(self) -> None:
        self._writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, which the other side is told."""
    with contextlib.suppress(ConnectionError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
