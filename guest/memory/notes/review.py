"""Reviews a user's notes: which are nearly the same, and which are stale.

Notes are compared by their vectors, or else by their words, in a thread that yields every few
milliseconds.
"""

import asyncio
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory import validation
from guest.memory.indexing.vectors import Ids, Scores, Snapshot
from guest.memory.models import Note, at
from guest.memory.notes.contradiction import content_words, likeness, may_contradict
from guest.memory.notes.repository import NoteRepository
from guest.memory.storage.base import Row, Value

SIMILAR_COSINE: Final = 0.85
SIMILAR_WORDS: Final = 0.8
COMPARISONS_MAX: Final = 1_000_000
"""The number of pairs compared by words; takes a few seconds."""

_ROUNDING: Final = 1e-9
_BLOCK: Final = 128
"""How many passages are compared with all others in one product of a few milliseconds."""


@dataclass(frozen=True)
class Pair:
    """Two notes by number, the lower one first. `similarity` is their cosine, or their share of
    common words."""

    first: int
    second: int
    similarity: float


def by_vectors(matrix: Vectors, notes: Ids, scopes: Ids, limit: int) -> list[Pair]:
    """The `limit` most similar pairs of notes, each by its most similar passages.

    Row i of `matrix` is a passage of note `notes[i]`. Only notes of the same scope are compared.
    """
    count = int(notes.max(initial=-1)) + 1
    pairs, nearest = np.zeros(0, np.int64), np.zeros(0, np.float32)
    enough = np.nextafter(np.float32(SIMILAR_COSINE), np.float32(0))
    for start in range(0, len(matrix), _BLOCK):
        block, rest = slice(start, start + _BLOCK), slice(start, None)
        cosines = matrix[block] @ matrix[rest].T
        rows, columns = np.nonzero(cosines > enough)
        one, other = notes[block][rows], notes[rest][columns]
        kept = (one != other) & (scopes[block][rows] == scopes[rest][columns])
        found = np.minimum(one, other)[kept] * count + np.maximum(one, other)[kept]
        pairs, nearest = _best(
            np.concatenate((pairs, found)),
            np.concatenate((nearest, cosines[rows, columns][kept])),
            limit,
        )
        if len(pairs) == limit:
            enough = nearest[-1]
    return [
        Pair(int(pair) // count, int(pair) % count, min(1.0, float(cosine)))
        for pair, cosine in zip(pairs, nearest, strict=True)
    ]


def by_words(
    texts: Sequence[str],
    scopes: Sequence[int],
    limit: int,
    *,
    comparisons_max: int = COMPARISONS_MAX,
) -> tuple[list[Pair], bool]:
    """The `limit` pairs of texts with the most words in common, and whether all were compared."""
    words = [content_words(text) for text in texts]
    candidates = _sharing(words, scopes)
    pairs: list[Pair] = []
    for comparisons, (first, second) in enumerate(candidates):
        if comparisons == comparisons_max:
            return _most_alike(pairs, limit), False
        share = likeness(words[first], words[second])
        if share >= SIMILAR_WORDS:
            pairs.append(Pair(first, second, share))
    return _most_alike(pairs, limit), True


def _best(pairs: Ids, cosines: Scores, limit: int) -> tuple[Ids, Scores]:
    """The most similar pairs, each once; ties go to the newest notes."""
    order = np.lexsort((-pairs, -cosines))
    _, first = np.unique(pairs[order], return_index=True)
    best = order[np.sort(first)][:limit]
    return pairs[best], cosines[best]


def _sharing(words: Sequence[frozenset[str]], scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Candidate pairs of one scope, each once.

    Two sets that share enough words also share one of their rarest words, so only those are looked
    up.
    """
    common = Counter(word for some in words for word in some)
    having: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i, own in enumerate(words):
        rarest = sorted(own, key=lambda word: (common[word], word))
        shared = math.ceil(SIMILAR_WORDS * len(own) - _ROUNDING)
        telling = rarest[: len(own) - shared + 1]
        places = [having[scopes[i], word] for word in telling]
        for earlier in sorted({j for place in places for j in place}):
            yield earlier, i
        for place in places:
            place.append(i)


def _most_alike(pairs: Sequence[Pair], limit: int) -> list[Pair]:
    return heapq.nlargest(limit, pairs, key=lambda pair: (pair.similarity, pair.second))


REVIEW_MAX: Final = 1000
STALE_DAYS_MAX: Final = 36_500
PASSAGES_MAX: Final = 20_000
"""How many of the newest passages, or notes, are compared."""

_ROWS: Final = 500
_NOTES_AT_ONCE: Final = 100
"""Rows, or whole notes, per query, so that other work is not blocked."""

_WORDS_OF_CHARS: Final = 2_000


@dataclass(frozen=True)
class SimilarPair:
    """Two notes that say nearly the same. `similarity` is their cosine, 0 if they were compared
    by words."""

    older: Note
    newer: Note
    similarity: float
    may_contradict: bool


@dataclass(frozen=True)
class Reviewed:
    """Pairs, most similar first; stale notes, oldest first; and warnings about what was not
    compared."""

    similar: tuple[SimilarPair, ...]
    stale: tuple[Note, ...]
    warnings: tuple[str, ...] = ()


class NoteReview:
    """Finds notes that a person may want to tidy up. Changes nothing."""

    def __init__(
        self,
        notes: NoteRepository,
        vectors: Callable[[], Awaitable[Snapshot | None]],
        *,
        wanted: bool = True,
        compared_max: int = PASSAGES_MAX,
        page_rows: int = _ROWS,
    ) -> None:
        """`vectors` returns the vectors that searches use, or None; `wanted` says whether there
        should be any; `compared_max` limits how many passages or notes are compared."""
        self._notes = notes
        self._vectors = vectors
        self._wanted = wanted
        self._compared_max = compared_max
        self._page_rows = page_rows

    async def review(self, *, stale_days: int = 180, limit: int = 50) -> Reviewed:
        """Up to `limit` pairs of notes that say nearly the same, most similar first, and up to
        `limit` notes neither written nor recalled for `stale_days`, oldest first.

        Only notes without a key, in the same scope, are compared. Warnings say what was not
        compared.
        """
        validation.check_range("limit", limit, REVIEW_MAX)
        validation.check_range("stale_days", stale_days, STALE_DAYS_MAX)
        warnings: list[str] = []
        similar = await self._similar(limit, warnings)
        before = at(datetime.now(UTC) - timedelta(days=stale_days))
        stale = await self._notes.stale(before, limit + 1)
        if len(stale) > limit:
            warnings.append(f"more notes than these {limit} were not needed for {stale_days} days")
        return Reviewed(similar, tuple(stale[:limit]), tuple(warnings))

    async def _similar(self, limit: int, warnings: list[str]) -> tuple[SimilarPair, ...]:
        vectors = await self._vectors()
        if vectors is None:
            note_ids, pairs = await self._by_words(limit + 1, warnings)
        else:
            note_ids, pairs = await self._by_vectors(vectors, limit + 1, warnings)
        if len(pairs) > limit:
            warnings.append(f"more than these {limit} pairs of notes say nearly the same")
            pairs = pairs[:limit]
        numbers = sorted({number for pair in pairs for number in (pair.first, pair.second)})
        found: dict[str, Note] = {}
        for start in range(0, len(numbers), _NOTES_AT_ONCE):
            wanted = [note_ids[number] for number in numbers[start : start + _NOTES_AT_ONCE]]
            read = await self._notes.get_many(wanted)
            found |= {note.note_id: note for note in read if note.superseded is None}
        both = [
            (found[note_ids[pair.first]], found[note_ids[pair.second]], pair.similarity)
            for pair in pairs
            if note_ids[pair.first] in found and note_ids[pair.second] in found
        ]
        return await asyncio.to_thread(_judged, both, measured=vectors is not None)

    async def _by_vectors(
        self, vectors: Snapshot, limit: int, warnings: list[str]
    ) -> tuple[list[str], list[Pair]]:
        """Note ids, and the similar pairs as indexes into them."""
        most = self._compared_max
        passages = await self._notes.comparable_passages(most + 1, per_page=self._page_rows)
        if len(passages) > most:
            warnings.append(f"only the newest {most:,} passages were compared")
        note_ids, pairs, missing = await asyncio.to_thread(
            _compared, passages[:most], vectors, limit
        )
        if missing:
            warnings.append(f"not compared were passages that have no vector yet: {missing:,}")
        return note_ids, pairs

    async def _by_words(self, limit: int, warnings: list[str]) -> tuple[list[str], list[Pair]]:
        """The same as `_by_vectors`, by words."""
        most = self._compared_max
        rows = await self._notes.comparable_texts(
            most + 1, per_page=self._page_rows, chars=_WORDS_OF_CHARS
        )
        if not rows:
            return [], []
        if self._wanted:
            warnings.append(
                "there are no vectors of these notes; they were compared by the words of their "
                f"first {_WORDS_OF_CHARS:,} characters"
            )
        if len(rows) > most:
            warnings.append(f"only the newest {most:,} notes were compared")
        rows = rows[:most]
        texts, scopes = [str(row[3]) for row in rows], _numbered([row[2] for row in rows])
        pairs, complete = await asyncio.to_thread(by_words, texts, scopes, limit)
        if not complete:
            warnings.append(
                f"so many notes share words that only {COMPARISONS_MAX:,} pairs were compared"
            )
        return [str(row[1]) for row in rows], pairs


def _judged(both: Sequence[tuple[Note, Note, float]], *, measured: bool) -> tuple[SimilarPair, ...]:
    pairs = []
    for first, second, similarity in both:
        older, newer = sorted((first, second), key=lambda note: (note.created_at, note.note_id))
        contradict = may_contradict(older.text, newer.text)
        pairs.append(SimilarPair(older, newer, similarity if measured else 0.0, contradict))
    return tuple(pairs)


def _compared(
    passages: Sequence[Row], snapshot: Snapshot, limit: int
) -> tuple[list[str], list[Pair], int]:
    """The result of `_by_vectors`, and how many passages have no vector."""
    chunk_ids, owners, scopes = zip(*passages, strict=True) if passages else ((), (), ())
    rows = snapshot.rows_of(np.array(chunk_ids, np.int64))
    known = rows >= 0
    pairs = by_vectors(
        snapshot.matrix[rows[known]],
        np.array(_numbered(owners), np.int64)[known],
        np.array(_numbered(scopes), np.int64)[known],
        limit,
    )
    return list(map(str, dict.fromkeys(owners))), pairs, int(np.count_nonzero(~known))


def _numbered(values: Sequence[Value]) -> list[int]:
    """A number for each value; equal values get equal numbers."""
    numbers: dict[Value, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]
