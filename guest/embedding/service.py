"""The embedder's service: what it answers while loading, ready, or without a model."""

import asyncio
import logging
import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from wire.errors import Code, WireError
from wire.limits import EMBED_BATCH_MAX_TEXTS, EMBED_TEXT_MAX_CHARS
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.embedding.backends import Backend
from guest.embedding.batching import Batcher

log = logging.getLogger(__name__)

RETRY_S: Final = 60.0
"""A model may be installed, or the network come back, while the process runs."""
STALLED_S: Final = 120.0
"""No bounded batch takes this long: the compute thread hangs."""


class EmbedderService(embedder_pb2_grpc.EmbedderServicer):
    """Serves one backend; `prepare` loads it in the thread that computes."""

    def __init__(
        self,
        load: Callable[[], Backend],
        *,
        on_idle: Callable[[], None] = lambda: None,
        retry_s: float = RETRY_S,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._load = load
        self._on_idle = on_idle
        self._retry_s = retry_s
        self._stalled_s = stalled_s
        self._compute = ThreadPoolExecutor(1, "compute")
        self._ready: tuple[Backend, Batcher] | None = None
        self._failure: WireError | None = None

    async def prepare(self) -> None:
        """Load the model, again every `retry_s` seconds until it is there."""
        while True:
            try:
                backend = await asyncio.get_running_loop().run_in_executor(
                    self._compute, self._load
                )
            except Exception as error:
                self._note_failure(error)
                await asyncio.sleep(self._retry_s)
            else:
                batcher = Batcher(backend.encode, self._compute, on_idle=self._on_idle)
                self._ready = (backend, batcher)
                log.info("ready: %s", backend.model_id)
                return

    def _note_failure(self, error: Exception) -> None:
        if not isinstance(error, WireError):
            log.error("loading failed", exc_info=error)
            error = WireError(
                Code.FAILED_PRECONDITION,
                "the embedding model cannot be loaded",
                details=f"{type(error).__name__}: {error}"[:300],
                resolution='set embedder.backend = "hashing", which needs no model',
            )
        elif self._failure is None or str(error) != str(self._failure):
            log.error("%s", one_line(error))
        self._failure = error

    async def Info(  # noqa: N802
        self,
        request: embedder_pb2.EmbedderInfoRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> embedder_pb2.EmbedderInfoReply:
        reply = embedder_pb2.EmbedderInfoReply(state="loading", resident_bytes=resident_bytes())
        if self._ready is not None:
            backend, batcher = self._ready
            if batcher.busy_s > self._stalled_s:
                raise WireError(
                    Code.UNAVAILABLE,
                    f"the embedder has been computing one batch for {batcher.busy_s:.0f} s",
                )
            reply.state = "ready"
            reply.model_id = backend.model_id
            reply.dimensions = backend.dimensions
        elif self._failure is not None:
            reply.state = "failed"
            reply.reason = one_line(self._failure)
        return reply

    async def Embed(  # noqa: N802
        self,
        request: embedder_pb2.EmbedRequest,
        context: Any,  # noqa: ARG002
    ) -> embedder_pb2.EmbedReply:
        texts = request.texts
        _check(texts)
        if self._ready is None:
            raise self._failure or WireError(
                Code.UNAVAILABLE, "the embedding model is still loading"
            )
        backend, batcher = self._ready
        reply = embedder_pb2.EmbedReply(model_id=backend.model_id, dimensions=backend.dimensions)
        if texts:
            reply.vectors = (await batcher.embed(texts)).astype("<f4").tobytes()
        return reply


def _check(texts: Any) -> None:
    if len(texts) > EMBED_BATCH_MAX_TEXTS:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"texts: {len(texts)} given; at most {EMBED_BATCH_MAX_TEXTS} are accepted",
        )
    for index, text in enumerate(texts):
        if len(text) > EMBED_TEXT_MAX_CHARS:
            raise WireError(
                Code.INVALID_ARGUMENT,
                f"texts[{index}]: {len(text)} characters; "
                f"at most {EMBED_TEXT_MAX_CHARS} are accepted",
            )


def one_line(error: WireError) -> str:
    """`error` as one sentence for a status line: what, why and the fix."""
    why = f" ({error.details})" if error.details else ""
    fix = f"; fix: {error.resolution}" if error.resolution else ""
    return f"{error.brief}{why}{fix}"


def resident_bytes() -> int:
    """What this process occupies in memory; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * mmap.PAGESIZE
