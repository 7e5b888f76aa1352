"""Changes the key of a database file, or removes it.

A new file is made beside the old one, compared with it page by page, and put in its place
atomically. The old one is then overwritten and removed; old blocks that a drive or a file system
keeps are out of reach.
"""

import os
from pathlib import Path
from typing import Any, Final

from wire.disk import held
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage import copies, errors
from guest.memory.storage.files.inspection import inspect
from guest.memory.storage.local import check_key, connect, connect_apart, derive, engine

_PAGES: Final = 256
_CHANGING: Final = ((18, 20), (24, 28), (92, 100))
"""Bytes of the first page that are not content: the kind of journal and change counters."""


def fits(path: Path, key: str) -> bool:
    """Whether `key` opens the file at `path`, which must not be in use."""
    try:
        check_key(path, derive(key))
    except StorageError:
        return False
    return True


def rekey(path: Path, from_key: str, to_key: str) -> None:
    """Re-encrypt the file at `path`, which must not be in use, under `to_key`.

    After a crash, either the old or the new file is in place. Raises `StorageError` with the file
    unchanged.
    """
    try:
        copies.erase_leftovers(path)
        connect(path, from_key).close()
        if copies.beside_of(path, "-wal").exists():
            raise errors.locked(path, "its log could not be brought into it")
        draft = copies.incoming(path)
        copy_under(path, from_key, draft, to_key)
        old = copies.before("rekey", path)
        copies.replace(draft, path, old)
        copies.erase(old)
    except OSError as error:
        raise errors.from_system(error, path) from None


def copy_under(source: Path, source_key: str, target: Path, key: str) -> None:
    """Make `target` a verified copy of `source` under another key, mode 0600.

    Raises `StorageError` and then leaves no file.
    """
    with held(os.open(source, os.O_RDONLY)) as descriptor:
        copies.copy(descriptor, target)
    try:
        if key != source_key:
            _change_key(target, source_key, key)
            _compare(source, source_key, target, key)
        inspect(target, key)
    except BaseException:
        copies.erase(target)
        raise


def _change_key(path: Path, from_key: str, to_key: str) -> None:
    connection = engine(str(path), derive(from_key))
    try:
        for mode in ("DELETE", "OFF"):  # a failed draft is deleted, so it needs no journal
            connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        connection.execute(f"PRAGMA rekey = '{derive(to_key)}'").fetchall()
    except BaseException as error:
        raise errors.from_engine(error, path) from None
    finally:
        connection.close()
    copies.sync(path)


def _compare(source: Path, source_key: str, target: Path, key: str) -> None:
    """Raise `StorageError` unless both files have the same pages."""
    old, new = connect_apart(source, source_key), connect_apart(target, key)
    try:
        pages = int(old.execute("PRAGMA page_count").fetchone()[0])
        for first in range(1, pages + 1, _PAGES):
            if _content(old, first) != _content(new, first):
                raise StorageError(
                    Code.INTERNAL,
                    f"the copy of {source} under the new key is not the same",
                    details=f"the first difference is within {_PAGES} pages from {first}",
                    resolution="nothing was changed; report this, with the log, as a bug",
                )
    finally:
        old.close()
        new.close()


def _content(connection: Any, first: int) -> list[tuple[int, bytes]]:
    sql = "SELECT pgno, data FROM sqlite_dbpage WHERE pgno BETWEEN ? AND ? ORDER BY pgno"
    pages: list[tuple[int, bytes]] = connection.execute(sql, (first, first + _PAGES - 1)).fetchall()
    if first == 1:
        head = bytearray(pages[0][1])
        for start, end in _CHANGING:
            head[start:end] = bytes(end - start)
        pages[0] = (1, bytes(head))
    return pages
