"""What a guest plants in a project does not run when the operator opens it: with real git."""

import asyncio
import errno
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from wire.kernel.beneath import Beneath, best_beneath
from wire.v1.bootstrap_pb2 import Directory, Project

from guest.projects import watch
from guest.projects.watch import Watch

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

Plant = Callable[[Path], object]


def run(cwd: Path, *argv: str, check: bool = True) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_CEILING_DIRECTORIES": str(cwd.parent) if (cwd / ".top").exists() else "",
    }
    done = subprocess.run(argv, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def repository(path: Path, *, bare: bool = False) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    run(path, "git", "init", "-q", "-b", "main", *(["--bare"] if bare else []))
    if not bare:
        (path / "a.txt").write_text("a")
        run(path, "git", "add", ".")
        run(path, "git", "commit", "-qm", "first")
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a repository at its top, which is lifted, and one below."""
    root = repository(tmp_path / "work")
    repository(root / "libs" / "inner")
    (root / ".envrc").write_text("export A=1\n")
    (root / "AGENTS.md").write_text("Run make.\n")
    (root / "src").mkdir()
    (root / "canary.sh").write_text(f"#!/bin/sh\necho ran >> {tmp_path}/canary\n")
    (root / "canary.sh").chmod(0o755)
    return root


def described(root: Path, **more: object) -> Project:
    status = root.stat()
    directory = Directory(device=status.st_dev, inode=status.st_ino)
    given = {"name": "work", "path": str(root), "writable": True, "directory": directory}
    return Project(**given, **more)  # type: ignore[arg-type]


def made_for(root: Path, beneath: Beneath | None = None, **more: object) -> Watch:
    return Watch([(os.open(root, os.O_PATH), described(root, **more))], beneath)


@pytest.fixture
def watched(project: Path) -> Callable[..., list[str]]:
    """Run a function as a command would; what is told of it."""
    made = made_for(project, lifted=[".git"])

    def doing(*plants: Plant, turn: str = "") -> list[str]:
        async def call() -> list[str]:
            told: list[str] = []
            async with made.call(turn, told):
                for plant in plants:
                    plant(project)
            return told

        return asyncio.run(call())

    return doing


def opened(project: Path, *, also: str = "status") -> bool:
    """Whether anything planted runs, when git is used in each directory of the project."""
    canary = project.parent / "canary"
    canary.unlink(missing_ok=True)
    for path, _, _ in os.walk(project):
        if "/objects/" not in path:
            run(Path(path), "git", also, check=False)
            run(Path(path), "git", "rebase", "--continue", check=False)
            run(Path(path), "git", "commit", "--allow-empty", "-qm", "x", check=False)
    return canary.exists()


EVIL = '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "{}/canary.sh"\n'


def evil(project: Path) -> str:
    return EVIL.format(project)


def hook(directory: Path, project: Path, name: str = "pre-commit") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(project / "canary.sh", directory / name)


def plant_config(project: Path, at: str = ".git") -> None:
    (project / at / "config").write_text(evil(project))


def plant_hook(project: Path) -> None:
    hook(project / ".git" / "hooks", project)


def plant_deep_hook(project: Path) -> None:
    hook(project / "libs/inner/.git/hooks", project)


def plant_renamed_git(project: Path) -> None:
    (project / ".git").rename(project / ".git2")
    repository(project / "x")
    plant_config(project, "x/.git")
    (project / "x/.git").rename(project / ".git")


def plant_commondir(project: Path) -> None:
    repository(project / "x")
    plant_config(project, "x/.git")
    (project / "x/.git").rename(project / "x/plain")
    (project / "libs/inner/.git/commondir").write_text(f"{project}/x/plain\n")


def plant_git_file(project: Path) -> None:
    repository(project / "x")
    plant_config(project, "x/.git")
    (project / "x/.git").rename(project / "x/plain")
    (project / "src/.git").write_text("gitdir: ../x/plain\n")


def plant_link(project: Path) -> None:
    repository(project.parent / "outside")
    plant_config(project.parent, "outside/.git")
    (project.parent / "outside/.git/config").write_text(evil(project))
    (project / "src/.git").symlink_to(project.parent / "outside/.git")


def plant_git_file_outside(project: Path) -> None:
    repository(project.parent / "outside")
    (project.parent / "outside/.git/config").write_text(evil(project))
    (project / "src/.git").write_text("gitdir: ../../outside/.git\n")


def plant_include(project: Path) -> None:
    (project / "shared.cfg").write_text(evil(project))
    with (project / ".git/config").open("a") as file:
        file.write(f'[includeIf "gitdir:{project}/"]\n\tpath = ../shared.cfg\n')


def plant_bare(project: Path) -> None:
    repository(project / "src/fixture", bare=True)
    with (project / "src/fixture/config").open("w") as file:
        file.write(evil(project) + f"\tbare = false\n\tworktree = {project}/src\n")


def plant_bare_in_place(project: Path) -> None:
    """The directory is there already, with a configuration that nobody reads."""
    repository(project / "y", bare=True)
    for each in (project / "y").iterdir():
        each.rename(project / "src" / each.name)
    (project / "src/config").write_text(
        evil(project) + f"\tbare = false\n\tworktree = {project}/src\n"
    )


def plant_bare_in_refs(project: Path) -> None:
    repository(project / "y", bare=True)
    (project / "y/config").write_text(evil(project) + f"\tworktree = {project}/src\n")
    (project / "y").rename(project / ".git/refs/heads/y")


def plant_worktree_config(project: Path) -> None:
    git_dir = project / "libs/inner/.git"
    run(git_dir.parent, "git", "config", "extensions.worktreeConfig", "true")
    (git_dir / "config.worktree").write_text(f'[core]\n\tfsmonitor = "{project}/canary.sh"\n')


def plant_hooks_path(project: Path) -> None:
    hook(project / "src/hooks", project)
    run(project, "git", "config", "core.hooksPath", f"{project}/src/hooks")


def plant_hooks_link(project: Path) -> None:
    hook(project / "src/hooks", project)
    shutil.rmtree(project / "libs/inner/.git/hooks")
    (project / "libs/inner/.git/hooks").symlink_to(project / "src/hooks")


def plant_submodule(project: Path) -> None:
    repository(project / "m")
    (project / ".git/modules").mkdir()
    (project / "m/.git").rename(project / ".git/modules/m")
    (project / "m/.git").write_text("gitdir: ../.git/modules/m\n")
    (project / ".git/modules/m/config").write_text(evil(project) + "\tworktree = ../../../m\n")


def plant_executable_sample(project: Path) -> None:
    hooks = project / ".git/hooks"
    shutil.copy(project / "canary.sh", hooks / "pre-commit.sample")
    (hooks / "pre-commit.sample").rename(hooks / "pre-commit")


def plant_spelled_config(project: Path) -> None:
    """Where the file system folds names this is the configuration; here it is a link to be safe."""
    plant_config(project, "libs/inner/.git")
    inner = project / "libs/inner/.git"
    (inner / "config").rename(inner / "CONFIG")
    (inner / "config").symlink_to("CONFIG")


def plant_todo(project: Path) -> None:
    where = project / ".git/rebase-merge"
    where.mkdir()
    (where / "git-rebase-todo").write_text(f"exec {project}/canary.sh\n")
    head = run(project, "git", "rev-parse", "HEAD")
    for name, said in {"onto": head, "orig-head": head, "head-name": "refs/heads/main\n"}.items():
        (where / name).write_text(said)
    (where / "interactive").touch()
    (where / "msgnum").write_text("0\n")
    (where / "end").write_text("1\n")
    (where / "done").touch()


def plant_over_old_config(project: Path) -> None:
    """Written in place through another name of the same file."""
    os.link(project / "libs/inner/.git/config", project / "src/same")
    (project / "src/same").write_text(evil(project))


PLANTS = [
    plant_config,
    plant_hook,
    plant_deep_hook,
    plant_renamed_git,
    plant_commondir,
    plant_git_file,
    plant_link,
    plant_git_file_outside,
    plant_include,
    plant_bare,
    plant_bare_in_place,
    plant_bare_in_refs,
    plant_worktree_config,
    plant_hooks_path,
    plant_hooks_link,
    plant_submodule,
    plant_executable_sample,
    plant_spelled_config,
    plant_todo,
    plant_over_old_config,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda each: each.__name__)
def test_what_is_planted_does_not_run(
    plant: Plant, project: Path, watched: Callable[..., list[str]]
) -> None:
    told = watched(plant)
    assert any("aside" in line for line in told), told
    assert not opened(project)
    assert watched(lambda _: None) == []


@pytest.mark.parametrize("plant", PLANTS, ids=lambda each: each.__name__)
def test_these_plants_run_where_nobody_watches(plant: Plant, project: Path) -> None:
    plant(project)
    assert opened(project)


def everyday_clone(project: Path) -> None:
    run(project / "src", "git", "clone", "-q", str(project / "libs/inner"), "copy")
    run(project / "src", "git", "clone", "-q", "--bare", str(project / "libs/inner"), "copy.git")
    run(project / "src", "git", "clone", "-q", "--depth=1", f"file://{project}/libs/inner", "few")


def everyday_init(project: Path) -> None:
    (project / "src/empty.git").mkdir()
    run(project / "src", "git", "init", "-q", "new")
    run(project / "src/empty.git", "git", "init", "-q", "--bare", ".")
    run(project / "src", "git", "init", "-q", "--object-format=sha256", "sha256")


def everyday_work(project: Path) -> None:
    for where in (project, project / "libs/inner"):
        (where / "b.txt").write_text("b")
        run(where, "git", "checkout", "-qb", "feature/x")
        run(where, "git", "add", "b.txt")
        run(where, "git", "commit", "-qm", "second")
        run(where, "git", "checkout", "-q", "main")
        run(where, "git", "merge", "-q", "--no-ff", "-m", "merge", "feature/x")
        run(where, "git", "tag", "-a", "v1", "-m", "one")
        run(where, "git", "remote", "add", "origin", "git@host.example:a/b.git")
        run(where, "git", "config", "user.name", "Somebody Else")
        run(where, "git", "gc", "-q")
        run(where, "git", "reset", "-q", "--hard", "HEAD~1")


def everyday_submodule(project: Path) -> None:
    add = ("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    run(project, *add, f"{project}/libs/inner", "deep/er/sub")
    run(project, "git", "commit", "-qam", "sub")
    shutil.rmtree(project / "deep/er/sub")
    update = ("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    run(project, *update)


def everyday_worktree(project: Path) -> None:
    run(project, "git", "worktree", "add", "-q", "trees/one", "-b", "one")
    run(project / "trees/one", "git", "commit", "-q", "--allow-empty", "-m", "there")


def everyday_rename(project: Path) -> None:
    (project / "libs").rename(project / "vendored")


EVERYDAY = [
    everyday_clone,
    everyday_init,
    everyday_work,
    everyday_submodule,
    everyday_worktree,
    everyday_rename,
]


@pytest.mark.parametrize("work", EVERYDAY, ids=lambda each: each.__name__)
def test_everyday_work_is_left_alone(
    work: Plant, project: Path, watched: Callable[..., list[str]]
) -> None:
    hook(project / "libs/inner/.git/hooks", project)  # the operator's own
    time.sleep(watch.RACY_NS / 10**9 if work is everyday_rename else 0)
    assert watched(work) == []
    assert watched(lambda _: None) == []


def test_a_second_tree_and_a_submodule_work_afterwards(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    watched(everyday_submodule, everyday_worktree)
    assert "nothing to commit" in run(project / "deep/er/sub", "git", "status")
    assert "there" in run(project / "trees/one", "git", "log", "-1")


def test_what_is_made_ready_in_one_turn_does_not_run_after_the_next(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    def ready(_: Path) -> None:
        plant_bare_in_place(project)
        (project / "src/HEAD").rename(project / "src/head of it")

    assert watched(ready) == []
    told = watched(lambda _: (project / "src/head of it").rename(project / "src/HEAD"))
    assert "moved /projects/work/src/HEAD aside" in told[0]
    assert not opened(project)


@pytest.mark.parametrize(
    "name",
    [
        "info/attributes",
        "info/grafts",
        "objects/info/alternates",
        "objects/info/http-alternates",
        "objects/ab/evil",
        "objects/evil/x",
        "rebase-merge/strategy",
        "rebase-apply/0001",
        "refs/heads/.hidden",
        "remotes/origin",
        "branches/origin",
        "sequencer/todo",
        "Config",
        "Hooks/pre-commit",
        "hooks/pre-commit.sample.sample",
        "modules/x/config",
        "worktrees/x/gitdir",
        "anything",
    ],
)
def test_what_is_in_no_list_is_moved_aside(
    name: str, project: Path, watched: Callable[..., list[str]]
) -> None:
    at = project / "libs/inner/.git" / name

    def plant(_: Path) -> None:
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text("../x")

    assert len(watched(plant)) == 1
    assert not at.exists()
    assert watched(lambda _: None) == []


@pytest.mark.parametrize(
    ("said", "stays"),
    [
        ("[user]\n\tname = A B\n[core]\n\tbare = false\n", True),
        ("[core]\n\tautocrlf = input\n\teol = lf\n[pull]\n\trebase = true\n", True),
        ("[push]\n\tautoSetupRemote = true\n[color]\n\tui = auto\n", True),
        ("[log]\n\tshowSignature = true\n", False),
        ("[rebase]\n\tinstructionFormat = %s%nexec evil\n", False),
        ('[remote "o"]\n\turl = https://u@host.example/x.git\n', True),
        ('[remote "o"]\n\turl = git@host.example:a/b.git\n', True),
        ('[remote "o"]\n\turl = "/projects/work/libs/inner"\n', True),
        ('[branch "m"]\n\tremote = o\n\tmerge = refs/heads/m\n', True),
        ("[core]\n\tworktree = ../../../src\n", True),
        ("[core]\n\tworktree = ../../../../src\n", False),
        ("[core]\n\tworktree = /etc\n", False),
        ('[remote "o"]\n\turl = ext::sh -c evil\n', False),
        ('[remote "o"]\n\turl = ext://sh\n', False),
        ('[remote "o"]\n\turl = -uevil\n', False),
        ('[remote "o"]\n\turl = ssh://-oProxyCommand=evil/x\n', False),
        ('[remote "o"]\n\turl = u@-oProxyCommand=evil:x\n', False),
        ('[remote "o"]\n\turl = /tmp/evil.git\n', False),
        ('[remote "o"]\n\turl = ../../../../evil.git\n', False),
        ('[remote "o"]\n\tuploadpack = evil\n', False),
        ('[remote "o"]\n\tvcs = evil\n', False),
        ('[submodule "m"]\n\tupdate = !evil\n', False),
        ('[branch "m"]\n\tremote = ext::evil\n', False),
        ('[branch "m"]\n\tmergeOptions = -sevil\n', False),
        ("[alias]\n\tst = !evil\n", False),
        ("[include]\n\tpath = x\n", False),
        ("[CORE]\n\tFsMonitor = evil\n", False),
        ("[core] fsmonitor = evil\n", False),
        ("[core]fsmonitor=evil\n", False),
        ("[core]\n\tbare = false\\\n\tfsmonitor = evil\n", False),
        ("[user]\n\tname = a # b \\\n[core]\n\tfsmonitor=evil\n", False),
        ('[user]\n\tname = "a\n[core]\n\tfsmonitor = evil"\n', False),
        ("[user]\n\tname = a\r[core]\r\tfsmonitor=evil\n", False),
        ("[core.x]\n\tfsmonitor=evil\n", False),
        ("\ufeff[user]\n\tname = a\n", False),
        ("[user]\n\tname = a\0b\n", False),
        ("no configuration", False),
    ],
)
def test_a_configuration_stays_only_if_nothing_in_it_runs(
    said: str, stays: bool, project: Path, watched: Callable[..., list[str]]
) -> None:
    config = project / "libs/inner/.git/config"
    before = config.read_bytes()
    told = watched(lambda _: config.write_text(said))
    assert config.read_bytes() == (said.encode() if stays else before)
    assert len(told) == (not stays)


def test_the_operators_own_settings_stay_when_others_are_added(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    inner = project / "libs/inner"
    run(inner, "git", "config", "core.fsmonitor", "mine.sh")
    run(inner, "git", "config", "alias.x", "!mine")
    assert watched(lambda _: run(inner, "git", "config", "user.name", "Other")) == []
    assert len(watched(lambda _: run(inner, "git", "config", "core.fsmonitor", "evil"))) == 1
    assert run(inner, "git", "config", "core.fsmonitor") == "mine.sh\n"
    assert run(inner, "git", "config", "user.name") == "Other\n"


def test_a_large_file_that_nobody_changed_stays(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    (project / ".git/hooks/pre-push").write_bytes(b"#" * (watch.KEPT_MAX_BYTES + 1))
    assert watched(lambda _: None) == []


def test_a_git_file_is_read_as_git_reads_it_everywhere(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    """Also where another file of one path would be."""

    def plant(_: Path) -> None:
        hooks = project / ".git/hooks"
        repository(project / "x")
        (hooks / "gitdir: ").mkdir()
        (project / "x/.git").rename(hooks / "gitdir: /tmp")
        (hooks / ".git").write_text("gitdir: /tmp\n")

    watched(plant)
    assert not (project / ".git/hooks/.git").exists()


def test_a_directory_that_looks_like_gits_hides_nothing_else(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    def plant(_: Path) -> None:
        plant_bare_in_place(project)
        plant_git_file_outside(project)
        (project / "src/.envrc").write_text("evil")

    assert len(watched(plant)) == 3
    assert not opened(project)
    assert not (project / "src/.envrc").exists()


def test_what_is_moved_aside_hides_nothing(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    def plant(_: Path) -> None:
        plant_deep_hook(project)
        for number in range(5):
            (project / str(number) / "deep").mkdir(parents=True)
            (project / "libs").rename(project / str(number) / ".GIT")
            (project / str(number)).rename(project / "libs")

    assert len(watched(plant)) == 6
    assert not opened(project)
    assert watched(lambda _: None) == []


def test_what_is_too_deep_to_be_moved_aside_is_told(
    project: Path, watched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ROUNDS_MAX", 2)
    told = watched(lambda _: (project / "src/.GIT/.GIT/.GIT").mkdir(parents=True))
    assert "too much in it was moved aside" in told[0]


def test_what_was_there_is_put_back(project: Path, watched: Callable[..., list[str]]) -> None:
    config, mode = (project / ".git/config").read_bytes(), (project / ".git/config").stat().st_mode
    envrc = (project / ".envrc").read_bytes()

    def plant(_: Path) -> None:
        plant_config(project)
        (project / ".envrc").unlink()
        (project / ".envrc").symlink_to("canary.sh")

    told = watched(plant)
    assert (project / ".git/config").read_bytes() == config
    assert (project / ".git/config").stat().st_mode == mode
    assert (project / ".envrc").read_bytes() == envrc
    assert not (project / ".envrc").is_symlink()
    assert len(told) == 2
    assert all("what was there before is back" in line for line in told)
    command = told[1].split("`")[1]
    run(project, "sh", "-c", command)
    assert (project / ".git/config").read_text() == evil(project)
    assert watched(lambda _: None) == []  # that is what the operator wants


def test_on_a_full_disk_nothing_is_put_back_in_part(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)

    def plant(_: Path) -> None:
        plant_config(project)
        (project / "out").symlink_to("/etc")
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, usual[1]))

    try:
        told = watched(plant)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not (project / ".git/config").exists()
    assert not list(project.rglob("*.partial"))
    assert "could NOT be written (File too large)" in told[0]
    assert "what was there before is back" not in told[0]
    assert not (project / "out").is_symlink()
    assert "`ln -sfT -- /etc out`" in told[1]


def test_the_operators_changes_are_left_alone(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    plant_config(project)
    plant_hook(project)
    (project / ".envrc").write_text("new")
    assert watched(lambda _: None) == []
    assert opened(project)


def test_rules_are_told_and_stay(project: Path, watched: Callable[..., list[str]]) -> None:
    def change(_: Path) -> None:
        (project / "AGENTS.md").write_text("Send everything.")
        (project / "src/CLAUDE.md").write_text("New.")

    told = watched(change)
    assert told == [
        "/projects/work/AGENTS.md was changed",
        "/projects/work/src/CLAUDE.md was added",
    ]
    assert (project / "AGENTS.md").read_text() == "Send everything."
    told = watched(lambda _: (project / "AGENTS.md").unlink())
    assert told == ["/projects/work/AGENTS.md was removed"]


@pytest.mark.parametrize(
    "name",
    [
        ".GIT",
        ".g\u200cit",
        ".git ",
        ".git.",
        "git~1",
        "GIT~1",
        ".git::$INDEX_ALLOCATION",
        ".\uff47it",
    ],
)
@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_other_spellings_of_git_are_moved_aside(
    name: str, kind: str, project: Path, watched: Callable[..., list[str]]
) -> None:
    def plant(_: Path) -> None:
        at = project / "src" / name
        if kind == "directory":
            repository(project / "x")
            (project / "x/.git").rename(at)
        elif kind == "file":
            at.write_text("gitdir: ../.git\n")
        else:
            at.symlink_to("../.git")

    assert len(watched(plant)) == 1
    assert name not in os.listdir(project / "src")
    assert watched(lambda _: None) == []


@pytest.mark.parametrize(
    "name",
    [
        ".envrc",
        ".ENVRC",
        ".mcp.json",
        "runner.toml",
        ".oxydra.toml",
        ".oxydra",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        ".devcontainer/devcontainer.json",
        ".claude/settings.json",
        "src/.envrc",
        ".mise.local.toml",
        "mise.local.toml",
        ".mise/config.toml",
        ".config/mise/config.toml",
        ".dir-locals-2.el",
        "opencode.json",
        "src/a.code-workspace",
        ".helix/config.toml",
        "src/.vscode/tasks.json",
        "src/.claude/settings.json",
        "src/.idea/workspace.xml",
        "src/.devcontainer/devcontainer.json",
        "src/.zed/tasks.json",
        "src/new\nline/.envrc",
    ],
)
def test_what_runs_on_opening_is_moved_aside(name: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    made = made_for(tmp_path)

    async def call() -> list[str]:
        told: list[str] = []
        async with made.call("", told):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x")
        return told

    told = asyncio.run(call())
    assert len(told) == 1
    assert "\n" not in told[0]
    assert not (tmp_path / name).exists()


def test_a_lifted_editor_may_be_changed_and_its_tasks_are_moved_aside(tmp_path: Path) -> None:
    made = made_for(tmp_path, lifted=[".vscode"])

    async def call() -> list[str]:
        told: list[str] = []
        async with made.call("", told):
            (tmp_path / ".vscode").mkdir()
            (tmp_path / ".vscode/tasks.json").write_text("{}")
            (tmp_path / ".vscode/words.txt").write_text("{}")
        return told

    assert len(asyncio.run(call())) == 1
    assert sorted(os.listdir(tmp_path / ".vscode"))[1:] == ["words.txt"]


def test_walls_are_not_looked_at(project: Path) -> None:
    made = made_for(project, walls=[".git"])

    async def call() -> list[str]:
        told: list[str] = []
        async with made.call("", told):
            plant_config(project)
            (project / "src/.git").write_text("gitdir: ../.git/modules/x\n")
        return told

    assert asyncio.run(call()) == []


def test_two_commands_at_once(project: Path) -> None:
    """One that begins later takes nothing of the other's for the operator's."""
    made = made_for(project, lifted=[".git"])

    async def both() -> None:
        first, second = list[str](), list[str]()
        async with made.call("one", first):
            plant_hook(project)
            async with made.call("two", second):
                plant_config(project)
        assert len(second) == 2
        assert first == []
        assert await made.end("one") == second
        assert await made.end("two") == second
        assert await made.end("two") == []

    asyncio.run(both())
    assert not opened(project)


def test_what_a_turn_leaves_is_found_at_its_end(project: Path) -> None:
    made = made_for(project, lifted=[".git"])

    async def turn() -> list[str]:
        async with made.call("one", []):
            pass
        plant_hook(project)  # by a program that goes on after the command
        return await made.end("one")

    assert len(asyncio.run(turn())) == 1
    assert not opened(project)


def test_nothing_but_small_files_is_opened(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    def plant(_: Path) -> None:
        os.mkfifo(project / "src/.envrc")
        os.mkfifo(project / ".git/hooks/pre-commit")
        (project / "src/.git").mkdir()
        os.mkfifo(project / "src/.git/config")
        (project / "src/.mcp.json").write_bytes(b"x" * (watch.KEPT_MAX_BYTES + 1))

    began = time.monotonic()
    assert len(watched(plant)) == 4
    assert time.monotonic() - began < 5


def test_a_hooks_old_content_that_is_too_large_is_said_to_be_lost(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    big = project / ".git/hooks/pre-commit"
    big.write_bytes(b"#" * (watch.KEPT_MAX_BYTES + 1))
    (told,) = watched(lambda _: big.write_text("x"))
    assert "is back" not in told
    assert not big.exists()


def test_a_directory_out_of_reach_is_told(project: Path) -> None:
    beneath, shut = best_beneath(links=False), list[str]()

    class Shutting:
        def open(self, root: int, path: str, flags: int, mode: int = 0) -> int:
            if path in shut:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return beneath.open(root, path, flags)

    made = made_for(project, Shutting(), lifted=[".git"])

    async def shutting() -> list[str]:
        told: list[str] = []
        async with made.call("", told):
            shut.append("src")
        return told

    why = "/projects/work could not be watched whole: /projects/work/src: Permission denied"
    assert asyncio.run(shutting()) == [why]


def test_too_deep_is_told(project: Path, watched: Callable[..., list[str]]) -> None:
    def plant(_: Path) -> None:
        here = os.open(project / "src", os.O_RDONLY)
        for _each in range(20):
            os.mkdir("d" * 250, dir_fd=here)
            here = os.open("d" * 250, os.O_RDONLY, dir_fd=here)

    (told,) = watched(plant)
    assert "could not be watched whole" in told


def test_a_flood_hides_nothing_of_what_is_known(
    project: Path, watched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ENTRIES_MAX", 1000)

    def plant(_: Path) -> None:
        for number in range(1100):
            (project / "src" / str(number)).touch()
        plant_hook(project)
        plant_deep_hook(project)

    told = watched(plant)
    assert "more than 1,000 entries" in told[0]
    assert any("moved /projects/work/.git/hooks/pre-commit aside" in line for line in told)


def test_a_project_of_100_000_files(project: Path, watched: Callable[..., list[str]]) -> None:
    for above in range(100):
        for below in range(10):
            (project / f"src/{above}/{below}").mkdir(parents=True)
            for number in range(100):
                (project / f"src/{above}/{below}/{number}.py").touch()
    time.sleep(2)
    began = time.monotonic()
    watched(lambda _: None)
    first = time.monotonic() - began
    began = time.monotonic()
    watched(lambda _: None)
    print(first, time.monotonic() - began)
    assert time.monotonic() - began < 1


def plant_nested(root: Path) -> Path:
    """A repository below more directories than are looked at in one check."""
    here = root / "src"
    for _ in range(6):
        here = here / ".envrc"
        here.mkdir()
    made = repository(here / "repo")
    (made / ".git/config").write_text(evil(root))
    return made


def test_what_was_too_deep_is_not_the_operators_in_the_next_turn(
    project: Path, watched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ROUNDS_MAX", 2)
    told = watched(plant_nested)
    assert any("do not enter it" in line for line in told)

    def move(_: Path) -> None:
        (deep,) = (Path(at) for at, names, _ in os.walk(project / "src") if "repo" in names)
        time.sleep(watch.RACY_NS / 10**9)
        (deep / "repo").rename(project / "src/repo")

    told = watched(lambda _: time.sleep(2.1), move)
    assert any("moved /projects/work/src/repo/.git/config aside" in line for line in told), told
    assert "fsmonitor" not in (project / "src/repo/.git/config").read_text()


def test_what_a_flood_hid_is_not_the_operators_in_the_next_turn(
    project: Path, watched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ENTRIES_MAX", 1000)

    def plant(_: Path) -> None:
        (project / "src/z/z/z").mkdir(parents=True)
        (project / "src/z/z/z/.envrc").write_text("evil")
        for number in range(1100):
            (project / "src" / str(number)).touch()

    assert "more than 1,000 entries" in watched(plant)[0]
    for number in range(1100):
        (project / "src" / str(number)).unlink()
    assert len(watched(lambda _: None)) == 1
    assert not (project / "src/z/z/z/.envrc").exists()
    assert watched(lambda _: None) == []


def test_what_a_pointer_leads_to_cannot_be_replaced_later(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    main = repository(project / "src/main")
    assert watched(lambda _: run(main, "git", "worktree", "add", "-q", "../wt")) == []
    assert watched(lambda _: None) == []
    outside = repository(project.parent / "outside")
    run(outside, "git", "worktree", "add", "-q", "wt")
    (outside / ".git/config").write_text(evil(project))

    def replace(_: Path) -> None:
        main.rename(project / "src/main2")
        main.symlink_to(outside)

    told = watched(replace)
    assert len([each for each in told if "moved /projects/work/src/wt/.git aside" in each]) == 1
    assert not main.is_symlink()
    assert not opened(project)
    assert watched(lambda _: None) == []


def test_the_operators_pointer_out_of_the_project_stays(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    outside = repository(project.parent / "outside")
    run(outside, "git", "worktree", "add", "-q", str(project / "src/wt"))
    assert watched(lambda _: None) == []
    assert watched(lambda _: run(project / "src/wt", "git", "status")) == []


@pytest.mark.parametrize(
    ("leads", "stays"),
    [
        ("../libs/inner", True),
        ("missing", True),
        ("/projects/work/libs", True),
        ("/usr/bin/python3", True),
        ("/dev/null", True),
        ("inside/../../libs", True),
        ("..//../outside", False),
        ("/srv/outside", False),
        ("/usr/../srv", False),
        ("/proc/self/cwd", False),
        ("inside/../../../outside", False),
        ("old/deeper", False),
        ("link", False),
    ],
)
def test_a_new_link_does_not_lead_out(
    leads: str, stays: bool, project: Path, watched: Callable[..., list[str]]
) -> None:
    (project / "src/inside").symlink_to("../libs/inner")
    (project / "src/old").symlink_to(project.parent)
    link = project / "src/link"
    told = watched(lambda _: link.symlink_to(leads))
    assert link.is_symlink() == stays
    assert len(told) == (not stays)
    assert (project / "src/old").is_symlink()
    if not stays:
        (aside,) = (project / "src").glob("link.aside-*")
        assert not aside.is_symlink()
        assert aside.read_text() == leads
        run(project, "sh", "-c", told[0].split("`")[1])
        assert os.readlink(link) == leads
    assert watched(lambda _: None) == []


def test_a_link_that_leads_out_by_what_was_put_on_its_way(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    (project / "src/a.aside-12345678").symlink_to("../libs/inner")

    def plant(_: Path) -> None:
        (project / "src/b.aside-12345678").symlink_to("/srv")
        (project / "libs").rename(project / "libs2")
        (project / "libs").symlink_to("/srv")

    assert len(watched(plant)) == 2
    links = [each.name for each in project.rglob("*") if each.is_symlink()]
    assert links == ["a.aside-12345678"]
    assert watched(lambda _: None) == []


def test_an_old_link_leads_out_because_another_one_in_its_way_was_changed(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    (project / "deep").symlink_to("libs/inner")
    (project / "src/far").symlink_to("../deep/../../src")

    def change(_: Path) -> None:
        (project / "deep").unlink()
        (project / "deep").symlink_to("libs")

    assert len(watched(change)) == 1
    assert not (project / "src/far").exists()
    assert watched(lambda _: None) == []


def test_python_makes_its_environments(project: Path, watched: Callable[..., list[str]]) -> None:
    make = ("/usr/bin/python3", "-m", "venv", "--without-pip", ".venv")
    assert watched(lambda _: run(project, *make)) == []


def test_what_is_hidden_is_skipped_only_where_it_was(project: Path) -> None:
    made = made_for(project, lifted=[".git"], hidden=["src/.envrc", ".envrc"])

    async def call() -> list[str]:
        told: list[str] = []
        async with made.call("", told):
            (project / "src/.envrc").write_text("evil")
            (project / ".envrc").write_text("the operator's")
        return told

    (told,) = asyncio.run(call())
    assert "moved /projects/work/src/.envrc aside" in told


def test_a_clone_keeps_what_runs_nothing(project: Path, watched: Callable[..., list[str]]) -> None:
    def clone(_: Path) -> None:
        run(project / "src", "git", "clone", "-q", str(project / "libs/inner"), "copy")
        run(project / "src/copy", "git", "config", "core.pager", "evil")

    (told,) = watched(clone)
    assert "its settings that run nothing stay" in told
    assert "nothing to commit" in run(project / "src/copy", "git", "status")
    assert "inner" in run(project / "src/copy", "git", "remote", "-v")
    assert "evil" not in (project / "src/copy/.git/config").read_text()
    assert watched(lambda _: None) == []


def test_a_rebase_with_a_conflict_and_a_bisection_go_on(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    inner = project / "libs/inner"

    def conflict(_: Path) -> None:
        run(inner, "git", "checkout", "-qb", "other")
        for branch in ("other", "main"):
            run(inner, "git", "checkout", "-q", branch)
            (inner / "a.txt").write_text(branch)
            run(inner, "git", "commit", "-qam", f"it's {branch}")
        run(inner, "git", "rebase", "other", check=False)

    assert watched(conflict) == []
    (inner / "a.txt").write_text("both")
    run(inner, "git", "add", ".")
    assert (
        watched(lambda _: run(inner, "git", "-c", "core.editor=true", "rebase", "--continue")) == []
    )
    assert not (inner / ".git/rebase-merge").exists()
    bisect = ("git", "bisect", "start", "HEAD", "HEAD~2", "--", "a.txt")
    assert watched(lambda _: run(inner, *bisect)) == []


def test_a_git_directory_under_a_plain_name_is_judged_when_it_gets_its_name(
    project: Path, watched: Callable[..., list[str]]
) -> None:
    fixture = repository(project / "src/fix")
    (fixture / ".git/config").write_text(evil(project))
    hook(fixture / ".git/hooks", project)
    (fixture / ".git").rename(fixture / "dotgit")
    time.sleep(watch.RACY_NS / 10**9)
    told = watched(lambda _: (fixture / "dotgit").rename(project / "src/.git"))
    assert len(told) == 2
    assert not opened(project)


def test_a_long_path_is_told_in_short(project: Path, watched: Callable[..., list[str]]) -> None:
    def plant(_: Path) -> None:
        where = project / "src" / "/".join("d" * 200 for _ in range(5))
        where.mkdir(parents=True)
        (where / ".envrc").touch()

    (told,) = watched(plant)
    assert len(told) < 600
