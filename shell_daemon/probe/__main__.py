"""Run every probe: `python -P -m shell_daemon.probe`.

Reads a `BoundarySpec` from standard input and writes one result per probe to standard
output, as JSON. Exits with 2 if the specification cannot be read.
"""

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
"""Returns what it found; raises `BoundaryHit` if the boundary does not hold."""

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
    """The result of each probe; a probe that fails to run counts as a hit."""
    results = []
    for name, check in probes.items():
        try:
            details, passed = check(world), True
        except BoundaryHit as hit:
            details, passed = str(hit), False
        except Exception as error:
            details, passed = f"could not be checked: {error!r}", False
        results.append({"name": name, "passed": passed, "details": details[:_DETAILS_MAX_CHARS]})
    return results


def main() -> None:
    try:
        spec = BoundarySpec.from_json(sys.stdin.buffer.read())
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the probe has no log
        sys.exit(_EXIT_SPEC)
    json.dump(run(World(spec), PROBES), sys.stdout)


if __name__ == "__main__":
    main()
