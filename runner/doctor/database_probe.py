"""Whether a database file is intact; runs in a process of its own.

Closing a database file drops all POSIX locks of the process on it, so a process that may hold one
must not open it here. Nothing is written or created: the file is opened as immutable, which is not
possible while it has a log.

    python -m runner.doctor.database_probe FILE

prints one JSON object: `state` (`ok`, `in use`, `logged`, `foreign`, `damaged` or `unreadable`) and
`details`.
"""

import errno
import fcntl
import json
import os
import sqlite3
import stat
import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

MAGIC: Final = b"SQLite format 3\0"


def plain_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises `OSError` for anything else, such as a pipe that an agent has
    put there, for whose writer one would wait."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def examine(database: Path) -> tuple[str, str]:
    """Returns the state and the details of `database`."""
    guard = database.with_name(database.name + ".lock")
    with plain_file(guard) if guard.exists() else nullcontext() as lock:
        try:
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "in use", f"{guard} is held"
        return _unowned(database)


def _unowned(database: Path) -> tuple[str, str]:
    with plain_file(database) as file:
        magic = file.read(len(MAGIC))
    if not magic:
        return "ok", "empty"
    if magic != MAGIC:
        return "foreign", "it does not begin like a database; it may be encrypted"
    log = database.with_name(database.name + "-wal")
    if log.exists() and log.stat().st_size:
        return "logged", "its last owner was killed; the next start replays its log"
    uri = f"file:{quote(os.fspath(database))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            told = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        return "damaged", str(error)
    return ("ok", "") if told == ["ok"] else ("damaged", "; ".join(told))


def main() -> None:
    try:
        state, details = examine(Path(sys.argv[1]))
    except OSError as error:
        state, details = "unreadable", str(error)
    print(json.dumps({"state": state, "details": details}))  # noqa: T201


if __name__ == "__main__":
    main()
