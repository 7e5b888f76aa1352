"""What must hold inside one shell guest, derived from what the runner knows about the host."""

import os
import secrets as random
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

import psutil
from wire.boundary import (
    CANARY,
    CHECKS,
    PROJECTS,
    BoundarySpec,
    Mark,
    PrivatePath,
    SharedDirectory,
    mark_of,
)
from wire.kernel.mounts import mounts
from wire.network_probe import Spec

from runner.tiers.base import Confinement, LaunchSpec
from runner.workspace.beneath import directory_beneath
from runner.workspace.directories import descriptor
from runner.workspace.mounts import (
    LISTENER,
    MOUNTS,
    TOOLS,
    Access,
    BoundMount,
    Role,
    workspace_directories,
)

_PROC: Final = Path("/proc/self")
_NAMESPACES: Final = ("pid", "mnt", "ipc", "uts", "net")
_OVERFLOW_GID: Final = 65_534
_ENGINE_SOCKETS: Final = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/user/{uid}/docker.sock",
    "/run/user/{uid}/podman/podman.sock",
)
_OF_SHELL: Final = frozenset(mount.virtual for mount in MOUNTS[Role.SHELL])
_FILES_MAX: Final = 64
_RUNTIME_FILES_MAX: Final = 1000
_OTHER_DIRECTORIES_MAX: Final = 40_000
_HOST_ADDRESSES_MAX: Final = 16


def new_canary() -> str:
    """A random word for one agent's envelope. If the shell guest can find it, something leaks."""
    return random.token_urlsafe(32)


def build_spec(
    launch: LaunchSpec,
    confinement: Confinement,
    *,
    workspace: Path,
    runtime: Path,
    tokens: Mapping[str, str],
    canary: str = "",
    private: Iterable[Path] = (),
    records: Path | None = None,
) -> BoundarySpec:
    """The specification for one shell guest.

    The workspaces of other users are siblings of `workspace`. `runtime` is the runner's directory,
    which no guest mounts. `tokens` are by a description such as "the gateway's token"; only their
    marks are told. `private` are more files and directories of the host that must stay hidden, such
    as the engine's socket. `records` is the directory with the record of tool calls.
    """
    words = launch.command
    projects = any(bound.identity is not None for bound in launch.mounts)
    further = ("user",) if confinement.user_namespace else ()
    return BoundarySpec(
        uid=confinement.uid,
        gid=confinement.gid,
        groups=(_OVERFLOW_GID,) if confinement.user_namespace else (),
        seccomp=confinement.seccomp,
        own_kernel=confinement.own_kernel,
        boot_id=boot_id(),
        namespaces=namespaces(*further),
        network=str(launch.network),
        shared=tuple(_shared(bound, launch) for bound in launch.mounts),
        read_only=confinement.read_only,
        absent=absent({bound.mount.virtual for bound in launch.mounts}),
        private=(
            *_private(workspace, runtime, launch.mounts, private),
            *(_whole("the record of tool calls", records) if records is not None else ()),
        ),
        other_users=tuple(_other_users(workspace)),
        host_tmpfs=() if confinement.own_kernel else tuple(host_tmpfs()),
        host_addresses=tuple(host_addresses()),
        socket=words[words.index("--socket") + 1] if "--socket" in words else "/ipc/shell.sock",
        marks=marks(tokens, canary),
        egress_listener=_egress_listener(launch.mounts),
        checks=(*CHECKS, PROJECTS) if projects else CHECKS,
    )


def network_spec(listener: Path) -> Spec:
    """The specification for one agent guest, for which egress listens at `listener`."""
    return Spec(host_addresses=tuple(host_addresses()), egress_listener=str(listener))


def boot_id() -> str:
    """This kernel's own name of its start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def namespaces(*further: str) -> dict[str, int]:
    """The numbers of the runner's own namespaces that no guest may share, by kind."""
    return {kind: (_PROC / "ns" / kind).stat().st_ino for kind in (*_NAMESPACES, *further)}


def marks(tokens: Mapping[str, str], canary: str) -> tuple[Mark, ...]:
    """What to look for: never a token itself."""
    found = {label: mark_of(token) for label, token in tokens.items()} | {CANARY: canary}
    return tuple(Mark(label, mark) for label, mark in found.items() if mark)


def _egress_listener(mounts: Iterable[BoundMount]) -> str:
    """Where egress listens for the guest; empty if nowhere."""
    found = (each.mount.virtual for each in mounts if each.mount.name == Role.EGRESS)
    return next((f"{virtual}/{LISTENER}" for virtual in found), "")


def _shared(bound: BoundMount, launch: LaunchSpec) -> SharedDirectory:
    if (numbers := launch.directories.get(bound.mount.virtual)) is None:
        with directory_beneath(launch.home, bound.host_path) as directory:
            found = os.fstat(directory)
        numbers = found.st_dev, found.st_ino
    writable = bound.mount.access is Access.READ_WRITE
    row = SharedDirectory(bound.mount.virtual, writable, *numbers)
    return row._replace(operators=bound.identity is not None)


def absent(seen: Collection[str] = _OF_SHELL) -> tuple[str, ...]:
    """The virtual paths of other guests than one with these. Nobody in it can create them."""
    every = (TOOLS, *(mount for mounts in MOUNTS.values() for mount in mounts))
    above = {str(parent) for each in seen for parent in PurePosixPath(each).parents}
    theirs = {mount.virtual for mount in every} - {*seen} - above
    return (*sorted(theirs), "/embedder")


def _private(
    workspace: Path, runtime: Path, mounts: Iterable[BoundMount], further: Iterable[Path]
) -> Iterable[PrivatePath]:
    mounted = {bound.host_path for bound in mounts}
    yield _place("the directory of all workspaces", workspace.parent)
    yield _place("the workspace", workspace)
    for directory in workspace_directories(_tools(workspace)):
        if (path := workspace / directory) not in mounted:
            yield _place(directory, path)
            yield from _files(f"a file of {directory}", workspace, path)
    yield from _whole("the runner's runtime directory", runtime)
    uid = os.geteuid()
    sockets = {Path(path.format(uid=uid)) for path in _ENGINE_SOCKETS}
    for path in sorted({*sockets, *further}):
        yield _place(path.name, path)


def _tools(workspace: Path) -> list[str]:
    """The tool guests that have directories in a workspace."""
    with suppress(OSError):
        return sorted(each.name for each in (workspace / "tools").iterdir())
    return []


def _whole(label: str, directory: Path) -> Iterable[PrivatePath]:
    """A directory of the runner's, and everything in it at any depth, but for what is mounted
    there."""
    yield _place(label, directory)
    below = []
    for parent, directories, files in os.walk(directory):
        below += [Path(parent) / name for name in (*directories, *files)]
        directories[:] = [each for each in directories if not (Path(parent) / each).is_mount()]
    for path in sorted(below)[:_RUNTIME_FILES_MAX]:
        with suppress(FileNotFoundError):
            yield _nameless(f"a file of {label}", path.lstat())


def _files(label: str, workspace: Path, path: Path) -> Iterable[PrivatePath]:
    """Everything in a directory that is not a directory itself: databases, sockets, tokens. A link
    is what it is, not where it leads: a guest may have made it."""
    with (
        suppress(OSError),
        directory_beneath(workspace, path) as place,
        descriptor(".", os.O_RDONLY | os.O_DIRECTORY, place) as directory,
    ):
        with os.scandir(directory) as entries:
            names = [each.name for each in entries if not each.is_dir(follow_symlinks=False)]
        for name in sorted(names)[:_FILES_MAX]:
            with suppress(FileNotFoundError):
                yield _nameless(label, os.stat(name, dir_fd=directory, follow_symlinks=False))


def _place(label: str, path: Path) -> PrivatePath:
    try:
        found = path.stat(follow_symlinks=True)
    except OSError:
        return PrivatePath(label, str(path), 0, 0)
    return PrivatePath(label, str(path), found.st_dev, found.st_ino)


def _nameless(label: str, found: os.stat_result) -> PrivatePath:
    """Without the path, which would tell the names of private files and of other users."""
    return PrivatePath(label, "", found.st_dev, found.st_ino)


def _other_users(workspace: Path) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for other in sorted(workspace.parent.iterdir()):
        if other == workspace or len(found) > _OTHER_DIRECTORIES_MAX:
            continue
        directories = ("", *workspace_directories(_tools(other)))
        places = (_place("", other / directory) for directory in directories)
        found += [(place.device, place.inode) for place in places if place.inode]
    return found


def host_tmpfs(*, besides: str = "") -> Iterable[str]:
    """The device numbers of the host's in-memory file systems, whose names are not unique, but for
    those with `besides` in their mount points."""
    for mount in mounts():
        if mount.kind == "tmpfs" and not (besides and besides in mount.point):
            yield mount.device


def host_addresses() -> list[str]:
    """Those of the runner's machine or pod, without the loopback's."""
    addresses = [
        address.address
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family.name in ("AF_INET", "AF_INET6") and "%" not in address.address
    ]
    outside = [address for address in addresses if address != "::1" and address[:4] != "127."]
    return sorted(set(outside))[:_HOST_ADDRESSES_MAX]
