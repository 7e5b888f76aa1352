"""A git checkout as a project of a whole pair, in every tier: what agent and commands can do there,
and what they find when it was replaced."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.testing import UserPair
from tests.support.scratch import SCRATCH
from tests.support.tiers import every_tier

pytestmark = pytest.mark.stopped_in("process", "micro_vm")


def everything(place: Path) -> dict[str, tuple[int, ...]]:
    found = {str(path): path.lstat() for path in (place, *place.rglob("*"))}
    return {path: (each.st_ino, each.st_mode, each.st_mtime_ns) for path, each in found.items()}


@pytest.fixture(scope="module", params=every_tier("project_pair"))
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def root(tier: str) -> Iterator[Path]:
    """One for each tier."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix=f"ox{tier[0]}-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def code(root: Path) -> Path:
    place = root / "my code"
    place.mkdir(mode=0o755)
    for words in (
        ("init", "--quiet"),
        ("config", "core.hooksPath", ".githooks"),
        ("config", "--global", "--add", "safe.directory", "*"),
    ):
        home = {**os.environ, "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "-C", str(place), *words], check=True, env=home)
    (place / ".githooks").mkdir()
    (place / "main.py").write_text("print(1)\r\n")
    (place / "run.sh").write_text("exit 0\n")
    (place / "run.sh").chmod(0o755)
    return place


@pytest.fixture(scope="module")
def pair(root: Path, code: Path, tier: str) -> Iterator[UserPair]:
    """Of a user to whom the checkout belongs, so that nothing has to be mapped."""
    os.chmod(root, 0o755)
    projects = {
        "code": {"path": str(code), "write": True},
        "docs": {"path": str(root / "docs")},
        "all": {"path": str(root)},
    }
    (root / "docs").mkdir(mode=0o755)
    (root / "docs/a.md").write_text("read me")
    made = UserPair(
        root=root, tier=tier, container={"runtime": "runsc"}, workspace={"projects": projects}
    )
    before = os.umask(0o077)  # as that of `runner`
    with made as pair:
        os.umask(before)
        if tier != "process":
            for path in (code, *code.rglob("*"), root / "docs", root / "docs/a.md"):
                os.chown(path, *pair.workspace.owner.ids, follow_symlinks=False)
            pair.restart()
        yield pair


def test_one_that_cannot_be_used_is_named_and_the_others_are_there(
    pair: UserPair, root: Path
) -> None:
    status = pair.status()
    assert status.boundary.passed
    (projects,) = (check for check in status.boundary.checks if check.name == "projects")
    assert projects.details.startswith("3 of 4 places read-only")
    (told,) = (notice for notice in status.notices if "the project all is not open" in notice)
    assert f"cannot use {root} as a project: it is or holds " in told


def test_a_command_writes_where_it_may_and_the_walls_hold(pair: UserPair, code: Path) -> None:
    walls = {name: everything(code / name) for name in (".git", ".githooks")}
    tried = [
        "cd /projects/code && echo made > new.txt && git status --short",
        "mv .git .git2",
        "ln -sfn /tmp .git",
        "echo evil > .git/hooks/post-checkout",
        "git config core.fsmonitor evil",
        "mkdir .githooks/x",
        "rm -rf .githooks",
        "mount --bind /tmp .git",
        "echo x > /projects/docs/new",
        "ls -A /projects",
    ]
    said = pair.turn("run " + " ; ".join(tried)).text
    assert "?? new.txt" in said
    assert "code" in said and "docs" in said  # noqa: PT018
    assert (code / "new.txt").read_text() == "made\n"
    assert (code / "new.txt").stat().st_mode & 0o777 == 0o644
    assert {name: everything(code / name) for name in walls} == walls
    assert not (code / ".git2").exists()
    assert sorted(path.name for path in (code.parent / "docs").iterdir()) == ["a.md"]


def test_the_file_tools_keep_to_the_same(pair: UserPair, code: Path) -> None:
    assert pair.call_tool("file_read", {"path": "/projects/docs/a.md"}).text.count("read me")
    made = pair.call_tool("file_write", {"path": "/projects/code/b.txt", "content": "b"})
    assert not made.is_error, made.text
    for path in ("/projects/code/.git/config", "/projects/code/.githooks/x", "/projects/docs/b"):
        assert pair.call_tool("file_write", {"path": path, "content": "x"}).is_error
    assert (code / "b.txt").read_text() == "b"
    assert (code / "b.txt").stat().st_mode & 0o777 == 0o644
    assert not (code / ".githooks/x").exists()


def test_a_project_that_was_replaced_is_opened_anew_by_a_restart(
    pair: UserPair, code: Path, root: Path
) -> None:
    owner = code.stat()
    code.rename(root / "before")
    code.mkdir(mode=0o755)
    os.chown(code, owner.st_uid, owner.st_gid)
    (code / "other.txt").touch()
    pair.restart()
    assert pair.status().boundary.passed
    assert "other.txt" in pair.turn("run ls /projects/code").text
