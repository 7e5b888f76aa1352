"""The resident vectors of one namespace, and those most similar to a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


def signs_of(vectors: Vectors) -> Signs:
    """The signs of each vector's numbers, one vector a column."""
    packed = np.packbits(vectors > 0, axis=1)
    words = np.zeros((len(vectors), -(-vectors.shape[1] // 64) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64).T


class ResidentVectors:
    """A growing matrix of unit vectors by passage id.

    New rows are only added after those a `Snapshot` shows, and a reorganisation makes new arrays,
    so another thread may read a snapshot.
    """

    def __init__(self, dimensions: int, expected: int = 0) -> None:
        """Make an empty matrix.

        Args:
            expected: For so many vectors there is room at once, and for some more.
        """
        self._ids: Ids
        self._signs: Signs
        self._count = 0
        self._rows: dict[int, int] = {}
        self._dead: list[int] = []
        self._ascending = True
        self._order: Ids | None = None
        self._allocate(expected, dimensions)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dimensions(self) -> int:
        return int(self._matrix.shape[1])

    def add(self, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Add vectors, replacing any that the passages had."""
        if not chunk_ids:
            return
        self.remove(chunk_ids)
        start, end = self._count, self._count + len(chunk_ids)
        if end > len(self._ids):
            self._reorganise(end)
            start, end = self._count, self._count + len(chunk_ids)
        self._matrix[start:end] = vectors
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
        self._matrix[rows] = 0
        if len(self._dead) > max(_DEAD_ROWS_MAX, len(self._rows)):
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

    def _reorganise(self, needed: int) -> None:
        """Move the live rows into new arrays, sorted by id, with room for more than `needed`."""
        ids, matrix, signs = self._ids, self._matrix, self._signs
        live = np.array([self._rows[chunk_id] for chunk_id in sorted(self._rows)], np.int64)
        self._allocate(needed, matrix.shape[1])
        self._count = len(live)
        self._ids[: self._count] = ids[live]
        self._matrix[: self._count] = matrix[live]
        self._signs[:, : self._count] = signs[:, live]
        self._rows = dict(zip(self._ids[: self._count].tolist(), range(self._count), strict=True))
        self._dead = []
        self._ascending, self._order = True, None

    def _allocate(self, needed: int, dimensions: int) -> None:
        """Make empty arrays with room for `needed` and more; only rows in use take memory."""
        capacity = max(int(needed * _GROWTH), _CAPACITY_MIN)
        self._ids = np.zeros(capacity, np.int64)
        self._matrix = np.zeros((capacity, dimensions), np.float32)
        self._signs = np.zeros((-(-dimensions // 64), capacity), np.uint64)
