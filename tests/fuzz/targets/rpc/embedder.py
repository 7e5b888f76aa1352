"""The embedder's server, with the backend that needs no model."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from wire.identity import Party
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.embedding.hashing import HashingBackend
from guest.embedding.service import EmbedderService
from tests.fuzz.material import Target
from tests.fuzz.targets.rpc import calls
from tests.fuzz.targets.rpc.calls import Caller, Served

_SERVICE: Final = embedder_pb2.DESCRIPTOR.services_by_name["Embedder"]


async def _serve(scratch: Path, stack: AsyncExitStack) -> Caller:
    served = Served(
        path=f"{scratch}/embedder.sock",
        party=Party.EMBEDDER,
        service=_SERVICE,
        callers=(Party.AGENT, Party.RUNNER),
    )
    embedder = EmbedderService(HashingBackend)
    await embedder.prepare()
    return await calls.serve(
        served, embedder, embedder_pb2_grpc.add_EmbedderServicer_to_server, stack
    )


TARGET = Target(
    "embedder", 40, partial(calls.opened, _serve), partial(calls.seeds, _SERVICE), longest=1024
)
