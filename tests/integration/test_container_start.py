"""Starts in the container tiers that end half-way: refused with the reason, and nothing is left."""

import fcntl
import signal
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker as docker_sdk
import pytest
from wire.errors import WireError

from runner.testing import UserPair
from runner.tiers.container import options
from tests.conftest import REQUIRED
from tests.support.commands.household import Household
from tests.support.guests.engine import engine_objects
from tests.support.scratch import SCRATCH

pytestmark = pytest.mark.docker


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxs-") as path:
        yield Path(path)


def refusal(root: Path, **settings: Any) -> WireError:
    """Why the pair does not start; nothing of it is left."""
    with pytest.raises(WireError) as caught:
        UserPair(root=root, **settings).start()
    assert engine_objects(root) == []
    files = list(root.rglob("*"))
    assert [path for path in files if path.is_socket()] == []
    for path in files:
        if path.is_file():
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return caught.value


def test_without_the_images(root: Path) -> None:
    error = refusal(root, container={"images": "nobody-built-these"}, embedder={"backend": "none"})
    assert "nobody-built-these-" in error.brief
    assert "runner images build" in error.resolution


def test_without_the_shells_image(root: Path) -> None:
    """The agent guest is under way by then."""
    name, tag = "oxydra-halfway", version("oxydra")
    engine = docker_sdk.from_env()
    engine.images.get(f"oxydra-agent:{tag}").tag(f"{name}-agent", tag)
    try:
        error = refusal(root, container={"images": name}, embedder={"backend": "none"})
    finally:
        engine.images.remove(f"{name}-agent:{tag}")
        engine.close()
    assert error.brief == f"there is no image {name}-shell:{tag}"


def test_with_a_mount_that_should_not_be_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that errs: the boundary self-test sees it from inside the shell guest."""
    proper = options.mounted

    def leaky(mounts: Any, selinux: bool) -> dict[str, Any]:
        made = proper(mounts, selinux)
        if all(bound.mount.virtual != "/.oxydra" for bound in mounts):
            internal = mounts[0].host_path.parent / ".oxydra"
            made["mounts"].append(
                docker_sdk.types.Mount("/mnt", str(internal), type="bind", read_only=True)
            )
        return made

    monkeypatch.setattr(options, "mounted", leaky)
    error = refusal(root, embedder={"backend": "none"})
    assert "/mnt" in error.brief + error.details
    monkeypatch.undo()
    with UserPair(root=root, embedder={"backend": "none"}) as pair:
        assert pair.status().boundary.passed


def test_with_another_directory_than_was_checked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: between check and mount, bob's memory is put in the place of alice's."""
    bobs = root / "w" / "bob" / ".oxydra"
    proper = options.mounted

    def swapped(mounts: Any, selinux: bool) -> dict[str, Any]:
        made = proper(mounts, selinux)
        for mount in made["mounts"]:
            if mount["Target"] == "/.oxydra":
                bobs.mkdir(parents=True, exist_ok=True)
                bobs.chmod(0o777)
                mount["Source"] = str(bobs)
        return made

    monkeypatch.setattr(options, "mounted", swapped)
    error = refusal(root, embedder={"backend": "none"})
    assert "what is mounted at /.oxydra is not what the runner has checked" in error.brief
    assert list(bobs.iterdir()) == []


def test_interrupted(root: Path) -> None:
    """Ctrl-C as soon as something of it is in the engine."""
    house = Household(containers=True)
    house.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
    process = house.begin("start")
    while process.poll() is None and not engine_objects(house.path):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=90)
    assert "Traceback" not in errors
    assert process.returncode in (0, 1, 130), errors
    assert house.settles(), house.left_behind()
    house.remove()


def test_a_micro_vm_without_its_runtime(root: Path) -> None:
    error = refusal(root, tier="micro_vm", container={"runtime": "no-such-runtime"})
    assert "no-such-runtime" in error.brief
    assert "install Kata Containers" in error.resolution
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("runtime", ["runc", "pretender"])
def test_a_runtime_that_only_bears_the_name_is_no_micro_vm(root: Path, runtime: str) -> None:
    """`pretender` is what `.ci/run` calls runc a second time."""
    engine = docker_sdk.from_env()
    listed = engine.info()["Runtimes"]
    engine.close()
    if runtime not in listed:
        message = f"the engine knows no runtime {runtime!r}, a second name for runc"
        pytest.fail(message) if "docker" in REQUIRED else pytest.skip(message)
    error = refusal(
        root, tier="micro_vm", container={"runtime": runtime}, embedder={"backend": "none"}
    )
    assert "kernel" in error.brief + error.details
    assert "boot" in error.brief + error.details, error.details
