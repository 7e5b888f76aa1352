"""The guest's client of the embedder; no model is loaded in this process."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final, TypeVar

import grpc
import numpy as np
from wire import status, transport
from wire.errors import Code
from wire.identity import Peer
from wire.limits import ERROR_METADATA_KEY
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.connection import Connection
from guest.embedding.backends import Embedded, Scores, Vectors
from guest.errors import EmbedderError

STATE_TIMEOUT_S: Final = 1.0
_ROW_TYPE = np.dtype("<f4")
_Reply = TypeVar("_Reply")


class RemoteEmbedder:
    """An `Embedder` over the host's embedder process.

    Connects with the first call, and reconnects if the process is restarted at the same socket.
    """

    def __init__(self, server: Peer) -> None:
        self._connection = Connection(server, embedder_pb2_grpc.EmbedderStub)
        self._closed = False

    @property
    def peer(self) -> Peer:
        return self._connection.peer

    def move(self, peer: Peer) -> None:
        self._connection.move(peer)

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        try:
            request = embedder_pb2.EmbedRequest(texts=texts)
        except (ValueError, TypeError) as error:
            raise EmbedderError(
                Code.INVALID_ARGUMENT, "texts: not valid Unicode", details=str(error)
            ) from None
        reply = await self._answer(self._stub().Embed(request, timeout=timeout))
        return Embedded(reply.model_id, _vectors(reply, len(texts)), reply.reranker)

    async def rerank(self, query: str, texts: Sequence[str], *, timeout: float) -> Scores:
        request = embedder_pb2.RerankRequest(query=query, texts=texts)
        reply = await self._answer(self._stub().Rerank(request, timeout=timeout))
        return np.array(reply.scores, np.float32)

    async def state(self) -> str:
        request = embedder_pb2.EmbedderInfoRequest()
        try:
            reply = await self._answer(self._stub().Info(request, timeout=STATE_TIMEOUT_S))
        except EmbedderError as error:
            return error.brief
        if reply.state == "failed":
            return f"the embedder has no model: {reply.reason}"
        return reply.state

    async def close(self) -> None:
        self._closed = True
        await self._connection.close()

    def _stub(self) -> "embedder_pb2_grpc.EmbedderAsyncStub":
        if self._closed:
            raise _connection_closed()
        stub: embedder_pb2_grpc.EmbedderAsyncStub = self._connection.stub
        return stub

    async def _answer(self, call: Awaitable[_Reply]) -> _Reply:
        try:
            return await call
        except grpc.RpcError as error:
            raise _embedder_error(error) from None
        except asyncio.CancelledError:
            # gRPC cancels calls in flight when their channel closes; the caller did not.
            if transport.was_cancelled():
                raise
            raise _connection_closed() from None


def _connection_closed() -> EmbedderError:
    return EmbedderError(Code.UNAVAILABLE, "the connection to the embedder is closed")


def _embedder_error(error: grpc.RpcError) -> EmbedderError:
    """The embedder's own error; an error of the transport is put into a sentence."""
    told = status.from_rpc_error(error)
    metadata: Any = error.trailing_metadata() if isinstance(error, grpc.aio.AioRpcError) else ()
    if any(key == ERROR_METADATA_KEY for key, _ in metadata or ()):
        return EmbedderError.of(told.fields())
    brief = (
        "the embedder did not answer in time"
        if told.code is Code.TIMEOUT
        else EmbedderError.UNREACHABLE
    )
    return EmbedderError(told.code, brief, details=told.brief, resolution="runner status")


def _vectors(reply: embedder_pb2.EmbedReply, count: int) -> Vectors:
    """The rows of a reply; rejects a reply of the wrong shape."""
    expected = count * reply.dimensions * _ROW_TYPE.itemsize
    if not reply.model_id or len(reply.vectors) != expected:
        raise EmbedderError(
            Code.INTERNAL,
            "the embedder gave a malformed answer",
            details=f"{len(reply.vectors)} bytes for {count} texts in {reply.dimensions} "
            f"dimensions of model {reply.model_id!r}; {expected} were expected",
            resolution="runner restart",
        )
    rows = np.frombuffer(reply.vectors, _ROW_TYPE).reshape(count, reply.dimensions)
    return rows.astype(np.float32)
