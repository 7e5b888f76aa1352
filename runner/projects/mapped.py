"""A project's directory in which the guest's uid is its owner's: what a guest writes belongs to who
the directory belongs to, and nobody else's files can be changed.

It is a mount with mapped ids, in a private directory of the runner. Only root can make one, and not
on every file system.
"""

import contextlib
import ctypes
import errno
import os
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from wire.disk import held
from wire.kernel.mounts import mounts

from runner.errors import file_errors
from runner.workspace.directories import descriptor

_NUMBERS: Final = {"open_tree": 428, "move_mount": 429, "mount_setattr": 442}
"""Of calls for which the C library may have no function."""
_CLONE, _AT_ITSELF, _MOVE_ITSELF = 0x1, 0x1000, 0x44
_READ_ONLY, _NO_SUID, _NO_DEVICES, _MAPPED = 0x1, 0x2, 0x4, 0x10_0000
_PRIVATE: Final = 1 << 18
_DETACH, _NO_FOLLOW = 0x2, 0x8
_PLACE: Final = os.O_PATH | os.O_DIRECTORY
_NAMESPACE: Final = (
    "import ctypes, sys; ctypes.CDLL(None).unshare(0x10000000) or print(flush=True); "
    "sys.stdin.read()"
)
"""Makes a user namespace, says so, and keeps it until its input ends."""
_NOBODYS: Final = 2**32 - 2
"""The owner of a file that root has made and not given away yet."""
_ACL_USER, _ACL_MASK, _ALL = 0x2, 0x10, 0x7


class Source(NamedTuple):
    """What drivers mount for a project: the directory itself, or one with mapped ids. `reason` says
    why a guest may not write there, though it should, with the command that lets it."""

    path: Path
    writable: bool
    reason: str = ""


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


class MappedMounts:
    """The mounts of one user's host, in a `directory` that is its own. Blocks.

    They are on a file system in memory that no other mount namespace gets, and all go with it. What
    serves guests that have a kernel of their own makes files as root and then gives them away. An
    engine that starts guests, if they are started `by_engine`, has to see them.
    """

    def __init__(
        self, directory: Path, *, own_kernel: bool = False, by_engine: bool = False
    ) -> None:
        self._directory = directory
        self._by_engine = by_engine
        self._own_kernel = own_kernel
        self._made: dict[str, tuple[object, ...]] = {}

    def source_for(
        self, name: str, path: Path, project: int, guest: tuple[int, int], *, writable: bool
    ) -> Source:
        """What to mount for the project `name` at `path`, which is open as `project`, for a guest
        whose uid and gid are `guest` to this kernel. What is mounted below it is not in a mount
        with mapped ids."""
        found = os.fstat(project)
        if found.st_uid == guest[0]:
            return Source(path, writable)
        try:
            return Source(self._mapped(name, project, found, guest, writable), writable)
        except OSError as error:
            if not writable or _granted(project, guest[0], found.st_uid):
                return Source(path, writable)
            return Source(path, False, _reason(path, found.st_uid, guest[0], error))

    def keep(self, names: Iterable[str]) -> None:
        """Take away those of other projects. Guests that run keep what they have."""
        for name in self._made.keys() - set(names):
            with contextlib.suppress(OSError):  # which `clear` will tell
                self._take(name)

    def clear(self) -> None:
        """Take all of them away, also those of a runner that was killed. No guest may run.

        Raises `HostError` if something stays mounted: what removes the directory would then remove
        what is in the project.
        """
        self._made.clear()
        place = self._directory
        brief = "what an earlier runner has mounted cannot be taken away"
        fix = f"as root: umount --lazy {shlex.quote(str(place))}"
        with file_errors(brief, fix, because=f"{place}: "):
            while place.is_mount():
                _called("umount2", os.fsencode(place), _DETACH | _NO_FOLLOW)

    def _mapped(
        self, name: str, project: int, found: os.stat_result, guest: tuple[int, int], writable: bool
    ) -> Path:
        """Where the mount is, which may be there already."""
        place = self._directory / name
        wanted = (found.st_dev, found.st_ino, found.st_uid, found.st_gid, guest, writable)
        if self._made.get(name) != wanted:
            if self._by_engine:
                _require_seen()
            also = f"\n{_NOBODYS} 0 1" if self._own_kernel else ""
            owner = found.st_uid, found.st_gid
            ids = [f"{ours} {its} 1{also}" for ours, its in zip(owner, guest, strict=True)]
            flags = _CLONE | _AT_ITSELF | os.O_CLOEXEC
            with held(_called("open_tree", project, b"", flags)) as tree:
                _map(tree, ids, writable=writable)
                self._make_place(name)
                with descriptor(place, _PLACE) as target:
                    _called("move_mount", tree, b"", target, b"", _MOVE_ITSELF)
            self._made[name] = wanted
        with descriptor(place, _PLACE) as made:
            seen = os.fstat(made)
        if (seen.st_dev, seen.st_ino, seen.st_uid, seen.st_gid) != (*wanted[:2], *guest):
            raise OSError(errno.ESTALE, "it is another directory than the one that was opened")
        return place

    def _make_place(self, name: str) -> None:
        """An empty directory for a mount."""
        if not self._directory.is_mount():
            self._directory.mkdir(mode=0o700, exist_ok=True)
            flags = _NO_SUID | _NO_DEVICES
            target = os.fsencode(self._directory)
            _called("mount", b"oxydra", target, b"tmpfs", flags, b"mode=0700,size=256k")
            _called("mount", None, target, None, _PRIVATE, None)
        (self._directory / name).mkdir(mode=0o700, exist_ok=True)
        if name in self._made:
            self._take(name)

    def _take(self, name: str) -> None:
        _called("umount2", os.fsencode(self._directory / name), _DETACH | _NO_FOLLOW)
        del self._made[name]


def _require_seen() -> None:
    """Raises `OSError` if a container engine does not see what is mounted here, as from a unit of
    systemd that has a copy of the machine's mounts."""
    if any(mount.point == "/" and "master:" in " ".join(mount.peers) for mount in mounts()):
        raise OSError(errno.EXDEV, "the engine does not see what the runner mounts")


def _map(tree: int, ids: Sequence[str], *, writable: bool) -> None:
    """Let uids and gids of a mount that is nowhere yet stand for others; see `_users`."""
    with _users(ids) as users:
        attributes = _MountAttributes(
            set=_MAPPED | _NO_SUID | _NO_DEVICES | (0 if writable else _READ_ONLY),
            propagation=_PRIVATE,
            users=users,
        )
        size = ctypes.sizeof(attributes)
        _called("mount_setattr", tree, b"", _AT_ITSELF, ctypes.byref(attributes), size)


@contextlib.contextmanager
def _users(ids: Sequence[str]) -> Iterator[int]:
    """A user namespace that maps uids and gids by these lines, of a process that ends with this."""
    command = [sys.executable, "-I", "-S", "-c", _NAMESPACE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env={}, cwd="/") as process:  # noqa: S603
        assert process.stdout is not None
        if not process.stdout.readline():
            raise OSError(errno.ENOSPC, "user namespaces are off")
        own = Path("/proc") / str(process.pid)
        for name, text in zip(("uid_map", "gid_map"), ids, strict=True):
            (own / name).write_text(text)
        with (own / "ns/user").open("rb", buffering=0) as users:
            yield users.fileno()


def _reason(path: Path, owner: int, guest: int, error: OSError) -> str:
    """Why commands cannot write to a project that was opened for writing, and what lets them."""
    why = error.strerror
    if os.geteuid() != 0:
        why = "only root can mount it with mapped ids"
    elif error.errno == errno.EPERM:
        why = "the runner lacks CAP_SYS_ADMIN, which a mount with mapped ids needs"
    elif error.errno == errno.EINVAL:
        why = "its file system has no mounts with mapped ids, as overlayfs and NFS have none"
    elif error.errno == errno.ENOSYS:
        why = "mounts with mapped ids need Linux 5.12"
    rights = f"u:{guest}:rwX,d:u:{guest}:rwX,d:u:{owner}:rwX"
    let = shlex.join(["setfacl", "-R", "-m", rights, str(path)])
    return (
        f"it belongs to uid {owner}, and commands run as uid {guest}: {why}; to let them write, "
        f"though what they make is then uid {guest}'s: {let}"
    )


def _granted(directory: int, guest: int, owner: int) -> bool:
    """Whether the operator lets `guest` write there: by lists of access that give it everything,
    and the owner everything that is made there."""
    now, later = (_listed(directory, kind) for kind in ("access", "default"))
    return all(each == _ALL for each in (now.get(guest), later.get(guest), later.get(owner)))


def _listed(directory: int, kind: str) -> dict[int, int]:
    """What a directory's list of access gives to each uid that it names."""
    try:
        packed = os.getxattr(f"/proc/self/fd/{directory}", f"system.posix_acl_{kind}")
    except OSError:
        return {}
    entries = list(struct.iter_unpack("<HHI", packed[4:]))
    mask = next((rights for tag, rights, _ in entries if tag == _ACL_MASK), _ALL)
    return {uid: rights & mask for tag, rights, uid in entries if tag == _ACL_USER}


def _called(name: str, *arguments: object) -> int:
    """What the kernel answers. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, name) if name not in _NUMBERS else partial(libc.syscall, _NUMBERS[name])
    answer = int(call(*arguments))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
