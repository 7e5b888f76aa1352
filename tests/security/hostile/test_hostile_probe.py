"""Fooling the boundary self-test: by what commands leave behind, and by what they do while it
runs."""
# ruff: noqa: E501 - scripts for bash and Python

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from wire.v1 import control_pb2

from runner.host.runtime import Runtime
from tests.support.boundary.two_hosts import Attempt, TwoHosts, bash, denied, judged, python

pytestmark = pytest.mark.asyncio(loop_scope="session")

CROWD = 20_100
ROUNDS = 3

WATCHING = python("""
    import time
    found = set()
    open("/shared/watching", "w").close()
    while not os.path.exists("/shared/seen-enough"):
        for pid in pids():
            name = refused(lambda: open(f"/proc/{pid}/comm").read().strip())[0]
            if name is None or name.startswith("docker-init") or refused(mine, pid)[0] is not False:
                continue
            if name == "oxydra-probe" and name not in found:
                found.add(name)
                print("it was there")
            for file, flags in (("fd/0", os.O_RDONLY), ("fd/1", os.O_WRONLY), ("mem", os.O_RDWR),
                    ("environ", os.O_RDONLY), ("cwd", os.O_RDONLY)):
                if refused(os.open, f"/proc/{pid}/{file}", flags)[1] is None: won("opened", file, name)
            if call("ptrace", 0x4206, pid, 0, 0) == 0:
                won("traced", name)
                call("ptrace", 17, pid, 0, 0)
            # A process that has ended has no memory, and shows that to everybody.
            if refused(lambda: open(f"/proc/{pid}/maps").read())[0]: won(name, "maps")
            for link in ("fd/0", "fd/1", "cwd", "root", "exe"):
                if refused(os.readlink, f"/proc/{pid}/{link}")[1] is None: won(name, link)
""")
IN_GVISOR = [
    "oxydra-(zygote|superv|probe) (maps|fd/0|fd/1)",  # addresses and names; the memory is closed
    "opened environ oxydra-(zygote|superv|probe)",  # which is empty, as the self-test looks
    "opened fd/[01] oxydra-(zygote|superv)",  # the null device
]
"""What can be seen of the daemon's helpers there, and is of no use."""


def failed(report: control_pb2.BoundaryReport) -> dict[str, str]:
    return {check.name: check.details for check in report.checks if not check.passed}


@asynccontextmanager
async def leaking(place: TwoHosts) -> AsyncIterator[str]:
    """The control token in a file that the shell can read; its path in the guest."""
    alice = place.alice.host
    token = Runtime.locate(alice.config, alice.user_id).token.read_text()
    leak = place.alice.workspace / "ipc/shell/leak.log"
    leak.write_text(f'{{"message": "connected with {token}"}}\n')
    try:
        yield "/ipc/leak.log"
    finally:
        leak.unlink()


@asynccontextmanager
async def meanwhile(place: TwoHosts, name: str, command: str) -> AsyncIterator[list[str]]:
    """A command that runs while the block does; what it wrote, afterwards."""
    wrote: list[str] = []
    shared = place.alice.workspace / "shared"
    running = asyncio.create_task(place.attempt(Attempt(name, command)))
    try:
        async with asyncio.timeout(60):
            while not (shared / "watching").exists():
                assert not running.done(), running.result()
                await asyncio.sleep(0.02)
        yield wrote
    finally:
        (shared / "seen-enough").touch()
        wrote.append((await running)[1])
        for mark in ("watching", "seen-enough"):
            (shared / mark).unlink(missing_ok=True)


@pytest.mark.attempt(
    "watching, tracing and reading the boundary self-test while it runs",
    stopped_by="the probe has concealed itself before it is told anything",
)
async def test_a_command_sees_nothing_of_the_self_test(place: TwoHosts) -> None:
    """Neither what it is asked nor what it answers, from its first instruction on."""
    async with meanwhile(place, "watching the probe", WATCHING) as wrote:
        for _ in range(ROUNDS):
            assert failed(await place.alice.host.check_boundary()) == {}
    assert "it was there" in denied(place, wrote[0], IN_GVISOR)


@pytest.mark.attempt(
    "hiding a leak from the self-test in 20,100 files",
    stopped_by="each place has a budget of its own, and a walk that did not end is a hit",
)
async def test_a_leak_is_found_beside_any_crowd(place: TwoHosts) -> None:
    crowd = place.alice.workspace / "shared" / "crowd"
    make = f"mkdir /shared/crowd && cd /shared/crowd && seq {CROWD} | xargs touch"
    await judged(place, Attempt("a crowd of files", bash(make)))
    async with leaking(place) as path:
        found = failed(await place.alice.host.check_boundary())
    assert found == {"secrets": f"the control token is in {path}"}
    await asyncio.to_thread(shutil.rmtree, crowd)
    assert failed(await place.alice.host.check_boundary()) == {}


@pytest.mark.attempt(
    "planted packages that answer for the self-test",
    stopped_by="the probe runs isolated, with nothing on its path that commands can write",
)
async def test_planted_packages_do_not_answer_for_the_self_test(place: TwoHosts) -> None:
    """Where Python reads per-user packages, in working directories, and beside what it imports."""
    plant = bash("""
        for v in 3.11 3.12 3.13 3.14; do
            d=/tmp/.local/lib/python$v/site-packages; mkdir -p $d
            echo 'import os; os.write(1, b"[]"); os._exit(0)' > $d/x.pth
            cp $d/x.pth $d/usercustomize.py; cp $d/x.pth $d/sitecustomize.py
        done
        for d in /tmp /shared /run /ipc; do
            mkdir -p $d/shell_daemon/probe $d/wire
            for f in json.py socket.py sitecustomize.py shell_daemon/__init__.py wire/__init__.py; do
                echo 'import os; os.write(1, b"[]"); os._exit(0)' > $d/$f
            done
        done 2>/dev/null
        printf '[install]\\nuser=1\\n' > /tmp/.pydistutils.cfg; true
    """)
    await judged(place, Attempt("planted packages", plant))
    try:
        async with leaking(place) as path:
            found = failed(await place.alice.host.check_boundary())
        assert found == {"secrets": f"the control token is in {path}"}
    finally:
        for directory in ("tmp", "shared", "cache", "ipc/shell"):
            clear(place.alice.workspace / directory)


def clear(directory: Path) -> None:
    for name in ("json.py", "socket.py", "sitecustomize.py", ".pydistutils.cfg"):
        (directory / name).unlink(missing_ok=True)
    for name in ("shell_daemon", "wire", ".local"):
        shutil.rmtree(directory / name, ignore_errors=True)
