"""Which of many notes say nearly the same: by their vectors, or else by their words.

Plain computation without a database; run in a thread, it leaves the others their turn
every few milliseconds.
"""

import asyncio
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory import validation
from guest.memory.factory import Store
from guest.memory.models import Note, User, at
from guest.memory.notes import repository
from guest.memory.notes.contradiction import content_words, likeness, may_contradict
from guest.memory.replica.replica import Replica, Unasked
from guest.memory.search.vectors import Ids, Scores, Snapshot
from guest.memory.storage.base import INTEGER_MAX, Database, Row, Value

NEAR_COSINE: Final = 0.85
NEAR_WORDS: Final = 0.8
COMPARISONS_MAX: Final = 1_000_000
"""How many notes are compared by words with another one; a few seconds."""

_ROUNDING: Final = 1e-9
_BLOCK: Final = 128
"""Passages compared at once with all others: a product takes a few milliseconds."""


@dataclass(frozen=True)
class Pair:
    """Two notes, each by its number, the lower one first. `similarity` is their cosine,
    or the share of words they have in common."""

    first: int
    second: int
    similarity: float


def by_vectors(matrix: Vectors, notes: Ids, scopes: Ids, limit: int) -> list[Pair]:
    """The `limit` nearest pairs of notes; two notes are as near as their nearest passages.

    Each row of `matrix` is a passage of the note with the number in `notes`. Only notes
    of the same scope are compared.
    """
    count = int(notes.max(initial=-1)) + 1
    pairs, nearest = np.zeros(0, np.int64), np.zeros(0, np.float32)
    enough = np.nextafter(np.float32(NEAR_COSINE), np.float32(0))
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


def by_words(texts: Sequence[str], scopes: Sequence[int], limit: int) -> tuple[list[Pair], bool]:
    """The `limit` pairs of texts with most words in common, and whether all were compared."""
    words = [content_words(text) for text in texts]
    candidates = _sharing(words, scopes)
    pairs: list[Pair] = []
    for comparisons, (first, second) in enumerate(candidates):
        if comparisons == COMPARISONS_MAX:
            return _most_alike(pairs, limit), False
        share = likeness(words[first], words[second])
        if share >= NEAR_WORDS:
            pairs.append(Pair(first, second, share))
    return _most_alike(pairs, limit), True


def _best(pairs: Ids, cosines: Scores, limit: int) -> tuple[Ids, Scores]:
    """The nearest, each pair once; of pairs as near as each other the newest notes'."""
    order = np.lexsort((-pairs, -cosines))
    _, first = np.unique(pairs[order], return_index=True)
    best = order[np.sort(first)][:limit]
    return pairs[best], cosines[best]


def _sharing(words: Sequence[frozenset[str]], scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of one scope that may be alike enough, each once.

    Of two sets that have so many words in common, some of the rarest words of the one
    are among the rarest of the other; only those are looked up.
    """
    common = Counter(word for some in words for word in some)
    having: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i, own in enumerate(words):
        rarest = sorted(own, key=lambda word: (common[word], word))
        shared = math.ceil(NEAR_WORDS * len(own) - _ROUNDING)
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
"""The newest passages, or notes, that are compared with each other."""

_ROWS: Final = 500
_NOTES_AT_ONCE: Final = 100
"""Rows, and whole notes, per query, so that other work gets its turn in between."""

_WORDS_OF_CHARS: Final = 2_000

_PASSAGES: Final = """
SELECT chunks.chunk_id, notes.note_id, notes.scope_session FROM chunks CROSS JOIN notes
    ON notes.namespace = chunks.namespace AND notes.note_id = chunks.note_id
    WHERE chunks.namespace = ? AND chunks.chunk_id < ?
        AND notes.superseded_by IS NULL AND notes.key IS NULL
    ORDER BY chunks.chunk_id DESC LIMIT ?
"""
_TEXTS: Final = f"""
SELECT seq, note_id, scope_session, substr(content, 1, {_WORDS_OF_CHARS}) FROM notes
    WHERE namespace = ? AND seq < ? AND superseded_by IS NULL AND key IS NULL
    ORDER BY seq DESC LIMIT ?
"""  # noqa: S608
_MODELS: Final = """
SELECT model_id FROM chunks_vec WHERE namespace = ? AND model_id > ''
    GROUP BY model_id ORDER BY COUNT(*) DESC LIMIT 1
"""
_DIMENSIONS: Final = """
SELECT length(vector) / 4 FROM chunks_vec WHERE namespace = ? AND model_id = ? LIMIT 1
"""
_STALE: Final = f"""
SELECT {repository.COLUMNS} FROM notes
    WHERE namespace = ?1 AND updated_at < ?2 AND accessed_at < ?2 AND superseded_by IS NULL
        AND (key IS NULL OR key NOT IN {repository.FIXED})
    ORDER BY updated_at, seq LIMIT ?3
"""  # noqa: S608


@dataclass(frozen=True)
class Near:
    """Two notes that say nearly the same. `similarity` is their cosine, 0 where they were
    compared by their words."""

    older: Note
    newer: Note
    similarity: float
    may_contradict: bool


@dataclass(frozen=True)
class Reviewed:
    """Pairs, nearest first; notes neither written nor recalled for long, oldest first; and
    what was not looked at."""

    near: tuple[Near, ...]
    stale: tuple[Note, ...]
    warnings: tuple[str, ...] = ()


async def review(store: Store, user: User, *, stale_days: int, limit: int) -> Reviewed:
    """See `Memory.review`."""
    validation.check_range("limit", limit, REVIEW_MAX)
    validation.check_range("stale_days", stale_days, STALE_DAYS_MAX)
    namespace = user.notes
    warnings: list[str] = []
    pairs = await _near(store, namespace, limit, warnings)
    before = at(datetime.now(UTC) - timedelta(days=stale_days))
    result = await store.database.execute(_STALE, (namespace, before, limit + 1))
    stale = [repository.note_of(row) for row in result.rows]
    if len(stale) > limit:
        warnings.append(f"more notes than these {limit} were not needed for {stale_days} days")
    return Reviewed(pairs, tuple(stale[:limit]), tuple(warnings))


async def _near(store: Store, namespace: str, limit: int, warnings: list[str]) -> tuple[Near, ...]:
    snapshot = await _vectors(store, namespace)
    if snapshot is None:
        note_ids, pairs = await _by_words(store.database, namespace, limit + 1, warnings)
    else:
        note_ids, pairs = await _by_vectors(
            store.database, namespace, snapshot, limit + 1, warnings
        )
    if len(pairs) > limit:
        warnings.append(f"more than these {limit} pairs of notes say nearly the same")
        pairs = pairs[:limit]
    numbers = sorted({number for pair in pairs for number in (pair.first, pair.second)})
    found: dict[str, Note] = {}
    for start in range(0, len(numbers), _NOTES_AT_ONCE):
        wanted = [note_ids[number] for number in numbers[start : start + _NOTES_AT_ONCE]]
        read = await repository.get_many(store.database, namespace, wanted)
        found |= {note.note_id: note for note in read if note.superseded is None}
    both = [
        (found[note_ids[pair.first]], found[note_ids[pair.second]], pair.similarity)
        for pair in pairs
        if note_ids[pair.first] in found and note_ids[pair.second] in found
    ]
    return await asyncio.to_thread(_judged, both, measured=snapshot is not None)


def _judged(both: Sequence[tuple[Note, Note, float]], *, measured: bool) -> tuple[Near, ...]:
    pairs = []
    for first, second, similarity in both:
        older, newer = sorted((first, second), key=lambda note: (note.created_at, note.note_id))
        contradict = may_contradict(older.text, newer.text)
        pairs.append(Near(older, newer, similarity if measured else 0.0, contradict))
    return tuple(pairs)


async def _by_vectors(
    database: Database, namespace: str, snapshot: Snapshot, limit: int, warnings: list[str]
) -> tuple[list[str], list[Pair]]:
    """The ids of notes, and pairs of their places among them."""
    passages = await _newest(database, _PASSAGES, namespace)
    if len(passages) > PASSAGES_MAX:
        warnings.append(f"only the newest {PASSAGES_MAX:,} passages were compared")
    note_ids, pairs, missing = await asyncio.to_thread(
        _compared, passages[:PASSAGES_MAX], snapshot, limit
    )
    if missing:
        warnings.append(f"not compared were passages that have no vector yet: {missing:,}")
    return note_ids, pairs


def _compared(
    passages: Sequence[Row], snapshot: Snapshot, limit: int
) -> tuple[list[str], list[Pair], int]:
    """See `_by_vectors`; and how many passages have no vector."""
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


async def _by_words(
    database: Database, namespace: str, limit: int, warnings: list[str]
) -> tuple[list[str], list[Pair]]:
    """See `_by_vectors`."""
    rows = await _newest(database, _TEXTS, namespace)
    if not rows:
        return [], []
    warnings.append(
        "there are no vectors of these notes; they were compared by the words of their first "
        f"{_WORDS_OF_CHARS:,} characters"
    )
    if len(rows) > PASSAGES_MAX:
        warnings.append(f"only the newest {PASSAGES_MAX:,} notes were compared")
    rows = rows[:PASSAGES_MAX]
    texts, scopes = [str(row[3]) for row in rows], _numbered([row[2] for row in rows])
    pairs, complete = await asyncio.to_thread(by_words, texts, scopes, limit)
    if not complete:
        warnings.append(
            f"so many notes share words that only {COMPARISONS_MAX:,} pairs were compared"
        )
    return [str(row[1]) for row in rows], pairs


async def _vectors(store: Store, namespace: str) -> Snapshot | None:
    """The vectors that searches use; None where there are none."""
    if store.server is None:
        database, vectors = store.database, store.vectors
    else:
        replica = store.server.replica
        await _freshened(replica, namespace, store.config.patience.copy_s)
        database, vectors = replica.database, replica.vectors
    model_id = store.vectorizer.model_id
    if not model_id:
        models = (await database.execute(_MODELS, (namespace,))).rows
        model_id = str(models[0][0]) if models else ""
    sizes = (await database.execute(_DIMENSIONS, (namespace, model_id))).rows
    if not sizes:
        return None
    snapshot, _ = await vectors.snapshot(namespace, model_id, cast(int, sizes[0][0]))
    return snapshot


async def _freshened(replica: Replica, namespace: str, wait_s: float) -> None:
    """Wait for the copy to follow the server, though not for long: what it lacks is said."""
    task = replica.sync([namespace])
    await asyncio.wait({task}, timeout=wait_s)
    if task.done():
        try:
            task.result()
        except Unasked as error:
            raise error.problem from None


async def _newest(database: Database, sql: str, namespace: str) -> list[Row]:
    """One row more than are compared, by the number in the first column, highest first."""
    rows: list[Row] = []
    before = INTEGER_MAX
    while len(rows) <= PASSAGES_MAX:
        page = (await database.execute(sql, (namespace, before, _ROWS))).rows
        rows += page
        if len(page) < _ROWS:
            break
        before = cast(int, page[-1][0])
    return rows


def _numbered(values: Sequence[Value]) -> list[int]:
    """A number for each value, the same for the same."""
    numbers: dict[Value, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]
