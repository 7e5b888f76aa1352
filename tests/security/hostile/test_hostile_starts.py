"""What a command leaves behind to keep the next start from working, or to make `status` lie."""

import asyncio
import os
import stat
import subprocess
from pathlib import Path

import pytest
from wire.errors import WireError

from tests.support.boundary.two_hosts import Attempt, TwoHosts, bash, denied, judged, python

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEPTH = 3_000
WIDTH = 4_200
"""More directories than a guest may have descriptors."""
OWN = ("shared", "tmp", "ipc/shell")

LEFT_BEHIND = {
    "directories in the place of logs": bash("""
        for p in /logs/guest.log /logs/guest.log.1 /logs/guest.log.2 /logs/guest.log.3; do
            mkdir -p $p/x 2>/dev/null && won $p
        done
    """),
    "a deep tree": python(f"""
        for place in ("/shared", "/tmp", "/ipc"):
            os.chdir(place)
            for _ in range({DEPTH}):
                os.mkdir("d"); os.chdir("d")
            os.close(os.open("last", os.O_CREAT | os.O_WRONLY, 0o600))
    """),
    "a tree that is deep and then wide": python(f"""
        os.chdir("/shared")
        for _ in range(303):
            os.mkdir("d" * 255); os.chdir("d" * 255)
        for number in range({WIDTH}):
            os.makedirs(f"{{number:0255}}/x")
    """),
    "more files of its own than can be searched": python("""
        for number in range(400):
            with open(f"/ipc/{number}", "w") as file:
                file.truncate(1 << 20)
    """),
    "closed directories": bash("chmod 000 /shared /tmp /ipc"),
    "directories without the right to write": bash("chmod 500 /shared /tmp /ipc"),
    "directories in the place of the socket": bash("""
        rm -rf /ipc/shell.sock; mkdir -p /ipc/shell.sock/x; chmod 000 /ipc/shell.sock /ipc
    """),
}


async def test_the_next_start_works_whatever_was_left_behind(place: TwoHosts) -> None:
    host = place.alice.host
    for name, command in LEFT_BEHIND.items():
        await judged(place, Attempt(name, command))
        host.workspace.adopt()
        await host.restart("shell")
        await place.shell_again()
        for directory in OWN:
            mode = (place.alice.workspace / directory).stat().st_mode
            assert stat.S_IMODE(mode) == 0o700, (name, directory)
        for tool in ("file_list", "file_search"):
            assert len(await place.tool(tool, path="/shared", query="mark")) < 100_000
    assert await removed_asides(place) == {"shell"}
    await judged(place, Attempt("", bash("rm -rf /shared/d* /tmp/d")))
    await place.assert_unharmed()


CROWDS = {
    "of files in a directory": python("""
        os.makedirs("/shared/crowd/in/it")
        for number in range(10_000):
            os.close(os.open(f"/shared/crowd/in/it/{number}", os.O_CREAT | os.O_WRONLY))
    """),
    "of sockets side by side": python("""
        for number in range(1_000):
            os.mknod(f"/tmp/{number}", stat.S_IFSOCK | 0o600)
        os.mkdir("/tmp/closed", 0)
    """),
}


async def test_more_than_the_self_test_looks_through_is_moved_aside(
    place: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.alice.shell_launcher, "crowd_max", 5_000)
    for name, command in CROWDS.items():
        await judged(place, Attempt(name, command))
    await place.alice.host.restart("shell")
    await place.shell_again()
    for directory in ("shared/crowd", "tmp/0", "tmp/closed"):
        assert not (place.alice.workspace / directory).exists()
    assert await removed_asides(place) == {"shared", "tmp"}
    await place.assert_unharmed()


async def removed_asides(place: TwoHosts) -> set[str]:
    """Which directories the runner has moved aside, wholly or in part."""
    home = place.alice.workspace
    found = [*home.glob("*.aside-*"), *(home / "ipc").glob("*.aside-*")]
    await asyncio.to_thread(remove, found)
    return {path.name.partition(".aside-")[0] for path in found}


def remove(directories: list[Path]) -> None:
    subprocess.run(["rm", "-rf", *directories], check=True)


@pytest.mark.parametrize("mode", ["500", "000"])
async def test_a_shell_that_closes_its_directory_and_dies_comes_back(
    place: TwoHosts, mode: str
) -> None:
    command = f"chmod {mode} /ipc; kill -9 1; kill -9 -1"
    try:
        await place.attempt(Attempt("closes /ipc and dies", command))
    except WireError as error:
        denied(place, f"{error.brief} {error.details}")
    if place.tier == "container":  # process 1 of the process tier's shell cannot be killed
        await place.settle()
    else:
        await place.alice.host.restart("shell")
        await place.shell_again()
    await place.assert_unharmed()


async def test_a_walk_through_a_deep_tree_takes_everything_along(place: TwoHosts) -> None:
    """As root, whose guests have another uid, everything at any depth is given to them."""
    if os.geteuid() != 0 or place.tier == "process":
        return
    start: Path = place.alice.workspace / "shared" / "deep"

    def plant() -> int:
        os.mkdir(start)
        here = os.open(start, os.O_RDONLY)
        for _ in range(DEPTH):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        return here

    last = await asyncio.to_thread(plant)
    try:
        await asyncio.to_thread(place.alice.host.workspace.adopt)
        assert os.fstat(last).st_uid == place.alice.host.workspace.owner.uid
    finally:
        os.close(last)
    await judged(place, Attempt("", bash("rm -rf /shared/deep")))
    await place.assert_unharmed()
