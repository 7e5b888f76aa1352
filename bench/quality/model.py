"""An embedding model, loaded into this process."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from guest.embedding.backends import Backend, Embedded
from guest.embedding.loading import load
from guest.embedding.weights import DEFAULT_MODEL


class InProcess:
    """An `Embedder` without a process of its own."""

    def __init__(self, backend: Backend, thread: ThreadPoolExecutor) -> None:
        self._backend = backend
        self._thread = thread

    @classmethod
    async def load(cls, model: str = DEFAULT_MODEL) -> "InProcess":
        """Takes some seconds. Raises `EmbedderError` if the model is missing."""
        thread = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        backend = await loop.run_in_executor(thread, load, "sentence-transformers", model)
        return cls(backend, thread)

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:  # noqa: ARG002
        loop = asyncio.get_running_loop()
        vectors = await loop.run_in_executor(self._thread, self._backend.encode, list(texts))
        return Embedded(self._backend.model_id, vectors)

    async def state(self) -> str:
        return "ready"

    async def close(self) -> None:
        self._thread.shutdown()
