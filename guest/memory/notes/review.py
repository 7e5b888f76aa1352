"""Reviews a user's notes: which may contradict each other, which are nearly the same, and which are
stale.

Notes are compared by their vectors, or else by their words, in a thread that yields every few
milliseconds. A note that is alike with many others, and the same as none, is an entry of a series
such as a diary; such entries are no pairs.
"""

import asyncio
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory import validation
from guest.memory.indexing.vectors import Ids, Scores, Snapshot
from guest.memory.models import Note, at
from guest.memory.notes.repository import NoteRepository
from guest.memory.search import contradiction
from guest.memory.search.contradiction import NEAR, WORDS_OF_CHARS, Alike, content_words, likeness
from guest.memory.storage.base import Row, Value

SIMILAR_COSINE: Final = 0.85
SIMILAR_WORDS: Final = 0.8
COMPARISONS_MAX: Final = 1_000_000
"""The number of pairs compared by words; takes a few seconds."""

_PAIRS_MAX: Final = 20_000
"""The number of nearest pairs of which the texts are read; takes about a second."""
_NEIGHBOURS: Final = 8
"""How many of the notes most similar to each passage are kept: a diary leaves room for others."""
_PASSAGES_EACH: Final = 8
"""How many passages of each of them are looked at, on average."""

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


def by_vectors(
    matrix: Vectors, notes: Ids, scopes: Ids, limit: int, neighbours: int = _NEIGHBOURS
) -> list[Pair]:
    """The `limit` most similar pairs of notes, each by its most similar passages; of each passage
    only those with so many notes.

    Row i of `matrix` is a passage of note `notes[i]`. Only notes of the same scope are compared.
    """
    count = int(notes.max(initial=-1)) + 1
    pairs, nearest = np.zeros(0, np.int64), np.zeros(0, np.float32)
    enough = np.nextafter(np.float32(NEAR), np.float32(0))
    for start in range(0, len(matrix), _BLOCK):
        block, rest = slice(start, start + _BLOCK), slice(start, None)
        cosines = matrix[block] @ matrix[rest].T
        cosines[notes[block, None] == notes[rest]] = 0
        cosines[scopes[block, None] != scopes[rest]] = 0
        rows, columns = _nearest(cosines, notes[rest], enough, neighbours)
        one, other = notes[block][rows], notes[rest][columns]
        found = np.minimum(one, other) * count + np.maximum(one, other)
        pairs, nearest = _best(
            np.concatenate((pairs, found)),
            np.concatenate((nearest, cosines[rows, columns])),
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


def _nearest(cosines: Scores, notes: Ids, enough: np.float32, count: int) -> tuple[Ids, Ids]:
    """The places of the highest cosine of each row with each of the `count` best `notes` that are
    above `enough`."""
    rows, columns = np.nonzero(cosines > enough)
    order = np.lexsort((-cosines[rows, columns], rows))
    rows, columns = _first_of_each(rows[order], columns[order], count * _PASSAGES_EACH)
    with_note = rows * (int(notes.max(initial=0)) + 1) + notes[columns]
    best = np.sort(np.unique(with_note, return_index=True)[1])
    return _first_of_each(rows[best], columns[best], count)


def _first_of_each(rows: Ids, columns: Ids, count: int) -> tuple[Ids, Ids]:
    first = np.arange(len(rows)) - np.searchsorted(rows, rows) < count
    return rows[first], columns[first]


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


@dataclass(frozen=True)
class SimilarPair:
    """Two notes that say nearly the same, or may contradict each other. `similarity` is their
    cosine, 0 if they were compared by words."""

    older: Note
    newer: Note
    similarity: float
    may_contradict: bool


@dataclass(frozen=True)
class Reviewed:
    """Pairs, first those that may contradict each other, then most similar first; stale notes,
    oldest first; and warnings about what was not compared."""

    similar: tuple[SimilarPair, ...]
    stale: tuple[Note, ...]
    warnings: tuple[str, ...] = ()


class _Text(NamedTuple):
    """A note to compare: its id, its scope, and the beginning of its text."""

    note_id: str
    scope: str
    text: str


@dataclass(repr=False, eq=False)
class NoteReview:
    """Finds notes that a person may want to tidy up. Changes nothing.

    `vectors` returns the vectors that searches use, or None; `wanted` says whether there should be
    any; `compared_max` limits how many passages or notes are compared.
    """

    notes: NoteRepository
    vectors: Callable[[], Awaitable[Snapshot | None]]
    wanted: bool = True
    compared_max: int = PASSAGES_MAX
    page_rows: int = _ROWS

    async def review(self, *, stale_days: int = 180, limit: int = 50) -> Reviewed:
        """Up to `limit` pairs of notes that may contradict each other or say nearly the same, and
        up to `limit` notes neither written nor recalled for `stale_days`, oldest first.

        Only notes without a key, in the same scope, are compared. Warnings say what was not
        compared.
        """
        validation.check_range("limit", limit, REVIEW_MAX)
        validation.check_range("stale_days", stale_days, STALE_DAYS_MAX)
        warnings: list[str] = []
        similar = await self._similar(limit, warnings)
        before = at(datetime.now(UTC) - timedelta(days=stale_days))
        stale = await self.notes.stale(before, limit + 1)
        if len(stale) > limit:
            warnings.append(f"more notes than these {limit} were not needed for {stale_days} days")
        return Reviewed(similar, tuple(stale[:limit]), tuple(warnings))

    async def _similar(self, limit: int, warnings: list[str]) -> tuple[SimilarPair, ...]:
        most = self.compared_max
        rows = await self.notes.comparable_texts(
            most + 1, per_page=self.page_rows, chars=WORDS_OF_CHARS
        )
        if not rows:
            return ()
        texts = {str(row[1]): _Text(*map(str, row[1:])) for row in rows[:most]}
        vectors = await self.vectors()
        if vectors is None:
            if len(rows) > most:
                warnings.append(f"only the newest {most:,} notes were compared")
            pairs = await self._by_words([*texts.values()], warnings)
        else:
            pairs = await self._by_vectors(vectors, warnings)
        pairs = [pair for pair in pairs if pair[0] in texts and pair[1] in texts]
        least = SIMILAR_WORDS if vectors is None else SIMILAR_COSINE
        told = {note_id: each.text for note_id, each in texts.items()}
        judged, entries = await asyncio.to_thread(contradiction.judged, pairs, told, least)
        if entries:
            warnings.append(
                f"not compared with one another were {entries:,} notes that are alike as entries "
                "of a diary are"
            )
        if len(judged) > limit:
            warnings.append(f"more than these {limit} pairs of notes were found")
        shown = judged[:limit]
        wanted = [*dict.fromkeys(note_id for pair, _ in shown for note_id in pair[:2])]
        found: dict[str, Note] = {}
        for start in range(0, len(wanted), _NOTES_AT_ONCE):
            some = await self.notes.get_many(wanted[start : start + _NOTES_AT_ONCE])
            found |= {note.note_id: note for note in some if note.superseded is None}
        similar = []
        for (first, second, similarity), contradict in shown:
            if first in found and second in found:
                both = (found[first], found[second])
                older, newer = sorted(both, key=lambda note: (note.created_at, note.note_id))
                measured = similarity if vectors is not None else 0.0
                similar.append(SimilarPair(older, newer, measured, contradict))
        return tuple(similar)

    async def _by_vectors(self, vectors: Snapshot, warnings: list[str]) -> list[Alike]:
        most = self.compared_max
        passages = await self.notes.comparable_passages(most + 1, per_page=self.page_rows)
        if len(passages) > most:
            warnings.append(f"only the newest {most:,} passages were compared")
        pairs, missing = await asyncio.to_thread(_compared, passages[:most], vectors)
        if missing:
            warnings.append(f"not compared were passages that have no vector yet: {missing:,}")
        if len(pairs) == _PAIRS_MAX:
            warnings.append(f"only the {_PAIRS_MAX:,} most similar pairs of notes were read")
        return pairs

    async def _by_words(self, texts: Sequence[_Text], warnings: list[str]) -> list[Alike]:
        """The same as `_by_vectors`, by words."""
        if self.wanted:
            warnings.append(
                "there are no vectors of these notes; they were compared by the words of their "
                f"first {WORDS_OF_CHARS:,} characters"
            )
        pairs, complete = await asyncio.to_thread(
            by_words,
            *([each.text for each in texts], _numbered([each.scope for each in texts])),
            _PAIRS_MAX,
        )
        if not complete:
            warnings.append(
                f"so many notes share words that only {COMPARISONS_MAX:,} pairs were compared"
            )
        return [
            (texts[pair.first].note_id, texts[pair.second].note_id, pair.similarity)
            for pair in pairs
        ]


def _compared(passages: Sequence[Row], snapshot: Snapshot) -> tuple[list[Alike], int]:
    """The most similar pairs of notes, and how many passages have no vector."""
    chunk_ids, owners, scopes = zip(*passages, strict=True) if passages else ((), (), ())
    rows = snapshot.rows_of(np.array(chunk_ids, np.int64))
    known = rows >= 0
    pairs = by_vectors(
        snapshot.matrix[rows[known]],
        np.array(_numbered(owners), np.int64)[known],
        np.array(_numbered(scopes), np.int64)[known],
        _PAIRS_MAX,
    )
    ids = list(map(str, dict.fromkeys(owners)))
    alike = [(ids[pair.first], ids[pair.second], pair.similarity) for pair in pairs]
    return alike, int(np.count_nonzero(~known))


def _numbered(values: Sequence[Value]) -> list[int]:
    """A number for each value; equal values get equal numbers."""
    numbers: dict[Value, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]
