"""Taking the machine's memory from the shell of a runner that is not root and has no control groups."""
# ruff: noqa: E501 - scripts for bash and Python

from collections.abc import Iterator

import pytest

from tests.support.attempts import rows
from tests.support.boundary.two_hosts import TRIED, WON, Attempt, bash, python
from tests.support.guests.ordinary_shell import MEMORY_MB, OrdinaryShell, ordinary_shell

pytestmark = [
    pytest.mark.bubblewrap,
    pytest.mark.root,
    pytest.mark.tier("process"),
    pytest.mark.xdist_group("ordinary-shell"),
]

PLENTY_MB = 4 * MEMORY_MB
"""Who holds so much for a while has won."""
ENDED = f"{MEMORY_MB} MiB are the limit for all commands together"


@pytest.fixture(scope="module")
def shell() -> Iterator[OrdinaryShell]:
    with ordinary_shell() as ready:
        yield ready


HOLDING = [
    Attempt(
        "memory of one process after the other, each below its limit",
        python(f"""
            import time
            for number in range(16):
                if os.fork() == 0:
                    held = bytearray(b"x") * ({PLENTY_MB // 16} << 20)
                    time.sleep(20); os._exit(0)
            time.sleep(10)
            won("held by many")
        """),
        stopped_by="the guest adds up what it holds, and ends its commands",
    ),
    Attempt(
        "memory of many processes at once, as fast as they can",
        python(f"""
            import mmap, time
            wait, go = os.pipe()
            for number in range(32):
                if os.fork() == 0:
                    os.close(go); os.read(wait, 1)
                    held = mmap.mmap(-1, {PLENTY_MB // 32} << 20, flags=0x22)
                    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(held)), 1, len(held))
                    time.sleep(20); os._exit(0)
            os.close(wait); os.close(go)
            time.sleep(10)
            won("held by many")
        """),
        stopped_by="the guest adds up what it holds, and ends its commands",
    ),
    Attempt(
        "a shared mapping, which counts for no limit of a process",
        python(f"""
            import mmap, time
            held = mmap.mmap(-1, {PLENTY_MB} << 20)
            for at in range(0, len(held), 1 << 20): held[at:at + (1 << 20)] = bytes([1]) * (1 << 20)
            time.sleep(5)
            won("held")
        """),
        stopped_by="the guest adds up what it holds, and ends its commands",
    ),
    Attempt(
        "processes that are closed to those who would look into them",
        python(f"""
            import time
            for number in range(8):
                if os.fork() == 0:
                    if call("prctl", 4, 0, 0, 0, 0) != 0: os._exit(1)
                    held = bytearray(b"x") * ({PLENTY_MB // 8} << 20)
                    time.sleep(20); os._exit(0)
            time.sleep(10)
            won("held by many")
        """),
        stopped_by="who hides a share counts in full",
    ),
    Attempt(
        "some in the file systems in memory, and some in a process",
        python(f"""
            import time
            at = os.open("/dev/shm/filled", os.O_CREAT | os.O_WRONLY)
            while refused(os.write, at, bytes(1 << 20))[1] is None: pass
            held = bytearray(b"x") * ({MEMORY_MB - 16} << 20)
            time.sleep(10)
            won("held", os.statvfs("/dev/shm").f_blocks)
        """),
        stopped_by="the guest adds up what it holds, and ends its commands",
    ),
]


@pytest.mark.parametrize("one", rows(HOLDING))
def test_who_holds_more_than_the_limit_is_ended_and_told(
    shell: OrdinaryShell, one: Attempt
) -> None:
    answer = shell.run(one.command)
    assert WON not in answer["stdout"], answer
    assert ENDED in answer["stderr"], answer
    assert answer["exit_code"] == 137
    assert shell.run("rm -f /dev/shm/filled; echo fine")["stdout"] == "fine\n"


REFUSED = [
    Attempt(
        "a file of memory without a name and without a mapping",
        python(f"""
            for name in ("memfd_create", "memfd_secret"):
                at = syscall({{"memfd_create": 319, "memfd_secret": 447}}[name], b"m" if name == "memfd_create" else 0, 0)
                print(name, at)
                for _ in range({PLENTY_MB} if at >= 0 else 0):
                    if refused(os.write, at, bytes(1 << 20))[1] is not None: break
                else:
                    if at >= 0: won(name)
            if int80(356, low(b"m\\0"), 0) >= 0: won("by int 80")
            if syscall(319 | 0x40000000, b"m", 0) >= 0: won("by x32")
        """),
        stopped_by="there is no memfd_create where no control group counts, in no ABI",
    ),
    Attempt(
        "pages in a pipe that are mapped no more",
        python("""
            there, back = os.pipe()
            buffer = ctypes.create_string_buffer(1 << 16)
            piece = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 1 << 16)
            if syscall(278, back, piece, 1, 8) > 0: won("vmsplice")
        """),
        stopped_by="there is no vmsplice where no control group counts",
    ),
    Attempt(
        "more than the file systems in memory hold, without control groups",
        bash(f"""
            for place in /dev/shm /run /dev /proc /; do
                head -c {PLENTY_MB}M /dev/zero > $place/filled 2>/dev/null
                size=$(stat -c %s $place/filled 2>/dev/null || echo 0)
                [ $size -gt $((80 << 20)) ] && won $place $size
                rm -f $place/filled 2>/dev/null
            done; true
        """),
        stopped_by="they have a size",
    ),
    Attempt(
        "a shield from the memory killer, where nobody can set a floor",
        python("""
            def score(): return int(open("/proc/self/oom_score_adj").read())
            before = score()
            for value in (b"999", b"500", b"0", b"-1000"):
                for name in ("oom_score_adj", "oom_adj"):
                    for pid in pids():
                        at = refused(os.open, f"/proc/{pid}/{name}", os.O_WRONLY)[0]
                        if at is not None: refused(os.write, at, value)
                if score() < before: won(score())
            print(before)
            if before < 1000: won("others come first", before)
        """),
        stopped_by="/proc is read-only, and all processes have the highest score",
    ),
    Attempt(
        "a proc of its own, or this one made writable again",
        python("""
            for source, kind, flags in ((b"proc", b"proc", 0), (b"/proc", None, 4096), (None, None, 32 | 4096)):
                if call("mount", source, b"/proc", kind, flags, None) == 0: won("mount", kind, flags)
            if call("unshare", 0x10000000 | 0x20000) == 0: won("unshare")
        """),
        stopped_by="no capability, no user namespace",
    ),
]


@pytest.mark.parametrize("one", rows(REFUSED))
def test_what_would_not_be_seen_is_refused(shell: OrdinaryShell, one: Attempt) -> None:
    answer = shell.run(one.command)
    assert TRIED in answer["stdout"], answer
    assert WON not in answer["stdout"], answer


@pytest.mark.attempt(
    "segments of memory that nobody has attached, which outlive their command",
    stopped_by="they count, and end with the guest, which is made anew",
)
def test_memory_that_outlives_its_command_ends_with_the_guest(shell: OrdinaryShell) -> None:
    """System V segments that nobody has attached; a guest without them takes over."""
    answer = shell.run(
        python(f"""
            import time
            libc.shmat.restype = ctypes.c_void_p
            for number in range({PLENTY_MB // 64}):
                segment = call("shmget", 0, 64 << 20, 0o1600)
                if segment < 0: break
                at = libc.shmat(segment, None, 0)
                ctypes.memset(at, 1, 64 << 20)
                libc.shmdt(ctypes.c_void_p(at))
            time.sleep(5)
            won("segments")
        """)
    )
    assert WON not in answer["stdout"], answer
    assert ENDED in answer["stderr"], answer
    after = shell.run("tail -n +2 /proc/sysvipc/shm | wc -l")
    assert after["anew"]
    assert after["stdout"] == "0\n"


def test_what_processes_share_counts_once(shell: OrdinaryShell) -> None:
    answer = shell.run(
        python(f"""
            import mmap, time
            private = bytearray(b"x") * ({MEMORY_MB // 4} << 20)
            shared = mmap.mmap(-1, {MEMORY_MB // 8} << 20)
            shared.write(bytes([1]) * len(shared))
            for number in range(8):
                if os.fork() == 0:
                    sum(private[::4096]), sum(shared[::4096])
                    time.sleep(1); os._exit(0)
            while refused(os.wait)[1] is None: pass
            print("done")
        """)
    )
    assert "done" in answer["stdout"], answer


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import multiprocessing as m; print(m.Pool(4).map(abs, [-1, -2]))'",
        "python3 -c 'from multiprocessing import shared_memory as s; x = s.SharedMemory(create=True, size=9); x.unlink(); print([1, 2])'",
        "python3 -c 'import tempfile, shutil; a = tempfile.TemporaryFile(); a.write(b\"x\" * 9); b = tempfile.TemporaryFile(); shutil.copyfileobj(a, b); print([1, 2])'",
        "echo '[1, 2]' | tee /dev/stderr | cat; cat <<< x > /dev/null",
    ],
)
def test_ordinary_programs_miss_nothing(shell: OrdinaryShell, command: str) -> None:
    answer = shell.run(command)
    assert answer["stdout"] == "[1, 2]\n", answer
