"""Which directory can be a project, what of it can only be read, and what is said of one that
cannot be: the reason, and the directory that would do."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.limits import TAG_MAX_CHARS
from wire.settings import ProjectSettings

from runner.config.loading import load_settings
from runner.config.models import Config
from runner.errors import WorkspaceError
from runner.projects import project as module
from runner.projects.mapped import MappedMounts, Source
from runner.projects.project import (
    Project,
    Surroundings,
    check_below,
    for_guest,
    name_for,
    open_all,
    open_project,
)
from runner.workspace.directories import descriptor
from runner.workspace.mounts import Access

OURS = (os.geteuid(), os.getegid())


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oxp-") as path:
        yield Path(path)


@pytest.fixture
def code(root: Path) -> Path:
    """A directory with what editors and git read."""
    place = root / "my code"
    for name in (*module.WALLS, "src"):
        (place / name).mkdir(parents=True)
    return place


@pytest.fixture
def around(root: Path) -> Surroundings:
    (root / "home/alice").mkdir(parents=True)
    config = Config(workspace_root=root / "ws", runtime_dir=root / "rt")
    found = Surroundings.of(config, {"HOME": str(root / "home/alice")}, root / "rt")
    return Surroundings(found.apart, found.outside, (), found.environ)


@pytest.fixture
def opening(around: Surroundings) -> Callable[..., Project]:
    def open_it(path: Path, *others: Project, below: bool = True, **settings: Any) -> Project:
        wanted = ProjectSettings(path=path, **{"write": True, **settings})
        return open_project("code", wanted, around, others, mounts_below=below)

    return open_it


class Unmapped(MappedMounts):
    """Where there are no mounts with mapped ids."""

    def source_for(
        self, name: str, path: Path, project: int, guest: tuple[int, int], *, writable: bool
    ) -> Source:
        return Source(path, False, "not here" if writable else "")


UNMAPPED = Unmapped(Path("/nowhere"))


def rows(found: Project) -> dict[str, Access]:
    return {row.mount.virtual: row.mount.access for row in found.rows}


def test_a_directory_with_its_walls(code: Path, opening: Callable[..., Project]) -> None:
    found = opening(code)
    assert rows(found) == {
        "/projects/code": Access.READ_WRITE,
        **{f"/projects/code/{wall}": Access.READ_ONLY for wall in module.WALLS},
    }
    assert [row.host_path for row in found.rows][:2] == [code, code / ".git"]
    seen = (code / ".git").stat()
    assert found.rows[1].identity == (seen.st_dev, seen.st_ino)
    assert (found.writable, found.reason, list(found.notices)) == (True, "", [])


def test_one_that_is_only_read_needs_no_walls(code: Path, opening: Callable[..., Project]) -> None:
    assert rows(opening(code, write=False)) == {"/projects/code": Access.READ_ONLY}


def test_what_is_lifted_is_no_wall(code: Path, opening: Callable[..., Project]) -> None:
    found = opening(code, lift=(".git", ".idea"))
    assert not {".git", ".idea"} & {*found.walls}
    assert found.message("/x", numbered=False).lifted == [".git", ".idea"]
    assert not found.message("/x", numbered=False).HasField("directory")


def test_notes_are_of_a_directory_and_not_of_its_name(
    root: Path, around: Surroundings, opening: Callable[..., Project]
) -> None:
    for name in ("a/api", "b/api", "ü" * 80):
        (root / name).mkdir(parents=True)
    first = opening(root / "a/api", notes="project")
    tags = [first.tag, *(opening(root / name).tag for name in ("b/api", "ü" * 80))]
    assert len({*tags}) == 3
    assert tags[0].startswith("project:api-")
    assert max(map(len, tags)) <= TAG_MAX_CHARS
    renamed = open_project(
        "other", ProjectSettings(path=root / "a/api"), around, mounts_below=True
    ).message("/projects/other", numbered=False)
    assert (renamed.tag, renamed.keeps_notes) == (first.tag, False)
    assert first.message("/projects/code", numbered=False).keeps_notes


def test_the_git_file_of_a_worktree_is_a_wall(code: Path, opening: Callable[..., Project]) -> None:
    (code / ".git").rmdir()
    (code / ".git").write_text("gitdir: /elsewhere/.git/worktrees/code\n")
    assert ".git" in opening(code).walls


@pytest.mark.parametrize(
    ("config", "wall"),
    [
        ("[core]\n\thooksPath = .githooks\n", ".githooks"),
        ("[CORE] HOOKSPATH=.githooks # own\n", ".githooks"),
        ('[core]\nhookspath = ".git\\\nhooks"', ".githooks"),
        ("[core]\nhookspath = {code}/tools/hooks\n", "tools"),
        ("[core]\nhookspath = tools/hooks\n", "tools"),
        ("[include]\npath = ../.gitconfig\n", ".gitconfig"),
        ('[includeIf "gitdir:x"]\n  path = {code}/tools/config\n', "tools"),
        ("[include]\npath = more\n", ".githooks"),
    ],
)
def test_what_git_is_told_to_read_in_the_project_is_a_wall(
    code: Path, opening: Callable[..., Project], config: str, wall: str
) -> None:
    (code / ".git/config").write_text(config.replace("{code}", str(code)))
    (code / ".git/more").write_text("[core]\n\thooksPath = .githooks\n")
    (code / ".githooks").mkdir()
    (code / ".gitconfig").touch()
    (code / "tools").mkdir()
    assert set(opening(code).walls) == {*module.WALLS, wall}


@pytest.mark.parametrize("shared", ["", "../../common"])
def test_a_git_directory_elsewhere_in_the_project_is_a_wall(
    code: Path, opening: Callable[..., Project], shared: str
) -> None:
    (code / ".git").rmdir()
    (code / "meta/git").mkdir(parents=True)
    (code / "common").mkdir()
    (code / ".git").write_text("gitdir: meta/git\n")
    (code / "meta/git/commondir").write_text(shared)
    assert set(opening(code).walls) == {*module.WALLS, "meta", *(["common"] if shared else [])}


def test_the_configuration_of_a_worktree_is_read(
    root: Path, code: Path, opening: Callable[..., Project]
) -> None:
    (code / ".git").rmdir()
    own = root / "main/.git/worktrees/code"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (root / "main/.git/config").write_text("[core]\nhooksPath = hooks\n")
    (code / ".git").write_text(f"gitdir: {own}\n")
    (code / "hooks").mkdir()
    assert "hooks" in opening(code).walls


@pytest.mark.parametrize("make", ["link", "fifo"])
def test_what_cannot_be_a_wall_makes_the_whole_read_only(
    code: Path, opening: Callable[..., Project], make: str
) -> None:
    (code / ".idea").rmdir()
    if make == "link":
        (code / ".idea").symlink_to("src")
    else:
        os.mkfifo(code / ".idea")
    found = opening(code)
    assert (found.writable, rows(found)) == (False, {"/projects/code": Access.READ_ONLY})
    assert "lift = ['.idea']" in found.reason
    assert opening(code, lift=(".idea",)).writable


@pytest.mark.parametrize("wall", [".git/config", ".git", ".git/objects/pack/x"])
def test_a_wall_with_a_second_door_makes_the_whole_read_only(
    code: Path, opening: Callable[..., Project], wall: str
) -> None:
    """The attack: while `.git` was lifted, a command gave its configuration another name."""
    if wall == ".git":
        (code / ".git").rmdir()
    (code / wall).parent.mkdir(parents=True, exist_ok=True)
    (code / wall).touch()
    os.link(code / wall, code / "src/innocent")
    found = opening(code)
    if "objects" in wall:
        assert found.writable
        return
    assert f"{wall} has another name, by which it could be written" in found.reason
    assert rows(found) == {"/projects/code": Access.READ_ONLY}


@pytest.mark.parametrize(
    ("link", "target", "further"),
    [
        (".git/hooks", "../scripts/hooks", {"scripts"}),
        (".git/hooks/pre-commit", "../../scripts/pre-commit", {"scripts"}),
        (".vscode/tasks.json", "../scripts/missing", {"scripts"}),
        (".git/config", "../scripts/missing/config", {"scripts"}),
        (".git/inside", "config", set()),
        (".git/outside", "/etc/passwd", set()),
    ],
)
def test_where_links_of_a_wall_lead_is_a_wall_too(
    code: Path, opening: Callable[..., Project], link: str, target: str, further: set[str]
) -> None:
    (code / "scripts").mkdir()
    (code / link).parent.mkdir(exist_ok=True)
    (code / link).symlink_to(target)
    assert set(opening(code).walls) == {*module.WALLS, *further}


def test_where_the_hooks_are_the_project_it_is_only_read(
    code: Path, opening: Callable[..., Project]
) -> None:
    (code / ".git/config").write_text("[core]\n\thookspath = .\n")
    assert opening(code).reason.endswith("git config core.hooksPath .githooks")


def test_a_configuration_that_is_no_file_is_not_waited_for(
    code: Path, opening: Callable[..., Project]
) -> None:
    os.mkfifo(code / ".git/config")
    assert opening(code).writable


@pytest.mark.root
def test_on_a_read_only_file_system_it_is_only_read(
    code: Path, opening: Callable[..., Project]
) -> None:
    subprocess.run(["mount", "--bind", code, code], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", code], check=True)
        found = opening(code)
    finally:
        subprocess.run(["umount", code], check=True)
    assert (found.writable, found.reason) == (False, "its file system is mounted read-only")
    assert opening(code).writable


REFUSED = {
    "a link": "name the directory itself: {root}/my code",
    "a link on the way": "name the directory itself: {root}/my code/src",
    "a file": "name the directory: {root}/my code",
    "missing": "name one that you may enter",
    "the root": "name one below /",
    "a home": "name a directory below it, such as {root}/home/alice/src",
    "around a home": "name a directory below it, such as {root}/home/src",
    "around the workspaces": "name a directory below it, such as {root}/src",
    "a workspace": "name a directory outside of it",
    "the runtime directory": "name a directory outside of it",
    "of the kernel": "name a directory outside of it",
    "open to all": "chmod o-w {root}/my code",
    "below one that is open to all": "chmod o-w {root}/my code",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_one_that_is_refused(
    root: Path, code: Path, opening: Callable[..., Project], kind: str
) -> None:
    (root / "ws/alice/shared").mkdir(parents=True)
    (root / "rt").mkdir()
    (root / "link").symlink_to(code)
    (code / "file").touch()
    if "open to all" in kind:
        code.chmod(0o777)
    places = {
        "a link": root / "link",
        "a link on the way": root / "link/src",
        "a file": code / "file",
        "missing": code / "missing/deep",
        "the root": Path("/"),
        "a home": root / "home/alice",
        "around a home": root / "home",
        "around the workspaces": root,
        "a workspace": root / "ws/alice/shared",
        "the runtime directory": root / "rt",
        "of the kernel": Path("/proc/1/task"),
        "open to all": code,
        "below one that is open to all": code / "src",
    }
    with pytest.raises(WorkspaceError, match="as a project") as found:
        opening(places[kind])
    assert found.value.details
    assert REFUSED[kind].replace("{root}", str(root)) in found.value.resolution


@pytest.mark.parametrize("by", ["option", "environment"])
@pytest.mark.parametrize("linked", [False, True])
def test_one_that_holds_the_configuration_file(
    root: Path, code: Path, by: str, *, linked: bool
) -> None:
    file = named = code / "src/settings.toml"
    file.touch()
    if linked:
        (named := root / "settings.toml").symlink_to(file)
    environ = {"OXYDRA_CONFIG": str(named)} if by == "environment" else {}
    config = load_settings(named if by == "option" else None, environ=environ).config
    around = Surroundings.of(config, {}, root / "rt")
    with pytest.raises(WorkspaceError, match="as a project") as found:
        open_project("code", ProjectSettings(path=code), around, mounts_below=True)
    assert f"it is or holds {named}: a file that Oxydra's settings name" in found.value.details


@pytest.mark.parametrize("place", ["", "src", ".."])
def test_another_project_is_neither_in_it_nor_around_it(
    root: Path, code: Path, opening: Callable[..., Project], place: str
) -> None:
    other = Project("other", (code / "src"), OURS, (0, 0), True)
    seen = other.path.stat()
    other = Project("other", other.path, OURS, (seen.st_dev, seen.st_ino), True)
    path = {"": code, "src": code / "src/deep", "..": code / "src"}[place]
    path.mkdir(exist_ok=True)
    with pytest.raises(WorkspaceError) as found:
        opening(path, other)
    assert found.value.details == f"the project other is {other.path}"


def test_that_of_another_account(
    code: Path, opening: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OURS[0] + 1)
    with pytest.raises(WorkspaceError) as found:
        opening(code)
    assert found.value.details == (
        f"it belongs to uid {OURS[0]}, and the runner runs as uid {OURS[0] + 1}"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
@pytest.mark.parametrize("at", ["the project", "above it"])
def test_root_opens_what_is_anybodys_but_not_where_a_third_one_could_replace_it(
    code: Path, opening: Callable[..., Project], at: str
) -> None:
    os.chown(code, 4711, 4711)
    if at == "the project":
        assert opening(code).owner == (4711, 4711)
        return
    with pytest.raises(WorkspaceError) as found:
        opening(code / "src")
    assert found.value.details == f"{code} belongs to uid 4711, who could replace it"


def test_where_oxydra_runs_from_is_only_read(code: Path, around: Surroundings) -> None:
    wanted = ProjectSettings(path=code, write=True)
    for place in (code, code / "src", code.parent):
        own = Surroundings({}, {}, (place,), around.environ)
        found = open_project("code", wanted, own, mounts_below=True)
        assert not found.writable
        assert f"Oxydra itself runs from {place}" in found.reason


def test_the_installation_of_these_tests_is_known() -> None:
    assert Path(module.__file__).parents[1] in Surroundings.of(Config(), {}).programs


def test_something_mounted_below_is_seen() -> None:
    with descriptor("/dev", os.O_PATH) as opened, pytest.raises(WorkspaceError) as found:
        check_below(Path("/dev"), opened)
    assert "something is mounted at /dev/" in found.value.details


def test_a_socket_with_somebody_behind_it(code: Path, opening: Callable[..., Project]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(code / "db.sock"))
        assert opening(code).writable  # nobody listens
        server.listen()
        with pytest.raises(WorkspaceError, match="as a project") as found:
            opening(code)
        assert "a program serves db.sock" in found.value.details
        assert opening(code, hide=("db.sock",)).writable


@pytest.mark.parametrize("what", ["the project", "a wall", "a link in its place", "gone"])
def test_what_was_replaced_is_noticed_before_a_launch(
    root: Path, code: Path, opening: Callable[..., Project], what: str
) -> None:
    found = opening(code)
    found.check(mounts_below=True)
    place = code / ".git" if what == "a wall" else code
    place.rename(root / "before")
    if what == "a link in its place":
        place.symlink_to(root / "before")
    elif what != "gone":
        place.mkdir()
    with pytest.raises(WorkspaceError, match="as a project"):
        found.check(mounts_below=True)


def test_another_uid_may_only_read(code: Path, opening: Callable[..., Project]) -> None:
    code.chmod(0o755)
    found = opening(code)
    assert for_guest(found, OURS, UNMAPPED) is found
    limited = for_guest(found, (OURS[0] + 1, 0), UNMAPPED)
    assert not limited.writable
    assert limited.reason == "not here"
    code.chmod(0o700)
    with pytest.raises(WorkspaceError) as refused:
        for_guest(found, (OURS[0] + 1, 0), UNMAPPED)
    assert f"u:{OURS[0] + 1}:rX" in refused.value.resolution


def test_those_that_cannot_be_opened_are_named_and_the_others_are(
    root: Path, code: Path, around: Surroundings
) -> None:
    wanted = {"bad": ProjectSettings(path=root), "good": ProjectSettings(path=code)}
    found, notices = open_all(wanted, around, OURS, UNMAPPED, mounts_below=True)
    assert [each.name for each in found] == ["good"]
    assert len(notices) == 1
    assert notices[0].startswith(f"the project bad is not open: cannot use {root} as a project: ")
    with pytest.raises(WorkspaceError):
        open_all(wanted, around, OURS, UNMAPPED, mounts_below=True, required=("bad",))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/my code", "my-code"),
        ("/a/.dotfiles", "dotfiles"),
        ("/a/été\n", "t"),
        ("/a/---", "project"),
        ("/a/taken", "taken-2"),
    ],
)
def test_a_name_from_the_directorys(path: str, name: str) -> None:
    assert name_for(Path(path), {"taken"}) == name
