"""The resident vectors of one namespace, and their exact similarity to a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from guest.embedding.backends import Vectors

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_CAPACITY_MIN: Final = 256
_GROWTH: Final = 1.25
_DEAD_ROWS_MAX: Final = 1024


@dataclass(frozen=True)
class Snapshot:
    """The vectors at one moment; later changes do not move its rows.

    A row removed later reads as zeros, which are similar to nothing. `order` sorts `ids` if they
    are not ascending. `live` counts the rows that existed at that moment.
    """

    ids: Ids
    matrix: Vectors
    order: Ids | None
    live: int

    def rows_of(self, chunk_ids: Ids) -> Ids:
        """The rows of passages; -1 for passages without a vector here."""
        if not len(self.ids):
            return np.full(len(chunk_ids), -1, np.int64)
        ascending = self.ids if self.order is None else self.ids[self.order]
        places = np.searchsorted(ascending, chunk_ids, side="right") - 1
        rows = places if self.order is None else self.order[places]
        return np.where(ascending[places] == chunk_ids, rows, -1)

    def cosines(self, queries: Vectors) -> Scores:
        """The highest cosine of each row with any of `queries`; zeros without rows.

        Computed row by row in one thread: as fast as BLAS on all cores, and ten times as fast when
        another program uses a core, because BLAS's threads wait for each other.
        """
        best = np.vecdot(self.matrix, queries[0])
        for query in queries[1:]:
            np.maximum(best, np.vecdot(self.matrix, query), out=best)
        return np.asarray(best, np.float32)


class ResidentVectors:
    """A growing matrix of unit vectors by passage id.

    New rows are only added after those a `Snapshot` shows, and a reorganisation makes new arrays,
    so another thread may read a snapshot.
    """

    def __init__(self, dimensions: int) -> None:
        self._count = 0
        self._rows: dict[int, int] = {}
        self._ascending = True
        self._order: Ids | None = None
        self._allocate(_CAPACITY_MIN, dimensions)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dimensions(self) -> int:
        return self._matrix.shape[1]

    def add(self, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Add vectors, replacing any that the passages had."""
        if not chunk_ids:
            return
        self.remove(chunk_ids)
        if self._count + len(chunk_ids) > len(self._ids):
            self._reorganise(self._count + len(chunk_ids))
        start, self._count = self._count, self._count + len(chunk_ids)
        self._ids[start : self._count] = chunk_ids
        self._matrix[start : self._count] = vectors
        self._rows.update(zip(chunk_ids, range(start, self._count), strict=True))
        added = self._ids[max(0, start - 1) : self._count]
        self._ascending &= bool((added[1:] > added[:-1]).all())
        self._order = None

    def remove(self, chunk_ids: Sequence[int]) -> None:
        """Remove vectors; ids without a vector are ignored."""
        for chunk_id in chunk_ids:
            row = self._rows.pop(chunk_id, None)
            if row is not None:
                self._matrix[row] = 0
        if self._count - len(self._rows) > max(_DEAD_ROWS_MAX, len(self._rows)):
            self._reorganise(len(self._rows))

    def snapshot(self) -> Snapshot:
        ids = self._ids[: self._count]
        if not self._ascending and self._order is None:
            # stable: if an id was removed and added again, the newer row comes last
            self._order = np.argsort(ids, kind="stable")
        return Snapshot(ids, self._matrix[: self._count], self._order, len(self._rows))

    def _reorganise(self, needed: int) -> None:
        """Move the live rows into new arrays, sorted by id, with room for more than `needed`."""
        ids, matrix = self._ids, self._matrix
        live = np.array([self._rows[chunk_id] for chunk_id in sorted(self._rows)], np.int64)
        self._allocate(int(needed * _GROWTH), matrix.shape[1])
        self._count = len(live)
        self._ids[: self._count] = ids[live]
        self._matrix[: self._count] = matrix[live]
        self._rows = dict(zip(self._ids[: self._count].tolist(), range(self._count), strict=True))
        self._ascending, self._order = True, None

    def _allocate(self, capacity: int, dimensions: int) -> None:
        capacity = max(capacity, _CAPACITY_MIN)
        self._ids = np.zeros(capacity, np.int64)
        self._matrix = np.zeros((capacity, dimensions), np.float32)
