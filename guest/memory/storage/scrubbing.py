"""Keeps the unused space of a database's pages free of what was stored there before.

SQLite leaves copies of rows in the unused space of the pages that it writes, at every change and
not only at deletions. Its log tells which pages it has written. So the log is scrubbed before it is
brought into the file: then the file itself is clean at any time, and a deletion needs to look at
the pages in the log only, however large the file is.

That holds while nobody else writes to the file. A record beside it, `<database>.scrubbed`, names
the file and its time of change as they were when it was last known to be clean. If they differ, the
next deletion looks at every page once.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

from wire.disk import held

log = logging.getLogger(__name__)

SUFFIX: Final = ".scrubbed"
_PLAIN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""For opening what may have been put in the place of a plain file."""

_INTERIOR: Final = (2, 5)
_LEAF: Final = (10, 13)
_FIRST_PAGE_HEADER: Final = 100
_SLICE: Final = 256
_PAGES: Final = """
SELECT pgno, data FROM json_each(?) AS wanted CROSS JOIN sqlite_dbpage ON pgno = wanted.value
"""
_LOG_MAX: Final = 1000
"""A log of so many frames is brought into the file."""
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_SALTS: Final = slice(16, 24)
"""Where the log's header has the numbers that are new whenever it begins anew."""
_FRAME_SALTS: Final = slice(8, 16)


def page_gap(number: int, page: bytes) -> tuple[int, int]:
    """The unallocated space of a b-tree page; empty for other pages.

    An overflow page starts with the next page's number and a free page is already zero; neither has
    a b-tree page's type in its first byte.
    """
    header = _FIRST_PAGE_HEADER if number == 1 else 0
    kind = page[header]
    if kind not in _INTERIOR and kind not in _LEAF:
        return 0, 0
    cells = int.from_bytes(page[header + 3 : header + 5], "big")
    content = int.from_bytes(page[header + 5 : header + 7], "big") or 65536
    return header + (12 if kind in _INTERIOR else 8) + 2 * cells, content


@contextmanager
def transaction(engine: Any) -> Iterator[None]:
    """Commit what is done within, or roll it back if that raises."""
    engine.execute("BEGIN IMMEDIATE")
    try:
        yield
        engine.execute("COMMIT")
    except BaseException:
        if engine.in_transaction:
            engine.execute("ROLLBACK")
        raise


class Log:
    """The write-ahead log of `database`: which pages it holds, as its frames' headers tell.

    They are not encrypted. Frames of an earlier beginning have other salts than the log's header.
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-wal")
        self._descriptor: int | None = None
        self._salts = b""
        self._limit = _LOG_MAX

    def pages(self) -> list[int]:
        """The numbers of all pages in the log. It is not long any more until it has grown again."""
        salts, step = self._header()
        numbers = []
        at = _LOG_HEADER
        while step and (header := self._read(_FRAME_HEADER, at))[_FRAME_SALTS] == salts:
            numbers.append(int.from_bytes(header[:4], "big"))
            at += step
        self._salts, self._limit = salts, len(numbers) + _LOG_MAX
        return sorted(set(numbers))

    def is_long(self) -> bool:
        """Whether it has grown by `_LOG_MAX` frames since it began anew or was last read."""
        salts, step = self._header()
        if salts != self._salts:
            self._salts, self._limit = salts, _LOG_MAX
        last = self._read(_FRAME_HEADER, _LOG_HEADER + (self._limit - 1) * step)
        return bool(step) and last[_FRAME_SALTS] == salts

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _header(self) -> tuple[bytes, int]:
        """The salts, and the size of a frame; 0 if the log is empty."""
        header = self._read(_LOG_HEADER, 0)
        if len(header) < _LOG_HEADER:
            return b"", 0
        return header[_SALTS], _FRAME_HEADER + int.from_bytes(header[8:12], "big")

    def _read(self, size: int, at: int) -> bytes:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | _PLAIN)
            except FileNotFoundError:
                return b""
        return os.pread(self._descriptor, size, at)


class Scrubber:
    """Scrubs the pages of the database that `engine` has open, on the thread of that.

    Args:
        database: Its file.
        descriptor: Open on the file for as long as `engine`.
        clean: Whether the file was clean when `engine` opened it: `found_clean`, asked before.
    """

    def __init__(self, database: Path, descriptor: int, engine: Any, *, clean: bool) -> None:
        self._record = database.with_name(database.name + SUFFIX)
        self._descriptor = descriptor
        self._engine = engine
        self._log = Log(database)
        self._clean = clean
        self._left = _state(descriptor)
        self._spoiled = 0
        engine.execute("PRAGMA wal_autocheckpoint = 0").fetchall()

    @staticmethod
    def found_clean(database: Path, descriptor: int) -> bool:
        """Whether a file that no engine has open is clean, except for the pages in its log."""
        if not os.fstat(descriptor).st_size:
            return True
        state = _state(descriptor)
        path = database.with_name(database.name + SUFFIX)
        with suppress(OSError), held(os.open(path, os.O_RDONLY | _PLAIN)) as record:
            return os.read(record, len(state) + 1) == state
        return False

    def is_clean(self) -> bool:
        """Whether only pages in the log may hold remains."""
        return self._clean and self._left == _state(self._descriptor)

    def scrub(self, pages: Sequence[int]) -> None:
        """Zero the unused space of these pages, in one transaction."""
        with transaction(self._engine):
            for start in range(0, len(pages), _SLICE):
                self._zero_gaps(list(pages[start : start + _SLICE]))

    def begin_all(self) -> int:
        """Whoever scrubs all pages one after the other passes the result to `end_all`."""
        self._left = _state(self._descriptor)
        return self._spoiled

    def end_all(self, begun: int) -> None:
        """All pages have been scrubbed since `begin_all`, and the file is clean unless something
        else has come into it meanwhile."""
        self._clean = self._spoiled == begun and self._left == _state(self._descriptor)

    def shorten_log(self) -> None:
        """Bring the log into the file if it is long, as far as readers allow it."""
        if self._log.is_long():
            self.bring_log("PASSIVE", anyway=True)

    def bring_log(self, mode: Literal["PASSIVE", "TRUNCATE"], *, anyway: bool = False) -> bool:
        """Scrub the pages in the log and bring them into the file.

        If they cannot be scrubbed, as on a full disk, this raises, or goes on `anyway`: the file is
        not clean any more then. Returns whether a reader was in the way.
        """
        spoiled = self._left != _state(self._descriptor)
        try:
            self.scrub(self._log.pages())
        except Exception as error:
            if not anyway:
                raise
            log.info("the log is brought into the file unscrubbed: %s", error)
            spoiled = True
        if spoiled:
            self._clean = False
            self._spoiled += 1
        (busy, _, _) = self._engine.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        self._left = _state(self._descriptor)
        if self._clean:
            self._write_record()
        return bool(busy)

    def close(self) -> None:
        self._log.close()

    def _zero_gaps(self, pages: Sequence[int]) -> None:
        for number, page in self._engine.execute(_PAGES, (json.dumps(pages),)).fetchall():
            start, end = page_gap(number, page)
            if page[start:end].strip(b"\0"):
                cleaned = page[:start] + bytes(end - start) + page[end:]
                self._engine.execute(
                    "UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?", (cleaned, number)
                )

    def _write_record(self) -> None:
        """Without one, or with an old one, every page is looked at once more than needed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _PLAIN
        with suppress(OSError), held(os.open(self._record, flags, 0o600)) as descriptor:
            os.write(descriptor, self._left)


def _state(descriptor: int) -> bytes:
    """What changes when somebody writes to an open file, or puts another in its place."""
    found = os.fstat(descriptor)
    return b"%d %d %d\n" % (found.st_ino, found.st_size, found.st_mtime_ns)
