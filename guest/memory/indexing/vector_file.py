"""Vectors in files beside the database, mapped into memory.

A search then needs little memory, and a start does not read every vector out of the database,
which stays the source of truth: a file is compared with it before it is used, and made anew if it
cannot be read. It is not made durable with each vector. A vector that goes is overwritten with
zeros.

There is no file beside an encrypted database: vectors tell what a text was about.
"""

import hashlib
import json
import mmap
import os
import stat
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory.indexing.vectors import Ids, Signs, digests, signs_of
from guest.memory.storage import copies
from guest.memory.storage.reserve import require_room

_MARK: Final = ".vectors-"
_FORMAT: Final = 1
_HEAD_BYTES: Final = 4096
_ROWS_MIN: Final = 256
_BLOCK_ROWS: Final = 2048
"""Rows that are read and compared at once."""


@dataclass(frozen=True)
class Contents:
    """What the vectors in a file are of."""

    namespace: str
    model_id: str
    dimensions: int

    def head(self) -> bytes:
        """The beginning of the file. Raises `OSError` if it does not fit."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}).encode()
        if len(text) > _HEAD_BYTES:
            raise OSError("the names of the namespace and its model are too long for a file")
        return text.ljust(_HEAD_BYTES, b"\0")


class VectorFiles:
    """The files beside `database`, one for each namespace."""

    def __init__(self, database: Path) -> None:
        self._database = Path(os.path.realpath(database))

    def path_of(self, namespace: str) -> Path:
        name = hashlib.sha256(namespace.encode()).hexdigest()[:16]
        return copies.beside_of(self._database, _MARK + name)

    def contents(self) -> dict[Path, Contents | None]:
        """All files, and what they say is in them; None if that cannot be read, or has its place in
        another file.

        What is no plain file, such as a link or a pipe, has none of our vectors and is left alone.
        """
        start = self._database.name + _MARK
        with os.scandir(self._database.parent) as entries:
            paths = sorted(
                Path(entry.path)
                for entry in entries
                if entry.name.startswith(start) and entry.is_file(follow_symlinks=False)
            )
        found = {path: _contents(path) for path in paths}
        return {
            path: each if each and path == self.path_of(each.namespace) else None
            for path, each in found.items()
        }

    def erase(self) -> None:
        """Overwrite and remove all files. Raises `StorageError`."""
        for path in self.contents():
            copies.erase(path)


def files_beside(database: Path, key: str) -> VectorFiles | None:
    """The files beside a database; none, and no old ones, beside one that is encrypted.

    Raises `StorageError`.
    """
    files = VectorFiles(database)
    if not key:
        return files
    files.erase()
    return None


def _contents(path: Path) -> Contents | None:
    try:
        with path.open("rb") as file:
            head = json.loads(file.read(_HEAD_BYTES).rstrip(b"\0"))
        if head.pop("format") != _FORMAT:
            return None
        return Contents(str(head["namespace"]), str(head["model_id"]), int(head["dimensions"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


class VectorFile:
    """Rows of a passage's id and its vector; a row that is not in use is zeros.

    Written with system calls, so that a full disk is an error here, and read through the mapping.
    A process that is killed leaves what it has written. All methods raise `OSError`.
    """

    def __init__(self, path: Path, descriptor: int, contents: Contents) -> None:
        """Use `open`."""
        self._path = path
        self._descriptor = descriptor
        self._row = np.dtype([("id", "<i8"), ("vector", "<f4", (contents.dimensions,))])
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, path: Path, contents: Contents) -> "VectorFile":
        """Open the file at `path`; one that is not of these `contents` is overwritten and replaced.

        It is never made shorter: a search that still has it mapped finds zeros in it. Raises
        `StorageError` if there is no room, or the old one cannot be removed.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        file = cls(path, descriptor, contents)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        os.fchmod(descriptor, 0o600)
        size = os.fstat(descriptor).st_size
        head, used = contents.head(), size - _HEAD_BYTES
        whole = used >= file._row.itemsize and not used % file._row.itemsize
        if not size:
            file._begin(head)
        elif not whole or os.pread(descriptor, _HEAD_BYTES, 0) != head:
            copies.erase(path)
            return cls.open(path, contents)
        file._map()
        return file

    @property
    def vectors(self) -> Vectors:
        """All rows, including those not in use."""
        return self._vectors

    def found(self, chunk_ids: Ids, expected: Ids) -> tuple[Ids, Signs]:
        """The rows whose vectors are those of passages, by `digests`; all others are zeroed.

        Args:
            chunk_ids: The passages that have a vector, ascending.
            expected: The digest of each one's vector.

        Returns:
            For each row up to the last one in use, the id of its passage, 0 for an unused row;
            and the signs of these rows.
        """
        capacity = len(self._vectors)
        ids, signs = np.zeros(capacity, np.int64), signs_of(self._vectors[:0], capacity)
        seen = np.zeros(len(chunk_ids), bool)
        wrong: list[int] = []
        for start in range(0, capacity, _BLOCK_ROWS):
            rows = self._read(start, min(_BLOCK_ROWS, capacity - start))
            vectors = np.ascontiguousarray(rows["vector"])
            own = digests(vectors)
            places = np.searchsorted(chunk_ids, rows["id"])
            places[places == len(chunk_ids)] = 0
            right = np.zeros(len(rows), bool)
            if len(chunk_ids):
                right = (chunk_ids[places] == rows["id"]) & (expected[places] == own)
                again = seen[places] | ~_first(np.where(right, places, -1))
                right &= ~again
                seen[places[right]] = True
            wrong += (np.flatnonzero(~right & ((rows["id"] != 0) | (own != 0))) + start).tolist()
            ids[start : start + len(rows)] = np.where(right, rows["id"], 0)
            signs[:, start : start + len(rows)] = signs_of(vectors)
        if wrong:
            self.clear(wrong)
            self.sync()
        used = int(np.flatnonzero(ids)[-1]) + 1 if ids.any() else 0
        return ids[:used], signs[:, :used]

    def write(self, start: int, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Write vectors into the rows from `start`."""
        rows = np.zeros(len(chunk_ids), self._row)
        rows["id"], rows["vector"] = chunk_ids, vectors
        self._write(self._offset(start), rows.tobytes())

    def clear(self, rows: Iterable[int]) -> None:
        """Zero rows."""
        for row in rows:
            self._write(self._offset(row), bytes(self._row.itemsize))

    def extend(self, rows: int) -> None:
        """Make room for this number of rows in all. Raises `StorageError` if there is none."""
        size = self._offset(rows)
        require_room(self._path, size - os.fstat(self._descriptor).st_size)
        os.posix_fallocate(self._descriptor, 0, size)
        self._map()

    def sync(self) -> None:
        """Make all changes so far durable."""
        os.fdatasync(self._descriptor)

    def _begin(self, head: bytes) -> None:
        """Begin in an empty file."""
        require_room(self._path, self._offset(_ROWS_MIN))
        os.posix_fallocate(self._descriptor, 0, self._offset(_ROWS_MIN))
        self._write(0, head)

    def _map(self) -> None:
        size = os.fstat(self._descriptor).st_size
        mapped = mmap.mmap(self._descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        rows: Any = np.frombuffer(mapped, self._row, offset=_HEAD_BYTES)
        self._vectors: Vectors = rows["vector"]

    def _read(self, start: int, rows: int) -> Any:
        size = rows * self._row.itemsize
        data = os.pread(self._descriptor, size, self._offset(start))
        if len(data) != size:
            raise OSError(f"{self._path} became shorter")
        return np.frombuffer(data, self._row)

    def _write(self, offset: int, data: bytes) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, offset)
            data, offset = data[written:], offset + written

    def _offset(self, row: int) -> int:
        return _HEAD_BYTES + row * self._row.itemsize


def _first(values: Ids) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Which of `values` do not occur before."""
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first
