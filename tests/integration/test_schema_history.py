"""Files of every released schema version open, are copied, migrated, and lose nothing."""

import asyncio
import json
import multiprocessing
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from schema_fixture import FIXTURES, as_json, digest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.factory import open_store
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, migrate
from tests.unit.memory_support import FakeEmbedder, file_bytes, opened, rows

ALICE = "alice"
VERSIONS = sorted(int(path.stem[1:]) for path in FIXTURES.glob("v*.db"))
LATEST = len(MIGRATIONS)
ROUNDS = int(os.environ.get("MIGRATION_ROUNDS", "40"))
older = pytest.mark.parametrize("version", [v for v in VERSIONS if v < LATEST])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def take(version: int, path: Path) -> dict[str, Any]:
    """Put a released file at `path`; what it holds."""
    shutil.copyfile(FIXTURES / f"v{version}.db", path)
    content = json.loads((FIXTURES / f"v{version}.json").read_text())
    assert isinstance(content, dict)
    return content


def beside(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir() if ".before-" in p.name)


def schema(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")


async def check_everything(path: Path, content: dict[str, Any], **settings: Any) -> None:
    async with opened(path, FakeEmbedder(), **settings) as memory:
        listed, _ = await memory.list(ALICE, 100)
        found = [[n.note_id, n.text, list(n.tags), n.version, n.created_at] for n in listed]
        assert found == content["notes"]
        kinds, _ = await memory.list(ALICE, 100, include_superseded=True)
        assert content.get("kinds") in (None, [as_json(note) for note in kinds])
        assert all(note.embedded for note in listed)
        counts = await memory.statistics(ALICE)
        assert counts.note_versions == content["versions"]
        assert counts.passages == counts.passages_embedded == content["passages"]
        assert counts.schema_version == LATEST
        best = (await memory.search(ALICE, "walnuts")).hits[0]
        assert best.text.startswith("Allergic to walnuts")
        assert best.matched_by == "both"
        tagged = await memory.search(ALICE, "boiler", tags=["house"])
        assert [hit.text[:10] for hit in tagged.hits] == ["The boiler"]
        spoken = await memory.search(ALICE, "spare keys", include_conversation=True)
        assert "conversation" in {hit.source for hit in spoken.hits}
        events = await memory.conversations.history(ALICE, "s1", 100)
        assert [[event.role, event.text] for event in events] == content["turns"]
        ask = memory._database.execute
        assert (await ask("PRAGMA integrity_check")).rows == (("ok",),)
        assert (await ask("PRAGMA foreign_key_check")).rows == ()
        for index in ("chunks_fts", "conversation_fts"):
            await ask(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")


def test_there_is_a_file_of_the_first_version() -> None:
    assert VERSIONS[0] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_released_migration_is_never_changed(version: int) -> None:
    content = json.loads((FIXTURES / f"v{version}.json").read_text())
    assert content["digests"] == [digest(m.name, m.statements) for m in MIGRATIONS[:version]]
    assert rows(FIXTURES / f"v{version}.db", "SELECT MAX(version) FROM memory_migrations") == [
        (version,)
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_everything_is_found_after_the_migration(path: Path, version: int) -> None:
    content = take(version, path)
    await check_everything(path, content)
    fresh = path.with_name("fresh.db")
    async with opened(fresh):
        pass
    assert schema(path) == schema(fresh)


@older
async def test_what_was_there_before_is_kept_beside_it(path: Path, version: int) -> None:
    content = take(version, path)
    await check_everything(path, content)
    copy = path.with_name(f"memory.db.before-v{version + 1}")
    assert beside(path) == [copy.name]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows(copy, "SELECT MAX(version) FROM memory_migrations") == [(version,)]
    assert rows(copy, "PRAGMA integrity_check") == [("ok",)]
    original = sorted(rows(FIXTURES / f"v{version}.db", "SELECT * FROM notes"))
    assert sorted(rows(copy, "SELECT * FROM notes")) == original
    await check_everything(path, content)
    assert beside(path) == [copy.name]
    shutil.copyfile(copy, path)
    await check_everything(path, content)


async def test_a_new_memory_leaves_no_copy(path: Path) -> None:
    for _ in range(2):
        async with opened(path):
            pass
    assert beside(path) == []


@older
async def test_a_deletion_reaches_the_copies_too(path: Path, version: int) -> None:
    take(version, path)
    async with opened(path) as memory:
        assert beside(path)
        doomed = (await memory.search(ALICE, "walnuts")).hits[0]
        assert b"walnut" in file_bytes(path)
        await memory.delete(ALICE, doomed.note_id)
        assert beside(path) == []
        assert b"walnut" not in file_bytes(path)


async def test_the_latest_three_copies_are_kept(path: Path) -> None:
    take(1, path)
    for age, version in enumerate((7, 5, 9, 4)):
        copy = path.with_name(f"memory.db.before-v{version}")
        copy.write_bytes(b"x")
        os.utime(copy, (age, age))
    path.with_name("memory.db.before-v8.partial").write_bytes(b"cut off")
    async with opened(path):
        pass
    assert beside(path) == [f"memory.db.before-v{version}" for version in (2, 4, 9)]


async def test_an_encrypted_memory_leaves_an_encrypted_copy(path: Path) -> None:
    config = MemoryConfig(str(path), encryption_key="a key of the tests")
    database = await LocalDatabase.open(path, config.encryption_key)
    await migrate(database, MIGRATIONS[:1])
    await database.close()
    await (await open_store(config)).close()
    copy = path.with_name("memory.db.before-v2")
    assert not copy.read_bytes().startswith(b"SQLite")
    database = await LocalDatabase.open(copy, config.encryption_key)
    versions = await database.execute("SELECT MAX(version) FROM memory_migrations")
    assert versions.rows == ((1,),)
    await database.close()


@older
async def test_a_copy_that_cannot_be_made_means_no_migration(
    path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(version, path)
    free = shutil.disk_usage(path.parent)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: free._replace(free=100_000))
        with pytest.raises(StorageError) as caught:
            await Memory.open(MemoryConfig(str(path)), None)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert "before-v" in caught.value.brief
    assert beside(path) == []
    assert rows(path, "SELECT MAX(version) FROM memory_migrations") == [(version,)]
    async with opened(path):
        pass


async def test_a_migration_killed_at_any_moment_is_finished_later(path: Path) -> None:
    """Nothing is lost, the copy is whole, and it is of the version it is named after."""
    content = take(1, path)
    chance = random.Random(1)
    context = multiprocessing.get_context("fork")
    killed = 0
    for _ in range(ROUNDS):
        for file in path.parent.iterdir():
            file.unlink()
        take(1, path)
        for _ in range(4):
            child = context.Process(target=_open, args=(str(path),))
            child.start()
            child.join(chance.uniform(0, 0.03))
            child.kill()
            child.join()
            killed += child.exitcode != 0
            for name in beside(path):
                if not name.endswith(".partial"):
                    check_copy(path.with_name(name))
        async with opened(path):
            assert not [name for name in beside(path) if name.endswith(".partial")]
        assert beside(path) == ["memory.db.before-v2"]
    await check_everything(path, content)
    print(f"\n{killed} migrations killed")
    assert killed > ROUNDS / 4


def check_copy(copy: Path) -> None:
    version = int(copy.name.rpartition("v")[2])
    with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        known = connection.execute("SELECT MAX(version) FROM memory_migrations").fetchall()
    assert known == [(version - 1,)]


def _open(path: str) -> None:
    async def opening() -> None:
        await (await open_store(MemoryConfig(path))).close()

    asyncio.run(opening())
