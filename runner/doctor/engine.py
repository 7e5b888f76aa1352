"""The container engine: whether it answers, what it can confine, which images it has."""

import grp
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wire.errors import WireError
from wire.settings import ContainerSettings, UserSettings

from runner.doctor.finding import Finding, ok, problem, refused, warning
from runner.errors import TierError
from runner.images.archive import Image, inspected, list_images
from runner.images.bootstrap import BASE_NAME
from runner.images.naming import OFFICIAL_BASE
from runner.tiers.container.engine import (
    GET_RUNTIME,
    LIMITS,
    Engine,
    EngineFacts,
    find_socket,
    judge,
)
from runner.tiers.container.host_address import unreachable_servers


@dataclass(frozen=True)
class EngineReport:
    """What an engine reports about itself, and which of our images it has."""

    socket: Path
    facts: EngineFacts
    images: Sequence[Image]
    """The images of this version, present or not."""
    bases: Sequence[str] = ()  # those that are present


def ask(container: ContainerSettings, environ: Mapping[str, str]) -> EngineReport:
    """Ask the configured engine. Raises `TierError` if none answers or access is denied."""
    engine = Engine(container.engine, environ=environ)
    facts = engine.facts()
    judge(facts, None)
    with engine.client() as api:
        return EngineReport(
            find_socket(container.engine, environ),
            facts,
            list_images(api, container.images),
            [name for name in (OFFICIAL_BASE, BASE_NAME) if inspected(api, name) is not None],
        )


def servers(
    settings: UserSettings,
    user_id: str,
    container: ContainerSettings,
    environ: Mapping[str, str],
) -> list[Finding]:
    """Whether egress reaches this host's servers; for the memory's see `runner.doctor.memory`."""
    found = unreachable_servers(settings, user_id, container, environ)
    return [warning("servers", *each) for each in found if not each[0].startswith("memory.")]


def unusable(error: WireError, *, needed: bool) -> Finding:
    """The finding for an `error` of `ask`."""
    if needed:
        return refused("engine", error)
    return ok("engine", f"{error.brief} ({error.details}); only the container tiers need one")


def answers(report: EngineReport) -> Finding:
    """Which engine it is, and as which user it runs."""
    facts = report.facts
    kind = "rootless" if facts.has_security("rootless") else "rootful"
    return ok(
        "engine",
        f"{'Podman' if facts.podman else 'Docker'} {facts.info.get('ServerVersion', '?')} "
        f"({kind}, cgroup v{facts.info.get('CgroupVersion') or '1'}) at {report.socket}",
    )


def access(socket: Path) -> Finding:
    """Who besides root may use the engine's socket, and is root's equal by that."""
    found = socket.stat()
    if found.st_mode & stat.S_IWOTH:
        return warning(
            "engine access",
            f"every account of this machine may use {socket}, and is root's equal by that",
            f"sudo chmod o-rw {socket}",
        )
    equals = []
    if found.st_uid != 0:
        equals.append(f"uid {found.st_uid}")
    if found.st_gid != 0 and found.st_mode & stat.S_IWGRP:
        equals.append(_group(found.st_gid))
    if not equals:
        return ok("engine access", f"only root may use {socket}")
    who = ", ".join(equals)
    return ok("engine access", f"besides root, {who} may use {socket}: as good as being root")


def _group(gid: int) -> str:
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return f"the group {gid}"
    return f"the group {group.gr_name} ({', '.join(group.gr_mem) or 'without members'})"


def seccomp(facts: EngineFacts) -> Finding:
    """Whether system calls of containers are filtered."""
    if facts.seccomp:
        return ok("seccomp", "the engine filters system calls")
    if facts.has_security("seccomp"):
        return warning(
            "seccomp",
            "the engine's default profile is unconfined",
            "remove seccomp-profile from /etc/docker/daemon.json, then: sudo systemctl "
            "restart docker",
        )
    return warning(
        "seccomp",
        "the engine does not support it: system calls of guests are not filtered",
        "use an engine and a kernel that are built with seccomp (CONFIG_SECCOMP_FILTER)",
    )


def limits(facts: EngineFacts) -> Finding:
    """Whether the limits in the configuration would be enforced."""
    missing = [what for key, what in LIMITS if facts.info.get(key) is False]
    if not missing:
        return ok("limits", "memory, processes and CPU time of guests can be limited")
    what = f"the engine cannot limit {', '.join(missing)}"
    if facts.has_security("rootless"):
        return warning(
            "limits",
            what,
            "sudo systemctl edit user@.service with the lines: [Service] Delegate=cpu memory pids",
        )
    return warning("limits", what, "boot with the kernel's cgroup controllers switched on")


def images(report: EngineReport, *, needed: bool) -> Finding:
    missing = [image.name for image in report.images if image.image_id is None]
    if not missing:
        names = ", ".join(image.name for image in report.images)
        return ok("images", f"all are present: {names}")
    what = f"missing: {', '.join(missing)}"
    if not needed:
        return ok("images", f"{what}; only the container tiers need them")
    fix = "runner images build"
    if not report.bases:
        fix += (
            " (where no registry can be reached: runner images build --bootstrap-base, "
            "as root and with debootstrap installed)"
        )
    return problem("images", what, fix)


def oci_runtime(facts: EngineFacts, runtime: str, *, needed: bool) -> Finding:
    """Whether the engine can use the OCI runtime of the micro_vm tier."""
    if runtime in facts.runtimes:
        try:
            judge(facts, runtime)
        except TierError as error:
            return refused("OCI runtime", error)
        kind = "gVisor's kernel in user space" if facts.is_gvisor(runtime) else "a virtual machine"
        return ok("OCI runtime", f"the engine lists {runtime}; what it must give guests: {kind}")
    what = f"the engine does not list {runtime}, only {', '.join(facts.runtimes)}"
    if not needed:
        return ok("OCI runtime", f"{what}; only the micro_vm tier needs it")
    return problem("OCI runtime", what, GET_RUNTIME)
