"""Changing programs, files that others will own, the machine, and one's own place on it."""
# ruff: noqa: E501 - scripts for bash and Python

import pytest

from tests.support.attempts import rows
from tests.support.boundary.two_hosts import Attempt, TwoHosts, judged, python

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.stopped_in("process")]

FILES = [
    Attempt(
        "changing the programs that run, or putting others in their place",
        python("""
            for pid in pids():
                link, _ = refused(os.readlink, f"/proc/{pid}/exe")
                for name in (f"/proc/{pid}/exe", link, os.path.dirname(link or "")):
                    if name and os.access(name, os.W_OK): won(name)
        """),
        stopped_by="programs are mounted read only, and belong to somebody else",
    ),
    Attempt(
        "writing a program in the page cache: Dirty Pipe and Dirty COW",
        python("""
            import mmap, threading
            name = "/usr/bin/env"
            before = open(name, "rb").read()
            at = os.open(name, os.O_RDONLY)
            into, out = os.pipe()
            # every page of the pipe once full, then empty: an old kernel keeps that it may be merged
            for _ in range(16): os.write(out, bytes(4096))
            for _ in range(16): os.read(into, 4096)
            refused(os.splice, at, out, 1, 0)
            refused(os.write, out, b"hostile")
            held = mmap.mmap(at, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)
            memory, _ = refused(os.open, "/proc/self/mem", os.O_RDWR)
            where = [int(line.split("-")[0], 16) for line in open("/proc/self/maps") if name in line]
            stop = threading.Event()
            def forget():
                while not stop.is_set(): held.madvise(mmap.MADV_DONTNEED)
            thread = threading.Thread(target=forget)
            thread.start()
            for _ in range(0 if memory is None else 2000): refused(os.pwrite, memory, b"hostile", where[0])
            stop.set(); thread.join()
            if open(name, "rb").read() != before: won(name)
        """),
        stopped_by="a kernel that has been mended: no write to a private page reaches the file",
    ),
    Attempt(
        "files that nobody can delete: immutable, append-only",
        python("""
            import fcntl
            at = os.open("/shared/kept", os.O_CREAT | os.O_RDWR)
            for flag in (0x10, 0x20):
                given = struct.pack("=l", flag)
                if refused(fcntl.ioctl, at, 0x40086602, given)[1] is None: won("flag", flag)
            os.unlink("/shared/kept")
        """),
        stopped_by="no CAP_LINUX_IMMUTABLE",
    ),
    Attempt(
        "capabilities and labels on a file that the operator will own",
        python("""
            os.close(os.open("/shared/labelled", os.O_CREAT | os.O_RDWR, 0o700))
            all_rights = struct.pack("=IIIII", 0x2000001, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff)
            own_root = struct.pack("=IIIIII", 0x3000001, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0)
            for name, value in (("security.capability", all_rights), ("security.capability", own_root),
                    ("trusted.overlay.opaque", b"y"), ("security.ima", b"x")):
                if refused(os.setxattr, "/shared/labelled", name, value)[1] is None: won(name)
            os.unlink("/shared/labelled")
        """),
        stopped_by="no CAP_SETFCAP, no CAP_SYS_ADMIN",
    ),
    Attempt(
        "giving files away, to root and to others",
        python("""
            os.close(os.open("/shared/given", os.O_CREAT | os.O_RDWR))
            mine = os.stat("/shared/given")
            for user, group in ((0, -1), (-1, 0), (1, 1), (65534, 65534), (mine.st_uid + 1, -1)):
                if refused(os.chown, "/shared/given", user, group)[1] is not None: continue
                if (os.stat("/shared/given").st_uid, os.stat("/shared/given").st_gid) != (mine.st_uid, mine.st_gid):
                    won(user, group)
            os.unlink("/shared/given")
        """),
        stopped_by="no CAP_CHOWN",
    ),
    Attempt(
        "holding up whoever opens a file: fanotify",
        python("""
            for kind in (4, 8, 0):
                at = syscall(300, kind, os.O_RDONLY)
                if at < 0: continue
                if kind: won("a class that decides", kind)
                for whole in (0x10, 0x100):
                    if syscall(301, at, 1 | whole, 0x20, -100, b"/shared") == 0: won("all of a mount", whole)
        """),
        stopped_by="no CAP_SYS_ADMIN",
    ),
]

MACHINE = [
    Attempt(
        "the clock, by every call that sets it",
        python("""
            now = struct.pack("=qq", *divmod(__import__("time").time_ns(), 10**9))
            if syscall(227, 0, now) == 0: won("clock_settime")
            tick = struct.pack("=Iiqqqqi", 0x4000, 0, 0, 0, 0, 0, 0) + struct.pack("=iqqqqqqq", 0, 0, 0, 0, 0, 0, 10000, 0)
            if syscall(159, ctypes.create_string_buffer(tick, 256)) >= 0: won("adjtimex")
            if syscall(305, 0, ctypes.create_string_buffer(tick, 256)) >= 0: won("clock_adjtime")
        """),
        stopped_by="no CAP_SYS_TIME",
    ),
    Attempt(
        "the kernel's log: reading, clearing and silencing it",
        python("""
            buffer = ctypes.create_string_buffer(4096)
            for action in (2, 3, 4, 5, 6, 7, 8, 10):
                got = syscall(103, action, buffer, 4096 if action in (2, 3, 4) else 0)
                if got > 0 or (got == 0 and action in (5, 6, 7)): won("syslog", action, got)
        """),
        stopped_by="no CAP_SYSLOG; the log is closed to others (dmesg_restrict), or the call is",
        in_gvisor={r"syslog (3|10) \d+": "what gVisor's own kernel says, the same in every guest"},
    ),
    Attempt(
        "lines in the audit log of the host",
        python("""
            way, _ = refused(socket.socket, 16, 3, 9)
            for kind in (1000, 1001, 1005, 1107, 1112):
                if way is None: break
                text = b"op=login acct=root res=success\\0"
                way.settimeout(1)
                refused(way.send, struct.pack("=IHHII", 16 + len(text), kind, 5, 1, 0) + text)
                answer = refused(way.recv, 4096)[0]
                if answer and struct.unpack("=i", answer[16:20])[0] == 0: won("audit", kind)
        """),
        stopped_by="no CAP_AUDIT_WRITE, no CAP_AUDIT_CONTROL",
    ),
    Attempt(
        "rules of the firewall and of encrypted connections",
        python("""
            # a table of nftables; flushing xfrm's policies
            batch = struct.pack("=IHHII", 20, 16, 1, 0, 0) + struct.pack("=BBH", 0, 0, 0x0a00)
            name = struct.pack("=HH8s", 12, 1, b"hostile")
            table = struct.pack("=IHHII", 20 + len(name), 0xa00, 0x405, 1, 0) + struct.pack("=BBH", 2, 0, 0) + name
            end = struct.pack("=IHHII", 20, 17, 1, 2, 0) + struct.pack("=BBH", 0, 0, 0x0a00)
            flush = struct.pack("=IHHII", 16, 0x1d, 5, 1, 0)
            for number, said in ((12, batch + table + end), (6, flush)):
                way, _ = refused(socket.socket, 16, 3, number)
                if way is None: continue
                way.settimeout(1)
                refused(way.send, said)
                answer = refused(way.recv, 4096)[0]
                if answer and struct.unpack("=i", answer[16:20])[0] == 0: won("netlink", number)
        """),
        stopped_by="no CAP_NET_ADMIN",
    ),
    Attempt(
        "serial numbers and firmware of the machine",
        python("""
            import glob
            names = ["/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/product_uuid",
                "/sys/class/dmi/id/board_serial", *glob.glob("/sys/firmware/efi/efivars/*"),
                *glob.glob("/sys/firmware/acpi/tables/*"), *glob.glob("/sys/firmware/dmi/tables/*")]
            for name in names:
                if os.path.isfile(name) and refused(lambda: open(name, "rb").read(1))[0]: won(name)
        """),
        stopped_by="/sys is not mounted, or without firmware and closed to who is not root",
    ),
    Attempt(
        "physical addresses of one's own memory",
        python("""
            held = ctypes.create_string_buffer(b"x" * 65536)
            at, _ = refused(os.open, "/proc/self/pagemap", os.O_RDONLY)
            if at is not None:
                entry, _ = refused(os.pread, at, 8, ctypes.addressof(held) // 4096 * 8)
                if entry and struct.unpack("=Q", entry)[0] & ((1 << 55) - 1): won(entry.hex())
        """),
        stopped_by="no CAP_SYS_ADMIN: the kernel shows others no frame numbers",
    ),
]

SELF = [
    Attempt(
        "a map of users and groups of one's own",
        python("""
            for name, text in (("uid_map", b"0 0 1"), ("gid_map", b"0 0 1"), ("setgroups", b"allow"),
                    ("uid_map", b"0 %d 1" % os.getuid()), ("projid_map", b"0 0 1")):
                at, _ = refused(os.open, f"/proc/self/{name}", os.O_WRONLY)
                if at is not None and refused(os.write, at, text)[1] is None: won(name, text)
        """),
        stopped_by="a map of users is written once, and was when the guest began",
    ),
    Attempt(
        "another control group",
        python("""
            import glob
            for name in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:200] + [
                    "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/tasks"]:
                at, _ = refused(os.open, name, os.O_WRONLY)
                if at is not None and refused(os.write, at, b"0")[1] is None: won(name)
            for name in glob.glob("/sys/fs/cgroup/**/*.max", recursive=True)[:200]:
                at, _ = refused(os.open, name, os.O_WRONLY)
                if at is not None and refused(os.write, at, b"max")[1] is None: won(name)
        """),
        stopped_by="control groups are mounted read only, or not at all",
    ),
    Attempt(
        "the daemon's process group and session",
        python("""
            others = [pid for pid in pids() if not mine(pid)]
            for pid in others:
                group, _ = refused(os.getpgid, pid)
                for wanted in {pid, group} - {None, 0, os.getpgid(0)}:
                    if refused(os.setpgid, 0, wanted)[1] is None: won("joined", wanted)
                if refused(os.setpgid, pid, os.getpid())[1] is None: won("moved", pid)
        """),
        stopped_by="each command runs in a session of its own, which no other can join",
    ),
    Attempt(
        "comparing, locking and moving what other processes hold: kcmp, robust lists, pages",
        python("""
            head, size = ctypes.c_void_p(), ctypes.c_size_t()
            page, status = ctypes.c_void_p(0), ctypes.c_int()
            for pid in pids():
                if mine(pid): continue
                for kind in range(7):
                    if syscall(312, os.getpid(), pid, kind, 0, 0) >= 0: won("kcmp", pid, kind)
                if syscall(274, pid, ctypes.byref(head), ctypes.byref(size)) == 0: won("robust list", pid)
                if syscall(279, pid, 1, ctypes.byref(page), None, ctypes.byref(status), 0) >= 0: won("pages", pid)
                if call("prctl", 62, 1, pid, 0, 0) == 0: won("core scheduling", pid)
        """),
        stopped_by="processes of the host are not seen, and those of the daemon are concealed",
        in_gvisor={
            r"robust list \d+": "an address in the daemon's helpers, whose memory is closed"
        },
    ),
    Attempt(
        "descriptors that came along",
        python("""
            for name in os.listdir("/proc/self/fd"):
                link, _ = refused(os.readlink, f"/proc/self/fd/{name}")
                if link and not link.startswith(("pipe:", "/dev/null", f"/proc/{os.getpid()}/fd")): won(name, link)
        """),
        stopped_by="the daemon's descriptors close when a command is executed",
    ),
    Attempt(
        "programs where the next command looks for its own",
        python("""
            for place in os.environ["PATH"].split(":"):
                for name in ("ls", "sh", "hostile"):
                    if refused(lambda: open(f"{place}/{name}", "r+b" if name != "hostile" else "xb"))[1] is None:
                        won(place, name)
                if not place.startswith("/") or place.startswith(("/shared", "/tmp", "/cache", "/ipc")): won("path", place)
        """),
        stopped_by="PATH names only directories that are mounted read only",
    ),
]


@pytest.mark.parametrize("one", rows([*FILES, *MACHINE, *SELF]))
async def test_nothing_of_the_machine_changes(place: TwoHosts, one: Attempt) -> None:
    await judged(place, one)


async def test_the_machine_is_as_before_all_that(place: TwoHosts) -> None:
    await place.assert_unharmed()
