"""What a guest holds in memory, and when its commands are ended for it."""

import asyncio
import os
from pathlib import Path

import pytest
from wire.errors import Code, WireError

from shell_daemon.guards import Memory, MemoryGuard
from tests.support.guests.shell_backends import in_process

MIB = 1024 * 1024
GUARD_S = 30


class Machine(Memory):
    """As `/proc` would show it: `say` writes a file there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, disks=())
        self.directory = directory
        self.has(total=16_000, available=8_000)

    def say(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def has(self, *, total: int, available: int) -> None:
        lines = f"MemTotal: {total * 1024} kB\nMemFree: 1 kB\nMemAvailable: {available * 1024} kB\n"
        self.say("meminfo", lines)

    def runs(self, pid: int, *, private: int, shared: int = 0, tables: int = 0) -> None:
        """A process with these MiB."""
        rows = {"RssAnon": private, "RssFile": 77, "RssShmem": shared, "VmSwap": 0, "VmPTE": tables}
        said = "".join(f"{name}:\t{number * 1024:8} kB\n" for name, number in rows.items())
        self.say(f"{pid}/status", f"Name:\tx\n{said}")

    def shares(self, pid: int, *, private: int, shared: int = 0) -> None:
        """Its share of these, where others hold them too."""
        rows = {"Rss": 999, "Pss": 999, "Pss_Anon": private, "Pss_Shmem": shared, "SwapPss": 0}
        said = "".join(f"{name}: {number * 1024} kB\n" for name, number in rows.items())
        self.say(f"{pid}/smaps_rollup", f"7f0-7f1 ---p 0 00:00 0 [rollup]\n{said}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_everything_of_every_process_is_added_up(machine: Machine) -> None:
    machine.runs(7, private=10, shared=5, tables=1)
    machine.runs(8, private=20)
    assert machine.at_most() == machine.exactly() == 36 * MIB


def test_what_is_shared_counts_once_but_for_who_is_closed_to_others(machine: Machine) -> None:
    for pid in (7, 8):
        machine.runs(pid, private=100, shared=10, tables=1)
        machine.shares(pid, private=50, shared=5)
    assert machine.at_most() == 222 * MIB
    assert machine.exactly() == 112 * MIB
    (machine.directory / "8" / "smaps_rollup").unlink()
    assert machine.exactly() == (56 + 111) * MIB


def test_segments_messages_and_disks_in_memory_count_without_a_process(machine: Machine) -> None:
    heading = "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap"
    row = f"0 3 666 9 1 1 0 5 5 5 5 1 0 1 {3 * MIB} {MIB}"
    machine.say("sysvipc/shm", f"{heading}\n{row}\n{row}\n")
    machine.say("sysvipc/msg", f"key msqid perms cbytes qnum\n0 1 644 {MIB} 12\n")
    assert machine.at_most() == machine.exactly() == 9 * MIB
    disk = os.statvfs("/dev/shm")
    with_disk = Memory(machine.directory, disks=[Path("/dev/shm")])
    assert with_disk.at_most() >= 9 * MIB + (disk.f_blocks - disk.f_bfree) * disk.f_frsize - MIB


class Watched:
    """A guard with a limit of 100 MiB; commands run until it ends them, or `busy` is cleared."""

    def __init__(self, memory: Memory) -> None:
        self.busy = True
        self.said: list[str] = []
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        self.guard = MemoryGuard(
            100 * MIB,
            busy=lambda: self.busy,
            on_excess=self._end,
            on_lost=self.lost.set,
            memory=memory,
        )

    def _end(self, why: str) -> None:
        self.busy = False
        self.said.append(why)
        self.ended.set()

    async def run(self) -> None:
        self.guard.watch()
        async with asyncio.timeout(GUARD_S):
            await self.ended.wait()


async def test_above_the_limit_commands_are_ended(machine: Machine) -> None:
    machine.runs(7, private=120)
    watched = Watched(machine)
    await watched.run()
    assert watched.said == [
        "120 MiB are taken, and 100 MiB are the limit for all commands together"
    ]


async def test_what_is_only_shared_ends_nobody(machine: Machine) -> None:
    for pid in (7, 8):
        machine.runs(pid, private=80)
        machine.shares(pid, private=40)
    watched = Watched(machine)
    counted = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Counting(Machine):
        def exactly(self) -> int:
            loop.call_soon_threadsafe(counted.set)
            return super().exactly()

    watched = Watched(Counting(machine.directory))
    watched.guard.watch()
    async with asyncio.timeout(GUARD_S):
        await counted.wait()
        counted.clear()
        await counted.wait()
        assert not watched.said
        machine.shares(8, private=80)
        await watched.ended.wait()
    assert "120 MiB are taken" in watched.said[0]


async def test_a_machine_that_is_short_of_memory_ends_commands_too(machine: Machine) -> None:
    machine.has(total=16_000, available=255)
    watched = Watched(machine)
    await watched.run()
    assert watched.said == ["the machine has 255.0 MiB of memory left, and 256.0 MiB are kept free"]


def test_below_the_reserve_nothing_may_start(machine: Machine) -> None:
    guard = Watched(machine).guard
    guard.check()
    machine.has(total=16_000, available=255)
    with pytest.raises(WireError, match="the machine's memory is full") as raised:
        guard.check()
    assert raised.value.code is Code.RESOURCE_EXHAUSTED
    assert "end other programs" in raised.value.resolution
    machine.has(total=1_000, available=101)
    guard.check()
    machine.has(total=1_000, available=99)
    assert "99.0 MiB of memory left, and 100.0 MiB are kept" in guard.shortage()


async def test_what_commands_leave_in_memory_ends_the_guest(machine: Machine) -> None:
    machine.runs(7, private=120)
    watched = Watched(machine)
    await watched.run()
    with pytest.raises(WireError, match="commands have left its memory full") as raised:
        watched.guard.check()
    assert raised.value.code is Code.UNAVAILABLE
    assert watched.lost.is_set()


async def test_without_a_further_command_it_ends_too(machine: Machine) -> None:
    machine.runs(7, private=120)
    watched = Watched(machine)
    await watched.run()
    async with asyncio.timeout(GUARD_S):
        await watched.lost.wait()


async def test_a_guest_whose_memory_is_free_again_goes_on(machine: Machine) -> None:
    machine.runs(7, private=120)
    watched = Watched(machine)

    def end(why: str) -> None:
        machine.runs(7, private=40)
        watched.busy = False
        watched.said.append(why)
        asyncio.get_running_loop().call_later(0.3, watched.ended.set)

    watched.guard = MemoryGuard(
        100 * MIB,
        busy=lambda: watched.busy,
        on_excess=end,
        on_lost=watched.lost.set,
        memory=machine,
    )
    await watched.run()
    assert not watched.lost.is_set()


async def test_memory_that_cannot_be_watched_ends_the_guest(machine: Machine) -> None:
    machine.say("meminfo", "nothing\n")
    watched = Watched(machine)
    watched.guard.watch()
    async with asyncio.timeout(GUARD_S):
        await watched.lost.wait()


async def test_the_command_says_why_it_was_ended() -> None:
    """The daemon of this test sees all processes of the machine, which hold more than that."""
    async with in_process(memory_bytes=MIB) as guest:
        ran = await guest.run("holds", "trap '' TERM; sleep 1000")
        assert b"oxydra: ended, because the memory is full: " in ran.stderr
        assert b"1 MiB are the limit for all commands together" in ran.stderr
        assert (ran.exit.exit_code, ran.exit.cancelled) == (128 + 9, False)
