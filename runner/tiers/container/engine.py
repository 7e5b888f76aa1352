"""The container engine: where it is, and whether it can confine guests as promised."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors
import requests
from wire.errors import Code

from runner.config.trust import writable_by_others
from runner.errors import TierError

FAILURES: Final = (docker.errors.DockerException, requests.RequestException, OSError)
"""What the SDK raises if an engine refuses, fails or does not run."""

ANSWER_S: Final = 60
_UNIX: Final = "unix://"
_SOCKETS: Final = (
    "/var/run/docker.sock",
    "{runtime}/podman/podman.sock",
    "/run/podman/podman.sock",
)

_HOST_SOCKETS: Final = "--host-uds=all"
_REGISTER: Final = (
    "sudo runsc install -- --platform=systrap --host-uds=all --network=none, "
    "then: sudo systemctl reload docker"
)
GET_RUNTIME: Final = (
    'gVisor needs no virtualisation: set container.runtime = "runsc", '
    f"sudo apt-get install runsc (Debian 13 or newer), {_REGISTER}; "
    'with virtual machines: install Kata Containers, add it as "kata" to "runtimes" in '
    "/etc/docker/daemon.json, then: sudo systemctl restart docker"
)
"""How to get an OCI runtime that gives guests a kernel of their own."""

LIMITS: Final = (
    ("MemoryLimit", "memory"),
    ("PidsLimit", "processes"),
    ("CpuCfsQuota", "CPU time"),
)
"""Keys of `info` that are false if an engine cannot limit something, and what that is."""


@dataclass(frozen=True)
class EngineFacts:
    """What an engine reports in `version` and `info`."""

    api_version: str
    podman: bool
    info: Mapping[str, Any]

    def has_security(self, name: str) -> bool:
        """Whether its security options include `name` (seccomp, selinux, rootless, userns)."""
        options = self.info.get("SecurityOptions") or ()
        return any(option.split(",")[0] in (name, f"name={name}") for option in options)

    @property
    def seccomp(self) -> bool:
        """Whether system calls of containers are filtered by default."""
        options = self.info.get("SecurityOptions") or ()
        return self.has_security("seccomp") and not any("unconfined" in each for each in options)

    def arguments(self, runtime: str) -> tuple[str, ...]:
        """The arguments with which an OCI runtime is registered."""
        return tuple(self._registered(runtime).get("runtimeArgs") or ())

    def is_gvisor(self, runtime: str) -> bool:
        """Whether an OCI runtime is registered as gVisor's program. Only the boundary self-test
        tells which kernel a guest really has."""
        return Path(str(self._registered(runtime).get("path") or "")).name == "runsc"

    def _registered(self, runtime: str) -> Mapping[str, Any]:
        return (self.info.get("Runtimes") or {}).get(runtime) or {}

    @property
    def runtimes(self) -> tuple[str, ...]:
        return tuple(sorted(self.info.get("Runtimes") or ()))


def find_socket(
    setting: str, environ: Mapping[str, str] = os.environ, sockets: Sequence[str] = _SOCKETS
) -> Path:
    """The Unix socket of the engine that `container.engine` means.

    "auto" is the one in DOCKER_HOST, else the first of `sockets` that exists and is not another
    account's, which would get every envelope, else the first of them, which is Docker's. Raises
    `TierError` if DOCKER_HOST is on another machine.
    """
    if setting != "auto":
        return Path(setting.removeprefix(_UNIX))
    if host := environ.get("DOCKER_HOST", ""):
        if not host.startswith(_UNIX):
            raise _refused(
                "the container engine must be on this machine",
                f"DOCKER_HOST is {host!r}, and guests' directories and sockets are mounted "
                "from here",
                'unset DOCKER_HOST, or set container.engine = "unix:///var/run/docker.sock"',
            )
        return Path(host.removeprefix(_UNIX))
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    found = [Path(each.format(runtime=runtime)) for each in sockets]
    return next(
        (path for path in found if _is_there(path) and not writable_by_others(path)), found[0]
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # XDG_RUNTIME_DIR may be another account's
        return False


def _connect(url: str, version: str) -> docker.APIClient:
    return docker.APIClient(url, version=version, timeout=ANSWER_S)


@dataclass(repr=False, eq=False)
class Engine:
    """One engine. Creating this touches nothing; `facts` asks the engine once.

    `connect` makes a client from a URL and an API version ("auto": ask the engine).
    """

    setting: str
    connect: Callable[[str, str], docker.APIClient] = _connect
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _facts: EngineFacts | None = None

    def facts(self) -> EngineFacts:
        """Blocks. Raises `TierError` if no engine answers."""
        if self._facts is None:
            with self._client("auto") as client:
                version, info = client.version(), client.info()
            parts = [part.get("Name", "") for part in version.get("Components") or ()]
            self._facts = EngineFacts(
                client.api_version, any("podman" in part.lower() for part in parts), info
            )
        return self._facts

    def open(self) -> docker.APIClient:
        """A client, which the caller must close."""
        facts, path = self.facts(), find_socket(self.setting, self.environ)
        return self.connect(f"{_UNIX}{path}", facts.api_version)

    @contextlib.contextmanager
    def client(self) -> Iterator[docker.APIClient]:
        """A client for one piece of work. Turns the SDK's errors into `TierError`s."""
        with self._client(self.facts().api_version) as client:
            yield client

    @contextlib.contextmanager
    def _client(self, version: str) -> Iterator[docker.APIClient]:
        path = find_socket(self.setting, self.environ)
        try:
            client = self.connect(f"{_UNIX}{path}", version)
        except FAILURES as error:
            raise _unreachable(path, error) from None
        try:
            yield client
        except FAILURES as error:
            raise failed(path, error) from None
        finally:
            client.close()


def failed(path: Path, error: Exception) -> TierError:
    """The error for what an engine refused or failed to do, in its own words."""
    if not isinstance(error, docker.errors.APIError):
        return _unreachable(path, error)
    return TierError(
        Code.UNAVAILABLE,
        "the container engine refuses",
        details=str(error.explanation or error),
        resolution="runner doctor",
    )


def _unreachable(path: Path, error: Exception) -> TierError:
    permission = "Permission denied" in str(error)
    try:
        there = path.exists()
    except PermissionError:
        there, permission = True, True
    if permission:
        return _refused(
            f"no permission to use the container engine at {path}",
            "its socket is open to root and its group only",
            "sudo usermod --append --groups docker $USER && newgrp docker; or use rootless "
            'Podman: systemctl --user start podman.socket, and set container.engine = "unix://'
            '/run/user/UID/podman/podman.sock"',
            Code.PERMISSION_DENIED,
        )
    why = str(error) if there else "there is no such socket: it is down or not installed"
    return _refused(
        f"no container engine answers at {path}",
        why,
        "sudo systemctl start docker (or install it: apt-get install docker.io), "
        "or set container.engine; without an engine: runner --insecure",
        Code.UNAVAILABLE,
    )


def _refused(
    brief: str, details: str, resolution: str, code: Code = Code.FAILED_PRECONDITION
) -> TierError:
    return TierError(code, brief, details=details, resolution=resolution)


def judge(facts: EngineFacts, runtime: str | None) -> list[str]:
    """Decide whether an engine can run guests.

    `runtime` is the required OCI runtime, None for any. Returns notices for the operator. Raises
    `TierError`, with the fix, if it cannot.
    """
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
            f"{GET_RUNTIME}; without a kernel of their own: runner --tier container",
        )
    registered = facts.arguments(runtime) if runtime and facts.is_gvisor(runtime) else None
    if registered is not None and _HOST_SOCKETS not in registered:
        raise _refused(
            f"guests under the runtime {runtime} could not be reached",
            f"it is registered without {_HOST_SOCKETS}, so that no socket leaves its guests",
            _REGISTER,
        )
    return list(_notices(facts))


def _notices(facts: EngineFacts) -> Iterator[str]:
    if not facts.seccomp:
        yield (
            "the container engine has no seccomp support: system calls of guests are not filtered"
        )
    for key, what in LIMITS:
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
