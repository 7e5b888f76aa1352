"""The default embedding model, loaded into this process."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from guest.embedding.backends import (
    DEFAULT_MODEL,
    Embedded,
    SentenceBackend,
    load_sentence_transformer,
)


class InProcess:
    """An `Embedder` without a process of its own."""

    def __init__(self, backend: SentenceBackend, thread: ThreadPoolExecutor) -> None:
        self._backend = backend
        self._thread = thread

    @classmethod
    async def load(cls) -> "InProcess":
        """Takes some seconds. Raises `EmbedderError` if the model is missing."""
        thread = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        backend = await loop.run_in_executor(thread, load_sentence_transformer, DEFAULT_MODEL)
        return cls(backend, thread)

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:  # noqa: ARG002
        loop = asyncio.get_running_loop()
        vectors = await loop.run_in_executor(self._thread, self._backend.encode, list(texts))
        return Embedded(self._backend.model_id, vectors)

    async def state(self) -> str:
        return "ready"

    async def close(self) -> None:
        self._thread.shutdown()
