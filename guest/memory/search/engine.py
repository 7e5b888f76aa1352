"""Hybrid search: by keyword and by meaning at once, merged into one ranking."""

import asyncio
import itertools
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import numpy as np
from wire.limits import QUERY_MAX_CHARS

from guest.embedding.backends import Embedded
from guest.errors import EmbedderError
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.indexing.vectors import Ids, Snapshot
from guest.memory.models import (
    FIXED,
    Filter,
    Hit,
    MemoryConfig,
    Note,
    Only,
    SearchOutcome,
    User,
    projects_in,
)
from guest.memory.search import keyword, neighbours, results
from guest.memory.search.contradiction import NEAR
from guest.memory.search.newest import COMPARED, Dated, newest_first, older_ones
from guest.memory.search.ranking import (
    LOOKED_AT,
    NO_RECENCY,
    Evidence,
    Ranked,
    Recency,
    Similarity,
    Weights,
    crowded,
    lenders,
    rank,
)
from guest.memory.search.shown import SHOWN_MAX, Shown
from guest.memory.search.standing import weighed
from guest.memory.storage.base import Database

READ_AGAIN: Final = 30
"""How many results are read once more. On two cores, a small cross-encoder reads as many short
passages in about half a second."""

READY: Final = "ready"
_LOADING: Final = "loading"


class Reranking:
    """What the embedder says of its reranker, for one search.

    `state` is as in `Embedded.reranker`; `problem` is empty, or says why results that should have
    been reranked were not; `is_loading` where it is a matter of seconds. `until`, by the monotonic
    clock, is when the reranker must have answered.
    """

    def __init__(self, vectorizer: Vectorizer, state: str, until: float) -> None:
        self._vectorizer = vectorizer
        self._ready = state == READY
        self._until = until
        self.problem = "" if state in ("", READY) else _without(state)
        self.is_loading = state == _LOADING

    def needed(self, wanted: int) -> int:
        """How many results to find for `wanted` ones."""
        return max(wanted, READ_AGAIN) if self._ready else wanted

    async def reranked(self, query: str, hits: Sequence[Hit], recency: Recency) -> tuple[Hit, ...]:
        """`hits` in the order of the reranker, with its scores; as they are if it fails."""
        if not self._ready or len(hits) < 2:
            return tuple(hits)
        left = max(0.0, self._until - time.monotonic())
        try:
            scores = await self._vectorizer.rerank(query, [hit.text for hit in hits], left)
        except EmbedderError as error:
            self.problem = _without(error.brief)
            return tuple(hits)
        adjusted = [
            round(recency.adjusted(float(score), hit.updated_at, hit.tags), 4)
            for hit, score in zip(hits, scores, strict=True)
        ]
        newest = {hit.note_id: hit.older_than for hit in hits if hit.older_than}
        ordered = newest_first([hit.note_id for hit in hits], adjusted, newest)
        return tuple(replace(hits[i], score=min(1.0, score)) for i, score in ordered)


def _without(why: str) -> str:
    return f"the reranker is not used ({why}); these results are in the order of the search itself"


class Question:
    """A query. `text` is the query in a form that can be embedded; `chosen` may name a time."""

    def __init__(
        self, query: str, vectorizer: Vectorizer, timeout_s: float, chosen: Filter
    ) -> None:
        self.chosen = chosen
        self.dated = chosen.at_any_time != chosen
        storable = query.encode("utf-8", "replace").decode().replace("\0", " ")
        self.text = storable[:QUERY_MAX_CHARS]
        self._vectorizer = vectorizer
        self._timeout_s = timeout_s
        self._begun = time.monotonic()
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

    async def reranking(self, within_s: float) -> Reranking:
        """What the embedder that has made the vector can do for the order of results, within so
        many seconds from the beginning of the search."""
        embedded = await self.embedded()
        state = embedded.reranker if embedded is not None else ""
        return Reranking(self._vectorizer, state, self._begun + within_s)


log = logging.getLogger(__name__)

ALL: Final = Only()
"""All current notes that are not scoped to a session."""

SIMILAR_MIN: Final = 0.6
SIMILAR_MAX: Final = 3
WEAK_MIN: Final = 0.12
"""Chosen by measurements; see docs/design/2026-11-26-weak-results.md."""
WEAK_MAX: Final = 3
_SIMILAR_CANDIDATES: Final = 1_000
"""How many similar passages are looked at for notes that the session sees."""

_INLINE_ROWS_MAX: Final = 100_000
"""Up to this number of vectors, comparing them takes about a millisecond, so handing it to a
thread is slower."""

_SPARE: Final = 5
"""Extra passages to look up, because one note may have several of the best ones."""

_NOTES, _CONVERSATION = 0, 1

_LATER: Final = "~"
"""After every time: a note that is being saved is newer than all others."""

_Shown = tuple[float, Ranked, results.Candidate]


class Searched(Protocol):
    """What is searched: a store, or the replica of a server's, which may be replaced."""

    @property
    def database(self) -> Database: ...
    @property
    def vectors(self) -> VectorStore: ...


class Search:
    """Searches the notes and conversations of one user."""

    def __init__(
        self, place: Searched, vectorizer: Vectorizer, config: MemoryConfig, user: User
    ) -> None:
        self._place = place
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
        weak: bool = False,
        before: Shown = Shown(),  # noqa: B008 - it cannot change
    ) -> SearchOutcome:
        """See `Memory.search`. `before` are results that are left out: they were shown."""
        question = Question(query, self._vectorizer, self._patience.query_vector_s, only.chosen)
        warnings: list[str] = []
        narrowed = results.narrows(tags, only)
        among = await self.allowed(tags, only) if narrowed or question.dated else None
        spoken = include_conversation and not narrowed
        if include_conversation and narrowed:
            warnings.append(
                "conversations were not searched: they have no tags, types or origins to filter by"
            )
        while True:
            evidence = await self._evidence_of(question, among, spoken, warnings)
            ranked = rank(evidence, self._weights)
            if question.dated:
                ranked = itertools.chain(ranked, _newest(evidence))
            recency = Recency.of_now(self._recency_weight, only.project_tag)
            reranking = await question.reranking(self._patience.rerank_s)
            wanted = reranking.needed(len(before) + top_k + 1)
            similarity = evidence[_NOTES].similarity
            shown = await self._show(
                ranked,
                wanted,
                warnings,
                only,
                evidence=evidence,
                recency=recency,
                vectors=similarity.vectors if similarity else None,
            )
            if len(shown) >= wanted or among is not None or not crowded(evidence[_NOTES]):
                break
            # a hidden note may have taken the place of a visible one
            among = await self.allowed(tags, only)
        shown = await reranking.reranked(question.text, shown, recency)
        if weak and not only.this_conversation and all(hit.key in FIXED for hit in shown):
            nearest = await self._nearest(question, among, only)
            shown = (*shown, *nearest)
            if nearest:
                warnings.append("nothing fits well: these are the nearest notes, marked weak")
        following = tuple(hit for hit in shown if hit not in before)
        page, more = following[:top_k], len(following) > top_k
        if more and len(before) + top_k > SHOWN_MAX:
            more = False
            warnings.append(f"a search lists at most {SHOWN_MAX} results: narrow it")
        passing = ""
        if reranking.problem and reranking.is_loading:
            passing = reranking.problem
        elif reranking.problem:
            warnings.append(reranking.problem)
        if question.problem is not None:
            without = (
                f"semantic search is unavailable ({question.problem.brief}); "
                "these results were found by keyword only"
            )
            if question.problem.is_loading:
                passing = without
            else:
                warnings.append(without)
        elif (similarity := evidence[_NOTES].similarity) and not passing:
            passing = _incomplete(similarity.missing)
        cursor_after = partial(before.cursor_after, page, more)
        return SearchOutcome(page, tuple(dict.fromkeys(warnings)), passing, cursor_after)

    async def similar(
        self, note: Note, embedded: Embedded, session_id: str = ""
    ) -> tuple[Hit, ...]:
        """Other notes with passages similar to those of `note`, `embedded`, or that it may
        contradict, by descending cosine, that the session sees; never those with a fixed key."""
        ranked, vectors = await self._by_cosine(embedded, NEAR)
        saved = Dated(
            *(note.note_id, note.text, _LATER, embedded.vectors[0]), projects=projects_in(note.tags)
        )
        only = Only(session_id=session_id)
        return await self._show(
            ranked, SIMILAR_MAX, [], only, vectors=vectors, saved=saved, without_keys=FIXED
        )

    @property
    def copying(self) -> "asyncio.Task[None] | None":
        """The task that copies all changes so far from a server; None if there is nothing to
        copy."""
        return None

    async def copied(self, copying: "asyncio.Task[None] | None") -> None:
        """Wait briefly until the changes that `copying` stands for can be searched."""

    async def _nearest(self, question: Question, among: Ids | None, only: Only) -> tuple[Hit, ...]:
        """The notes that are nearest to a question which nothing fits."""
        embedded = await question.embedded()
        if embedded is None:
            return ()
        ranked, vectors = await self._by_cosine(embedded, WEAK_MIN, among)
        hits = await self._show(ranked, WEAK_MAX, [], only, vectors=vectors, without_keys=FIXED)
        return tuple(replace(hit, matched_by="weak", meaning=hit.score) for hit in hits)

    async def _by_cosine(
        self, embedded: Embedded, least: float, among: Ids | None = None
    ) -> tuple[Iterator[Ranked], Snapshot]:
        """The passages of notes by their cosine alone, from `least` on, and their vectors."""
        vectors, _ = await self._place.vectors.snapshot(
            self._user.notes, embedded.model_id, embedded.vectors.shape[1]
        )
        nearest = await asyncio.to_thread(
            vectors.nearest, embedded.vectors, _SIMILAR_CANDIDATES, least, among
        )
        ranked = (
            Ranked(_NOTES, int(nearest.ids[i]), min(1.0, float(nearest.cosines[i])), "semantic")
            for i in range(len(nearest.ids))
        )
        return ranked, vectors

    async def allowed(self, tags: Sequence[str], only: Only) -> Ids:
        return await results.allowed(self._place.database, self._user.notes, tags, only)

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
        database = self._place.database
        matches, similarity, exact = await asyncio.gather(
            keyword.match(database, index, namespace, terms, among),
            self._meaning(namespace, question, among),
            keyword.holders(database, index, namespace, question.text, among),
        )
        evidence = Evidence(matches, similarity, among, exact)
        best = lenders(evidence, self._weights)
        if len(best):
            evidence.beside = await neighbours.pairs(
                database, index, namespace, best, question.text
            )
        return evidence

    async def _conversation_evidence(
        self, question: Question, terms: Sequence[str], warnings: list[str]
    ) -> Evidence:
        """Evidence for conversations; if that fails, none and a warning."""
        namespace, among = self._user.conversations, None
        try:
            if question.dated:
                among = await results.said(self._place.database, namespace, question.chosen)
            return await self._evidence("conversation_fts", namespace, question, terms, among)
        except Exception as error:
            warnings.append(_conversation_failed(error))
            return Evidence(keyword.NO_MATCHES, None)

    async def _meaning(
        self, namespace: str, question: Question, among: Ids | None
    ) -> Similarity | None:
        embedded = await question.embedded()
        if embedded is None:
            return None
        queries = embedded.vectors
        vectors, missing = await self._place.vectors.snapshot(
            namespace, embedded.model_id, queries.shape[1]
        )
        measured = partial(
            Similarity, vectors, queries, self._weights.min_similarity, among, missing
        )
        if len(vectors.ids) * len(queries) <= _INLINE_ROWS_MAX:
            return measured()
        return await asyncio.to_thread(measured)

    async def _show(
        self,
        ranked: Iterator[Ranked],
        limit: int,
        warnings: list[str],
        only: Only,
        *,
        evidence: Sequence[Evidence] = (),
        recency: Recency = NO_RECENCY,
        vectors: Snapshot | None = None,
        saved: Dated | None = None,
        without_keys: Collection[str] = (),
    ) -> tuple[Hit, ...]:
        """The first `limit` entries, each with its best passage, without duplicates.

        With `evidence`, what is around the passages of a page and their age decide their order, and
        passages of conversations that repeat a note of the same search are left out. With `saved`,
        only what is similar to that note, or may contradict it, and is of the same project.
        `vectors` are those of notes.
        """
        shown: list[_Shown] = []
        entries = {saved.note_id if saved else ""}
        noted: set[str] = set()
        said: set[str] = set()
        at_most = 1.0
        for page in _pages(ranked, limit):
            found = await self._fetch(page, warnings, only)
            visible = [
                (passage, found[passage.chunk_id])
                for passage in page
                if passage.chunk_id in found and found[passage.chunk_id].key not in without_keys
            ]
            if len(evidence) > 1:
                noted.update(entry.said for _, entry in visible if entry.note_id)
            for score, passage, entry in self._scored(visible, evidence, recency):
                repeated = not entry.note_id and entry.said in said
                apart = saved is not None and entry.projects != saved.projects
                if entry.entry in entries or repeated or apart:
                    continue
                entries.add(entry.entry)
                if not entry.note_id:
                    said.add(entry.said)
                shown.append((min(score, at_most), passage, entry))
            shown = [each for each in shown if each[2].note_id or each[2].said not in noted]
            if len(shown) >= limit:
                break
            at_most = min((score for score, _, _ in shown), default=1.0)
        shown, newest = _newest_first(shown, vectors, saved)
        return tuple(
            replace(entry.hit(score, passage), older_than=newest[entry.note_id])
            if entry.note_id in newest
            else entry.hit(score, passage)
            for score, passage, entry in shown[:limit]
        )

    def _scored(
        self,
        visible: Sequence[tuple[Ranked, results.Candidate]],
        evidence: Sequence[Evidence],
        recency: Recency,
    ) -> list[_Shown]:
        """Passages with their final scores, best first; without `evidence`, as they are."""
        scores = [passage.score for passage, _ in visible]
        if evidence:
            passages = [passage for passage, _ in visible]
            scores = weighed(passages, [entry.standing for _, entry in visible])
        scored = [
            (recency.adjusted(score, entry.updated_at, entry.projects), passage, entry)
            for score, (passage, entry) in zip(scores, visible, strict=True)
        ]
        return sorted(scored, key=lambda each: -each[0])

    async def _fetch(
        self, page: Iterable[Ranked], warnings: list[str], only: Only
    ) -> dict[int, results.Candidate]:
        notes = [passage.chunk_id for passage in page if passage.part == _NOTES]
        conversation = [passage.chunk_id for passage in page if passage.part == _CONVERSATION]
        found: dict[int, results.Candidate] = {}
        if not only.this_conversation:
            found |= await results.notes(self._place.database, self._user.notes, notes, only)
        if conversation:
            try:
                found |= await results.conversation(
                    self._place.database, self._user.conversations, conversation, only
                )
            except Exception as error:
                warnings.append(_conversation_failed(error))
        return found


def _newest_first(
    shown: Sequence[_Shown], vectors: Snapshot | None, saved: Dated | None
) -> tuple[list[_Shown], Mapping[str, str]]:
    """The entries with the newest notes before those that answer alike, and which they may
    contradict. Notes with a key are apart on purpose."""
    compared = [each for each in shown if each[2].note_id and not each[2].key][:COMPARED]
    chunks = np.array([passage.chunk_id for _, passage, _ in compared], np.int64)
    rows = vectors.rows_of(chunks) if vectors is not None else np.full(len(chunks), -1)
    dated = [
        Dated(
            note.note_id,
            note.body,
            note.updated_at,
            vectors.matrix[row] if vectors and row >= 0 else None,
            1.0 if passage.exact else passage.meaning,
            score,
            note.projects,
        )
        for (score, passage, note), row in zip(compared, rows.tolist(), strict=True)
    ]
    newest, behind = older_ones([*dated, saved] if saved else dated, vectors)
    if saved is not None:
        newest = {older: newer for older, newer in newest.items() if newer == saved.note_id}
        similar = [each for each in shown if each[2].note_id in newest or each[0] >= SIMILAR_MIN]
        similar.sort(key=lambda each: each[2].note_id not in newest)
        return sorted(similar[:SIMILAR_MAX], key=lambda each: -each[0]), newest
    order = newest_first([e.note_id for _, _, e in shown], [score for score, _, _ in shown], behind)
    return [(score, *shown[i][1:]) for i, score in order], newest


def _newest(evidence: Sequence[Evidence]) -> Iterator[Ranked]:
    """Every passage of the time that is chosen, the newest first: they say what there was, however
    little of a question such as "What did I say yesterday?" they have."""
    for part, each in enumerate(evidence):
        for chunk_id in sorted(() if each.only is None else each.only.tolist(), reverse=True):
            yield Ranked(part, chunk_id, 0.0, "weak")


def _pages(ranked: Iterator[Ranked], limit: int) -> Iterator[list[Ranked]]:
    """The passages of each query for entries. Pages grow, so that many hidden notes cost few
    queries."""
    page = list(itertools.islice(ranked, max(LOOKED_AT, limit + _SPARE)))
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
