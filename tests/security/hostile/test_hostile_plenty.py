"""Too much of everything: processes, memory, output, files, descriptors, disk."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire.disk import free_bytes
from wire.errors import Code, WireError

from tests.security.hostile.conftest import TIERS
from tests.support.attempts import rows, tries
from tests.support.boundary.two_hosts import (
    MEMORY_MB,
    PROCESSES,
    TRIED,
    Attempt,
    HostileTier,
    TwoHosts,
    bash,
    denied,
    judged,
    python,
    two_hosts,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

bounded_in_every_tier = pytest.mark.stopped_in("process")
"""Who counts processes and memory is the engine in one tier, and the runner's own in another."""

BOMBS = [
    Attempt(
        "a fork bomb",
        bash("bomb() { bomb | bomb & }; bomb; sleep 2"),
        {"timeout_ms": 4000},
        stopped_by="a bound on processes, and the daemon ends a command's whole tree",
    ),
    Attempt(
        "as many processes as there may be",
        python(f"""
            children = []
            while len(children) < 2000:
                pid, error = refused(os.fork)
                if error is not None: break
                if pid == 0:
                    import time; time.sleep(60); os._exit(0)
                children.append(pid)
            print(len(children))
            if len(children) > {PROCESSES}: won(len(children))
            for pid in children: os.kill(pid, 9)
        """),
        stopped_by="a bound on processes",
    ),
    Attempt(
        "a memory bomb",
        python(f"""
            held = []
            while len(held) < 2 * {MEMORY_MB}:
                piece, error = None, None
                try: piece = bytearray(b"x") * (1 << 20)
                except MemoryError: break
                held.append(piece)
            if len(held) > {MEMORY_MB}: won(len(held), "MiB")
        """),
        stopped_by="a bound on memory",
    ),
    Attempt(
        "memory that is shared and in files of memory",
        python(f"""
            total = 0
            for number in range(16):
                at = os.memfd_create("m")
                for _ in range(64):
                    _, error = refused(os.write, at, bytes(1 << 20))
                    total += error is None
            if total > {MEMORY_MB}: print(total, "MiB")
            at, _ = refused(lambda: open("/dev/shm/hostile", "wb"))
            while at is not None and refused(at.write, bytes(1 << 20))[1] is None:
                if at.tell() > 256 << 20:
                    won("shared memory"); break
            refused(os.unlink, "/dev/shm/hostile")
        """),
        stopped_by="a bound on memory, and /dev/shm of a fixed size",
    ),
    Attempt(
        "pipes that are full",
        python(f"""
            import fcntl
            held, total = [], 0
            while total < 2 * {MEMORY_MB} << 20:
                ends, _ = refused(os.pipe2, os.O_NONBLOCK)
                if ends is None: break
                refused(fcntl.fcntl, ends[1], fcntl.F_SETPIPE_SZ, 1 << 20)
                while wrote := refused(os.write, ends[1], bytes(1 << 16))[0]: total += wrote
                held.append(ends)
            if total > {MEMORY_MB} << 20: won(total)
        """),
        stopped_by="the kernel's bound on the pipes of a user, and a bound on memory",
    ),
    Attempt(
        "sockets that are full",
        python(f"""
            held, total = [], 0
            while total < 2 * {MEMORY_MB} << 20:
                ends, _ = refused(socket.socketpair)
                if ends is None: break
                for end in ends:
                    end.setblocking(False)
                    while sent := refused(end.send, bytes(1 << 16))[0]: total += sent
                held.append(ends)
            if total > {MEMORY_MB} << 20: won(total)
        """),
        stopped_by="a bound on memory, which counts what lies in sockets",
    ),
    Attempt(
        "as many descriptors as there may be",
        python("""
            held = []
            while len(held) < 1_000_000:
                at, error = refused(os.open, "/dev/null", os.O_RDONLY)
                if error is not None: break
                held.append(at)
            if len(held) > 500_000: won(len(held))
        """),
        stopped_by="a bound on open files",
    ),
]
FLOODS = [
    Attempt(
        "output without end",
        bash("yes hostile"),
        {"timeout_ms": 1500},
        stopped_by="output is kept to a bounded buffer and the command ends in time",
    ),
    Attempt(
        "one line without end",
        bash("tr '\\0' x < /dev/zero"),
        {"timeout_ms": 1500},
        stopped_by="output is kept to a bounded buffer and the command ends in time",
    ),
    Attempt(
        "a flood of its own logs",
        bash("""
            for p in /proc/1/fd/1 /proc/1/fd/2; do
                (timeout 1 head -c 8000000 /dev/zero > $p) 2>/dev/null
            done; sleep 1
        """),
        stopped_by="the first process is concealed, so its pipes cannot be opened",
    ),
    Attempt(
        "processes that outlive their command",
        bash("for n in 1 2 3 4 5; do (setsid nohup sleep 100000 &) ; done"),
        stopped_by="the daemon ends a command's whole tree, also what left its session",
    ),
]


@bounded_in_every_tier
@pytest.mark.parametrize("one", rows(BOMBS))
async def test_a_bomb_hits_nobody_else(place: TwoHosts, one: Attempt) -> None:
    await _hits_nobody_else(place, one)


@pytest.mark.parametrize("one", rows(FLOODS))
async def test_what_the_daemon_bounds_hits_nobody_else(place: TwoHosts, one: Attempt) -> None:
    await _hits_nobody_else(place, one)


async def _hits_nobody_else(place: TwoHosts, one: Attempt) -> None:
    try:
        ran, text = await place.attempt(one)
    except WireError as error:
        denied(place, f"{error.brief} {error.details}")
    else:
        denied(place, text[-100_000:])
        assert ran.exit.exit_code != 0 or "TRIED" in text, text[-2000:]
    await place.settle()
    await place.assert_unharmed()


@pytest.mark.attempt(
    "a process that calls itself the daemon, to be spared",
    stopped_by="the daemon knows its helpers by descent, not by name",
)
async def test_who_bears_the_daemons_name_is_ended_too(place: TwoHosts) -> None:
    disguised = python("""
        if os.fork() == 0:
            os.setsid()
            for name in (b"oxydra-superv", b"oxydra-zygote"):
                if os.fork() == 0:
                    call("prctl", 15, name, 0, 0, 0)
                    open(f"/shared/{name.decode()}", "w").write(str(os.getpid()))
                    import time
                    time.sleep(1000)
            os._exit(0)
        while not all(map(os.path.exists, ("/shared/oxydra-superv", "/shared/oxydra-zygote"))): pass
    """)
    await judged(place, Attempt("disguise", disguised))
    alive = """
        for f in /shared/oxydra-superv /shared/oxydra-zygote; do
            kill -0 $(cat $f) && won $f; rm $f
        done
    """
    await judged(place, Attempt("are they alive", bash(alive)))


COUNTED_FOR_A_UID = python("""
    import time
    for _ in range(200_000):
        if call("inotify_init1", 0) < 0: break
    timer = ctypes.c_void_p()
    for _ in range(200_000):
        if call("timer_create", 0, None, ctypes.byref(timer)) < 0: break
    print("held", file=open("/shared/held", "w"))
    while not os.path.exists("/shared/go"): time.sleep(0.05)
""")
"""Takes all inotify instances and pending signals that the kernel gives a uid, and keeps them."""

THE_SAME_OF_ANOTHER = python("""
    watched = call("inotify_init1", 0)
    if watched < 0: won("no inotify instance is left", watched)
    timer = ctypes.c_void_p()
    made = call("timer_create", 0, None, ctypes.byref(timer))
    if made < 0: won("no timer is left", made)
""")


@pytest.mark.attempt(
    "all that the kernel counts for a uid: inotify instances, pending signals",
    stopped_by="each user's guests have a uid of their own, where the runner is root",
)
@pytest.mark.not_in("process", "micro_vm")
async def test_what_the_kernel_counts_for_a_uid_is_used_up_for_nobody_else(
    place: TwoHosts,
) -> None:
    """Not in the process tier, where all users' guests have the runner's uid, and not on gVisor's
    kernel, of which each guest has one that counts for itself."""
    await place.alice.shell.start("taking", COUNTED_FOR_A_UID, timeout_ms=120_000)
    try:
        await place.alice.shell.appears("held")
        ran = await place.bob.shell.run("wanting", THE_SAME_OF_ANOTHER)
    finally:
        place.alice.shell.let_go()
        await place.alice.shell.collect("taking")
        for name in ("held", "go"):
            (place.alice.workspace / "shared" / name).unlink()
    text = (ran.stdout + ran.stderr).decode()
    assert TRIED in text, text
    denied(place, text)


async def test_nothing_outlives_its_command(place: TwoHosts) -> None:
    text = await judged(place, Attempt("", bash("ps() { cat /proc/*/comm 2>/dev/null; }; ps")))
    assert "sleep" not in text


@bounded_in_every_tier
@pytest.mark.attempt(
    "memory in many processes, each within its bound",
    stopped_by="a bound on the memory of all processes of a guest together",
)
@pytest.mark.root
async def test_all_processes_of_a_guest_share_one_memory(place: TwoHosts) -> None:
    """Where the runner may set control groups."""
    one = Attempt(
        "memory in many processes",
        python(f"""
            import signal, time
            children = []
            for _ in range(6):
                pid = os.fork()
                if pid == 0:
                    held = bytearray(b"x") * ({MEMORY_MB // 4} << 20)
                    time.sleep(60)
                children.append(pid)
            for _ in range(200):
                children = [pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0]
                if len(children) <= 4: break
                time.sleep(0.1)
            else: won(len(children))
            for pid in children: refused(os.kill, pid, signal.SIGKILL)
        """),
    )
    try:
        _, text = await place.attempt(one)
    except WireError as error:
        text = f"{error.brief} {error.details}"
    denied(place, text)
    await place.settle()
    await place.assert_unharmed()


@pytest.mark.attempt(
    "a directory with 30,000 files",
    stopped_by="listing, searching and walking are bounded",
)
async def test_a_crowded_directory_stops_neither_the_agent_nor_the_runner(place: TwoHosts) -> None:
    await judged(
        place,
        Attempt(
            "many files",
            python("""
                os.makedirs("/shared/crowd")
                for number in range(30_000):
                    os.close(os.open(f"/shared/crowd/{number}", os.O_CREAT | os.O_WRONLY))
            """),
        ),
    )
    for tool in ("file_list", "file_search"):
        answer = await place.tool(tool, path="/shared/crowd", query="x")
        assert len(answer) < 100_000
    place.alice.host.workspace.adopt()
    await judged(place, Attempt("", bash("rm -rf /shared/crowd")))
    await place.assert_unharmed()


@asynccontextmanager
async def small_disk(tier: HostileTier) -> AsyncIterator[TwoHosts]:
    async with two_hosts(tier, disk="size=256m,nr_inodes=60000") as ready:
        yield ready


DISK_GUARD = "the daemon ends commands before the disk is full"
FILLING = [
    Attempt(
        "filling the disk with bytes",
        "trap '' TERM; while head -c 65536 /dev/zero >> /shared/full; do :; done",
        stopped_by=DISK_GUARD,
    ),
    Attempt(
        "filling the disk with empty files",
        """trap '' TERM; mkdir /shared/full; n=0
        while :; do n=$((n + 1)); : > /shared/full/$n; [ $((n % 40)) = 0 ] && sleep 0.001; done""",
        stopped_by=DISK_GUARD,
    ),
    Attempt(
        "filling the disk at one stroke",
        """trap '' TERM; python3 -c '
import os
at = os.open("/shared/full", os.O_CREAT | os.O_RDWR)
free = os.statvfs("/shared").f_bavail * os.statvfs("/shared").f_frsize
while free > 4096:
    try: os.posix_fallocate(at, os.fstat(at).st_size, free)
    except OSError: free //= 2
'; while :; do head -c 4096 /dev/zero >> /shared/full; done""",
        stopped_by="a reserve for the memory that no command can take",
    ),
]


def take_all(file: Path) -> None:
    """Take what is left, because the kernel gives back what a stroke was ended in the middle of."""
    with file.open("ab") as at:
        while (free := free_bytes(os.statvfs(file))) > 65_536:
            os.posix_fallocate(at.fileno(), at.seek(0, os.SEEK_END), free - 32_768)


@tries(FILLING)
@pytest.mark.root
@pytest.mark.not_in("micro_vm")
@pytest.mark.parametrize("tier", TIERS)
async def test_a_full_disk_leaves_room_for_the_memory(tier: Any) -> None:
    """gVisor's kernel is left out: it keeps files that were deleted outside of it, so that a disk
    is not free again before its guests are made anew."""
    async with small_disk(tier) as place:
        for number, one in enumerate(FILLING):
            ran, text = await place.attempt(replace(one, fields={"timeout_ms": 60_000}))
            assert "oxydra: ended, because the disk is full" in text, (one.name, ran.exit, text)
            if one.name == "filling the disk at one stroke":
                take_all(place.alice.workspace / "shared" / "full")
            with pytest.raises(WireError, match="the disk is full") as raised:
                await place.alice.shell.run(f"refused-{number}", "true")
            assert raised.value.code is Code.RESOURCE_EXHAUSTED
            if "files" not in one.name:
                assert "/shared/full" in raised.value.details
            for user_host in (place.alice, place.bob):
                note = f"written after {one.name} by {user_host.host.user_id}"
                answer = await place.tool("memory_save", content=note)
                assert "Stored" in answer
            if one.name == "filling the disk at one stroke":
                refusal = await place.tool("file_write", path="/shared/more", content="x")
                assert re.search(r"the disk is full.*largest file is /shared/full", refusal)
            assert re.search("no command is run", await place.tool("shell_exec", command="true"))
            full = place.alice.workspace / "shared" / "full"
            if full.is_dir():
                for path in full.iterdir():
                    path.unlink()
                full.rmdir()
            else:
                full.unlink()
            assert (await place.alice.shell.run(f"again-{number}", "echo fine")).stdout == b"fine\n"
        await place.assert_unharmed()
