"""The operator's own directories in the shell of every tier: their walls hold, a wall that is not
there or does not hold is caught, and the self-test leaves nothing behind in them."""

import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from wire.boundary import CHECKS, PROJECTS
from wire.settings import ContainerSettings, ProjectSettings
from wire.v1 import control_pb2

from runner.config.models import Config
from runner.projects.project import Project, Surroundings, open_project
from runner.tiers.base import LaunchSpec, Network
from runner.tiers.drivers import driver_for
from runner.tiers.process import prologue
from runner.tiers.process.bubblewrap import Bubblewrap
from tests.support.boundary.guarded_host import (
    TEST_IMAGES,
    GuardedHost,
    Words,
    shell_image,
    with_mounts,
    without,
)
from tests.support.tiers import every_tier

WALLS = (".git", ".vscode", "packages/node_modules")


@pytest.fixture
def code(guarded: GuardedHost) -> Path:
    place = guarded.root / "my code"
    for name in (*WALLS, "src"):
        (place / name).mkdir(parents=True)
    (place / ".git/config").write_text("[core]\n\tbare = false\n")
    (place / ".idea").write_text("a file")
    (guarded.root / "cache.js").touch()
    os.link(guarded.root / "cache.js", place / "packages/node_modules/x.js")
    os.mkfifo(place / "src/pipe")
    return place


def opened(code: Path, owner: int) -> Project:
    for path in (code, *code.rglob("*")):
        os.chown(path, owner, owner)
    wanted = ProjectSettings(path=code, write=True)
    return open_project("code", wanted, Surroundings({}, {}), mounts_below=True)


def of(launch: LaunchSpec, *projects: Project) -> LaunchSpec:
    rows = tuple(row for each in projects for row in each.rows)
    meant = {row.mount.virtual: row.identity for row in rows if row.identity}
    return replace(launch, mounts=(*launch.mounts, *rows), directories=meant)


def hits(report: control_pb2.BoundaryReport) -> dict[str, str]:
    assert [check.name for check in report.checks] == [*CHECKS, PROJECTS]
    return {check.name: check.details for check in report.checks if not check.passed}


def everything(place: Path) -> dict[str, tuple[int, ...]]:
    """Each owner, mode, kind and time of change."""
    found = {str(path): path.lstat() for path in (place, *place.rglob("*"))}
    return {
        path: (each.st_ino, each.st_mode, each.st_uid, each.st_gid, each.st_mtime_ns)
        for path, each in found.items()
    }


@pytest.mark.stopped_in("process", "micro_vm")
@pytest.mark.attempt(
    "commands that write into `.git` of a project, or put another in its place",
    stopped_by="it is a read-only mount of its own, which every start tries",
)
@pytest.mark.parametrize("tier", every_tier("boundary_projects"))
async def test_the_walls_hold_and_nothing_is_left_behind(
    guarded: GuardedHost, code: Path, tier: str
) -> None:
    uid = os.geteuid()
    settings, words = ContainerSettings(), slice(None)
    if tier != "process":
        shell_image()
        uid = guarded.give_to_guest()
        os.chmod(guarded.root, 0o755)
        settings, words = ContainerSettings(images=TEST_IMAGES, runtime="runsc"), slice(4, None)
    project = opened(code, uid)
    assert set(project.walls) == {*WALLS, ".idea"}
    before = everything(code)
    launch = of(guarded.launch((uid, uid), Network.NONE), project)
    program = () if tier == "process" else ("oxydra-shell-daemon",)
    launch = replace(launch, command=(*program, *launch.command[words]))
    report = await guarded.probe_with(driver_for(Config(container=settings), tier), launch)
    assert hits(report) == {}
    assert report.checks[-1].details.startswith("4 of 5 places read-only")
    assert everything(code) == before


async def in_bubblewrap(
    guarded: GuardedHost, project: Project, alter: Callable[[Words], Words]
) -> dict[str, str]:
    launch = of(guarded.launch((os.getuid(), os.getgid()), Network.NONE), project)
    bubblewrap = Bubblewrap()
    command = prologue.begun(alter(bubblewrap.command(launch)))
    return hits(await guarded.probe(command, launch, bubblewrap.confinement(launch)))


@pytest.mark.bubblewrap
async def test_a_wall_that_is_missing_is_caught(guarded: GuardedHost, code: Path) -> None:
    project, before = opened(code, os.geteuid()), everything(code)
    row = next(each for each in project.rows if each.mount.virtual.endswith(".git"))
    options = ("--ro-bind", str(row.host_path), row.mount.virtual)
    found = await in_bubblewrap(guarded, project, lambda words: without(words, *options))
    assert "/projects/code/.git is not mounted" in found["mounts"]
    for what in ("can be moved away", "files can be made in", "directories can be made in"):
        assert what in found["projects"]
    assert everything(code).keys() == before.keys()
    assert (code / ".git/config").read_text() == "[core]\n\tbare = false\n"


@pytest.mark.bubblewrap
async def test_a_wall_that_can_be_written_is_caught(guarded: GuardedHost, code: Path) -> None:
    def alter(words: Words) -> Words:
        place = words.index(str(code / ".git"))
        return [*words[: place - 1], "--bind", *words[place:]]

    found = await in_bubblewrap(guarded, opened(code, os.geteuid()), alter)
    assert "/projects/code/.git is mounted read-write" in found["mounts"]
    assert "files can be made in /projects/code/.git" in found["projects"]


@pytest.mark.bubblewrap
@pytest.mark.parametrize("kind", ["the project", "a wall"])
async def test_another_directory_than_was_opened_is_caught(
    guarded: GuardedHost, code: Path, kind: str
) -> None:
    """The attack: it is replaced between the check and the mount, by a link too."""
    project = opened(code, os.geteuid())
    place = code if kind == "the project" else code / ".git"
    place.rename(guarded.root / "before")
    place.mkdir()
    for name in (*WALLS, ".idea") if kind == "the project" else ():
        (place / name).mkdir(parents=True)
    found = await in_bubblewrap(guarded, project, list)
    virtual = "/projects/code" if kind == "the project" else "/projects/code/.git"
    assert f"{virtual} is another directory of the host" in found["mounts"]


@pytest.mark.bubblewrap
async def test_what_is_mounted_below_is_caught(guarded: GuardedHost, code: Path) -> None:
    private = str(guarded.alice / ".oxydra")
    found = await in_bubblewrap(
        guarded,
        opened(code, os.geteuid()),
        lambda words: with_mounts(words, "--ro-bind", private, "/projects/code/src"),
    )
    assert "/projects/code/src is mounted from" in found["mounts"]
    assert ".oxydra is there as /projects/code/src" in found["private_paths"]


@pytest.mark.docker
@pytest.mark.root
async def test_what_is_mounted_below_stays_out_of_containers(
    guarded: GuardedHost, code: Path
) -> None:
    """Engines bind what is below as well, unless they are told not to."""
    shell_image()
    uid = guarded.give_to_guest()
    os.chmod(guarded.root, 0o755)
    project = opened(code, uid)
    subprocess.run(["mount", "--bind", guarded.alice / ".oxydra", code / "src"], check=True)
    try:
        launch = of(guarded.launch((uid, uid), Network.NONE), project)
        launch = replace(launch, command=("oxydra-shell-daemon", *launch.command[4:]))
        driver = driver_for(Config(container=ContainerSettings(images=TEST_IMAGES)), "container")
        assert hits(await guarded.probe_with(driver, launch)) == {}
    finally:
        subprocess.run(["umount", "--lazy", code / "src"], check=True)


@pytest.mark.bubblewrap
async def test_sockets_of_the_operators_raise_no_alarm(guarded: GuardedHost, code: Path) -> None:
    """Nothing looks through a project; who opens it is told of those with somebody behind them."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(code / "src/s.sock"))
    assert await in_bubblewrap(guarded, opened(code, os.geteuid()), list) == {}
