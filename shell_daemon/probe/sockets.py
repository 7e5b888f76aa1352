"""Unix sockets within a command's reach, and who listens at them."""

import socket
import struct
from typing import Final

from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World

_CONNECT_S: Final = 0.1
_ABSTRACT_MAX: Final = 64
_CREDENTIALS: Final = struct.Struct("iII")


def unix_sockets(world: World) -> str:
    """The shell's own socket, and at most such as processes of this guest made.

    A listener outside has no process id in here: the kernel tells it as 0. A
    socket of another user was not made here either.
    """
    found = []
    paths = {entry.path for entry in walk(world) if entry.is_socket}
    # A directory's listing does not tell that something is mounted on an entry.
    paths |= {mount.point for mount in world.mounts if world.at(mount.point).is_socket()}
    for path in sorted(paths - {world.spec.socket}):
        if world.at(path).lstat().st_uid != world.spec.uid:
            found.append(f"{path} is there, a socket of another user")
        elif _is_served_outside(str(world.at(path))):
            found.append(f"{path} is served from outside the guest")
    names = _abstract(world)
    for name in [*names[:_ABSTRACT_MAX], world.spec.listener_name]:
        if name and _is_served_outside(f"\0{name}"):
            found.append(f"the abstract socket {name} is served from outside the guest")
    BoundaryHit.raise_if(found)
    return f"{len(paths)} in directories and {len(names)} abstract ones, all of this guest"


def _is_served_outside(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(address)
        except OSError:
            return False
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, _, _ = _CREDENTIALS.unpack(credentials)
    return bool(pid == 0)


def _abstract(world: World) -> list[str]:
    lines = world.text("net/unix").splitlines()[1:]
    names = [fields[7] for line in lines if len(fields := line.split(maxsplit=7)) > 7]
    return sorted({name[1:] for name in names if name.startswith("@")})
