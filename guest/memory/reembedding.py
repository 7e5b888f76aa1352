"""Making all vectors of a user anew, for a model whose name does not say that it changed."""

import logging
from typing import Final

from guest.memory import namespaces
from guest.memory.indexer import Indexer
from guest.memory.vector_store import VectorStore
from guest.memory.vectorizer import Vectorizer

log = logging.getLogger(__name__)

_PROBE: Final = "Is there an embedder?"
_PROBE_TIMEOUT_S: Final = 10.0


class Reembedding:
    """Sets vectors aside, so that the indexer finds their passages without one.

    From that moment on searches compare new vectors only and find the rest by
    keyword. What is undone survives a restart like any passage without a vector.
    """

    def __init__(self, vectors: VectorStore, vectorizer: Vectorizer, indexer: Indexer) -> None:
        self._vectors = vectors
        self._vectorizer = vectorizer
        self._indexer = indexer

    async def begin(self, user_id: str) -> int:
        """Begin, and say how many passages get a new vector.

        Raises `EmbedderError` where nobody could make them; nothing is changed then.
        """
        await self._vectorizer.embed([_PROBE], _PROBE_TIMEOUT_S)
        both = (namespaces.notes_of(user_id), namespaces.conversations_of(user_id))
        passages = await self._vectors.set_aside(both)
        self._indexer.rescan()
        log.info("%d passages are embedded anew", passages, extra={"count": passages})
        return passages
