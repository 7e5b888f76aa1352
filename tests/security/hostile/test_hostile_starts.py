"""What a command leaves behind to keep the next start from working, or to make `status` lie."""

import asyncio
import os
import stat
import subprocess
from pathlib import Path

import pytest
from wire.errors import WireError

from tests.support.attempts import attempt, tries
from tests.support.boundary.two_hosts import Attempt, TwoHosts, bash, denied, judged, python

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEPTH = 3_000
WIDTH = 4_200
"""More directories than a guest may have descriptors."""
OWN = ("shared", "tmp", "cache", "ipc/shell")

ADOPTED = "the runner opens closed directories again and moves aside what is in its way"
CROWDED = "the runner moves aside what the self-test could not look through"
LEFT_BEHIND = [
    Attempt(
        "directories in the place of logs",
        bash("""
        for p in /logs/guest.log /logs/guest.log.1 /logs/guest.log.2 /logs/guest.log.3; do
            mkdir -p $p/x 2>/dev/null && won $p
        done
    """),
        stopped_by="the runner writes logs; their directory is not mounted",
    ),
    Attempt(
        "a tree of 3,000 directories in each other",
        python(f"""
        for place in ("/shared", "/tmp", "/ipc"):
            os.chdir(place)
            for _ in range({DEPTH}):
                os.mkdir("d"); os.chdir("d")
            os.close(os.open("last", os.O_CREAT | os.O_WRONLY, 0o600))
    """),
        stopped_by="walks have no recursion and no longest path",
    ),
    Attempt(
        "a tree that is deep and then wide",
        python(f"""
        os.chdir("/shared")
        for _ in range(303):
            os.mkdir("d" * 255); os.chdir("d" * 255)
        for number in range({WIDTH}):
            os.makedirs(f"{{number:0255}}/x")
    """),
        stopped_by="a walk needs three descriptors and no paths, however wide a tree is",
    ),
    Attempt(
        "more files in /ipc than the self-test searches",
        python("""
        for number in range(400):
            with open(f"/ipc/{number}", "w") as file:
                file.truncate(1 << 20)
    """),
        stopped_by=CROWDED,
    ),
    Attempt(
        "directories that are closed",
        bash("chmod 000 /shared /tmp /cache /ipc"),
        stopped_by=ADOPTED,
    ),
    Attempt(
        "directories without the right to write",
        bash("chmod 500 /shared /tmp /cache /ipc"),
        stopped_by=ADOPTED,
    ),
    Attempt(
        "closed directories in the place of the socket",
        bash("""
        rm -rf /ipc/shell.sock; mkdir -p /ipc/shell.sock/x; chmod 000 /ipc/shell.sock /ipc
    """),
        stopped_by=ADOPTED,
    ),
]


@tries(LEFT_BEHIND)
async def test_the_next_start_works_whatever_was_left_behind(place: TwoHosts) -> None:
    host = place.alice.host
    for one in LEFT_BEHIND:
        await judged(place, one)
        host.workspace.adopt()
        await host.restart("shell")
        await place.shell_again()
        for directory in OWN:
            mode = (place.alice.workspace / directory).stat().st_mode
            assert stat.S_IMODE(mode) == 0o700, (one.name, directory)
        for tool in ("file_list", "file_search"):
            assert len(await place.tool(tool, path="/shared", query="mark")) < 100_000
    assert await removed_asides(place) == {"shell"}
    await judged(place, Attempt("", bash("rm -rf /shared/d* /tmp/d")))
    await place.assert_unharmed()


CROWDS = [
    Attempt(
        "a crowd of files, which the self-test would have to search",
        python("""
            os.makedirs("/shared/crowd/in/it")
            for number in range(10_000):
                os.close(os.open(f"/shared/crowd/in/it/{number}", os.O_CREAT | os.O_WRONLY))
        """),
        stopped_by=CROWDED,
    ),
    Attempt(
        "a crowd of sockets, each of which the self-test would have to try",
        python("""
            for number in range(1_000):
                os.mknod(f"/tmp/{number}", stat.S_IFSOCK | 0o600)
            os.mkdir("/tmp/closed", 0)
        """),
        stopped_by=CROWDED,
    ),
]


@tries(CROWDS)
async def test_more_than_the_self_test_looks_through_is_moved_aside(
    place: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.alice.shell_launcher, "crowd_max", 5_000)
    for one in CROWDS:
        await judged(place, one)
    await place.alice.host.restart("shell")
    await place.shell_again()
    kept = set()
    if place.tier == "micro_vm":  # whose kernel makes no socket of `mknod` on the host: no crowd
        kept = {"tmp/closed"}
        assert not (place.alice.workspace / "tmp/0").exists()
    for directory in {"shared/crowd", "tmp/0", "tmp/closed"} - kept:
        assert not (place.alice.workspace / directory).exists()
    moved = {"shared"} if kept else {"shared", "tmp"}
    assert await removed_asides(place) - {"shell"} == moved
    for directory in kept:
        (place.alice.workspace / directory).rmdir()
    await place.assert_unharmed()


async def removed_asides(place: TwoHosts) -> set[str]:
    """Which directories the runner has moved aside, wholly or in part."""
    home = place.alice.workspace
    found = [*home.glob("*.aside-*"), *(home / "ipc").glob("*.aside-*")]
    await asyncio.to_thread(remove, found)
    return {path.name.partition(".aside-")[0] for path in found}


def remove(directories: list[Path]) -> None:
    subprocess.run(["rm", "-rf", *directories], check=True)


CLOSED_BY_THE_DEAD = [
    attempt("closing /ipc to writers and dying", "500", stopped_by=ADOPTED),
    attempt("closing /ipc to all and dying", "000", stopped_by=ADOPTED),
]


@pytest.mark.parametrize("mode", CLOSED_BY_THE_DEAD)
async def test_a_shell_that_closes_its_directory_and_dies_comes_back(
    place: TwoHosts, mode: str
) -> None:
    command = f"chmod {mode} /ipc; kill -9 1; kill -9 -1"
    try:
        await place.attempt(Attempt("closes /ipc and dies", command))
    except WireError as error:
        denied(place, f"{error.brief} {error.details}")
    if place.tier != "process":  # process 1 of the process tier's shell cannot be killed
        await place.settle()
    else:
        await place.alice.host.restart("shell")
        await place.shell_again()
    await place.assert_unharmed()


@pytest.mark.root
@pytest.mark.not_in("process")
async def test_a_walk_through_a_deep_tree_takes_everything_along(place: TwoHosts) -> None:
    """As root, whose guests have another uid, everything at any depth is given to them."""
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
