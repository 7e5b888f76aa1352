"""Checks a whole database file before anything relies on it.

The engine holds Python's global lock during its checks, seconds for a large memory, so a running
guest uses a separate process.
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage import errors
from guest.memory.storage.local import connect

_COUNTS: Final = """
SELECT (SELECT MAX(version) FROM memory_migrations), (SELECT COUNT(*) FROM notes),
       (SELECT COUNT(*) FROM sessions), (SELECT COUNT(*) FROM conversation_events)
"""
_UNKNOWN_KINDS: Final = """
SELECT COUNT(*) FROM sqlite_schema
    WHERE IFNULL(type, '') NOT IN ('table', 'index', 'trigger', 'view')
"""
"""SQLite goes by what an entry of the schema says: a trigger of the type "Trigger" runs, too."""
_INDEXES: Final = ("chunks_fts", "conversation_fts")


@dataclass(frozen=True)
class Inspection:
    """The contents of a whole file."""

    schema_version: int
    notes: int
    sessions: int
    events: int


def inspect(path: Path, key: str) -> Inspection:
    """Check every page, index and reference of a memory file that is not in use.

    Takes about a second per 100 MB. Raises `StorageError`: DATA_LOSS if something is damaged or the
    file is not a memory, else as for opening a database.
    """
    connection = connect(path, key)
    try:
        return _inspect(connection)
    except StorageError:
        raise
    except BaseException as error:
        failure = errors.from_engine(error, path)
        raise _damaged(str(failure)) from error
    finally:
        connection.close()


async def inspect_apart(path: Path, key: str) -> Inspection:
    """Run `inspect` in a separate process, which gets the key on its standard input."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await process.communicate(json.dumps([str(path), key]).encode())
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise StorageError(
            Code.INTERNAL,
            "a copy of the memory could not be checked",
            details=f"the process that checks it ended with status {process.returncode}",
            resolution="try again; if it happens again, report this, with the log, as a bug",
        )
    answer: dict[str, Any] = json.loads(output)
    if "code" in answer:
        raise StorageError.of(answer)
    return Inspection(**answer)


def _inspect(connection: Any) -> Inspection:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    if missing := {"memory_migrations", "notes", "sessions"} - {name for (name,) in tables}:
        raise _damaged(f"it is not a memory: it has no table {sorted(missing)[0]}")
    if connection.execute(_UNKNOWN_KINDS).fetchone() != (0,):
        raise _damaged("its schema has an entry of an unknown kind")
    problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problems != [("ok",)]:
        raise _damaged(str(problems[0][0]))
    if connection.execute("PRAGMA foreign_key_check").fetchall():
        raise _damaged("rows refer to others that do not exist")
    for index in _INDEXES:
        check = f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"  # noqa: S608
        connection.execute(check)
    return Inspection(*connection.execute(_COUNTS).fetchone())


def _damaged(reason: str) -> StorageError:
    return StorageError(
        Code.DATA_LOSS,
        "the file is damaged",
        details=reason,
        resolution="use a backup that is whole: `runner memory restore`",
    )


def _main() -> None:
    path, key = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        answer = asdict(inspect(Path(path), key))
    except StorageError as error:
        answer = dict(error.fields())
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main()
