"""Files that are restored as a memory.

A file is restored or refused with nothing changed. What was restored is whole, and nothing in it
acts by itself but our own triggers.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from guest.errors import StorageError
from guest.memory.storage.files.backup import restore
from guest.memory.storage.files.inspection import inspect
from tests.fuzz.material import Choices, OneInput, Target, chosen
from tests.support.memory.exports import event, file, note, session
from tests.support.memory.store import opened

_KEY: Final = "the key of an encrypted memory"
_STEPS_MAX: Final = 20_000
_ACTING: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_TABLES: Final = ("notes", "sessions", "chunks", "conversation_events", "sqlite_schema")
_TYPES: Final = ("trigger", "view", "table", "index", "Trigger", "VIEW", "", "other")
_SPY: Final = "CREATE TRIGGER {name} AFTER INSERT ON {table} BEGIN DELETE FROM notes; END"
_STATEMENTS: Final = (
    _SPY,
    "CREATE TRIGGER {name} INSTEAD OF DELETE ON {table} BEGIN SELECT 1; END",
    "CREATE VIEW {name} AS SELECT * FROM {table}",
    "CREATE TEMP TRIGGER {name} AFTER DELETE ON {table} BEGIN SELECT 1; END",
    "CREATE UNIQUE INDEX {name} ON {table} (1)",
    "CREATE TABLE {name} (a REFERENCES {table} ON DELETE CASCADE)",
    "CREATE VIRTUAL TABLE {name} USING fts5(a)",
    "DROP TABLE {table}",
    "DELETE FROM {table}",
    "UPDATE memory_migrations SET version = 99",
    "ALTER TABLE {table} RENAME TO {name}",
    "ALTER TABLE {table} ADD COLUMN {name}",
)


def _one_input(data: bytes, scratch: Path) -> None:
    choices = Choices(data)
    backup, database = scratch / "backup.db", scratch / "home" / "memory.db"
    _lay_out(scratch)
    key = choices.one_of(("", "", "", _KEY))
    _MAKE[choices.below(len(_MAKE))](choices, scratch, backup)
    before = _contents(database)
    try:
        restored = restore(database, "", backup, key)
    except StorageError as error:
        assert error.brief
        assert _contents(database) == before, "it was refused, and something is changed"
        return
    assert inspect(database, "") == restored.found
    assert _programs(database) == _programs(scratch / "plain.db"), "foreign programs are restored"
    (kept,) = database.parent.glob("*.before-restore-*")
    assert kept.name == restored.kept_as


def _lay_out(scratch: Path) -> None:
    """A memory to restore into, and nothing else beside it."""
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    for path in home.iterdir():
        path.unlink()
    (home / "memory.db").write_bytes((scratch / "plain.db").read_bytes())
    backup = scratch / "backup.db"
    for suffix in ("", "-wal", "-shm", "-journal"):
        backup.with_name(backup.name + suffix).unlink(missing_ok=True)


def _contents(database: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in database.parent.iterdir()}


def _programs(path: Path) -> set[tuple[object, ...]]:
    """Whatever in a file is neither a table nor an index, by its type or by what it says."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(_ACTING).fetchall()
    return {row for row in rows if row[0] not in ("table", "index") or "TRIGGER" in str(row[3])}


def _raw(choices: Choices, scratch: Path, backup: Path) -> None:
    backup.write_bytes(choices.rest())


def _patched(choices: Choices, scratch: Path, backup: Path) -> None:
    base = choices.one_of(("plain.db", "plain.db", "encrypted.db"))
    content = bytearray((scratch / base).read_bytes())
    while choices:
        at = choices.below(100) if choices.below(2) else choices.below(len(content))
        patch = choices.take(choices.below(8))
        content[at : at + len(patch)] = patch
        if choices.below(16) == 15:
            del content[choices.below(len(content)) :]
            content += b"\0" * choices.below(9000)
        if not content:
            break
    backup.write_bytes(content)


def _programmed(choices: Choices, scratch: Path, backup: Path) -> None:
    """A memory with statements of somebody else in it, some of them in the schema itself."""
    backup.write_bytes((scratch / "plain.db").read_bytes())
    with closing(sqlite3.connect(backup)) as connection:
        connection.set_authorizer(_no_other_file)
        connection.set_progress_handler(lambda: 1, _STEPS_MAX)
        while choices:
            with suppress(sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):
                _change(connection, choices)
        with suppress(sqlite3.Error):
            connection.commit()


def _change(connection: sqlite3.Connection, choices: Choices) -> None:
    statement, table = choices.one_of(_STATEMENTS), choices.one_of(_TABLES)
    name = choices.text()[:40]
    quoted = '"{}"'.format(name.replace('"', '""'))
    sql = statement.format(name=quoted, table=table)
    match choices.below(4):
        case 0 | 1:
            connection.execute(sql)
        case 2:
            connection.execute("PRAGMA writable_schema = ON")
            row = (choices.one_of(_TYPES), name, table, choices.below(3), sql)
            connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
        case _:
            connection.execute("PRAGMA writable_schema = ON")
            column = choices.one_of(("type", "name", "tbl_name", "rootpage", "sql"))
            change = f"UPDATE sqlite_schema SET {column} = ? WHERE rowid = ?"
            value = choices.one_of((name, sql, choices.one_of(_TYPES)))
            connection.execute(change, (value, choices.below(60)))


def _no_other_file(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _no_file(choices: Choices, scratch: Path, backup: Path) -> None:
    match choices.below(5):
        case 0:
            backup.mkdir()
        case 1:
            os.mkfifo(backup)
        case 2:
            backup.symlink_to(scratch / choices.one_of(("plain.db", "nothing", "backup.db")))
        case 3:
            backup.touch()
        case _:
            return


_MAKE: Final[tuple[Callable[[Choices, Path, Path], None], ...]] = (
    _programmed,
    _patched,
    _programmed,
    _patched,
    _raw,
    _no_file,
)


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    asyncio.run(_make_memories(scratch))

    def one_input(data: bytes) -> None:
        try:
            _one_input(data, scratch)
        finally:
            if (scratch / "backup.db").is_dir():
                (scratch / "backup.db").rmdir()

    yield one_input


async def _make_memories(scratch: Path) -> None:
    lines = (
        note("note-1", "tea", 3),
        note("note-2", "the pot"),
        session("s1"),
        event("s1", 1, "x"),
    )
    for name, key in (("plain.db", ""), ("encrypted.db", _KEY)):
        async with opened(scratch / name, encryption_key=key) as memory:
            await memory.importer().feed(file(*lines))
    with closing(sqlite3.connect(scratch / "plain.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def _seeds() -> Mapping[str, bytes]:
    plain = {"raw": chosen(0, 4, b"SQLite format 3\0"), "empty": chosen(0, 5, 3)}
    files = {f"no-file-{number}": bytes([0, 5, number]) for number in (0, 1, 2, 4)}
    wrong_key = {
        "wrong-key": bytes([3, 1, 0]),
        "encrypted": bytes([3, 1, 2]),
        "other": bytes([0, 1, 2]),
    }
    statements = {
        f"statement-{number}": chosen(0, 0, number, number % 5, "spy", 0)
        for number in range(len(_STATEMENTS))
    }
    schema = {
        f"schema-{kind or 'nothing'}": chosen(0, 0, 0, 0, "spy", 2, number, 0)
        for number, kind in enumerate(_TYPES)
    }
    rows = {
        f"row-{number}": chosen(0, 0, 0, 0, "spy", 3, number, 2, 4, number) for number in range(5)
    }
    patches = {
        f"patch-{at}": chosen(0, 1, 0, 1, at, 4, b"\xff\0\xff\0", 0) for at in (16, 24, 52, 92)
    }
    return plain | files | wrong_key | statements | schema | rows | patches


TARGET = Target("restore", 6, _opened, _seeds, longest=512)
