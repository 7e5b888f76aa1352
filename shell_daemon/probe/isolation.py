"""Namespaces and the kernel: what the guest has for itself."""

from shell_daemon.probe.world import BoundaryHit, World


def namespaces(world: World) -> str:
    """Those that must be the guest's own are not the host's."""
    if world.spec.own_kernel:
        return "a kernel of its own"
    found = []
    for kind, host in world.spec.namespaces.items():
        if (world.proc / "self/ns" / kind).stat().st_ino == host:
            found.append(f"the {kind} namespace is the host's")
    BoundaryHit.raise_if(found)
    return f"own {', '.join(world.spec.namespaces)}"


def kernel(world: World) -> str:
    """In the micro_vm tier another one than the host's."""
    boot_id = world.text("sys/kernel/random/boot_id").strip()
    if not boot_id:
        raise BoundaryHit("the kernel does not tell its boot id")
    if not world.spec.own_kernel:
        return "shared with the host, as in every tier but micro_vm"
    if boot_id == world.spec.boot_id:
        raise BoundaryHit(
            "the guest runs on the host's own kernel (same boot id): "
            "the OCI runtime starts no virtual machine"
        )
    return "its own"
