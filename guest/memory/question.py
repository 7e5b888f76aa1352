"""The query of one search and its vector, computed once for all namespaces."""

import asyncio
from typing import Final

from wire.limits import QUERY_MAX_CHARS

from guest.embedding.base import Embedded
from guest.errors import EmbedderError
from guest.memory.vectorizer import Vectorizer

EMBED_TIMEOUT_S: Final = 2.0


class Question:
    """What is searched for. `text` is any query in a form that can be embedded."""

    def __init__(self, query: str, vectorizer: Vectorizer) -> None:
        storable = query.encode("utf-8", "replace").decode().replace("\0", " ")
        self.text = storable[:QUERY_MAX_CHARS]
        self._vectorizer = vectorizer
        self._lock = asyncio.Lock()
        self._asked = False
        self._embedded: Embedded | None = None
        self.problem = ""

    async def embedded(self) -> Embedded | None:
        """The query's vector; None for a blank query, and where there is a `problem`."""
        async with self._lock:
            if not self._asked and self.text.strip():
                try:
                    self._embedded = await self._vectorizer.embed([self.text], EMBED_TIMEOUT_S)
                except EmbedderError as error:
                    self.problem = error.brief
            self._asked = True
            return self._embedded
