"""Provisioning: what is made, with which modes, and everything that is refused untouched."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.errors import WireError
from wire.tools import VIRTUAL_ROOTS

from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.errors import HostError, WorkspaceError
from runner.workspace.beneath import clear
from runner.workspace.directories import check_root
from runner.workspace.mounts import MOUNTS, Access, Role, bind, workspace_directories
from runner.workspace.workspace import Workspace
from tests.support.ordinary_user import ordinary_user

FOREIGN = pytest.param("foreign", marks=pytest.mark.root)
EXPECTED = {
    ".oxydra",
    "shared",
    "tmp",
    "cache",
    "vault",
    "skills",
    "ipc",
    "ipc/agent",
    "ipc/shell",
    "ipc/egress",
    "ipc/host",
    "ipc/out",
    "ipc/agent-out",
    "ipc/shell-out",
    "logs",
    "logs/egress",
    "logs/shell-egress",
    "logs/agent",
    "logs/shell",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "ws", "alice")


def everything(root: Path) -> dict[str, tuple[int, int]]:
    """All that lies below `root`: path to mode and inode, links not followed."""
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.lstat().st_ino)
        for path in root.rglob("*")
    }


def refused(workspace: Workspace) -> WorkspaceError:
    before = everything(workspace.root.parent)
    with pytest.raises(WorkspaceError) as raised:
        workspace.provision()
    assert everything(workspace.root.parent) == before
    assert raised.value.details
    assert raised.value.resolution
    return raised.value


def test_everything_is_made_private_and_making_it_again_changes_nothing(
    workspace: Workspace,
) -> None:
    old = os.umask(0o000)
    try:
        workspace.provision()
    finally:
        os.umask(old)
    made = everything(workspace.path)
    assert set(made) == EXPECTED
    assert {stat.S_IMODE(mode) for mode, _ in made.values()} == {0o700}
    assert stat.S_IMODE(workspace.path.stat().st_mode) == 0o700
    (workspace.path / "shared" / "kept.txt").write_text("x")
    before = everything(workspace.root)
    workspace.provision()
    assert everything(workspace.root) == before


def test_wrong_modes_are_set_right(workspace: Workspace) -> None:
    workspace.provision()
    workspace.path.chmod(0o755)
    (workspace.path / "vault").chmod(0o777)
    workspace.provision()
    assert stat.S_IMODE(workspace.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((workspace.path / "vault").stat().st_mode) == 0o700


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o000, 0o500, 0o300])
def test_what_a_guest_closed_is_opened_again(mode: int) -> None:
    with ordinary_user() as home:
        workspace = Workspace(home / "ws", "alice")
        workspace.provision()
        guests = {mount.directory for mounts in MOUNTS.values() for mount in mounts}
        for directory in guests:
            (workspace.path / directory).chmod(mode)
        workspace.check()
        workspace.provision()
        for directory in guests:
            assert stat.S_IMODE((workspace.path / directory).stat().st_mode) == 0o700
        assert clear(workspace.socket(Role.SHELL), workspace.path) == ""


def test_missing_parents_of_the_root_are_made_private_whatever_the_umask(tmp_path: Path) -> None:
    """Who may write in one of them could replace all that lies below it."""
    old = os.umask(0o000)
    try:
        Workspace(tmp_path / "a" / "b" / "ws", "alice").provision()
    finally:
        os.umask(old)
    assert (tmp_path / "a" / "b" / "ws" / "alice" / ".oxydra").is_dir()
    for made in ("a", "a/b", "a/b/ws"):
        assert stat.S_IMODE((tmp_path / made).stat().st_mode) == 0o700


@pytest.mark.parametrize("directory", ["", *sorted(EXPECTED)])
@pytest.mark.parametrize("kind", ["link", "dangling", "file", FOREIGN])
def test_what_stands_in_a_directorys_place_is_refused(
    workspace: Workspace, tmp_path: Path, directory: str, kind: str
) -> None:
    workspace.provision()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = workspace.path / directory
    if kind == "foreign":
        os.chown(place, 12345, -1)
    else:
        place.rename(tmp_path / "old")
        if kind == "file":
            place.write_text("")
        else:
            place.symlink_to(elsewhere if kind == "link" else tmp_path / "nowhere")
    error = refused(workspace)
    assert str(place) in error.brief
    expected = {
        "link": "a symbolic link",
        "dangling": "a symbolic link",
        "file": "not a directory",
        "foreign": "it belongs to uid 12345",
    }
    assert expected[kind] in error.details
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "file", FOREIGN, "open to all"])
def test_a_root_that_cannot_be_trusted_is_refused(
    workspace: Workspace, tmp_path: Path, kind: str
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    if kind == "link":
        workspace.root.symlink_to(real)
    elif kind == "file":
        workspace.root.write_text("")
    else:
        workspace.root.mkdir()
        if kind == "foreign":
            os.chown(workspace.root, 12345, -1)
        else:
            workspace.root.chmod(0o777)
    error = refused(workspace)
    assert str(workspace.root) in error.brief
    assert {
        "link": "a symbolic link",
        "file": "not a directory",
        "foreign": "it belongs to uid 12345",
        "open to all": "everybody can replace",
    }[kind] in error.details


def test_a_root_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not a directory" in refused(Workspace(tmp_path / "file" / "ws", "alice")).details


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory that not even root can write to."""
    place = tmp_path / "ro"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "oxydra-test", str(place)]
    subprocess.run(mount, check=True)
    try:
        (place / "ws").mkdir(mode=0o700)
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
def test_an_unwritable_root_is_refused(read_only: Path) -> None:
    assert "not writable" in refused(Workspace(read_only / "ws", "alice")).details
    assert "not writable" in refused(Workspace(read_only / "new", "alice")).details


def test_a_place_too_deep_for_a_socket_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    root = tmp_path / ("d" * 90)
    with pytest.raises(WireError, match="socket path is too long") as raised:
        Workspace.locate(Config(workspace_root=root), "alice")
    assert "workspace_root" in raised.value.resolution
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "user_id",
    [
        *("", ".", "..", "../bob", "a/b", "Bob", "bøb", "bob\n", "bob\0", " bob", "-bob"),
        *("_bob", "a" * 33, "a" * 300, "٣", "ａ", "bob.", "/etc"),
    ],
)
def test_bad_user_ids_are_refused_before_anything_is_made(tmp_path: Path, user_id: str) -> None:
    with pytest.raises(WorkspaceError, match="bad user id") as raised:
        Workspace.locate(Config(workspace_root=tmp_path), user_id)
    assert "a-z, 0-9, _ and -" in raised.value.details
    assert len(raised.value.brief) < 120
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user_id", ["a", "0", "alice", "a-b_c", "9lives", "a" * 32])
def test_good_user_ids_pass(user_id: str) -> None:
    assert check_user_id(user_id) == user_id


def test_a_workspace_is_held_by_one_runner_and_left_clean(workspace: Workspace) -> None:
    workspace.provision()
    before = everything(workspace.path)
    with workspace.held():
        again = workspace.held()
        with pytest.raises(HostError, match="another runner serves"):
            again.__enter__()
    with workspace.held():
        pass
    assert everything(workspace.path) == before


def test_the_mounts_are_the_designs_table() -> None:
    table = {
        role: {mount.directory: mount.access.value for mount in mounts}
        for role, mounts in MOUNTS.items()
    }
    assert table == {
        Role.AGENT: {
            ".oxydra": "rw",
            "shared": "rw",
            "tmp": "rw",
            "vault": "ro",
            "skills": "ro",
            "ipc/agent": "rw",
            "ipc/shell": "ro",
            "ipc/agent-out": "ro",
        },
        Role.SHELL: {
            "shared": "rw",
            "tmp": "rw",
            "cache": "rw",
            "skills": "ro",
            "ipc/shell": "rw",
            "ipc/shell-out": "ro",
        },
        Role.EGRESS: {"ipc/egress": "rw", "ipc/agent-out": "rw", "ipc/host": "ro"},
        Role.SHELL_EGRESS: {"ipc/out": "rw", "ipc/shell-out": "rw"},
    }


def test_no_mounted_directory_lies_within_one_that_a_guest_may_change() -> None:
    rows = {mount for mounts in MOUNTS.values() for mount in mounts}
    for writable in (mount for mount in rows if mount.access is Access.READ_WRITE):
        within = f"{writable.directory}/"
        assert not [mount for mount in rows if mount.directory.startswith(within)]
        assert not [each for each in workspace_directories() if each.startswith(within)]


def test_provisioning_follows_the_table() -> None:
    directories = workspace_directories()
    assert set(directories) == EXPECTED
    for directory in directories:
        parent = directory.rpartition("/")[0]
        assert not parent or directories.index(parent) < directories.index(directory)


def test_file_tools_and_mounts_agree_on_names_and_access() -> None:
    agent = {mount.virtual: mount.access for mount in MOUNTS[Role.AGENT]}
    for root in VIRTUAL_ROOTS:
        assert (agent[root.path] is Access.READ_WRITE) == root.writable


def test_binding_gives_host_paths(tmp_path: Path) -> None:
    paths = {bound.mount.name: bound.host_path for bound in bind(Role.AGENT, tmp_path)}
    assert paths["internal"] == tmp_path / ".oxydra"
    assert paths["ipc"] == tmp_path / "ipc" / "agent"


def test_a_private_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(WorkspaceError) as raised:
        check_root(tmp_path, private=True)
    assert "0750" in raised.value.details
    assert raised.value.resolution == f"chmod 700 {tmp_path}"
    check_root(tmp_path, private=False)
