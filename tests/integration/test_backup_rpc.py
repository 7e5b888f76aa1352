"""A backup through the gateway: consistent while the memory is written to, checked, named last."""

import asyncio
import hashlib
import os
import re
import time
from pathlib import Path

import grpc
import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.storage.files.backup import Backups
from tests.support.gateway.gateways import open_gateways
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE = "alice"
KEY = "a key that only the tests know"
TABLE_LEAF = 13
BACKUP = gateway_pb2.BackupMemoryRequest()


def of(memory: Memory, path: Path, key: str = "") -> Backups:
    return Backups(path.parent / "backups", key, memory.copy_to)


def names(path: Path) -> list[str]:
    return sorted(p.name for p in (path.parent / "backups").iterdir())


async def texts(path: Path, key: str = "") -> list[str]:
    async with opened(path, encryption_key=key) as memory:
        page, following = await memory.list(1000)
        found = [note.text for note in page]
        while following:
            page, following = await memory.list(1000, following)
            found += [note.text for note in page]
        return found


async def test_the_reply_says_what_the_file_holds() -> None:
    async with open_gateways() as gateways:
        client = await gateways.serve(ALICE)
        await gateways.memory.save("likes tea", ["drink"], ORIGIN)
        await client.say(await client.session(), "hello")
        made = await client.stub.BackupMemory(BACKUP)
        assert re.fullmatch(r"memory-\d{8}T\d{6}Z\.db", made.name)
        file = gateways.path / "backups" / made.name
        content = file.read_bytes()
        assert made.sha256 == hashlib.sha256(content).hexdigest()
        assert (made.bytes, made.notes, made.sessions) == (len(content), 1, 1)
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        assert (await client.stub.BackupMemory(BACKUP)).name != made.name
        assert len(names(gateways.memory.store.database.path)) == 2  # type: ignore[attr-defined]


async def test_a_backup_is_read_as_it_was_made() -> None:
    async with open_gateways() as gateways:
        client = await gateways.serve(ALICE)
        for number in range(60):
            await gateways.memory.save(f"{number} " * 5_000, ["drink"], ORIGIN)
        made = await client.stub.BackupMemory(BACKUP)
        request = gateway_pb2.ReadBackupRequest(name=made.name)
        parts = [part.data async for part in client.stub.ReadBackup(request)]
        assert len(parts) > 1
        assert hashlib.sha256(b"".join(parts)).hexdigest() == made.sha256


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "nothing.db", "../memory.db", "a/b", "/etc/passwd", "link.db", "pipe.db"],
)
async def test_what_is_no_backup_is_not_read(name: str) -> None:
    async with open_gateways() as gateways:
        client = await gateways.serve(ALICE)
        await client.stub.BackupMemory(BACKUP)
        (gateways.path / "backups" / "link.db").symlink_to(gateways.path / "memory.db")
        os.mkfifo(gateways.path / "backups" / "pipe.db")
        request = gateway_pb2.ReadBackupRequest(name=name)
        with pytest.raises(grpc.RpcError) as refused:
            _ = [part async for part in client.stub.ReadBackup(request)]
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        before = names(gateways.path / "memory.db")
        with pytest.raises(grpc.RpcError) as refused:
            await client.stub.RemoveBackup(gateway_pb2.RemoveBackupRequest(name=name))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert names(gateways.path / "memory.db") == before
        assert (gateways.path / "memory.db").exists()


async def test_a_backup_that_was_taken_elsewhere_is_removed_and_no_other() -> None:
    async with open_gateways() as gateways:
        client = await gateways.serve(ALICE)
        taken, kept = [await client.stub.BackupMemory(BACKUP) for _ in range(2)]
        request = gateway_pb2.RemoveBackupRequest(name=taken.name)
        await client.stub.RemoveBackup(request)
        assert names(gateways.path / "memory.db") == [kept.name]
        with pytest.raises(grpc.RpcError) as refused:
            await client.stub.RemoveBackup(request)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("key", ["", KEY])
async def test_a_backup_is_a_moment_of_a_memory_that_never_rests(
    path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds what was acknowledged before, in order, without a gap.

    The copying takes so long that the log would be brought into the file meanwhile.
    """
    read = os.pread

    def slowly(descriptor: int, size: int, offset: int) -> bytes:
        time.sleep(size * 2.5e-7)
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", slowly)
    saved = 0
    resting = asyncio.Event()

    async def write(memory: Memory) -> None:
        nonlocal saved
        while not resting.is_set():
            await memory.save(f"note {saved} " + "words " * 200, [], ORIGIN)
            saved += 1
            await asyncio.sleep(0)

    async with opened(path, FakeEmbedder(), encryption_key=key) as memory:
        writing = asyncio.ensure_future(write(memory))
        backups = of(memory, path, key)
        moments = []
        for _ in range(3):
            before = saved
            while saved < before + 5:
                await asyncio.sleep(0.01)
            before = saved
            made = await backups.make()
            moments.append((made, before, saved))
        resting.set()
        await writing
    for made, before, after in moments:
        file = path.parent / "backups" / made.name
        assert file.read_bytes().startswith(b"SQLite format") is not bool(key)
        found = sorted(int(text.split()[1]) for text in await texts(file, key))
        assert found == list(range(made.notes))
        assert before <= made.notes <= after + 1
    assert len(await texts(path, key)) == saved


async def test_deleting_meanwhile_still_erases(path: Path) -> None:
    async with opened(path) as memory:
        note = (await memory.save("quixotry " * 1000, [], ORIGIN)).note
        backup = asyncio.ensure_future(of(memory, path).make())
        await asyncio.sleep(0)
        await memory.delete(note.note_id)
        await backup
        assert b"quixotry" not in path.read_bytes() + path.with_name("memory.db-wal").read_bytes()


async def test_a_damaged_memory_gives_no_backup(path: Path) -> None:
    async with opened(path) as memory:
        for i in range(200):
            await memory.save(f"note {i} " + "words " * 60, [], ORIGIN)
    content = bytearray(path.read_bytes())
    for page in range(0, len(content), 4096):
        if content[page] == TABLE_LEAF and b"words words" in content[page : page + 4096]:
            content[page + 8 : page + 16] = b"\xff" * 8
    path.write_bytes(content)
    async with opened(path) as memory:
        with pytest.raises(StorageError) as caught:
            await of(memory, path).make()
    assert caught.value.code is Code.DATA_LOSS
    assert "runner memory restore" in caught.value.resolution
    assert names(path) == []


async def test_a_cancelled_backup_leaves_nothing_for_long(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("likes tea", [], ORIGIN)
        backups = of(memory, path)
        for delay in (0.0, 0.002, 0.01, 0.03, 0.06):
            making = asyncio.ensure_future(backups.make())
            await asyncio.sleep(delay)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
        made = await backups.make()
        assert [name for name in names(path) if not name.endswith(".db")] == []
        assert made.notes == 1


async def test_a_directory_that_cannot_be_made_is_one_clear_error(path: Path) -> None:
    (path.parent / "backups").touch()
    async with opened(path) as memory:
        with pytest.raises(StorageError) as caught:
            await of(memory, path).make()
        assert caught.value.code is Code.FAILED_PRECONDITION
        assert (await memory.save("likes tea", [], ORIGIN)).created
