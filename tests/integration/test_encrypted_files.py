"""An encrypted memory: no plain text on disk, and no file harmed by a wrong key."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.storage.local import LocalDatabase, derive
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, file_bytes, opened

ALICE = "alice"
KEY = "a key that only the tests know, longer than 32 bytes: 1"
OTHER = KEY[:-1] + "2"
WRITER = """
import asyncio, os, signal, sys
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, Origin

async def main():
    memory = await Memory.open(MemoryConfig(sys.argv[1], encryption_key=sys.argv[2]), None, "alice")
    for i in range(20):
        await memory.save(f"note {i} quixotry", [], Origin("user"))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def contents(path: Path) -> dict[str, bytes]:
    """What everything of the database but its lock holds."""
    return {
        p.name: p.read_bytes()
        for p in path.parent.iterdir()
        if p.suffix not in (".lock", ".db-shm")
    }


async def refusal(path: Path, key: str) -> StorageError:
    """The error with which memory refuses to open, after checking that nothing changed."""
    before = contents(path)
    with pytest.raises(StorageError) as caught:
        await Memory.open(MemoryConfig(str(path), encryption_key=key), None, ALICE)
    assert contents(path) == before
    assert str(path) in caught.value.brief
    for word in (key, derive(key)):
        assert not word or word not in str(caught.value)
    return caught.value


async def killed_while_writing(path: Path, key: str) -> None:
    """Twenty notes, some of them only in the log, whose owner is dead."""
    done = subprocess.run([sys.executable, "-c", WRITER, path, key], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.with_name("memory.db-wal").stat().st_size > 4096, "the test would see nothing"


async def test_no_file_holds_a_plain_word_at_any_time(path: Path) -> None:
    words = [b"quixotry", b"zephyrin", b"tagquark", b"note-", b"CREATE TABLE", b"SQLite format"]
    async with opened(path, FakeEmbedder(), encryption_key=KEY) as memory:
        for i in range(200):
            note = (await memory.save(f"quixotry {i} " * 50, ["tagquark"], ORIGIN)).note
        await memory.update(note.note_id, "zephyrine", None, ORIGIN)
        await embedded(memory, (await memory.statistics()).passages)
        session = await memory.conversations.create(title="quixotry")
        assert session.title == "quixotry"
        during = file_bytes(path)
        for rewrite in ("optimize", "rebuild"):
            await memory.store.database.execute(
                "INSERT INTO chunks_fts (chunks_fts) VALUES (?)", (rewrite,)
            )
        assert [word for word in words if word in during + file_bytes(path)] == []
        assert (await memory.search("zephyrine")).results
    assert len(path.read_bytes()) > 200_000
    assert [word for word in words if word in path.read_bytes()] == []


async def test_what_the_engine_sets_aside_stays_in_memory(path: Path) -> None:
    database = await LocalDatabase.open(path, KEY)
    assert (await database.execute("PRAGMA temp_store")).rows == ((2,),)
    options = (await database.execute("PRAGMA compile_options")).rows
    assert ("TEMP_STORE=2",) in options or ("TEMP_STORE=3",) in options
    await database.close()


@pytest.mark.parametrize("wrong", [OTHER, "short", ""])
async def test_a_wrong_or_missing_key_is_refused_and_harms_nothing(path: Path, wrong: str) -> None:
    """With the log of a killed owner beside it, which the engine would mix up."""
    await killed_while_writing(path, KEY)
    for _ in range(2):
        error = await refusal(path, wrong)
        assert error.code is Code.FAILED_PRECONDITION
        assert ("no key is configured" in error.brief) == (not wrong)
        assert "[memory.encryption]" in error.resolution
    async with opened(path, encryption_key=KEY) as memory:
        assert len((await memory.list(100))[0]) == 20


async def test_a_plain_file_is_not_written_to_with_a_key(path: Path) -> None:
    await killed_while_writing(path, "")
    error = await refusal(path, KEY)
    assert error.code is Code.FAILED_PRECONDITION
    assert "not encrypted" in error.brief
    assert "runner memory rekey" in error.resolution
    async with opened(path) as memory:
        assert len((await memory.list(100))[0]) == 20


@pytest.mark.parametrize("content", [b"This is no database. " * 500, os.urandom(8192), b"SQLite f"])
async def test_what_is_no_database_is_told_apart_from_a_wrong_key(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    error = await refusal(path, KEY)
    assert error.code is Code.DATA_LOSS
    assert "not a readable database" in error.brief
    assert "runner memory restore" in error.resolution


async def test_a_path_with_special_characters(tmp_path: Path) -> None:
    path = tmp_path / "a b#c%20?d" / "memory.db"
    path.parent.mkdir()
    async with opened(path, encryption_key=KEY) as memory:
        await memory.save("likes tea", [], ORIGIN)
    await refusal(path, OTHER)
    assert list(tmp_path.iterdir()) == [path.parent]


async def test_the_key_is_in_no_log_and_no_representation(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = MemoryConfig(str(path), encryption_key=KEY)
    memory = await Memory.open(config, None, ALICE)
    await memory.save("likes tea", [], ORIGIN)
    await memory.close()
    await refusal(path, OTHER)
    shown = (
        caplog.text
        + repr(config)
        + repr(memory.store.database)
        + str(memory.store.database.__dict__)
    )
    assert KEY[:12] not in shown
    assert derive(KEY) not in shown
