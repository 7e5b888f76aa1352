"""What stands beside a guest and fails: the network to its server, and its embedder."""

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from wire.identity import Party
from wire.transport import unix_endpoint
from wire.v1 import embedder_pb2_grpc

from guest.embedding import loading
from guest.embedding.service import EmbedderService
from tests.faults.children import fork, join
from tests.support import parties
from tests.support.servers.bad_network import BadNetwork, Fault

TOKEN: Final = "token"


class Network:
    """A `BadNetwork` on a thread of its own."""

    def __init__(self, port: int) -> None:
        self._network = BadNetwork(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._network.start()).result()
        self.url = self._network.url

    def strike(self, fault: Fault | None, times: int | None = None) -> None:
        """Let a fault strike so many requests from now on, or all; None: no fault."""
        self._loop.call_soon_threadsafe(self._network.strike, fault, times)

    def stop(self) -> None:
        self._run(self._network.stop()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[None, None, None]) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class EmbedderProcess:
    """The embedder's service in a process that can be killed and started again."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.endpoint = unix_endpoint(socket)
        self._process: BaseProcess | None = None

    def start(self) -> None:
        self._process = fork(_serve, str(self._socket))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            join(self._process, -signal.SIGKILL)
            self._process = None


def _serve(socket: str) -> None:
    async def serve() -> None:
        service = EmbedderService(lambda: loading.load("hashing", ""))
        Path(socket).unlink(missing_ok=True)
        server = parties.server(unix_endpoint(Path(socket)), TOKEN, Party.EMBEDDER)
        embedder_pb2_grpc.add_EmbedderServicer_to_server(service, server.grpc)
        await server.start()
        await server.set_serving(True)
        await service.prepare()
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def embedder(directory: Path) -> Iterator[EmbedderProcess]:
    """An embedder, gone at the end."""
    process = EmbedderProcess(directory / "embedder.sock")
    process.start()
    try:
        yield process
    finally:
        process.kill()
