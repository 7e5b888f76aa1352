"""The arguments of `create_container` for a launch: the whole confinement of a guest."""

import os
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, Final

import docker.types
from wire.errors import Code

from runner.errors import TierError
from runner.projects.project import check_below
from runner.tiers.base import LaunchSpec, Network
from runner.tiers.container.engine import EngineFacts
from runner.tiers.container.names import ObjectNames, launch_labels
from runner.workspace.directories import descriptor
from runner.workspace.mounts import MOUNTS, Access, BoundMount, Role

_MIB: Final = 1024 * 1024
_RUN_BYTES: Final = 16 * _MIB
_SHARED_MEMORY_BYTES: Final = 64 * _MIB
_OPEN_FILES: Final = 4096
_OF_COMMANDS: Final = (Role.SHELL, Role.SHELL_EGRESS)
_OOM_SCORE: Final = 900
"""When the machine's memory runs out, these are ended first. Commands cannot go below the score
with which an engine of root starts a shell guest."""
_CPU_SHARES: Final = 256
"""Of these, where others have 1024: a machine that all keep busy works for the others first."""
_CPU_PERIOD_US: Final = 100_000
_LABELS: Final = ("container_file_t:s0", "container_ro_file_t:s0", "svirt_sandbox_file_t:s0")
"""With these, SELinux lets every container use a file."""
_METADATA_ADDRESS: Final = "169.254.169.254"


def create_arguments(
    spec: LaunchSpec, facts: EngineFacts, *, image: str, network: str, runtime: str | None
) -> dict[str, Any]:
    """Keyword arguments of `docker.APIClient.create_container`, none of them secret.

    `network` is the engine's name of the network, `runtime` an OCI runtime, None for the engine's
    default. Raises `TierError` if an engine with SELinux cannot mount the workspace.
    """
    for bound in spec.mounts if facts.podman else ():
        if bound.identity is not None:  # it may not know mounts without those below
            with descriptor(bound.host_path, os.O_PATH) as place:
                check_below(bound.host_path, place)
    uid, gid = spec.owner
    arguments: dict[str, Any] = {
        "image": image,
        "entrypoint": list(spec.command),
        "name": ObjectNames.of_launch(spec).container(spec.role, spec.tool),
        "hostname": str(spec.role),
        "user": f"{uid}:{gid}",
        "working_dir": str(spec.working_directory),
        "environment": dict(spec.environment),
        "stdin_open": True,
        "labels": launch_labels(spec),
        "host_config": _host_config(spec, facts, network, runtime),
    }
    if spec.network is Network.OUTBOUND:
        # The guest itself has the address at which clouds hand out a machine's credentials, so
        # nobody answers there.
        endpoint = docker.types.EndpointConfig(
            facts.api_version, link_local_ips=[_METADATA_ADDRESS]
        )
        arguments["networking_config"] = {"EndpointsConfig": {network: dict(endpoint)}}
    return arguments


def _host_config(
    spec: LaunchSpec, facts: EngineFacts, network: str, runtime: str | None
) -> dict[str, Any]:
    uid, gid = spec.owner
    limits = spec.limits
    selinux = facts.has_security("selinux")
    security = ["no-new-privileges:true"]
    if selinux:
        security.append(f"label=level:{_selinux_level(spec)}")
    config = docker.types.HostConfig(
        version=facts.api_version,
        # The shell daemon is its guest's first process itself: commands, which have its user id,
        # could stop and trace the engine's.
        init=spec.role is not Role.SHELL,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=security,
        network_mode=network,
        ipc_mode="private",
        mem_limit=limits.memory_bytes,
        memswap_limit=limits.memory_bytes,
        pids_limit=limits.processes,
        oom_score_adj=_OOM_SCORE if spec.role in _OF_COMMANDS else 0,
        cpu_shares=_CPU_SHARES if spec.role in _OF_COMMANDS else None,
        cpu_period=_CPU_PERIOD_US,
        cpu_quota=int(limits.cpus * _CPU_PERIOD_US),
        shm_size=_SHARED_MEMORY_BYTES,
        ulimits=[
            docker.types.Ulimit(name="nofile", soft=_OPEN_FILES, hard=_OPEN_FILES),
            docker.types.Ulimit(name="core", soft=0, hard=0),
        ],
        tmpfs={"/run": f"rw,noexec,nosuid,nodev,size={_RUN_BYTES},mode=0700,uid={uid},gid={gid}"},
        log_config=docker.types.LogConfig(type="none"),
        restart_policy={"Name": "no"},
        runtime=runtime,
        **mounted(spec.mounts, selinux),
    )
    if facts.podman and facts.has_security("rootless"):
        config["UsernsMode"] = "keep-id"
    elif facts.has_security("userns"):
        config["UsernsMode"] = "host"
    return dict(config)


def mounted(mounts: Iterable[BoundMount], selinux: bool) -> dict[str, Any]:
    """Mounts whose sources the engine never creates. With SELinux they are binds, the only kind
    that engines relabel; `check_mounts` has made sure that the sources exist. What is the
    operator's own keeps its labels, and what is mounted below it stays out."""
    binds = [bound for bound in mounts if selinux and bound.identity is None]
    found: dict[str, Any] = {"binds": [_bind(bound) for bound in binds]} if binds else {}
    if kept := [bound for bound in mounts if bound not in binds]:
        found["mounts"] = [_mount(bound, selinux) for bound in kept]
    return found


def _mount(bound: BoundMount, selinux: bool) -> dict[str, Any]:
    read_only = bound.mount.access is Access.READ_ONLY
    source, target = str(bound.host_path), bound.mount.virtual
    mount = docker.types.Mount(target, source, type="bind", read_only=read_only)
    if bound.identity is not None:
        mount["BindOptions"] = {"NonRecursive": True}
        if selinux and (label := _label(source)) not in _LABELS:
            raise TierError(
                Code.FAILED_PRECONDITION,
                f"containers cannot use {source}",
                details=f"the engine uses SELinux, and the label {label or '(none)'} is not theirs",
                resolution=f"chcon -R -t container_file_t -l s0 {source}",
            )
    return mount


def _label(path: str) -> str:
    """The type and level of a file to SELinux."""
    try:
        context = os.getxattr(path, "security.selinux").decode().rstrip("\0")
    except OSError:
        return ""
    return context.split(":", 2)[-1]


def _bind(bound: BoundMount) -> str:
    if ":" in str(bound.host_path):
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"cannot mount {bound.host_path}",
            details="the engine uses SELinux, whose labels need mounts in a form that has no "
            "place for a colon",
            resolution="set workspace_root to a path without a colon",
        )
    label = "z" if _is_shared(bound) else "Z"
    return f"{bound.host_path}:{bound.mount.virtual}:{bound.mount.access},{label}"


def _is_shared(bound: BoundMount) -> bool:
    """Whether another guest mounts the same directory, or one above or below it."""
    directory = PurePosixPath(bound.mount.directory)
    rows = [mount for mounts in MOUNTS.values() for mount in mounts]
    if bound.mount not in rows:
        return True
    others = [PurePosixPath(mount.directory) for mount in rows if mount != bound.mount]
    same = sum(PurePosixPath(mount.directory) == directory for mount in rows) > 1
    return same or any(
        directory.is_relative_to(other) or other.is_relative_to(directory) for other in others
    )


def _selinux_level(spec: LaunchSpec) -> str:
    """The SELinux level: the same for both guests of a user, because sockets do not connect
    across levels. The embedder has the lowest, to which all guests may connect."""
    if spec.role is Role.EMBEDDER:
        return "s0"
    number = int(ObjectNames.of_launch(spec).digest[:8], 16)
    first, second = number % 1024, number // 1024 % 1023
    second += second >= first
    return f"s0:c{min(first, second)},c{max(first, second)}"
