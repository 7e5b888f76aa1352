"""Engines of every sort, as they describe themselves."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.settings import ContainerSettings

from runner.doctor import engine
from runner.doctor.engine import EngineReport
from runner.doctor.finding import State
from runner.errors import TierError
from runner.images.archive import Image
from runner.images.naming import ImageRole
from runner.tiers.container.engine import EngineFacts

INFO = {
    "SecurityOptions": ["name=seccomp,profile=default", "name=cgroupns"],
    "ServerVersion": "27.1",
    "CgroupVersion": "2",
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "Runtimes": {"runc": {}, "kata": {}},
}
THERE = [Image(role, f"oxydra-{role}:1", "sha256:0", 1) for role in ImageRole]
LACKING = [*THERE[:2], Image(ImageRole.EMBEDDER, "oxydra-embedder:1")]


def facts(*, podman: bool = False, **info: Any) -> EngineFacts:
    return EngineFacts("1.41", podman, {**INFO, **info})


def report(images: list[Image] = THERE, bases: tuple[str, ...] = ()) -> EngineReport:
    return EngineReport(Path("/e.sock"), facts(), images, bases)


def test_the_engine_is_named() -> None:
    told = engine.answers(report()).what
    assert told == "Docker 27.1 (rootful, cgroup v2) at /e.sock"
    rootless = facts(podman=True, SecurityOptions=["name=rootless"])
    told = engine.answers(EngineReport(Path("/p.sock"), rootless, THERE)).what
    assert told == "Podman 27.1 (rootless, cgroup v2) at /p.sock"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["name=seccomp,profile=default"], "filters system calls"),
        (["name=apparmor"], "does not support"),
        (["name=seccomp,profile=unconfined"], "unconfined"),
        (None, "does not support"),
    ],
)
def test_seccomp(options: list[str] | None, told: str) -> None:
    found = engine.seccomp(facts(SecurityOptions=options))
    assert told in found.what
    assert (found.state is State.OK) is ("filters" in told) is (found.fix == "")


def test_limits() -> None:
    assert engine.limits(facts()).state is State.OK
    found = engine.limits(facts(PidsLimit=False, MemoryLimit=False))
    assert found.state is State.WARNING
    assert found.what == "the engine cannot limit memory, processes"
    found = engine.limits(facts(PidsLimit=False, SecurityOptions=["name=rootless"]))
    assert "Delegate=cpu memory pids" in found.fix


def test_images() -> None:
    assert engine.images(report(), needed=True).state is State.OK
    found = engine.images(report(LACKING), needed=True)
    assert (found.state, found.what) == (State.PROBLEM, "missing: oxydra-embedder:1")
    assert found.fix.startswith("runner images build (")
    assert "--bootstrap-base" in found.fix
    assert engine.images(report(LACKING, ("b",)), needed=True).fix == "runner images build"
    assert engine.images(report(LACKING), needed=False).state is State.OK


def test_the_runtime_of_the_micro_vm_tier() -> None:
    assert engine.oci_runtime(facts(), "kata", needed=True).state is State.OK
    found = engine.oci_runtime(facts(Runtimes={"runc": {}}), "kata", needed=True)
    assert found.state is State.PROBLEM
    assert "daemon.json" in found.fix
    assert engine.oci_runtime(facts(Runtimes=None), "kata", needed=False).state is State.OK


def test_doctor_tells_the_two_kinds_of_kernel_apart() -> None:
    runsc = {"path": "/opt/runsc/runsc", "runtimeArgs": ["--host-uds=all", "--network=none"]}
    known = facts(Runtimes={"kata": {"path": "kata-runtime"}, "runsc": runsc})
    assert "a virtual machine" in engine.oci_runtime(known, "kata", needed=True).what
    assert "gVisor's kernel in user space" in engine.oci_runtime(known, "runsc", needed=True).what
    deaf = facts(Runtimes={"runsc": {"path": "/usr/bin/runsc"}})
    found = engine.oci_runtime(deaf, "runsc", needed=True)
    assert found.state is State.PROBLEM
    assert "--host-uds=all" in found.fix
    absent = engine.oci_runtime(facts(), "runsc", needed=True)
    assert "apt-get install runsc" in absent.fix


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Path]:
    """A socket that nobody serves."""
    path = tmp_path / "e.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        yield path


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TierError) as caught:
        engine.ask(ContainerSettings(engine=f"unix://{tmp_path}/none.sock"), {})
    found = engine.unusable(caught.value, needed=True)
    assert found.state is State.PROBLEM
    assert f"{tmp_path}/none.sock" in found.what
    assert "docker.io" in found.fix
    found = engine.unusable(caught.value, needed=False)
    assert (found.state, found.fix) == (State.OK, "")
    assert found.what.endswith("only the container tiers need one")


def test_an_engine_that_does_not_answer(deaf: Path) -> None:
    with pytest.raises(TierError) as caught:
        engine.ask(ContainerSettings(), {"DOCKER_HOST": f"unix://{deaf}"})
    found = engine.unusable(caught.value, needed=True)
    assert found.state is State.PROBLEM
    assert str(deaf) in found.what


@pytest.mark.root
@pytest.mark.parametrize(
    ("gid", "mode", "told", "state"),
    [
        (0, 0o660, "only root may use", State.OK),
        (1, 0o660, "besides root, the group daemon (without members) may use {}: as", State.OK),
        (54321, 0o660, "the group 54321", State.OK),
        (1, 0o600, "only root may use", State.OK),
        (1, 0o666, "every account of this machine may use", State.WARNING),
    ],
)
def test_who_is_roots_equal(tmp_path: Path, gid: int, mode: int, told: str, state: State) -> None:
    place = tmp_path / "engine.sock"
    place.touch()
    place.chmod(mode)
    os.chown(place, 0, gid)
    found = engine.access(place)
    assert told.format(place) in found.what
    assert found.state is state
