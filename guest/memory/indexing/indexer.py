"""Makes missing vectors in the background: late ones, after restarts and changes of the model."""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from wire.errors import Code

from guest.embedding.backends import Embedded
from guest.errors import EmbedderError, GuestError, StorageError
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.storage.base import Database
from guest.memory.storage.changes import Background

log = logging.getLogger(__name__)

BATCH_MAX: Final = 64
_EMBED_TIMEOUT_S: Final = 60.0
_PROBE_TIMEOUT_S: Final = 10.0
_PROBE: Final = "Which model is this?"
_LATELY: Final = 0.1
"""How much the last batch counts for how long a passage takes."""
_AWAY: Final = (Code.UNAVAILABLE, Code.TIMEOUT, Code.FAILED_PRECONDITION)

_PENDING: Final = """
SELECT chunks.chunk_id, chunks.namespace, chunks.body
    FROM {chunks} LEFT JOIN chunks_vec USING (chunk_id)
    WHERE chunks.chunk_id > ?1 AND (chunks_vec.model_id IS NULL OR chunks_vec.model_id <> ?2)
    ORDER BY chunks.chunk_id LIMIT ?3
"""
_ALL: Final = "chunks"
_OWN: Final = "json_each(?4) AS own CROSS JOIN chunks ON chunks.namespace = own.value"


@dataclass(frozen=True)
class _Passage:
    chunk_id: int
    namespace: str
    text: str


@dataclass(repr=False, eq=False)
class Indexer:
    """Embeds every passage that has no vector of the embedder's current model.

    It goes through the passages by id and then sleeps until `wake`. While the embedder is away it
    retries after `retry_min_s`, doubling up to `retry_max_s`, or as soon as the embedder has
    answered another caller. `namespaces` limits it to these and those added with `include`, if
    other guests use the same store. `seconds_each` is how long a passage has taken lately; 0 while
    none is embedded.
    """

    database: Database
    vectors: VectorStore
    vectorizer: Vectorizer
    retry_min_s: float = 0.5
    retry_max_s: float = 30.0
    namespaces: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self._namespaces = None if self.namespaces is None else set(self.namespaces)
        self._done_up_to = 0
        self._generation = 0
        self._model_id = ""
        self._batch = BATCH_MAX
        self.seconds_each = 0.0
        self._work = asyncio.Event()
        self._work.set()
        self._answered = asyncio.Event()
        self._background = Background()
        self.stop = self._background.stop
        """Stop at once; the next start finds the remaining work. Idempotent."""

    def start(self) -> None:
        """Start with the passages that an earlier run left without vectors."""
        self.vectorizer.on_answer = self._on_answer
        self.vectors.on_unknown_change = self.rescan
        self._background.begin(self._run())

    def wake(self, chunk_ids: Sequence[int]) -> None:
        """Embed these passages, which have no vector yet."""
        if chunk_ids:
            if min(chunk_ids) <= self._done_up_to:
                self._done_up_to = min(chunk_ids) - 1
                self._generation += 1
            self._work.set()

    async def embed_now(
        self, namespace: str, chunk_ids: Sequence[int], texts: Sequence[str], timeout_s: float
    ) -> Embedded | None:
        """Embed new passages if their vectors come in time, else in the background.

        The passages are already stored, so no problem here is a failure.

        Returns:
            The vectors; None if they will follow, or if there are no passages.
        """
        if not chunk_ids:
            return None
        stored = False
        try:
            embedded = await self.vectorizer.embed(texts, timeout_s)
            await self.vectors.store(namespace, embedded.model_id, chunk_ids, embedded.vectors)
            stored = True
        except GuestError as error:
            log.info("%d vectors will follow: %s", len(chunk_ids), error.brief)
            return None
        finally:
            if not stored:
                self.wake(chunk_ids)
        return embedded

    @property
    def out_of_order(self) -> bool:
        """Whether the embedder failed last, other than by still loading."""
        return self.vectorizer.out_of_order

    def include(self, namespaces: Sequence[str]) -> None:
        """Also work on these namespaces, if work is limited to some."""
        if self._namespaces is not None:
            self._namespaces.update(namespaces)
            self.rescan()

    def rescan(self) -> None:
        """Check all passages again: any may lack a vector."""
        self._done_up_to = 0
        self._generation += 1
        self._work.set()

    async def reembed(self, namespaces: Sequence[str]) -> int:
        """Replace all vectors of these namespaces; returns how many passages get a new one.

        From now on searches compare new vectors only and find the rest by keyword. A restart does
        not lose the remaining work. Raises `EmbedderError`, with nothing changed, if no embedder is
        available.
        """
        await self.vectorizer.embed([_PROBE], _PROBE_TIMEOUT_S)
        passages = await self.vectors.set_aside(namespaces)
        self.rescan()
        log.info("%d passages are embedded anew", passages, extra={"count": passages})
        return passages

    def retry(self) -> None:
        self._answered.set()

    def _on_answer(self) -> None:
        self._answered.set()
        if self.vectorizer.model_id != self._model_id:
            if self._model_id:
                log.info("the embedding model is now %s", self.vectorizer.model_id)
            self._model_id = self.vectorizer.model_id
            self.rescan()

    async def _run(self) -> None:
        delay = self.retry_min_s
        while True:
            await self._work.wait()
            self._work.clear()
            self._answered.clear()
            try:
                await self._sweep()
                delay = self.retry_min_s
            except (EmbedderError, StorageError) as error:
                self.seconds_each = 0.0
                away = isinstance(error, EmbedderError)
                level, said = (logging.INFO, error.brief) if away else (logging.WARNING, str(error))
                log.log(level, "vectors are delayed: %s", said)
                await self._pause(delay)
                delay = min(delay * 2, self.retry_max_s)
            except Exception:
                log.exception("indexing failed; trying again in %.1f s", delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, self.retry_max_s)
                self._work.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._answered.wait()
        except TimeoutError:
            pass
        self._work.set()

    async def _sweep(self) -> None:
        """Go through the passages from `_done_up_to` to the end.

        Code that moves `_done_up_to` meanwhile also changes `_generation`; the sweep then continues
        from the new place.
        """
        embedded = 0
        while self._model_id or await self._learn_model():
            generation = self._generation
            passages = await self._pending()
            if passages:
                begun = time.monotonic()
                done = await self._embed(passages)
                taken = (time.monotonic() - begun) / len(passages)
                before = self.seconds_each or taken
                self.seconds_each = before + _LATELY * (taken - before)
                embedded += done
                if generation == self._generation and done:
                    self._done_up_to = passages[done - 1].chunk_id
            elif generation == self._generation:
                break
        self.seconds_each = 0.0
        if embedded:
            log.info("embedded %d passages", embedded, extra={"count": embedded})

    async def _learn_model(self) -> bool:
        """Ask for the current model if there is anything to embed."""
        if (await self.database.execute("SELECT 1 FROM chunks LIMIT 1")).rows:
            await self.vectorizer.embed([_PROBE], _EMBED_TIMEOUT_S)
            return True
        return False

    async def _pending(self) -> list[_Passage]:
        sql = _PENDING.format(chunks=_ALL)
        wanted: tuple[int | str, ...] = (self._done_up_to, self._model_id, self._batch)
        if self._namespaces is not None:
            own = json.dumps(sorted(self._namespaces))
            sql, wanted = _PENDING.format(chunks=_OWN), (*wanted, own)
        result = await self.database.execute(sql, wanted)
        return [_Passage(*cast("tuple[int, str, str]", row)) for row in result.rows]

    async def _embed(self, passages: Sequence[_Passage]) -> int:
        """Embed and store; returns how many of `passages` need no further attempt."""
        try:
            answer = await self.vectorizer.embed([p.text for p in passages], _EMBED_TIMEOUT_S)
        except EmbedderError as error:
            self._batch = max(1, len(passages) // 2)
            if error.code in _AWAY:
                raise
            return await self._skip(passages[0]) if len(passages) == 1 else 0
        self._batch = min(BATCH_MAX, self._batch * 2)
        rows = defaultdict(list)
        for row, passage in enumerate(passages):
            rows[passage.namespace].append(row)
        for namespace, of_namespace in rows.items():
            await self.vectors.store(
                namespace,
                answer.model_id,
                [passages[row].chunk_id for row in of_namespace],
                answer.vectors[of_namespace],
            )
        return len(passages)

    async def _skip(self, passage: _Passage) -> int:
        """Skip a passage that cannot be embedded, if the embedder otherwise works."""
        await self.vectorizer.embed([_PROBE], _EMBED_TIMEOUT_S)
        log.warning("passage %d cannot be embedded; only keywords find it", passage.chunk_id)
        return 1
