"""One instance per lock, and the end when no runner holds a lease."""

import asyncio
import errno
import fcntl
import os
from pathlib import Path

import pytest
from wire.errors import Code, WireError

from guest.embedding import server
from guest.embedding.server import sole_instance, until_orphaned


def held(path: Path, kind: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    return descriptor


def test_the_lock_names_its_holder_and_is_empty_afterwards(tmp_path: Path) -> None:
    lock = tmp_path / "embedder.lock"
    lock.write_text("99999999 a longer line of a killed predecessor\n")
    with sole_instance(lock):
        assert lock.read_text() == f"{os.getpid()}\n"
        with pytest.raises(BlockingIOError):
            held(lock, fcntl.LOCK_SH)
    assert lock.read_text() == ""
    os.close(held(lock, fcntl.LOCK_EX))


def test_a_second_instance_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "embedder.lock"
    with (
        sole_instance(lock),
        pytest.raises(WireError, match="another embedder") as raised,
        sole_instance(lock, wait_s=0.05),
    ):
        pass
    assert raised.value.code is Code.ALREADY_EXISTS


async def test_an_instance_waits_for_the_end_of_the_former(tmp_path: Path) -> None:
    lock = tmp_path / "embedder.lock"
    former = held(lock, fcntl.LOCK_EX)
    asyncio.get_running_loop().call_later(0.05, os.close, former)

    def start() -> str:
        with sole_instance(lock):
            return lock.read_text()

    assert await asyncio.to_thread(start) == f"{os.getpid()}\n"


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file takes no space before it is written to."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(WireError, match="cannot be used") as raised, sole_instance(tmp_path / "l"):
        pass
    assert "No space left" in raised.value.details


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WireError, match="cannot be used"), sole_instance(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


async def test_a_lease_keeps_it_and_its_end_ends_it(tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    leases_held = [held(leases, fcntl.LOCK_SH), held(leases, fcntl.LOCK_SH)]
    waiting = asyncio.create_task(until_orphaned(leases, interval=0.02))
    for lease in leases_held:
        await asyncio.sleep(0.1)
        assert not waiting.done()
        os.close(lease)
    await asyncio.wait_for(waiting, 60)
    with pytest.raises(BlockingIOError):
        held(leases, fcntl.LOCK_SH)


async def test_a_lease_between_two_looks_starts_the_count_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = tmp_path / "leases"
    leases.touch()
    looks: list[float] = []
    lease = -1

    async def before_each_look(interval: float) -> None:
        nonlocal lease
        looks.append(interval)
        if len(looks) == 2:
            lease = held(leases, fcntl.LOCK_SH)
        if len(looks) == 3:
            os.close(lease)

    monkeypatch.setattr(asyncio, "sleep", before_each_look)
    await until_orphaned(leases)
    assert looks == [server.LEASE_INTERVAL_S] * 4


async def test_a_missing_file_is_nobodys_lease(tmp_path: Path) -> None:
    await asyncio.wait_for(until_orphaned(tmp_path / "gone" / "leases", interval=0.01), 60)
