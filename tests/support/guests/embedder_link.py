"""An embedder's service in this process, behind a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wire.identity import Party
from wire.v1 import embedder_pb2_grpc

from guest.embedding.client import RemoteEmbedder
from guest.embedding.service import EmbedderService
from tests.support import parties


@asynccontextmanager
async def serving(
    endpoint: str, servicer: embedder_pb2_grpc.EmbedderServicer
) -> AsyncIterator[None]:
    server = parties.server(endpoint, "token", Party.EMBEDDER)
    embedder_pb2_grpc.add_EmbedderServicer_to_server(servicer, server.grpc)
    await server.start()
    loading = (
        asyncio.create_task(servicer.prepare()) if isinstance(servicer, EmbedderService) else None
    )
    try:
        yield
    finally:
        if loading is not None:
            loading.cancel()
        await server.stop(0)


async def until(embedder: RemoteEmbedder, state: str) -> None:
    async with asyncio.timeout(60):
        while await embedder.state() != state:
            await asyncio.sleep(0.005)
