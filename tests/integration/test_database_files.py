"""Opening memory where something is wrong with the file: one clear error, nothing lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.storage.local import LocalDatabase
from tests.support.memory.store import ORIGIN, opened, rows

OWNER = """
import asyncio, sys
from pathlib import Path
from guest.memory.storage.local import LocalDatabase

async def main():
    database = await LocalDatabase.open(Path(sys.argv[1]))
    await database.execute("CREATE TABLE IF NOT EXISTS t (x)")
    await database.execute("INSERT INTO t VALUES (1)")
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await database.execute("INSERT INTO t VALUES (2)")
    print("written", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
FOREIGN = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
connection.execute("SELECT * FROM notes").fetchall()
print("open", flush=True)
time.sleep(60)
"""


@contextmanager
def program(source: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def refusal(path: Path) -> StorageError:
    """The error with which memory refuses to open; it leaves no lock behind."""
    with pytest.raises(StorageError) as caught:
        await Memory.open(MemoryConfig(db_path=str(path)), None, "alice")
    error = caught.value
    assert str(path) in error.brief
    assert error.resolution
    return error


def files(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir())


async def test_files_are_private_and_go_when_closed(path: Path) -> None:
    old = os.umask(0)
    try:
        async with opened(path) as memory:
            await memory.save("likes tea", [], ORIGIN)
            assert files(path) == [
                "memory.db",
                "memory.db-shm",
                "memory.db-wal",
                "memory.db.lock",
                "memory.db.scrubbed",
            ]
            for name in files(path):
                assert (path.parent / name).stat().st_mode & 0o777 == 0o600
            assert (path.parent / "memory.db.lock").read_text() == f"{os.getpid()}\n"
    finally:
        os.umask(old)
    assert files(path) == ["memory.db", "memory.db.scrubbed"]


async def test_a_file_open_to_others_is_closed_to_them(path: Path) -> None:
    async with opened(path):
        pass
    path.chmod(0o644)
    async with opened(path):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_a_second_owner_is_refused_by_name_and_the_first_goes_on(path: Path) -> None:
    with program(OWNER, path) as owner:
        error = await refusal(path)
        assert error.code is Code.FAILED_PRECONDITION
        assert f"in use by process {owner.pid}" in error.brief
        assert "runner stop" in error.resolution
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(b"go on\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == b"written\n"
    async with opened(path) as memory:
        second = await refusal(path)
        assert f"process {os.getpid()}" in second.brief
        assert (await memory.save("likes tea", [], ORIGIN)).created
    async with opened(path) as memory:
        assert len((await memory.list(10))[0]) == 1
    assert rows(path, "SELECT x FROM t") == [(1,), (2,)]


async def test_a_link_to_a_database_in_use_is_the_same_database(path: Path, tmp_path: Path) -> None:
    async with opened(path):
        link = tmp_path / "link.db"
        link.symlink_to(path)
        with pytest.raises(StorageError, match="in use"):
            await Memory.open(MemoryConfig(db_path=str(link)), None, "alice")


async def test_a_killed_owner_is_succeeded_at_once(path: Path) -> None:
    with program(OWNER, path) as owner:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert (path.parent / "memory.db.lock").exists()
        database = await LocalDatabase.open(path)
        assert (await database.execute("SELECT x FROM t")).rows == ((1,),)
        await database.close()
    assert files(path) == ["memory.db", "memory.db.scrubbed"]


async def test_of_many_openers_one_wins(path: Path) -> None:
    opening = [LocalDatabase.open(path) for _ in range(8)]
    outcomes = await asyncio.gather(*opening, return_exceptions=True)
    winners = [o for o in outcomes if isinstance(o, LocalDatabase)]
    assert len(winners) == 1
    assert all(isinstance(o, StorageError) for o in outcomes if o is not winners[0])
    await winners[0].close()


async def test_a_cancelled_opening_releases_the_file(path: Path) -> None:
    for _ in range(20):
        task = asyncio.create_task(LocalDatabase.open(path))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(60):
        while True:
            try:
                database = await LocalDatabase.open(path)
                break
            except StorageError:
                await asyncio.sleep(0.01)
    await database.close()


@pytest.mark.parametrize("content", [b"This is no database. " * 500, os.urandom(8192), b"SQLite f"])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    error = await refusal(path)
    assert error.code is Code.DATA_LOSS
    assert "not a readable database" in error.brief
    assert f"mv {path}" in error.resolution
    assert path.read_bytes() == content
    assert files(path) == ["memory.db"]


async def test_a_truncated_database_is_refused(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("likes tea", [], ORIGIN)
    with path.open("r+b") as file:
        file.truncate(4096 * 3)
    assert (await refusal(path)).code is Code.DATA_LOSS


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    async with opened(path) as memory:
        assert (await memory.save("likes tea", [], ORIGIN)).created


@pytest.mark.parametrize("kind", ["directory", "missing parent", "fifo", "parent is a file"])
async def test_what_cannot_be_a_database_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "memory.db"
    match kind:
        case "directory":
            path.mkdir()
        case "missing parent":
            path = tmp_path / "missing" / "memory.db"
        case "fifo":
            os.mkfifo(path)
        case "parent is a file":
            (tmp_path / "file").touch()
            path = tmp_path / "file" / "memory.db"
    with pytest.raises(StorageError) as caught:
        await Memory.open(MemoryConfig(db_path=str(path)), None, "alice")
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert str(path) in str(caught.value)
    assert "ls -ld" in caught.value.resolution
    assert not list(tmp_path.rglob("*.lock"))


async def test_a_program_that_writes_is_waited_for_briefly_and_named(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("likes tea", [], ORIGIN)
        with program(FOREIGN, path, "BEGIN IMMEDIATE"):
            with pytest.raises(StorageError) as caught:
                await memory.save("likes coffee", [], ORIGIN)
            assert caught.value.code is Code.UNAVAILABLE
            assert "another program" in caught.value.brief
            assert f"fuser -v {path}" in caught.value.resolution
            assert [h.text for h in (await memory.search("tea")).results] == ["likes tea"]
        assert (await memory.save("likes coffee", [], ORIGIN)).created


async def test_a_reader_that_holds_the_log_makes_erasure_fail_clearly(path: Path) -> None:
    async with opened(path) as memory:
        note = (await memory.save("word quixotry", [], ORIGIN)).note
        with program(FOREIGN, path, "BEGIN"):
            with pytest.raises(StorageError) as caught:
                await memory.delete(note.note_id)
            assert caught.value.code is Code.UNAVAILABLE
        assert (await memory.list(10))[0] == []
    async with opened(path):
        pass
    assert b"quixotry" not in path.read_bytes()


async def test_a_copy_of_the_files_of_a_running_memory_opens(path: Path, tmp_path: Path) -> None:
    """What is acknowledged is in the files, without any closing."""
    async with opened(path) as memory:
        for i in range(20):
            await memory.save(f"note {i}", [], ORIGIN)
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("memory.db", "memory.db-wal"):
            subprocess.run(["cp", path.parent / name, copy / name], check=True)
    async with opened(copy / "memory.db") as memory:
        assert len((await memory.list(100))[0]) == 20
