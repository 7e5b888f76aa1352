"""Service and client together over a real socket: every state, every refusal."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wire import transport
from wire.errors import Code
from wire.limits import EMBED_BATCH_MAX_TEXTS, EMBED_TEXT_MAX_CHARS
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.embedding.backends import Backend
from guest.embedding.client import RemoteEmbedder
from guest.embedding.hashing import MODEL_ID, HashingBackend
from guest.embedding.service import EmbedderService
from guest.errors import EmbedderError
from tests.support import parties
from tests.support.guests.embedder_link import serving, until


class Held(HashingBackend):
    """Computes when `go` is set."""

    def __init__(self, go: threading.Event) -> None:
        super().__init__()
        self._go = go

    def encode(self, texts: Any) -> Any:
        self._go.wait(60)
        return super().encode(texts)


@pytest.fixture
def endpoint() -> Iterator[str]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxl-"))
    yield f"unix:{path}/e.sock"
    shutil.rmtree(path)


@asynccontextmanager
async def linked(
    endpoint: str, load: Callable[[], Backend] = HashingBackend, **options: Any
) -> AsyncIterator[RemoteEmbedder]:
    embedder = RemoteEmbedder(parties.embedder(endpoint, "token"))
    async with serving(endpoint, EmbedderService(load, **options)):
        yield embedder
    await embedder.close()


async def refused(embedder: RemoteEmbedder, texts: list[str], timeout: float = 60) -> EmbedderError:
    with pytest.raises(EmbedderError) as raised:
        await embedder.embed(texts, timeout=timeout)
    return raised.value


async def test_vectors_cross_the_socket_unchanged(endpoint: str) -> None:
    texts = ["one", "", "ünïcode 苹果 \U0001f355 \0", "x" * EMBED_TEXT_MAX_CHARS]
    async with linked(endpoint) as embedder:
        await until(embedder, "ready")
        embedded = await embedder.embed(texts, timeout=60)
        assert embedded.model_id == MODEL_ID
        assert embedded.vectors.flags.writeable
        np.testing.assert_array_equal(embedded.vectors, HashingBackend().encode(texts))
        nothing = await embedder.embed([], timeout=60)
        assert (nothing.model_id, nothing.vectors.shape) == (MODEL_ID, (0, 384))


async def test_the_largest_request_and_its_reply_fit(endpoint: str) -> None:
    class Flat(HashingBackend):
        def encode(self, texts: Any) -> Any:
            return np.full((len(texts), 384), 384**-0.5, np.float32)

    async with linked(endpoint, Flat) as embedder:
        await until(embedder, "ready")
        texts = ["苹" * EMBED_TEXT_MAX_CHARS] * EMBED_BATCH_MAX_TEXTS
        embedded = await embedder.embed(texts, timeout=60)
        assert embedded.vectors.shape == (EMBED_BATCH_MAX_TEXTS, 384)


async def test_while_loading_it_says_so_and_is_unavailable(endpoint: str) -> None:
    go = threading.Event()

    def load() -> Backend:
        assert go.wait(60)
        return HashingBackend()

    async with linked(endpoint, load) as embedder:
        assert await embedder.state() == "loading"
        error = await refused(embedder, ["x"])
        assert error.code is Code.UNAVAILABLE
        assert error.brief == "the embedding model is still loading"
        go.set()
        await until(embedder, "ready")


async def test_a_failed_model_is_a_precondition_with_its_fix_until_it_is_there(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []
    installed = threading.Event()

    def load() -> Backend:
        attempts.append(1)
        if not installed.is_set():
            raise EmbedderError(
                Code.FAILED_PRECONDITION, "no model", details="why", resolution="install it"
            )
        return HashingBackend()

    async with linked(endpoint, load, retry_s=0.01) as embedder:
        await until(embedder, "the embedder has no model: no model (why); fix: install it")
        error = await refused(embedder, ["x"])
        assert (error.code, error.brief, error.resolution) == (
            Code.FAILED_PRECONDITION,
            "no model",
            "install it",
        )
        while len(attempts) < 3:
            await asyncio.sleep(0.005)
        told = [r.getMessage() for r in caplog.records if "no model" in r.getMessage()]
        assert told == ["no model (why); fix: install it"]
        installed.set()
        await until(embedder, "ready")


async def test_an_unexpected_failure_of_loading_is_told_too(endpoint: str) -> None:
    def load() -> Backend:
        raise MemoryError("out of memory")

    async with linked(endpoint, load) as embedder:
        async with asyncio.timeout(60):
            while "MemoryError" not in await embedder.state():
                await asyncio.sleep(0.005)
        assert (await refused(embedder, ["x"])).code is Code.FAILED_PRECONDITION


async def test_too_much_is_refused_naming_field_and_bound(endpoint: str) -> None:
    async with linked(endpoint) as embedder:
        await until(embedder, "ready")
        many = await refused(embedder, ["x"] * (EMBED_BATCH_MAX_TEXTS + 1))
        assert (many.code, many.brief) == (
            Code.INVALID_ARGUMENT,
            "texts: 257 given; at most 256 are accepted",
        )
        long = await refused(embedder, ["x", "ü" * (EMBED_TEXT_MAX_CHARS + 1)])
        assert (long.code, long.brief) == (
            Code.INVALID_ARGUMENT,
            "texts[1]: 8001 characters; at most 8000 are accepted",
        )
        surrogate = await refused(embedder, ["\ud800"])
        assert (surrogate.code, surrogate.brief) == (
            Code.INVALID_ARGUMENT,
            "texts: not valid Unicode",
        )


async def test_a_wrong_token_is_refused(endpoint: str) -> None:
    async with linked(endpoint):
        stranger = RemoteEmbedder(parties.embedder(endpoint, "other"))
        assert (await refused(stranger, ["x"])).code is Code.UNAUTHENTICATED
        assert await stranger.state() == "missing or wrong launch token"
        await stranger.close()


async def test_an_absent_embedder_is_unavailable_at_once(endpoint: str) -> None:
    embedder = RemoteEmbedder(parties.embedder(endpoint, "token"))
    error = await refused(embedder, ["x"], timeout=60)
    assert (error.code, error.brief) == (Code.UNAVAILABLE, "the embedder cannot be reached")
    assert await embedder.state() == "the embedder cannot be reached"
    await embedder.close()


async def test_a_hanging_embedder_costs_no_more_than_the_timeout(endpoint: str) -> None:
    class Hanging(embedder_pb2_grpc.EmbedderServicer):
        async def Info(self, request: Any, context: Any) -> Any:
            await asyncio.sleep(600)

        async def Embed(self, request: Any, context: Any) -> Any:
            await asyncio.sleep(600)

        async def Rerank(self, request: Any, context: Any) -> Any:
            await asyncio.sleep(600)

    embedder = RemoteEmbedder(parties.embedder(endpoint, "token"))
    async with serving(endpoint, Hanging()):
        began = time.monotonic()
        error = await refused(embedder, ["x"], timeout=0.1)
        assert (error.code, error.brief) == (
            Code.TIMEOUT,
            "the embedder did not answer in time",
        )
        assert await embedder.state() == "the embedder did not answer in time"
        assert time.monotonic() - began < 30
    await embedder.close()


async def test_a_malformed_answer_is_refused(endpoint: str) -> None:
    class Lying(embedder_pb2_grpc.EmbedderServicer):
        async def Info(self, request: Any, context: Any) -> Any:
            raise NotImplementedError

        async def Embed(self, request: Any, context: Any) -> Any:
            return embedder_pb2.EmbedReply(model_id="m", dimensions=384, vectors=b"1234")

        async def Rerank(self, request: Any, context: Any) -> Any:
            return embedder_pb2.RerankReply(scores=[0.5, 0.5])

    embedder = RemoteEmbedder(parties.embedder(endpoint, "token"))
    async with serving(endpoint, Lying()):
        error = await refused(embedder, ["x"])
        assert (error.code, error.brief) == (
            Code.INTERNAL,
            "the embedder gave a malformed answer",
        )
    await embedder.close()


async def test_it_reconnects_when_the_embedder_comes_back(endpoint: str) -> None:
    embedder = RemoteEmbedder(parties.embedder(endpoint, "token"))
    for _ in range(2):
        async with serving(endpoint, EmbedderService(HashingBackend)):
            await until(embedder, "ready")
            await embedder.embed(["x"], timeout=60)
        assert (await refused(embedder, ["x"])).code is Code.UNAVAILABLE
    await embedder.close()


async def test_closing_fails_calls_in_flight_and_later_ones(endpoint: str) -> None:
    go = threading.Event()
    async with linked(endpoint, lambda: Held(go)) as embedder:
        await until(embedder, "ready")
        flying = asyncio.create_task(embedder.embed(["x"], timeout=60))
        await asyncio.sleep(0.05)
        await embedder.close()
        with pytest.raises(EmbedderError, match="connection to the embedder is closed"):
            await flying
        assert (await refused(embedder, ["x"])).code is Code.UNAVAILABLE
        assert await embedder.state() == "the connection to the embedder is closed"
        await embedder.close()
        go.set()


async def test_a_cancelled_caller_stays_cancelled(endpoint: str) -> None:
    go = threading.Event()
    async with linked(endpoint, lambda: Held(go)) as embedder:
        await until(embedder, "ready")
        flying = asyncio.create_task(embedder.embed(["x"], timeout=60))
        await asyncio.sleep(0.02)
        flying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flying
        go.set()


async def test_a_compute_thread_that_hangs_is_told(endpoint: str) -> None:
    go = threading.Event()
    async with linked(endpoint, lambda: Held(go), stalled_s=0.01) as embedder:
        await until(embedder, "ready")
        flying = asyncio.create_task(embedder.embed(["x"], timeout=60))
        async with asyncio.timeout(60):
            while not (await embedder.state()).startswith("the embedder has been computing"):
                await asyncio.sleep(0.01)
        go.set()
        await flying
        await until(embedder, "ready")


async def test_info_tells_model_dimensions_and_memory(endpoint: str) -> None:
    async with linked(endpoint) as embedder:
        await until(embedder, "ready")
        async with transport.open_channel(parties.embedder(endpoint, "token")) as channel:
            info = await embedder_pb2_grpc.EmbedderStub(channel).Info(
                embedder_pb2.EmbedderInfoRequest()
            )
    assert (info.state, info.model_id, info.dimensions) == ("ready", MODEL_ID, 384)
    assert info.reason == ""
    assert info.resident_bytes > 1_000_000


def test_the_guests_side_never_imports_the_model_libraries() -> None:
    code = (
        "import sys, guest.embedding.client, guest.embedding.backends\n"
        "print([n for n in ('torch', 'onnxruntime', 'tokenizers') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
