"""What is mounted in the place of hidden files, and when that is not enough any more."""

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.errors import TierError, WorkspaceError
from runner.projects import hiding
from runner.projects.project import Project
from runner.workspace.mounts import BoundMount

HIDDEN = (".env", "deep/er/key", "absent", "secrets", "secrets/in")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    path = tmp_path / "work"
    (path / "deep/er").mkdir(parents=True)
    (path / "secrets").mkdir()
    for name in (".env", "deep/er/key", "secrets/in"):
        (path / name).write_text("secret")
    found = path.stat()
    project = Project(
        name="work",
        path=path,
        owner=(found.st_uid, found.st_gid),
        directory=(found.st_dev, found.st_ino),
        writable=True,
        hidden=HIDDEN,
    )
    (tmp_path / "home").mkdir()
    return project.now(tmp_path / "home")


def table(project: Project) -> dict[str, str]:
    """Each row: what may be done there, and the name of what is mounted."""
    return {
        row.mount.virtual.removeprefix("/projects/work"): f"{row.mount.access} {row.host_path.name}"
        for row in project.rows
    }


def as_found(row: BoundMount) -> bool:
    found = row.host_path.lstat()
    return (found.st_dev, found.st_ino) == row.identity


def test_something_empty_is_mounted_for_each_and_nobody_renames_what_is_above(
    project: Project,
) -> None:
    assert table(project) == {
        "": "rw work",
        "/deep": "rw deep",
        "/deep/er": "rw er",
        "/.env": "ro empty",
        "/secrets": "ro empty.d",
        "/deep/er/key": "ro empty",
    }
    assert all(map(as_found, project.rows))
    for row in project.rows:
        if row.host_path.name.startswith("empty"):
            is_directory = row.host_path.is_dir()
            assert (row.host_path.stat().st_mode & 0o777) == (0o555 if is_directory else 0o444)
            assert not (os.listdir(row.host_path) if is_directory else row.host_path.read_bytes())


def test_what_only_can_be_read_needs_no_mounts_above(project: Project, tmp_path: Path) -> None:
    found = project.path / "deep"
    held = {"deep": (found.stat().st_dev, found.stat().st_ino)}
    walled = Project(**{**vars(project), "held": held}).now(tmp_path / "home")
    assert table(walled)["/deep"] == "ro deep"
    assert "/deep/er" not in table(walled)
    whole = Project(**{**vars(project), "writable": False}).now(tmp_path / "home")
    assert [*table(whole)] == ["", "/.env", "/secrets", "/deep/er/key"]


def test_a_wall_that_is_hidden_is_mounted_once(project: Project, tmp_path: Path) -> None:
    inside = dict.fromkeys(("secrets", "secrets/in"), (1, 2))
    both = Project(**{**vars(project), "held": inside}).now(tmp_path / "home")
    assert table(both) == table(project)
    assert both.walls == ("secrets", "secrets/in")


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("deep")


def linked_above(path: Path) -> None:
    (path.parent / "deep").rename(path.parent / "moved")
    (path.parent / "deep").symlink_to("moved")


def second_name(path: Path) -> None:
    os.link(path, path.parent / "second")


@pytest.mark.parametrize("do", [link, linked_above, second_name])
def test_what_could_be_read_otherwise_is_refused(
    project: Project, tmp_path: Path, do: Callable[[Path], None]
) -> None:
    do(project.path / ".env")
    with pytest.raises(WorkspaceError, match="cannot be hidden"):
        project.now(tmp_path / "home")
    assert project.uncovered()


def saved(path: Path) -> None:
    path.with_name("new").write_text("secret")
    path.with_name("new").rename(path)


def removed(path: Path) -> None:
    path.unlink()


def made(path: Path) -> None:
    (path.parent / "absent").write_text("secret")


def moved_above(path: Path) -> None:
    (path.parent / "deep/er").rename(path.parent / "deep/est")


def made_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def moved_whole(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


CHANGES = [saved, removed, made, moved_above, made_pipe, moved_whole, link, second_name]


@pytest.mark.parametrize("told", [True, False], ids=["inotify", "polled"])
@pytest.mark.parametrize("do", CHANGES)
async def test_a_replacement_is_noticed(
    project: Project,
    do: Callable[[Path], None],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not told:  # as where there are too many watches already
        monkeypatch.setattr(
            ctypes, "CDLL", lambda *_, **__: SimpleNamespace(inotify_init1=lambda _: -1)
        )
    watching = asyncio.create_task(hiding.until_replaced([project]))
    await asyncio.sleep(0.1)
    assert not watching.done()
    do(project.path / ".env")
    with pytest.raises(TierError, match="in the project work was replaced"):
        await asyncio.wait_for(watching, 0.3 if told and do is not moved_whole else 10)


async def test_what_stays_as_it_was_is_no_replacement(project: Project) -> None:
    watching = asyncio.create_task(hiding.until_replaced([project]))
    await asyncio.sleep(0.1)
    (project.path / ".env").write_text("more")
    (project.path / ".env").chmod(0o600)
    (project.path / "other").write_text("x")
    (project.path / "secrets/new").write_text("x")
    (project.path / "other").unlink()
    done, _ = await asyncio.wait([watching], timeout=0.7)
    assert not done
    watching.cancel()
