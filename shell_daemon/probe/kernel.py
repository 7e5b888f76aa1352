"""What the kernel grants a command: identity, privileges, namespaces."""

from collections.abc import Callable
from typing import Final

from wire.boundary import KERNEL_OF_GVISOR, KERNEL_OF_HOST, KERNEL_OF_MACHINE

from shell_daemon.probe import libc
from shell_daemon.probe.libc import answered_key_calls
from shell_daemon.probe.world import BoundaryHit, World, fields

_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd")
_AMBIENT: Final = "CapAmb"
_SECCOMP_FILTER: Final = 2
OF_THE_NODE: Final = {"ipc": 0xEFFFFFFF, "uts": 0xEFFFFFFE, "pid": 0xEFFFFFFC}
"""The numbers that Linux gives to the namespaces that it starts with."""
_KUBELETS_FILES: Final = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_INTO_MACHINES: Final = ("virtiofs", "9p")
"""File systems by which a virtual machine has files of its host."""


def identity(world: World) -> str:
    """Commands run as the guest's own user and group, never as root, and in no other group."""
    spec = world.spec
    found = []
    for field, kind, expected in (("Uid", "user", spec.uid), ("Gid", "group", spec.gid)):
        ids = {int(number) for number in world.status[field].split()}
        if 0 in ids:
            found.append(f"commands run as root ({kind} id 0)")
        elif ids != {expected}:
            found.append(f"commands have the {kind} ids {sorted(ids)} instead of {expected}")
    groups = {int(number) for number in world.status["Groups"].split()}
    if extra := sorted(groups - {spec.gid, *spec.groups}):
        found.append(f"commands belong to further groups: {extra}")
    BoundaryHit.raise_if(found)
    return f"uid {spec.uid}, gid {spec.gid}"


def capabilities(world: World) -> str:
    """Commands hold no capabilities and cannot gain any. gVisor has no ambient ones; elsewhere they
    must be listed."""
    sets = _SETS if world.gvisor else (*_SETS, _AMBIENT)
    held = [f"{name} {value}" for name in sets if int(value := world.status[name], 16)]
    if held:
        raise BoundaryHit(f"commands hold capabilities: {', '.join(held)}")
    return "none"


def no_new_privileges(world: World) -> str:
    """Neither commands nor the daemon, which sets it for commands itself, can gain rights.

    gVisor does not list it, because there it is set for every process from its start.
    """
    if world.gvisor:
        if not libc.no_new_privileges():
            raise BoundaryHit("no_new_privs is not set, though gVisor always sets it")
        return "set, as always in gVisor"
    if not all(each["NoNewPrivs"] == "1" for each in (world.status, _first_process(world))):
        raise BoundaryHit("no_new_privs is not set: setuid programs give commands another identity")
    return "set"


def seccomp(world: World, answered: Callable[[], list[str]] = answered_key_calls) -> str:
    """Commands run under the daemon's filter of system calls, which refuses those for keys
    (`answered`: which of them it lets through), and under the tier's own, if it has one.

    The daemon's process is asked for that, because it is not under its own filter. The tier's keeps
    commands from the host's kernel, which answers none of their calls where they have gVisor's.
    """
    found = []
    if int(world.status.get("Seccomp", "0")) != _SECCOMP_FILTER:
        found.append("no system call filter around commands")
    if keys := answered():
        found.append(f"the kernel can be asked for keys: {', '.join(keys)}")
    if world.gvisor:
        BoundaryHit.raise_if(found)
        return "filtered by the daemon; gVisor's kernel answers, not the host's"
    filtered = int(_first_process(world).get("Seccomp", "0")) == _SECCOMP_FILTER
    if world.spec.seccomp and not filtered:
        found.append("no system call filter around the guest, though this tier has one")
    BoundaryHit.raise_if(found)
    return "filtered, by the daemon and by the tier" if filtered else "filtered by the daemon"


def _first_process(world: World) -> dict[str, str]:
    return fields(world.text("1/status"))


def namespaces(world: World) -> str:
    """No namespace that the guest must own is the host's. On another machine, those that its kernel
    has started with are known by their numbers."""
    if world.spec.own_kernel:
        return "a kernel of its own"
    hosts = OF_THE_NODE if world.elsewhere else world.spec.namespaces
    found = []
    for kind, host in hosts.items():
        if (world.proc / "self/ns" / kind).stat().st_ino == host:
            found.append(f"the {kind} namespace is the host's")
    BoundaryHit.raise_if(found)
    return f"own {', '.join(hosts)}"


def kernel(world: World) -> str:
    """A guest that must have a kernel of its own does not run on the host's.

    On another machine the boot id is another one anyway. There a virtual machine is known by how it
    has the files that every pod is given.
    """
    if not world.boot_id:
        raise BoundaryHit("the kernel does not tell its boot id")
    if not world.spec.own_kernel:
        return KERNEL_OF_HOST
    if world.boot_id == world.spec.boot_id:
        raise BoundaryHit(
            "the guest runs on the host's own kernel (same boot id): the OCI runtime gives it none"
        )
    if world.gvisor:
        return KERNEL_OF_GVISOR
    if world.spec.remote and not _has_files_of_a_host(world):
        raise BoundaryHit("nothing shows that the guest has a kernel of its own")
    return KERNEL_OF_MACHINE


def _has_files_of_a_host(world: World) -> bool:
    kinds = {mount.kind for mount in world.mounts if mount.point in _KUBELETS_FILES}
    return not kinds.isdisjoint(_INTO_MACHINES)
