"""Directories that can and cannot be used, full disks, file systems of every kind."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.settings import ContainerSettings

from runner.config.models import Config
from runner.doctor import directories
from runner.doctor.finding import State
from runner.workspace.disk_space import file_system_kind

GIB = 1024**3


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxd-"))
    yield path
    shutil.rmtree(path)


def config(root: Path) -> Config:
    return Config(workspace_root=root / "ws", runtime_dir=root / "rt", tier="process")


def test_what_is_not_there_yet_can_be_made(root: Path) -> None:
    for check in (directories.workspace, directories.runtime_directory):
        found = check(config(root), "alice")
        assert (found.state, found.what.endswith(" can be made")) == (State.OK, True)
    assert list(root.iterdir()) == []


def test_what_is_there_can_be_used(root: Path) -> None:
    (root / "ws/alice").mkdir(parents=True, mode=0o700)
    assert directories.workspace(config(root), "alice").what == f"{root}/ws/alice can be used"


def test_a_link_in_the_place_of_a_workspace(root: Path) -> None:
    (root / "ws").mkdir()
    (root / "ws/alice").symlink_to(root)
    found = directories.workspace(config(root), "alice")
    assert found.state is State.PROBLEM
    assert "it is a symbolic link" in found.what
    assert found.fix == f"move {root}/ws/alice away"


one_at_a_time = pytest.mark.xdist_group("uids_of_doctor")
"""One of them has a process with the uid that the others want free."""


def uids(root: Path, count: int = 40) -> Config:
    container = ContainerSettings(guest_uid=1_210_780_000, guest_uid_count=count)
    return Config(workspace_root=root / "ws", runtime_dir=root / "rt", container=container)


@pytest.mark.root
@one_at_a_time
def test_whose_uid_a_users_guests_have(root: Path) -> None:
    (root / "ws/alice").mkdir(parents=True)
    found = directories.guest_uids(uids(root), "alice")
    assert found.state is State.OK
    assert found.what.startswith("the next start gives the guests of alice uid 12107800")
    assert found.what.endswith("; 1 of 39 for users are in use")
    os.chown(root / "ws/alice", -1, 1_210_780_001)
    found = directories.guest_uids(uids(root), "alice")
    assert found.state is State.OK
    assert found.what.startswith("the guests of alice run as uid 1210780001; 1 of 39")
    (root / "ws/bob").mkdir()
    os.chown(root / "ws/bob", -1, 1_210_780_001)
    found = directories.guest_uids(uids(root), "alice")
    assert (found.state, found.fix) == (State.WARNING, "runner stop, then: runner start")
    assert "which the workspace bob has too; the next start gives them uid 12107800" in found.what


@pytest.mark.root
@one_at_a_time
def test_uids_that_are_used_up(root: Path) -> None:
    (root / "ws/alice").mkdir(parents=True)
    os.chown(root / "ws/alice", -1, 1_210_780_001)
    found = directories.guest_uids(uids(root, 2), "alice")
    assert (found.state, found.fix) == (State.WARNING, "set container.guest_uid_count higher")
    found = directories.guest_uids(uids(root, 2), "bob")
    assert found.state is State.PROBLEM
    assert found.what.startswith("no uid is left for the guests of bob")
    assert "container.guest_uid_count" in found.fix


@pytest.mark.root
@one_at_a_time
def test_a_running_hosts_own_guests_are_no_collision(root: Path) -> None:
    (root / "ws/alice").mkdir(parents=True)
    os.chown(root / "ws/alice", -1, 1_210_780_001)
    with subprocess.Popen(["cat"], user=1_210_780_001, stdin=subprocess.PIPE):
        assert directories.guest_uids(uids(root), "alice", running=True).state is State.OK
        assert "which process" in directories.guest_uids(uids(root), "alice", running=False).what


def test_a_runtime_directory_that_others_may_enter(root: Path) -> None:
    (root / "rt").mkdir(mode=0o755)
    (root / "rt").chmod(0o755)
    found = directories.runtime_directory(config(root), "alice")
    assert (found.state, found.fix) == (State.PROBLEM, f"chmod 700 {root}/rt")


@pytest.mark.parametrize("check", [directories.workspace, directories.runtime_directory])
def test_a_place_too_deep_for_a_socket(root: Path, check: object) -> None:
    assert callable(check)
    found = check(config(root / ("d" * 100)), "alice")
    assert found.state is State.PROBLEM
    assert found.what.startswith("socket path is too long")
    assert found.fix == "choose a shorter workspace_root or runtime_dir"


@pytest.mark.parametrize(
    ("free", "state"),
    [(50 * GIB, State.OK), (GIB // 2, State.WARNING), (1024, State.PROBLEM)],
)
def test_room_on_the_disk(root: Path, free: int, state: State) -> None:
    found = directories.free_space("disk", root / "not" / "there", free)
    assert found.state is state
    assert (f" {root} " in found.fix) is (state is not State.OK)


def test_room_is_measured(root: Path) -> None:
    assert "GiB free" in directories.free_space("disk", root).what


@pytest.mark.parametrize(
    ("kind", "state", "told"),
    [
        ("ext4", State.OK, "lies on ext4"),
        ("nfs4", State.WARNING, "over a network"),
        ("fuse.sshfs", State.WARNING, "over a network"),
        ("tmpfs", State.WARNING, "local memory must lie on a persistent volume"),
        ("overlay", State.WARNING, "local memory must lie on a persistent volume"),
        ("fuse.fuse-overlayfs", State.WARNING, "local memory must lie on a persistent volume"),
    ],
)
def test_the_kind_of_file_system(root: Path, kind: str, state: State, told: str) -> None:
    found = directories.file_system(root / "ws", [("/", "ext4"), (str(root), kind)])
    assert found.state is state
    assert told in found.what
    assert bool(found.fix) is (state is State.WARNING)


def test_the_deepest_and_latest_mount_counts(root: Path) -> None:
    spaced = root / "a b"
    (spaced / "inner").mkdir(parents=True)
    point = str(spaced)
    mounts = [("/", "overlay"), (point, "xfs"), (point, "btrfs"), (f"{root}/a", "nfs")]
    assert file_system_kind(spaced / "inner/new", mounts) == "btrfs"
    assert file_system_kind(root, []) == ""
    assert "lies on proc" in directories.file_system(Path("/proc/self")).what
