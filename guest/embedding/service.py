"""The embedder's service: batches requests, and answers while the model is not loaded."""

import asyncio
import logging
import mmap
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from wire.errors import Code, WireError
from wire.limits import EMBED_BATCH_MAX_TEXTS, EMBED_TEXT_MAX_CHARS
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.embedding.backends import Backend, Reranker, Vectors
from guest.errors import EmbedderError

log = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_BATCH_TEXTS: Final = 32
MAX_BATCH_CHARS: Final = 5_120
"""Measured with MiniLM on two cores: short texts gain from batches up to 32,
passages of 640 characters gain nothing beyond 8. Larger batches only cost
memory and let a short query wait behind them."""
MAX_WAITING_TEXTS: Final = 8_192
QUANTUM: Final = 8
"""Texts of one request before it is the next request's turn."""
IDLE_S: Final = 5.0


@dataclass(eq=False)
class _Request:
    texts: Sequence[str]
    done: asyncio.Future[Vectors]
    taken: int = 0
    parts: list[Vectors] = field(default_factory=list)


_Slice = tuple[_Request, list[str]]


@dataclass(repr=False, eq=False)
class Batcher:
    """Merges concurrent requests into bounded batches for one compute thread.

    Fair: requests take turns of `QUANTUM` texts, and batches alternate between new requests and
    those already begun. A query therefore waits for one bounded batch, and is never padded to the
    length of another request's 256 passages. `compute` is an executor of one thread; `on_idle` runs
    there once after `idle_s` seconds without work.
    """

    encode: Callable[[Sequence[str]], Vectors]
    compute: Executor
    on_idle: Callable[[], None] = lambda: None
    idle_s: float = IDLE_S
    max_waiting: int = MAX_WAITING_TEXTS

    def __post_init__(self) -> None:
        self._fresh: deque[_Request] = deque()
        self._begun: deque[_Request] = deque()
        self._fresh_next = True
        self._waiting_texts = 0
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._batch_began: float | None = None

    @property
    def busy_s(self) -> float:
        """Seconds since the current batch began; 0 between batches."""
        return 0.0 if self._batch_began is None else time.monotonic() - self._batch_began

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector per text, in order; at least one text.

        Raises `WireError`: RESOURCE_EXHAUSTED if too many texts are waiting, INTERNAL if the model
        failed on these texts. Cancelling the caller removes its waiting texts from the queue.
        """
        if self._waiting_texts + len(texts) > self.max_waiting:
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "the embedder is overloaded",
                details=f"{self._waiting_texts} texts are waiting; at most {self.max_waiting} may",
            )
        request = _Request(texts, asyncio.get_running_loop().create_future())
        self._fresh.append(request)
        self._waiting_texts += len(texts)
        self._arrived.set()
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await request.done

    async def _work(self) -> None:
        try:
            while True:
                while batch := self._next_batch():
                    await self._run(batch)
                self._arrived.clear()
                try:
                    async with asyncio.timeout(self.idle_s):
                        await self._arrived.wait()
                except TimeoutError:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self.compute, self.on_idle)
                    if not self._waiting_texts:
                        return
        finally:
            self._worker = None

    def _next_batch(self) -> list[_Slice]:
        """Slices of the waiting requests, in turns, until a bound is reached."""
        for queue in (self._fresh, self._begun):
            self._drop_cancelled(queue)
        turn = self._fresh if (self._fresh_next and self._fresh) or not self._begun else self._begun
        self._fresh_next = turn is self._begun
        batch: list[_Slice] = []
        room, chars_left = MAX_BATCH_TEXTS, MAX_BATCH_CHARS
        while turn and room > 0:
            request = turn[0]
            texts: list[str] = []
            for text in request.texts[request.taken : request.taken + min(QUANTUM, room)]:
                if (batch or texts) and len(text) > chars_left:
                    room = 0
                    break
                texts.append(text)
                chars_left -= len(text)
            if not texts:
                break
            turn.popleft()
            batch.append((request, texts))
            request.taken += len(texts)
            room -= len(texts)
            self._waiting_texts -= len(texts)
            if request.taken < len(request.texts):
                self._begun.append(request)
        return batch

    def _drop_cancelled(self, queue: deque[_Request]) -> None:
        for request in [request for request in queue if request.done.done()]:
            queue.remove(request)
            self._waiting_texts -= len(request.texts) - request.taken

    async def _run(self, batch: list[_Slice]) -> None:
        """Compute `batch`; if the model fails, find out which request it cannot embed."""
        try:
            vectors = await self._call([text for _, texts in batch for text in texts])
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][0], error)
            else:
                for part in batch:
                    await self._run([part])
            return
        start = 0
        for request, texts in batch:
            _deliver(request, vectors[start : start + len(texts)])
            start += len(texts)

    async def _call(self, texts: list[str]) -> Vectors:
        self._batch_began = time.monotonic()
        try:
            vectors = await asyncio.get_running_loop().run_in_executor(
                self.compute, self.encode, texts
            )
        finally:
            self._batch_began = None
        if len(vectors) != len(texts):
            raise ValueError(f"{len(vectors)} vectors for {len(texts)} texts")
        return vectors


def _deliver(request: _Request, vectors: Vectors) -> None:
    request.parts.append(vectors)
    complete = sum(map(len, request.parts)) == len(request.texts)
    if complete and not request.done.done():
        request.done.set_result(np.concatenate(request.parts))


def _fail(request: _Request, error: Exception) -> None:
    failure = _model_failed("the embedding model failed on these texts", error)
    if not request.done.done():
        request.done.set_exception(failure)


def _model_failed(brief: str, error: Exception) -> WireError:
    """Logs where it failed. The message of `error` may hold a user's text; its frames cannot."""
    name = type(error).__name__
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s: %s", brief, name, extra={"error": frames})
    return WireError(Code.INTERNAL, brief, details=f"{name}; the embedder's log has the traceback")


RETRY_S: Final = 60.0
"""The model may be installed, or the network return, while the process runs."""
STALLED_S: Final = 120.0
"""No bounded batch takes this long: the compute thread hangs."""


@dataclass(repr=False, eq=False)
class EmbedderService(embedder_pb2_grpc.EmbedderServicer):
    """Serves one backend, and a reranker if there is one to load; `prepare` loads them in the
    thread that computes."""

    load: Callable[[], Backend]
    load_reranker: Callable[[], Reranker] | None = None
    on_idle: Callable[[], None] = lambda: None
    retry_s: float = RETRY_S
    stalled_s: float = STALLED_S

    def __post_init__(self) -> None:
        self._compute = ThreadPoolExecutor(1, "compute")
        self._ready: tuple[Backend, Batcher] | None = None
        self._failure: WireError | None = None
        self._reranker: Reranker | None = None
        self._reranker_state = "" if self.load_reranker is None else "loading"

    async def prepare(self) -> None:
        """Load the model, then the reranker; retry each every `retry_s` seconds until it
        succeeds."""
        fix = 'set embedder.backend = "hashing", which needs no model'
        backend = await self._loaded(self.load, self._note_failure, "embedding model", fix)
        batcher = Batcher(backend.encode, self._compute, on_idle=self.on_idle)
        self._ready = (backend, batcher)
        log.info("ready: %s", backend.model_id)
        if self.load_reranker is not None:
            fix = 'set embedder.reranker = "", which needs none'
            self._reranker = await self._loaded(
                self.load_reranker, self._note_no_reranker, "reranker", fix
            )
            self._reranker_state = "ready"
            log.info("the reranker is ready")

    async def _loaded(
        self, load: Callable[[], _T], note: Callable[[WireError], None], what: str, fix: str
    ) -> _T:
        said = ""
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._compute, load)
            except Exception as error:
                failure = _failure(error, f"the {what} cannot be loaded", fix)
                if one_line(failure) != said:
                    said = one_line(failure)
                    log.error("%s", said)
                note(failure)
                await asyncio.sleep(self.retry_s)

    def _note_failure(self, failure: WireError) -> None:
        self._failure = failure

    def _note_no_reranker(self, failure: WireError) -> None:
        self._reranker_state = one_line(failure)

    async def Info(  # noqa: N802
        self,
        request: embedder_pb2.EmbedderInfoRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> embedder_pb2.EmbedderInfoReply:
        reply = embedder_pb2.EmbedderInfoReply(
            state="loading", resident_bytes=resident_bytes(), reranker=self._reranker_state
        )
        if self._ready is not None:
            backend, batcher = self._ready
            if batcher.busy_s > self.stalled_s:
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
            raise self._failure or EmbedderError(Code.UNAVAILABLE, EmbedderError.LOADING)
        backend, batcher = self._ready
        reply = embedder_pb2.EmbedReply(
            model_id=backend.model_id,
            dimensions=backend.dimensions,
            reranker=self._reranker_state,
        )
        if texts:
            reply.vectors = (await batcher.embed(texts)).astype("<f4").tobytes()
        return reply

    async def Rerank(  # noqa: N802
        self,
        request: embedder_pb2.RerankRequest,
        context: Any,  # noqa: ARG002
    ) -> embedder_pb2.RerankReply:
        texts = list(request.texts)
        _check_text("query", request.query)
        _check(texts)
        if self._reranker is None:
            raise EmbedderError(
                Code.FAILED_PRECONDITION, self._reranker_state or "no reranker is configured"
            )
        if not texts:
            return embedder_pb2.RerankReply()
        try:
            scores = await asyncio.get_running_loop().run_in_executor(
                self._compute, self._reranker.score, request.query, texts
            )
        except Exception as error:
            raise _model_failed("the reranker failed on these texts", error) from None
        return embedder_pb2.RerankReply(scores=scores.tolist())


def _failure(error: Exception, brief: str, resolution: str) -> WireError:
    if isinstance(error, WireError):
        return error
    log.error("loading failed", exc_info=error)
    return WireError(
        Code.FAILED_PRECONDITION,
        brief,
        details=f"{type(error).__name__}: {error}"[:300],
        resolution=resolution,
    )


def _check(texts: Any) -> None:
    if len(texts) > EMBED_BATCH_MAX_TEXTS:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"texts: {len(texts)} given; at most {EMBED_BATCH_MAX_TEXTS} are accepted",
        )
    for index, text in enumerate(texts):
        _check_text(f"texts[{index}]", text)


def _check_text(field: str, text: str) -> None:
    if len(text) > EMBED_TEXT_MAX_CHARS:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"{field}: {len(text)} characters; at most {EMBED_TEXT_MAX_CHARS} are accepted",
        )


def one_line(error: WireError) -> str:
    """`error` as one sentence for a status line: what, why and the fix."""
    why = f" ({error.details})" if error.details else ""
    fix = f"; fix: {error.resolution}" if error.resolution else ""
    return f"{error.brief}{why}{fix}"


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * mmap.PAGESIZE
