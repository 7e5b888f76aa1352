"""Hybrid search: by keyword and by meaning at once, merged into one ranking."""

import asyncio
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
from wire.limits import QUERY_MAX_CHARS

from guest.embedding.backends import Embedded
from guest.errors import EmbedderError
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.indexing.vectors import Ids
from guest.memory.models import FIXED, Hit, MemoryConfig, Only, SearchOutcome, User
from guest.memory.search import keyword, results
from guest.memory.search.ranking import (
    NO_RECENCY,
    Evidence,
    Ranked,
    Recency,
    Similarity,
    Weights,
    crowded,
    rank,
)
from guest.memory.storage.base import Database
from guest.memory.storage.errors import noticed


class Question:
    """A query. `text` is the query in a form that can be embedded."""

    def __init__(self, query: str, vectorizer: Vectorizer, timeout_s: float) -> None:
        storable = query.encode("utf-8", "replace").decode().replace("\0", " ")
        self.text = storable[:QUERY_MAX_CHARS]
        self._vectorizer = vectorizer
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._asked = False
        self._embedded: Embedded | None = None
        self.problem: EmbedderError | None = None

    async def embedded(self) -> Embedded | None:
        """The query's vector; None for a blank query, where there is no embedder, or if there is
        a `problem`."""
        async with self._lock:
            if self._vectorizer.wanted and not self._asked and self.text.strip():
                try:
                    self._embedded = await self._vectorizer.embed([self.text], self._timeout_s)
                except EmbedderError as error:
                    self.problem = error
            self._asked = True
            return self._embedded


log = logging.getLogger(__name__)

ALL: Final = Only()
"""All current notes that are not scoped to a session."""

SIMILAR_MIN: Final = 0.6
SIMILAR_MAX: Final = 3
_INLINE_MAX_NUMBERS: Final = 8_000_000
"""Up to this size (20,000 passages of 384 dimensions) a product takes less than a millisecond,
so handing it to a thread is slower."""

_SPARE: Final = 5
"""Extra passages to look up, because one note may have several of the best ones."""

_FIRST_MAX: Final = 3
"""How many times as long the first page may become because the best entries are old."""

_NOTES, _CONVERSATION = 0, 1


class Finder(Protocol):
    """Searches one user's memory: `Search`, or the search of a replica."""

    async def search(
        self, query: str, top_k: int, tags: Sequence[str], include_conversation: bool, only: Only
    ) -> SearchOutcome:
        """See `Memory.search`."""
        ...

    async def similar(
        self, note_id: str, embedded: Embedded, session_id: str = ""
    ) -> tuple[Hit, ...]:
        """Other notes that say nearly the same and that the session sees, most similar first."""
        ...

    @property
    def copying(self) -> "asyncio.Task[None] | None":
        """The task that copies all changes so far from the server; None if there is nothing to
        copy."""
        ...

    async def copied(self, copying: "asyncio.Task[None] | None") -> None:
        """Wait briefly until the changes that `copying` stands for can be searched."""
        ...


class Search:
    """Searches the notes and conversations of one user."""

    def __init__(
        self,
        database: Database,
        vectors: VectorStore,
        vectorizer: Vectorizer,
        config: MemoryConfig,
        user: User,
    ) -> None:
        self._database = database
        self._vectors = vectors
        self._vectorizer = vectorizer
        self._user = user
        self._patience = config.patience
        self._recency_weight = config.settings.recency_weight
        self._weights = Weights(
            semantic=config.settings.vector_weight,
            keyword=config.settings.keyword_weight,
            min_similarity=config.settings.min_similarity,
        )

    async def search(
        self,
        query: str,
        top_k: int,
        tags: Sequence[str],
        include_conversation: bool,
        only: Only = ALL,
    ) -> SearchOutcome:
        """See `Memory.search`."""
        question = Question(query, self._vectorizer, self._patience.query_vector_s)
        warnings: list[str] = []
        narrowed = results.narrows(tags, only)
        among = await self._allowed(tags, only) if narrowed else None
        spoken = include_conversation and not narrowed
        while True:
            evidence = await self._evidence_of(question, among, spoken, warnings)
            ranked = rank(evidence, self._weights)
            recency = Recency.of_now(self._recency_weight)
            shown = await self._show(ranked, top_k, warnings, only, recency, spoken=spoken)
            if len(shown) >= top_k or among is not None:
                break
            if not crowded(evidence[_NOTES], self._weights):
                break
            # a hidden note may have taken the place of a visible one
            among = await self._allowed(tags, only)
        passing = ""
        if question.problem is not None:
            without = (
                f"semantic search is unavailable ({question.problem.brief}); "
                "these results were found by keyword only"
            )
            if question.problem.is_loading:
                passing = without
            else:
                warnings.append(without)
        elif similarity := evidence[_NOTES].similarity:
            passing = _incomplete(similarity.missing)
        return SearchOutcome(shown, tuple(dict.fromkeys(warnings)), passing)

    async def similar(
        self, note_id: str, embedded: Embedded, session_id: str = ""
    ) -> tuple[Hit, ...]:
        """Other notes with passages similar to `embedded`, by descending cosine, that the session
        sees; never those with a fixed key."""
        namespace = self._user.notes
        similarity = await self._similarity(namespace, embedded)
        vectors, cosines = similarity.vectors, similarity.cosines
        rows = np.flatnonzero(cosines >= SIMILAR_MIN)
        rows = rows[np.argsort(-cosines[rows], kind="stable")]
        ranked = (
            Ranked(_NOTES, int(vectors.ids[row]), min(1.0, float(cosines[row])), "semantic")
            for row in rows
        )
        only = Only(session_id=session_id)
        return await self._show(ranked, SIMILAR_MAX, [], only, without=note_id, without_keys=FIXED)

    @property
    def copying(self) -> None:
        """Nothing to copy: this searches the store itself."""
        return None

    async def copied(self, copying: "asyncio.Task[None] | None") -> None:
        """Nothing to wait for."""

    async def _allowed(self, tags: Sequence[str], only: Only) -> Ids:
        return await results.allowed(self._database, self._user.notes, tags, only)

    async def _evidence_of(
        self, question: Question, among: Ids | None, spoken: bool, warnings: list[str]
    ) -> list[Evidence]:
        """Evidence for notes (only those in `among`, if given) and, with `spoken`, for
        conversations."""
        terms = keyword.query_terms(question.text)
        in_notes = self._evidence("chunks_fts", self._user.notes, question, terms, among)
        if not spoken:
            return [await in_notes]
        in_conversations = self._conversation_evidence(question, terms, warnings)
        return list(await asyncio.gather(in_notes, in_conversations))

    async def _evidence(
        self,
        index: keyword.Index,
        namespace: str,
        question: Question,
        terms: Sequence[str],
        among: Ids | None = None,
    ) -> Evidence:
        """Evidence for each passage.

        The keyword query starts first: the database runs it while this thread waits for the vector
        or multiplies.
        """
        matches, similarity = await asyncio.gather(
            keyword.match(self._database, index, namespace, terms, among),
            self._meaning(namespace, question),
        )
        return Evidence(matches, similarity, among, len(terms))

    async def _conversation_evidence(
        self, question: Question, terms: Sequence[str], warnings: list[str]
    ) -> Evidence:
        """Evidence for conversations; if that fails, none and a warning."""
        namespace = self._user.conversations
        try:
            return await self._evidence("conversation_fts", namespace, question, terms)
        except Exception as error:
            warnings.append(_conversation_failed(error))
            return Evidence(keyword.NO_MATCHES, None)

    async def _meaning(self, namespace: str, question: Question) -> Similarity | None:
        embedded = await question.embedded()
        return await self._similarity(namespace, embedded) if embedded else None

    async def _similarity(self, namespace: str, embedded: Embedded) -> Similarity:
        """For each vector in the namespace, the highest cosine with any of `embedded`."""
        queries = embedded.vectors
        vectors, missing = await self._vectors.snapshot(
            namespace, embedded.model_id, queries.shape[1]
        )
        if vectors.matrix.size * len(queries) <= _INLINE_MAX_NUMBERS:
            return Similarity(vectors, vectors.cosines(queries), missing)
        return Similarity(vectors, await asyncio.to_thread(vectors.cosines, queries), missing)

    async def _show(
        self,
        ranked: Iterator[Ranked],
        limit: int,
        warnings: list[str],
        only: Only,
        recency: Recency = NO_RECENCY,
        without: str = "",
        without_keys: Collection[str] = (),
        *,
        spoken: bool = False,
    ) -> tuple[Hit, ...]:
        """The first `limit` entries, each with its best passage, without duplicates.

        With `spoken`, passages of conversations are among them; those that repeat a note are left
        out. Recency only lowers a score, so an entry's place is final once no later passage can
        score as much.
        """
        waiting: list[tuple[float, Ranked, results.Found]] = []
        entries = {without}
        said: set[str] = set()
        for page in _pages(ranked, limit, recency):
            found = await self._fetch(page, warnings, only)
            if spoken:
                said.update(entry.said for entry in found.values() if entry.note_id)
            for passage in page:
                entry = found.get(passage.chunk_id)
                if entry is None or entry.entry in entries or entry.key in without_keys:
                    continue
                entries.add(entry.entry)
                if not entry.note_id:
                    if entry.said in said:
                        continue
                    said.add(entry.said)
                with noticed("the time of an entry"):
                    score = recency.adjusted(passage.score, entry.updated_at)
                waiting.append((score, passage, entry))
            waiting.sort(key=lambda scored: -scored[0])
            if len(waiting) >= limit and waiting[limit - 1][0] >= page[-1].score:
                break
        return tuple(entry.hit(score, passage) for score, passage, entry in waiting[:limit])

    async def _fetch(
        self, page: Iterable[Ranked], warnings: list[str], only: Only
    ) -> dict[int, results.Found]:
        notes = [passage.chunk_id for passage in page if passage.part == _NOTES]
        conversation = [passage.chunk_id for passage in page if passage.part == _CONVERSATION]
        found = await results.notes(self._database, self._user.notes, notes, only)
        if conversation:
            try:
                found |= await results.conversation(
                    self._database, self._user.conversations, conversation
                )
            except Exception as error:
                warnings.append(_conversation_failed(error))
        return found


def _pages(ranked: Iterator[Ranked], limit: int, recency: Recency) -> Iterator[list[Ranked]]:
    """The passages of each query for entries.

    The first page also has what may come before the first `limit` because those are old. Pages
    grow, so that many hidden notes cost few queries.
    """
    size = limit + _SPARE
    page = list(itertools.islice(ranked, size))
    if len(page) == size and page[-1].score > (least := recency.least(page[limit - 1].score)):
        for passage in itertools.islice(ranked, size * (_FIRST_MAX - 1)):
            page.append(passage)
            if passage.score <= least:
                break
    while page:
        yield page
        page = list(itertools.islice(ranked, 2 * len(page)))


def _incomplete(missing: int) -> str:
    if missing <= 0:
        return ""
    passages = "1 passage has" if missing == 1 else f"{missing} passages have"
    return f"{passages} no vector yet and can be found by keyword only"


def _conversation_failed(error: Exception) -> str:
    log.warning("searching conversations failed", exc_info=error)
    return "conversations could not be searched; these results are notes only"
