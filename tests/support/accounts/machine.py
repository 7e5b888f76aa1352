"""A machine with two accounts: its own processes, network, and places that everybody may write in.

It is this machine as seen from namespaces of its own, with nothing writable but new file systems in
memory. So what an account leaves anywhere is found by looking at those, every process is one of the
test's, and all ends with the machine.
"""

import contextlib
import ctypes
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.accounts import visitor

REPOSITORY: Final = Path(__file__).resolve().parents[3]
EVERYBODYS: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")
"""Where every account may make files."""
_IN_NOTIFY_NEW: Final = 0x100 | 0x80
_EVENT: Final = struct.Struct("iIII")

_SET_UP: Final = """
import ctypes, fcntl, os, signal, socket, struct, sys
accounts, everybodys, needed = (words.split(":") for words in sys.argv[1:4])
libc = ctypes.CDLL(None, use_errno=True)
READ_ONLY, REMOUNT, BIND = 1, 32, 4096

def mount(source, target, kind=None, flags=0, options=None):
    words = (each and each.encode() for each in (source, target, kind, options))
    source, target, kind, options = words
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)

def closed_at(path):
    # the first directory on the way that other accounts cannot enter
    names = path.split("/")
    for count in range(1, len(names) + 1):
        here = "/".join(names[:count]) or "/"
        if not os.path.isdir(here) or not os.stat(here).st_mode & 0o001:
            return here
    return ""

kept = [(path, os.open(path, os.O_PATH)) for path in needed]
mount(None, "/", flags=REMOUNT | BIND | READ_ONLY)
for place in everybodys:
    mount("oxydra-test", place, "tmpfs", options="mode=1777,size=8m")
for place in ("/home", "/run/user"):
    mount("oxydra-test", place, "tmpfs", options="mode=0755")
for path, held in kept:
    while (closed := closed_at(path)) and closed != path:
        if os.path.isdir(closed):
            mount("oxydra-test", closed, "tmpfs", options="mode=0755")
        os.makedirs(path, exist_ok=True)
    if not os.path.isdir(path) or not os.path.samestat(os.stat(path), os.fstat(held)):
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{held}", path, flags=BIND)
for account in accounts:
    name, _, uid = account.partition("=")
    for place, mode in ((f"/home/{name}", 0o755), (f"/run/user/{uid}", 0o700)):
        os.mkdir(place)
        os.chmod(place, mode)
        os.chown(place, int(uid), int(uid))
with socket.socket() as lo:
    fcntl.ioctl(lo, 0x8914, struct.pack("16sH", b"lo", 1 | 0x40))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
os.execv("/bin/sleep", ["sleep", "infinity"])
"""


@dataclass(frozen=True)
class Account:
    """One account of a machine."""

    name: str
    uid: int

    @property
    def home(self) -> Path:
        return Path("/home") / self.name

    @property
    def runtime(self) -> Path:
        """What a session of this account has as XDG_RUNTIME_DIR."""
        return Path("/run/user") / str(self.uid)


ALICE: Final = Account("alice", 61_001)
MALLORY: Final = Account("mallory", 61_002)


class Machine:
    """Use as a context manager. Paths are those inside, unless something else is said."""

    def __enter__(self) -> "Machine":
        self._process = subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork"),
                *("--kill-child", "--mount-proc", "--propagation", "private"),
                *(sys.executable, "-I", "-S", "-c", _SET_UP),
                ":".join(f"{each.name}={each.uid}" for each in (ALICE, MALLORY)),
                ":".join(EVERYBODYS),
                ":".join(str(each) for each in _needed()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        (first,) = psutil.Process(self._process.pid).children()
        self._first = first.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # and with it, by --kill-child, the first process inside
        psutil.wait_procs([psutil.Process(self._first)] if psutil.pid_exists(self._first) else [])
        self._process.communicate()

    def outside(self, path: str | Path) -> Path:
        """The path by which root finds `path` from outside."""
        return Path(f"/proc/{self._first}/root{path}")

    def run(
        self,
        account: Account,
        *command: str,
        environment: Mapping[str, str] | None = None,
        where: Path | None = None,
        umask: int = 0o022,
        stdin: str = "",
        pass_fds: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as `account`, with an environment that holds nothing else of ours."""
        return subprocess.run(
            self._as(account, where or account.home, umask, command),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,
            env=_environment(account, environment or {}),
        )

    @contextmanager
    def begun(self, account: Account, *command: str) -> Iterator[str]:
        """A command that runs until its standard input ends; its first line."""
        with subprocess.Popen(
            self._as(account, account.home, 0o022, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=_environment(account, {}),
        ) as process:
            assert process.stdout is not None
            yield process.stdout.readline()

    def _as(self, account: Account, where: Path, umask: int, command: Sequence[str]) -> list[str]:
        enter = 'cd "$1" && umask "$2" && shift 2 && exec "$@"'
        return [
            *("nsenter", f"--target={self._first}"),
            *("--mount", "--pid", "--net", "--ipc", "--uts"),
            *become(account),
            *("/bin/sh", "-c", enter, "sh", str(where), f"{umask:o}", *command),
        ]

    def processes(self, account: Account) -> dict[int, psutil.Process]:
        """All processes of `account`, by their number inside."""
        found = {}
        for process in psutil.process_iter(["uids"]):
            if process.info["uids"] and process.info["uids"].real == account.uid:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    (numbers,) = (line for line in status.splitlines() if line.startswith("NSpid"))
                    found[int(numbers.split()[2])] = process
        return found

    def visit(
        self, account: Account, attempts: Sequence[Mapping[str, Any]], pass_fds: Sequence[int] = ()
    ) -> list[str]:
        """What `account` gets of each attempt; see `visitor`."""
        done = self.run(
            account,
            *visitor.COMMAND,
            stdin=visitor.told(attempts),
            pass_fds=pass_fds,
        )
        return visitor.heard(done)


def become(account: Account) -> tuple[str, ...]:
    """The words before a command that has `account` run it."""
    return (
        *("setpriv", f"--reuid={account.uid}", f"--regid={account.uid}"),
        *("--clear-groups", "--inh-caps=-all", "--ambient-caps=-all"),
    )


def visit_here(attempts: Sequence[Mapping[str, Any]], pass_fds: Sequence[int] = ()) -> list[str]:
    """What mallory gets of each attempt on this very machine; see `visitor`."""
    done = subprocess.run(
        [*become(MALLORY), *visitor.COMMAND],
        input=visitor.told(attempts),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
        pass_fds=pass_fds,
        start_new_session=True,  # within a session everybody may say SIGCONT
        env={"PATH": os.defpath},
    )
    return visitor.heard(done)


def _environment(account: Account, further: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(account.home), **further}


def _needed() -> list[Path]:
    """What programs of this checkout are made of."""
    found = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).parent}
    return sorted(path for path in found if not path.is_relative_to("/usr"))


class NamesMade:
    """The names that are made in some directories while this is open."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0
        self._watched = {}
        for directory in directories:
            number = self._libc.inotify_add_watch(
                self._fd, os.fsencode(directory), ctypes.c_uint32(_IN_NOTIFY_NEW)
            )
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._watched[number] = directory

    def read(self) -> set[tuple[str, str]]:
        """Directory and name of everything that was made or renamed there since the last call."""
        found = set()
        while select.select([self._fd], [], [], 0)[0]:
            events = os.read(self._fd, 1 << 16)
            while events:
                number, _, _, length = _EVENT.unpack_from(events)
                name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                found.add((self._watched[number].name, os.fsdecode(name)))
                events = events[_EVENT.size + length :]
        return found

    def close(self) -> None:
        os.close(self._fd)
