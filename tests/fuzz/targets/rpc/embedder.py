"""The embedder's server, with the backend that needs no model."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from wire.identity import Party
from wire.transport import Server
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.embedding.backends import HashingBackend
from guest.embedding.service import EmbedderService
from tests.fuzz.material import OneInput, Target
from tests.fuzz.targets.rpc import calls
from tests.fuzz.targets.rpc.calls import Caller, Served, watched
from tests.support import parties

_SERVICE: Final = embedder_pb2.DESCRIPTOR.services_by_name["Embedder"]
_TOKEN: Final = "the-token-of-this-launch"


async def _serve(scratch: Path, stack: AsyncExitStack) -> Caller:
    served = Served(
        path=f"{scratch}/embedder.sock",
        party=Party.EMBEDDER,
        token=_TOKEN,
        service=_SERVICE,
        callers=(Party.AGENT, Party.RUNNER),
    )
    server = Server(
        f"unix:{served.path}", _TOKEN, parties.identity(Party.EMBEDDER), set(served.callers)
    )
    embedder = EmbedderService(HashingBackend)
    await embedder.prepare()
    service = watched(embedder, _SERVICE, served.reached)
    embedder_pb2_grpc.add_EmbedderServicer_to_server(service, server.grpc)
    await server.start()
    stack.push_async_callback(server.stop, 0)
    caller = Caller(served)
    stack.push_async_callback(caller.close)
    return caller


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        caller = runner.run(_serve(scratch, stack))
        yield lambda data: runner.run(caller.one_input(data))
        runner.run(stack.aclose())


TARGET = Target("embedder", 40, _opened, partial(calls.seeds, _SERVICE), longest=1024)
