"""Who a command is and what the kernel lets it do."""

from typing import Final

from shell_daemon.probe.world import BoundaryHit, World

_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_SECCOMP_FILTER: Final = 2


def identity(world: World) -> str:
    """The guest's own user and group, never root, and no groups besides."""
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
    """None, and none to be had."""
    held = [f"{name} {value}" for name in _SETS if int(value := world.status[name], 16)]
    if held:
        raise BoundaryHit(f"commands hold capabilities: {', '.join(held)}")
    return "none"


def no_new_privileges(world: World) -> str:
    if world.status["NoNewPrivs"] != "1":
        raise BoundaryHit("no_new_privs is not set: setuid programs give commands another identity")
    return "set"


def seccomp(world: World) -> str:
    """A filter, where the tier has one."""
    filtered = int(world.status.get("Seccomp", "0")) == _SECCOMP_FILTER
    if world.spec.seccomp and not filtered:
        raise BoundaryHit("no system call filter, though this tier has one")
    return "filtered" if filtered else "no filter; this tier has none"
