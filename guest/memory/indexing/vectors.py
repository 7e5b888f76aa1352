"""The resident vectors of one namespace, and those most similar to a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from guest.embedding.backends import Vectors

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Signs = npt.NDArray[np.uint64]

EXACT_ROWS: Final = 10_000
"""Up to this number of vectors, each one's cosine is computed. In more, the signs of their numbers
choose those whose cosines are."""

CHOSEN_BY_SIGNS: Final = 2_000
"""How many of the vectors with the most signs in common have their cosines computed."""

_CAPACITY_MIN: Final = 256
_GROWTH: Final = 1.25
_DEAD_ROWS_MAX: Final = 1024
_BITS_DROPPED: Final = 11
_SIGN_BLOCK: Final = 16_384
"""How many rows' signs are compared at once; what is between fits into a core's cache."""


@dataclass(frozen=True)
class Nearest:
    """Passages and their exact cosines with a query, most similar first."""

    ids: Ids
    cosines: Scores


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The vectors at one moment; later changes do not move its rows.

    A row removed later reads as zeros, which are similar to nothing. `signs` has the signs of each
    row's numbers, 64 a word; a row is a column of it. `order` sorts `ids` if they are not
    ascending. `dead` are the rows removed before that moment.
    """

    ids: Ids
    matrix: Vectors
    signs: Signs
    order: Ids | None
    dead: Ids

    @property
    def live(self) -> int:
        return len(self.ids) - len(self.dead)

    def rows_of(self, chunk_ids: Ids) -> Ids:
        """The rows of passages; -1 for passages without a vector here."""
        if not len(self.ids):
            return np.full(len(chunk_ids), -1, np.int64)
        ascending = self.ids if self.order is None else self.ids[self.order]
        places = np.searchsorted(ascending, chunk_ids, side="right") - 1
        rows = places if self.order is None else self.order[places]
        return np.where(ascending[places] == chunk_ids, rows, -1)

    def cosines_of(self, chunk_ids: Ids, queries: Vectors) -> Scores:
        """The highest cosine of each passage with any of `queries`; 0 for those without a vector
        here."""
        rows = self.rows_of(chunk_ids)
        known = rows >= 0
        cosines = np.zeros(len(rows), np.float32)
        cosines[known] = _highest(self.matrix[rows[known]], queries)
        return cosines

    def nearest(
        self, queries: Vectors, count: int, least: float, only: Ids | None = None
    ) -> Nearest:
        """The `count` passages with the highest cosine with any of `queries`, of those in `only`
        if given.

        A cosine is at least `least`, and above 0. With more than `EXACT_ROWS` vectors, one in a few
        hundred of the first ten may be missed: those considered have the most signs in common with
        a query.
        """
        if len(self.ids) <= EXACT_ROWS:
            rows, cosines = None, _highest(self.matrix, queries)
            if only is not None:
                rows = self._known(only)
                cosines = cosines[rows]
        else:
            rows = self._alike(queries, max(CHOSEN_BY_SIGNS, count), only)
            cosines = _highest(self.matrix[rows], queries)
        kept = np.flatnonzero((cosines >= least) & (cosines > 0))
        if len(kept) > count:
            kept = kept[np.argpartition(-cosines[kept], count - 1)[:count]]
        ids = self.ids[kept if rows is None else rows[kept]]
        order = np.lexsort((ids, -cosines[kept]))
        return Nearest(ids[order], cosines[kept][order])

    def _known(self, chunk_ids: Ids) -> Ids:
        rows = self.rows_of(np.unique(chunk_ids))
        return rows[rows >= 0]

    def _alike(self, queries: Vectors, count: int, only: Ids | None) -> Ids:
        """At least `count` rows, those with the most signs in common with any of `queries`."""
        rows = None if only is None else self._known(only)
        if rows is not None and len(rows) <= count:
            return rows
        differing = self._differing(signs_of(queries[:1]))
        for query in queries[1:]:
            np.minimum(differing, self._differing(signs_of(query[None])), out=differing)
        differing[self.dead] = np.iinfo(np.uint16).max
        if rows is not None:
            differing = differing[rows]
        within = np.cumsum(np.bincount(differing, minlength=1))
        alike = np.flatnonzero(differing <= np.searchsorted(within, min(count, len(differing))))
        return alike if rows is None else rows[alike]

    def _differing(self, query: Signs) -> npt.NDArray[np.uint16]:
        """How many signs of each row differ from the query's."""
        differing = np.zeros(len(self.ids), np.uint16)
        for start in range(0, len(self.ids), _SIGN_BLOCK):
            block = slice(start, start + _SIGN_BLOCK)
            for signs, own in zip(self.signs, query[:, 0], strict=True):
                differing[block] += np.bitwise_count(signs[block] ^ own)
        return differing


def _highest(matrix: Vectors, queries: Vectors) -> Scores:
    """The highest cosine of each row with any of `queries`.

    Computed row by row in one thread: as fast as BLAS on all cores, and ten times as fast when
    another program uses a core, because BLAS's threads wait for each other.
    """
    best = np.vecdot(matrix, queries[0])
    for query in queries[1:]:
        np.maximum(best, np.vecdot(matrix, query), out=best)
    return np.asarray(best, np.float32)


def signs_of(vectors: Vectors, capacity: int = 0) -> Signs:
    """The signs of each vector's numbers, one vector a column; at least `capacity` columns."""
    packed = np.packbits(vectors > 0, axis=1)
    words = np.zeros((max(len(vectors), capacity), -(-vectors.shape[1] // 64) * 8), np.uint8)
    words[: len(vectors), : packed.shape[1]] = packed
    return words.view(np.uint64).T.copy()


def digests(vectors: Vectors) -> Ids:
    """A number for each vector that tells, in practice, whether another one has the same bytes.

    It has 53 bits, which every database keeps.
    """
    rows = np.ascontiguousarray(vectors, "<f4")
    if rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    words = rows.view("<u8")
    sums = np.vecdot(words, _factors(words.shape[1])).view(np.int64)
    return np.asarray(sums >> _BITS_DROPPED)


@cache
def _factors(count: int) -> Signs:
    """Odd numbers that look random, always the same (SplitMix64)."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((state ^ (state >> np.uint64(31))) | np.uint64(1), np.uint64)


class Table(Protocol):
    """Where the vectors of a `ResidentVectors` are kept outside of this process's own memory.

    Its rows stay where they are.
    """

    @property
    def vectors(self) -> Vectors:
        """All rows there is room for."""
        ...

    def write(self, start: int, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Write vectors into the rows from `start`."""
        ...

    def clear(self, rows: Sequence[int]) -> None:
        """Zero rows."""
        ...

    def extend(self, rows: int) -> None:
        """Make room for this number of rows in all."""
        ...


class ResidentVectors:
    """A growing matrix of unit vectors by passage id; in a `table`, if there is one.

    New rows are only added after those a `Snapshot` shows, and a reorganisation makes new arrays,
    so another thread may read a snapshot.
    """

    def __init__(self, dimensions: int) -> None:
        self._ids: Ids
        self._signs: Signs
        self._count = 0
        self._rows: dict[int, int] = {}
        self._dead: list[int] = []
        self._ascending = True
        self._order: Ids | None = None
        self._table: Table | None = None
        self._allocate(_CAPACITY_MIN, dimensions)

    @classmethod
    def within(cls, table: Table, chunk_ids: Ids, signs: Signs) -> "ResidentVectors":
        """The vectors that are in `table` already.

        Args:
            table: Also receives the changes.
            chunk_ids: The passage of each row, 0 for one that is not in use; no others are used.
            signs: The signs of these rows.
        """
        resident = cls(table.vectors.shape[1])
        resident._table = table
        resident._resize(len(table.vectors))
        resident._take(chunk_ids, signs)
        return resident

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dimensions(self) -> int:
        return int(self._matrix.shape[1])

    @property
    def passages(self) -> Ids:
        """The passages that have a vector, in no order."""
        return np.fromiter(self._rows, np.int64, len(self._rows))

    @property
    def ascending(self) -> bool:
        """Whether the rows are in the order of the passages' ids, which is quicker."""
        return self._ascending

    @property
    def wasteful(self) -> bool:
        """Whether there are more removed rows than others. Those in a table are not moved."""
        return len(self._dead) > max(_DEAD_ROWS_MAX, len(self._rows))

    def add(self, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Add vectors, replacing any that the passages had."""
        if not chunk_ids:
            return
        self.remove(chunk_ids)
        needed = self._count + len(chunk_ids)
        if needed > len(self._ids):
            if self._table is None:
                self._reorganise(needed)
            else:
                self._table.extend(int(needed * _GROWTH))
                self._resize(len(self._table.vectors))
        start, end = self._count, self._count + len(chunk_ids)
        if self._table is None:
            self._matrix[start:end] = vectors
        else:
            self._table.write(start, chunk_ids, vectors)
        self._count = end
        self._ids[start:end] = chunk_ids
        self._signs[:, start:end] = signs_of(vectors)
        self._rows.update(zip(chunk_ids, range(start, end), strict=True))
        added = self._ids[max(0, start - 1) : end]
        self._ascending &= bool((added[1:] > added[:-1]).all())
        self._order = None

    def remove(self, chunk_ids: Sequence[int]) -> None:
        """Remove vectors; ids without a vector are ignored."""
        rows = [self._rows.pop(chunk_id) for chunk_id in chunk_ids if chunk_id in self._rows]
        self._dead += rows
        if self._table is not None:
            self._table.clear(rows)
            return
        self._matrix[rows] = 0
        if self.wasteful:
            self._reorganise(len(self._rows))

    def snapshot(self) -> Snapshot:
        ids = self._ids[: self._count]
        if not self._ascending and self._order is None:
            # stable: if an id was removed and added again, the newer row comes last
            self._order = np.argsort(ids, kind="stable")
        return Snapshot(
            ids,
            self._matrix[: self._count],
            self._signs[:, : self._count],
            self._order,
            np.array(self._dead, np.int64),
        )

    def _take(self, chunk_ids: Ids, signs: Signs) -> None:
        """Make the first rows those of `chunk_ids`."""
        self._count = len(chunk_ids)
        rows = np.flatnonzero(chunk_ids)
        self._dead = np.flatnonzero(chunk_ids == 0).tolist()
        self._rows = dict(zip(chunk_ids[rows].tolist(), rows.tolist(), strict=True))
        # an unused row comes before the next one with the same id, and is not found by it
        following = np.where(chunk_ids == 0, np.iinfo(np.int64).max, chunk_ids)
        if (chunk_ids[rows][1:] > chunk_ids[rows][:-1]).all():
            following = np.minimum.accumulate(following[::-1])[::-1]
        else:
            following, self._ascending = chunk_ids, False
        self._ids[: self._count] = following
        self._signs[:, : self._count] = signs

    def _reorganise(self, needed: int) -> None:
        """Move the live rows into new arrays, sorted by id, with room for more than `needed`."""
        ids, matrix, signs = self._ids, self._matrix, self._signs
        live = np.array([self._rows[chunk_id] for chunk_id in sorted(self._rows)], np.int64)
        self._allocate(int(needed * _GROWTH), matrix.shape[1])
        self._count = len(live)
        self._ids[: self._count] = ids[live]
        self._matrix[: self._count] = matrix[live]
        self._signs[:, : self._count] = signs[:, live]
        self._rows = dict(zip(self._ids[: self._count].tolist(), range(self._count), strict=True))
        self._dead = []
        self._ascending, self._order = True, None

    def _resize(self, capacity: int) -> None:
        """Show all rows of the table."""
        assert self._table is not None
        ids, signs = self._ids, self._signs
        self._matrix = self._table.vectors
        self._ids = np.zeros(capacity, np.int64)
        self._signs = np.zeros((len(signs), capacity), np.uint64)
        self._ids[: self._count] = ids[: self._count]
        self._signs[:, : self._count] = signs[:, : self._count]

    def _allocate(self, capacity: int, dimensions: int) -> None:
        capacity = max(capacity, _CAPACITY_MIN)
        self._ids = np.zeros(capacity, np.int64)
        self._matrix = np.zeros((capacity, dimensions), np.float32)
        self._signs = np.zeros((-(-dimensions // 64), capacity), np.uint64)
