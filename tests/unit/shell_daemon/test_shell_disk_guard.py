"""When commands are ended and refused for want of room."""

import os
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError

from shell_daemon.guards import DiskGuard
from tests.support.guests.shell_backends import in_process

GIB = 1024**3


class Disk:
    """A file system as `statvfs` tells of it: 100 GiB and a million inodes, unless changed."""

    def __init__(self) -> None:
        self.blocks, self.free = 100 * GIB // 4096, 50 * GIB // 4096
        self.inodes, self.inodes_free = 1_000_000, 500_000

    def statvfs(self, path: Any) -> os.statvfs_result:
        inodes = (self.inodes, self.inodes_free, self.inodes_free)
        return os.statvfs_result((4096, 4096, self.blocks, self.free, self.free, *inodes, 0, 255))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "statvfs", disk.statvfs)
    return disk


def guard(reserve: int = 256 * 1024 * 1024) -> DiskGuard:
    return DiskGuard([Path("/shared")], reserve, busy=lambda: False, on_shortage=print)


def test_there_is_room(disk: Disk) -> None:
    guard().check()


def test_below_the_reserve_nothing_may_start(disk: Disk) -> None:
    disk.free = 255 * 256
    with pytest.raises(WireError, match="the disk is full") as raised:
        guard().check()
    assert raised.value.code is Code.RESOURCE_EXHAUSTED
    assert "/shared has 255.0 MiB left, and 256.0 MiB are kept free" in raised.value.details
    assert "delete files" in raised.value.resolution


def test_a_small_disk_is_of_use_down_to_a_tenth(disk: Disk) -> None:
    disk.blocks, disk.free = 16 * 256, 2 * 256
    guard().check()
    disk.free = 256
    assert "1.0 MiB left, and 1.6 MiB are kept" in guard().shortage()


def test_inodes_count_too(disk: Disk) -> None:
    disk.inodes_free = 19_999
    assert "room for 19999 files, and 20000 are kept" in guard().shortage()


def test_a_file_system_without_inodes_is_not_short_of_them(disk: Disk) -> None:
    disk.inodes = disk.inodes_free = 0
    guard().check()


async def test_a_shortage_ends_commands_until_there_is_room(disk: Disk) -> None:
    async with in_process() as guest:
        await guest.start("waits", "trap '' TERM; echo begun; echo x > begun; sleep 1000")
        await guest.appears("begun")
        disk.free = 0
        ran = await guest.collect("waits")
        assert ran.stdout == b"begun\n"
        assert b"oxydra: ended, because the disk is full: the disk of " in ran.stderr
        assert (ran.exit.exit_code, ran.exit.cancelled) == (128 + 9, False)
        with pytest.raises(WireError, match="no command is run"):
            await guest.start("refused", "true")
        disk.free = 50 * GIB // 4096
        assert (await guest.run("again", "echo fine")).stdout == b"fine\n"
