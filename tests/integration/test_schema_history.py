"""A file that a later version migrates: it is copied first, and loses nothing."""

import asyncio
import multiprocessing
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from guest.errors import StorageError
from guest.memory.factory import open_file
from guest.memory.models import MemoryConfig, Origin
from guest.memory.storage.base import Statement
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS
from tests.support.memory.migrations import COPY, LATER, LATEST, versions
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, file_bytes, opened, rows

ALICE = "alice"
KEY = "a key of the tests"
ROUNDS = int(os.environ.get("MIGRATION_ROUNDS", "40"))
_CHECK = "integrity-check"
TABLES = ("notes", "note_versions", "sessions", "conversation_events", "chunks", "chunks_vec")


async def fill(path: Path, **settings: Any) -> None:
    """A memory of this version, with notes, versions, a conversation and vectors."""
    async with opened(path, FakeEmbedder(), **settings) as memory:
        note = (await memory.save("Allergic to walnuts", ["health"], ORIGIN)).note
        await memory.update(note.note_id, "Allergic to walnuts 🌰", None, ORIGIN)
        read = Origin("agent", "test", "s1", "t1", "/shared/garden.md", material=True)
        for number in range(20):
            await memory.save(f"Chapter {number}. " + "A green book. " * 90, [], read)
        await memory.conversations.create("s1")
        for role, text in (("user", "Where are the spare keys?"), ("assistant", "In the hall.")):
            await memory.conversations.append(
                "s1", turn_id="t1", role=role, text=text, payload="{}"
            )
        await embedded(memory, (await memory.statistics()).passages)


async def open_later(path: Path, key: str = "") -> LocalDatabase:
    """Open the file as a later version of the program would."""
    database = await open_file(MemoryConfig(str(path), encryption_key=key), LATER)
    assert isinstance(database, LocalDatabase)
    return database


async def migrate_later(path: Path, key: str = "") -> None:
    await (await open_later(path, key)).close()


def copies(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir() if ".before-" in p.name)


def copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{COPY}")


def history(path: Path) -> list[int]:
    return [v for (v,) in rows(path, "SELECT version FROM memory_migrations ORDER BY version")]


def content(path: Path) -> list[list[tuple[Any, ...]]]:
    """All rows, without the columns that a migration has added."""
    names = {table: [c[1] for c in rows(path, f"PRAGMA table_info({table})")] for table in TABLES}
    return [
        rows(path, f"SELECT {', '.join(c for c in names[t] if c != 'mood')} FROM {t} ORDER BY 1, 2")
        for t in TABLES
    ]


async def check_whole(path: Path) -> None:
    database = await LocalDatabase.open(path)
    try:
        assert (await database.execute("PRAGMA integrity_check")).rows == (("ok",),)
        assert (await database.execute("PRAGMA foreign_key_check")).rows == ()
        for index, word in (("chunks_fts", "walnuts"), ("conversation_fts", "keys")):
            await database.execute(f"INSERT INTO {index} ({index}, rank) VALUES (?, 1)", (_CHECK,))
            found = f"SELECT rowid FROM {index} WHERE {index} MATCH ?"
            assert (await database.execute(found, (word,))).rows
    finally:
        await database.close()


async def test_what_was_there_before_is_there_after_and_in_a_copy(path: Path) -> None:
    await fill(path)
    before = content(path)
    for _ in range(2):
        await migrate_later(path)
        assert history(path) == versions(LATER)
        assert content(path) == before
        assert rows(path, "SELECT * FROM moods") == [("as fact", 21)]
        await check_whole(path)
        assert copies(path) == [copy_of(path).name]
    copy = copy_of(path)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert history(copy) == versions(MIGRATIONS)
    assert content(copy) == before
    await check_whole(copy)
    shutil.copyfile(copy, path)
    async with opened(path, FakeEmbedder()) as memory:
        assert (await memory.search("walnuts")).results[0].matched_by == "both"


async def test_a_new_memory_leaves_no_copy(path: Path) -> None:
    for _ in range(2):
        await migrate_later(path)
    assert copies(path) == []


async def test_a_deletion_reaches_the_copies_too(path: Path) -> None:
    await fill(path)
    database = await open_later(path)
    try:
        assert b"walnut" in file_bytes(copy_of(path))
        await database.batch(
            [
                Statement("DELETE FROM chunks WHERE body LIKE '%walnut%'"),
                Statement("DELETE FROM notes WHERE content LIKE '%walnut%'"),
                Statement("INSERT INTO erasures (requested_at) VALUES ('')"),
            ]
        )
        await Eraser(database).finish()
        assert copies(path) == []
        assert b"walnut" not in file_bytes(path)
    finally:
        await database.close()


async def test_the_latest_three_copies_are_kept(path: Path) -> None:
    await fill(path)
    for age, version in enumerate((7, 5, 9, 4)):
        copy = path.with_name(f"memory.db.before-v{version}")
        copy.write_bytes(b"x")
        os.utime(copy, (age, age))
    path.with_name("memory.db.before-v8.partial").write_bytes(b"cut off")
    await migrate_later(path)
    kept = [f"memory.db.{COPY}", "memory.db.before-v4", "memory.db.before-v9"]
    assert copies(path) == sorted(kept)


async def test_an_encrypted_memory_leaves_an_encrypted_copy(path: Path) -> None:
    await fill(path, encryption_key=KEY)
    await migrate_later(path, KEY)
    copy = copy_of(path)
    assert not copy.read_bytes().startswith(b"SQLite")
    database = await LocalDatabase.open(copy, KEY)
    found = await database.execute("SELECT MAX(version) FROM memory_migrations")
    assert found.rows == ((LATEST,),)
    await database.close()


async def test_an_older_version_refuses_a_file_that_a_later_one_has_used(path: Path) -> None:
    await fill(path)
    await migrate_later(path)
    with pytest.raises(StorageError, match=f"knows up to {LATEST}") as caught:
        await open_file(MemoryConfig(str(path)))
    assert COPY in caught.value.resolution
    assert history(path) == versions(LATER)


async def test_a_migration_killed_at_any_moment_is_finished_later(
    path: Path, chance: random.Random
) -> None:
    """Nothing is lost, the copy is whole, and it is of the version it is named after."""
    original = path.with_name("original.db")
    await fill(original)
    before = content(original)
    context = multiprocessing.get_context("fork")
    killed = 0
    for _ in range(ROUNDS):
        for file in path.parent.glob("memory.db*"):
            file.unlink()
        shutil.copyfile(original, path)
        for _ in range(4):
            child = context.Process(target=_migrate, args=(path,))
            child.start()
            child.join(chance.uniform(0, 0.03))
            child.kill()
            child.join()
            killed += child.exitcode != 0
            for name in copies(path):
                if not name.endswith(".partial"):
                    check_copy(path.with_name(name))
        await migrate_later(path)
        assert copies(path) == [copy_of(path).name]
        assert content(path) == before
    await check_whole(path)
    assert killed > ROUNDS / 4


def check_copy(copy: Path) -> None:
    with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        known = connection.execute("SELECT MAX(version) FROM memory_migrations").fetchall()
    assert known == [(LATEST,)]


def _migrate(path: Path) -> None:
    asyncio.run(migrate_later(path))
