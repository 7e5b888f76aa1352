"""All probes, and the report about them.

The report is made in a process that runs no program of its own: a supervisor forks it (see
`shell_daemon.processes.supervisor`). So it is closed to commands from its first instruction,
imports nothing but the standard library and our own files, and has no home and no environment.
"""

import json
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from wire.boundary import POLICIES, PROJECTS, BoundarySpec

from shell_daemon.probe import (
    filesystem,
    kernel,
    mounts,
    network,
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
    "private_paths": filesystem.private_paths,
    "other_users": filesystem.other_users,
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
    POLICIES: network.policies,
    PROJECTS: mounts.projects,
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


def main() -> int:
    """Read a `BoundarySpec` from standard input and write one result per probe to standard output,
    as JSON. Returns the exit code: 2 if the specification cannot be read."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # egress hangs up on who it does not know
    try:
        spec = BoundarySpec.from_json(sys.stdin.buffer.read())
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return _EXIT_SPEC
    asked = {name: check for name, check in PROBES.items() if name in spec.checks}
    json.dump(run(World(spec), asked), sys.stdout)
    sys.stdout.flush()
    return 0
