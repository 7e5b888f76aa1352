"""What commands have left that is too much for the boundary self-test."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from runner.workspace.overflow import quarantine_excess
from runner.workspace.workspace import Workspace
from tests.support.ordinary_user import ordinary_user


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "ws", "alice")
    made.provision()
    return made


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def asides(workspace: Workspace, place: str) -> list[Path]:
    directory = (workspace.path / place).parent
    return sorted(directory.glob(f"{Path(place).name}.aside-*"))


def files(directory: Path, count: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (directory / f"{number}").touch()


@pytest.mark.parametrize("mounted", [False, True])
def test_what_can_be_looked_through_stays(workspace: Workspace, mounted: bool) -> None:
    for place in ("shared", "tmp"):
        files(workspace.path / place / "some", 40)
        files(workspace.path / place, 50)
    assert quarantine_excess(workspace, 100, mounted=mounted) == []
    for place in ("shared", "tmp"):
        assert len(names(workspace.path / place)) == 51


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("place", ["shared", "tmp"])
def test_one_directory_that_is_too_much_is_moved_aside_and_named(
    workspace: Workspace, place: str, mounted: bool
) -> None:
    directory = workspace.path / place
    files(directory / "crowd\n" / "in" / "it", 200)
    files(directory / "another", 200)
    files(directory / "small", 3)
    (directory / "precious").write_text("x")
    notices = quarantine_excess(workspace, 100, mounted=mounted)
    assert names(directory) == {"small", "precious"}
    moved = {path.name for aside in asides(workspace, place) for path in aside.iterdir()}
    assert moved == {"crowd\n", "another"}
    assert len(notices) == 2
    assert any(rf"{place}/crowd\n was moved aside to {directory}.aside-" in n for n in notices)


def test_what_lies_side_by_side_is_moved_aside_at_one_stroke(workspace: Workspace) -> None:
    directory = workspace.path / "shared"
    files(directory, 200)
    before = directory.stat().st_ino
    (notice,) = quarantine_excess(workspace, 100)
    (aside,) = asides(workspace, "shared")
    assert aside.stat().st_ino == before
    assert f"{directory} was moved aside to {aside}" in notice
    workspace.provision()
    assert names(directory) == set()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_that_the_agent_has_mounted_stays_and_is_emptied(workspace: Workspace) -> None:
    directory = workspace.path / "tmp"
    files(directory, 200)
    before = directory.stat().st_ino
    (notice,) = quarantine_excess(workspace, 100, mounted=True)
    (aside,) = asides(workspace, "tmp")
    assert (directory.stat().st_ino, names(directory)) == (before, set())
    assert len(names(aside)) == 200
    assert f"{directory} was moved aside to {aside}" in notice


@pytest.mark.parametrize("mounted", [False, True])
def test_directories_and_sockets_count_ten_times(workspace: Workspace, mounted: bool) -> None:
    for number in range(11):
        (workspace.path / "shared" / f"{number}").mkdir()
        os.mkfifo(workspace.path / "tmp" / f"{number}")
    assert quarantine_excess(workspace, 110, mounted=mounted) == []
    assert len(quarantine_excess(workspace, 109, mounted=mounted)) == 2


@pytest.mark.parametrize("mounted", [False, True])
def test_nothing_is_left_where_the_shell_has_only_its_socket(
    workspace: Workspace, mounted: bool
) -> None:
    directory = workspace.path / "ipc" / "shell"
    files(directory, 3)
    files(directory / "deep" / "down", 3)
    (notice,) = quarantine_excess(workspace, mounted=mounted)
    (aside,) = asides(workspace, "ipc/shell")
    assert names(aside) == {"0", "1", "2", "deep"}
    assert str(aside) in notice
    workspace.provision()
    assert names(directory) == set()
    assert quarantine_excess(workspace, mounted=mounted) == []


@pytest.mark.root
def test_closed_directories_are_moved_too() -> None:
    """What a command has closed to its own account is closed to the runner of that account."""
    with ordinary_user() as home:
        workspace = Workspace(home / "ws", "alice")
        workspace.provision()
        directory = workspace.path / "shared"
        files(directory, 200)
        files(directory / "closed", 3)
        (directory / "closed").chmod(0o000)
        quarantine_excess(workspace, 100, mounted=True)
        (aside,) = asides(workspace, "shared")
        assert names(directory) == set()
        assert len(names(aside)) == 201


def test_where_nothing_can_be_moved_it_is_said(workspace: Workspace) -> None:
    """A start goes on to the self-test, which says what it could not look through."""
    files(workspace.path / "shared", 200)
    subprocess.run(["rm", "-rf", workspace.path / "tmp"], check=True)
    (workspace.path / "tmp").symlink_to("shared")
    (said, moved) = sorted(
        quarantine_excess(workspace, 100), key=lambda notice: "cannot" not in notice
    )
    assert "tmp holds too much, which cannot be moved aside" in said
    assert "shared was moved aside" in moved
