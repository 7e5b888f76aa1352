"""`python -P -m shell_daemon.probe`: a specification on standard input, the report of every
check as JSON on standard output. Exits with 2 for a specification it cannot read."""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from wire.boundary import BoundarySpec

from shell_daemon.probe import (
    filesystem,
    kernel,
    mounts,
    network,
    paths,
    processes,
    secrets,
)
from shell_daemon.probe.world import BoundaryHit, World

_DETAILS_MAX_CHARS: Final = 1000
_EXIT_SPEC: Final = 2

Check = Callable[[World], str]
"""Returns what was found; raises `BoundaryHit` where the boundary does not hold."""

PROBES: Final[dict[str, Check]] = {
    "identity": kernel.identity,
    "capabilities": kernel.capabilities,
    "no_new_privileges": kernel.no_new_privileges,
    "seccomp": kernel.seccomp,
    "namespaces": kernel.namespaces,
    "kernel": kernel.kernel,
    "mounts": mounts.mounts,
    "private_paths": paths.private_paths,
    "other_users": paths.other_users,
    "root_filesystem": filesystem.root_filesystem,
    "kernel_settings": filesystem.kernel_settings,
    "devices": filesystem.devices,
    "mounting": mounts.mounting,
    "processes": processes.processes,
    "process_memory": processes.process_memory,
    "descriptors": processes.descriptors,
    "unix_sockets": network.unix_sockets,
    "network": network.network,
    "metadata_address": network.metadata_address,
    "secrets": secrets.secrets,
    "canary": secrets.canary,
}


def run(world: World, probes: dict[str, Check]) -> list[dict[str, Any]]:
    """Every check's result; one that cannot be made is a hit like any other."""
    return [_result(name, check, world) for name, check in probes.items()]


def _result(name: str, check: Check, world: World) -> dict[str, Any]:
    try:
        details, passed = check(world), True
    except BoundaryHit as hit:
        details, passed = str(hit), False
    except Exception as error:
        details, passed = f"could not be checked: {error!r}", False
    return {"name": name, "passed": passed, "details": details[:_DETAILS_MAX_CHARS]}


def main() -> None:
    try:
        spec = BoundarySpec.from_json(sys.stdin.buffer.read())
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201 - it has no log
        sys.exit(_EXIT_SPEC)
    json.dump(run(World(spec), PROBES), sys.stdout)


if __name__ == "__main__":
    main()
