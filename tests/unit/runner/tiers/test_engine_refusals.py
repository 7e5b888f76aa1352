"""Which engines are refused, with what fix, and what is said of those that are not."""

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.container.engine import Engine, EngineFacts, find_socket, judge

DOCKER_INFO = {
    "OSType": "linux",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=default"],
    "Runtimes": {"runc": {}, "kata": {}},
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
}
ROOTLESS = ["name=seccomp,profile=default", "name=rootless"]


class Client:
    """An engine's answers."""

    api_version = "1.41"

    def __init__(self, parts: tuple[str, ...] = ("Engine", "runc"), **info: Any) -> None:
        self._parts = parts
        self._info = {**DOCKER_INFO, **info}
        self.closed = 0
        self.asked = 0

    def version(self) -> dict[str, Any]:
        self.asked += 1
        return {"Components": [{"Name": name} for name in self._parts]}

    def info(self) -> dict[str, Any]:
        return self._info

    def close(self) -> None:
        self.closed += 1


def facts(*, podman: bool = False, **info: Any) -> EngineFacts:
    return EngineFacts("1.41", podman, {**DOCKER_INFO, **info})


def connecting(client: Any) -> Callable[[str, str], Any]:
    return lambda url, version: client


def refused(call: Callable[[], Any]) -> TierError:
    with pytest.raises(TierError) as raised:
        call()
    assert raised.value.details
    assert raised.value.resolution
    return raised.value


def test_a_sound_engine_is_taken_without_a_word() -> None:
    assert judge(facts(), None) == []
    assert judge(facts(), "kata") == []


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"SecurityOptions": []}, "no seccomp support"),
        ({"SecurityOptions": ["name=seccomp,profile=unconfined"]}, "no seccomp support"),
        ({"MemoryLimit": False}, "cannot limit the memory"),
        ({"PidsLimit": False}, "cannot limit the processes"),
        ({"CpuCfsQuota": False}, "cannot limit the CPU time"),
        ({"SecurityOptions": ["name=seccomp", "name=userns"]}, "userns-remap"),
    ],
)
def test_what_an_engine_lacks_is_said(info: dict[str, Any], said: str) -> None:
    (notice,) = judge(facts(**info), None)
    assert said in notice


def test_rootless_podman_is_taken() -> None:
    (notice,) = judge(facts(podman=True, SecurityOptions=ROOTLESS), None)
    assert "Podman" in notice


@pytest.mark.parametrize(
    ("info", "brief", "fix"),
    [
        ({"SecurityOptions": ROOTLESS}, "rootless Docker", "rootless Podman"),
        ({"OperatingSystem": "Docker Desktop"}, "Docker Desktop", "docker context use default"),
        ({"OSType": "windows"}, "no Linux containers", "switch the engine"),
    ],
)
def test_engines_that_cannot_hold_guests_are_refused(
    info: dict[str, Any], brief: str, fix: str
) -> None:
    error = refused(lambda: judge(facts(**info), None))
    assert brief in error.brief
    assert fix in error.resolution


def test_a_runtime_that_the_engine_does_not_list_is_refused() -> None:
    error = refused(lambda: judge(facts(Runtimes={"runc": {}}), "kata"))
    assert "'kata'" in error.brief
    assert "runc" in error.details
    assert "Kata Containers" in error.resolution


GVISOR = ["--platform=systrap", "--host-uds=all", "--network=none"]


def gvisor(arguments: list[str], name: str = "runsc") -> EngineFacts:
    registered = {"path": "/opt/runsc/runsc", "runtimeArgs": arguments}
    return facts(Runtimes={"runc": {"path": "runc"}, name: registered})


def test_how_to_get_a_runtime_is_said_for_both_kinds() -> None:
    error = refused(lambda: judge(facts(Runtimes={"runc": {}}), "runsc"))
    for words in ("apt-get install runsc", "--host-uds=all", "Kata Containers", "tier container"):
        assert words in error.resolution


def test_gvisor_is_known_by_its_program() -> None:
    assert judge(gvisor(GVISOR), "runsc") == []
    assert gvisor(GVISOR, "own").is_gvisor("own")
    assert not facts().is_gvisor("kata")
    assert not facts().is_gvisor("nothing")


def test_gvisor_without_sockets_of_the_host_is_refused() -> None:
    error = refused(lambda: judge(gvisor(["--network=none"]), "runsc"))
    assert "--host-uds=all" in error.details
    assert "runsc install" in error.resolution


@pytest.mark.parametrize("host", ["tcp://10.0.0.1:2375", "ssh://me@there", "http://127.0.0.1"])
def test_an_engine_elsewhere_is_refused(host: str) -> None:
    error = refused(lambda: find_socket("auto", {"DOCKER_HOST": host}))
    assert host in error.details
    assert "unset DOCKER_HOST" in error.resolution


def test_the_configured_socket_is_taken_before_the_environments() -> None:
    environ = {"DOCKER_HOST": "unix:///run/mine.sock"}
    assert find_socket("auto", environ) == Path("/run/mine.sock")
    assert find_socket("unix:///run/other.sock", environ) == Path("/run/other.sock")


def test_dockers_socket_comes_before_podmans(tmp_path: Path) -> None:
    dockers, podmans = tmp_path / "docker.sock", tmp_path / "podman" / "podman.sock"
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    sockets = (str(dockers), "{runtime}/podman/podman.sock")
    assert find_socket("auto", environ, sockets) == dockers
    podmans.parent.mkdir()
    podmans.touch()
    assert find_socket("auto", environ, sockets) == podmans
    dockers.touch()
    assert find_socket("auto", environ, sockets) == dockers


def test_a_socket_that_is_not_there_is_refused_with_the_way_to_get_one(tmp_path: Path) -> None:
    error = refused(Engine(f"unix://{tmp_path}/none.sock").facts)
    assert error.code is Code.UNAVAILABLE
    assert "no such socket" in error.details
    assert "systemctl start docker" in error.resolution


def test_an_engine_that_is_down_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    error = refused(Engine(f"unix://{path}").facts)
    assert error.code is Code.UNAVAILABLE
    assert "Connection refused" in error.details


def test_a_socket_that_is_not_ours_to_use_is_refused_with_the_group(tmp_path: Path) -> None:
    def connect(url: str, version: str) -> Any:
        raise docker.errors.DockerException("PermissionError(13, 'Permission denied')")

    error = refused(Engine(f"unix://{tmp_path}/docker.sock", connect).facts)
    assert error.code is Code.PERMISSION_DENIED
    assert "usermod --append --groups docker" in error.resolution
    assert "newgrp" in error.resolution


@pytest.mark.parametrize("part", ["Podman Engine", "podman"])
def test_podman_is_known_by_its_parts(part: str) -> None:
    assert Engine("auto", connecting(Client((part, "Conmon"))), {}).facts().podman
    assert not Engine("auto", connecting(Client()), {}).facts().podman


def test_an_engine_is_asked_once_and_every_client_is_closed() -> None:
    client = Client()
    asked: list[str] = []

    def connect(url: str, version: str) -> Any:
        asked.append(version)
        return client

    engine = Engine("auto", connect, {})
    for _ in range(3):
        with engine.client():
            pass
    assert asked == ["auto", "1.41", "1.41", "1.41"]
    assert (client.asked, client.closed) == (1, 4)


def test_what_an_engine_refuses_is_told_in_its_own_words() -> None:
    engine = Engine("auto", connecting(Client()), {})

    def fail() -> None:
        with engine.client():
            raise docker.errors.APIError("500", explanation="no space left on device")

    assert "no space left on device" in refused(fail).details


def test_facts_are_read_from_real_answers_of_both_forms() -> None:
    known: Mapping[str, Any] = json.loads('{"SecurityOptions": ["name=selinux", "seccomp"]}')
    both = EngineFacts("1.41", False, known)
    assert both.has_security("selinux")
    assert both.seccomp
    assert not EngineFacts("1.41", False, {"SecurityOptions": None}).seccomp
