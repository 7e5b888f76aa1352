"""Whether an engine can hold what the container tiers promise."""

from collections.abc import Iterator
from typing import Final

from wire.errors import Code

from runner.errors import TierError
from runner.tiers.engine import EngineFacts

_LIMITS: Final = (
    ("MemoryLimit", "memory"),
    ("PidsLimit", "number of processes"),
    ("CpuCfsQuota", "processor time"),
)


def judge(facts: EngineFacts, runtime: str | None) -> list[str]:
    """Refuse an engine that cannot run guests with a `TierError` that names the fix; else
    what the operator should know. `runtime` is the OCI runtime asked for, None for any."""
    info = facts.info
    if info.get("OSType", "linux") != "linux":
        raise _refused(
            "the container engine runs no Linux containers",
            f"it runs containers of {info['OSType']}",
            "switch the engine to Linux containers, or use: runner --insecure",
        )
    if "docker desktop" in str(info.get("OperatingSystem", "")).lower():
        raise _refused(
            "Docker Desktop cannot run guests",
            "its containers live in a virtual machine, and Unix sockets do not cross into it",
            "install Docker Engine on the host itself (docker context use default), "
            "or use: runner --insecure",
        )
    if facts.has_security("rootless") and not facts.podman:
        raise _refused(
            "rootless Docker cannot run guests",
            "it maps their uid to one that does not own the workspace",
            "use the system's Docker (docker context use default, unset DOCKER_HOST) "
            "or rootless Podman (systemctl --user start podman.socket)",
        )
    if runtime is not None and runtime not in facts.runtimes:
        raise _refused(
            f"the container engine has no runtime {runtime!r}",
            f"it lists: {', '.join(facts.runtimes) or 'none'}",
            'install Kata Containers, add it under that name to "runtimes" in '
            "/etc/docker/daemon.json, then: sudo systemctl restart docker; "
            "or set container.runtime; without virtual machines: runner --tier container",
        )
    return list(_notices(facts))


def _notices(facts: EngineFacts) -> Iterator[str]:
    if not facts.seccomp:
        yield (
            "the container engine has no seccomp support: system calls of guests are not filtered"
        )
    for key, what in _LIMITS:
        if facts.info.get(key) is False:
            yield f"the container engine cannot limit the {what} of guests"
    if facts.has_security("userns"):
        yield (
            "the container engine maps users (userns-remap); guests run without that map, "
            "as the workspace's owner"
        )
    if facts.podman:
        yield (
            "Podman ignores two options of networks: guests on a network can reach each "
            "other and the host's address on it"
        )


def _refused(brief: str, details: str, resolution: str) -> TierError:
    return TierError(Code.FAILED_PRECONDITION, brief, details=details, resolution=resolution)
