"""Trees by parentage: found whole, spared where asked, whatever processes call themselves."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shell_daemon.processes import tree
from tests.support.guests.shell_backends import alive

NESTED = """
import os, subprocess, sys, time
name, depth = sys.argv[1], int(sys.argv[2])
open("/proc/self/comm", "w").write(name)
children = [subprocess.Popen([sys.executable, "-c", os.environ["NESTED"], name, str(depth - 1)])
            for _ in range(2 if depth else 0)]
os.write(1, b"up\\n")
time.sleep(1000)
"""


@pytest.fixture
def root() -> Iterator[subprocess.Popen[str]]:
    """A process with two children of two children each, all with a hostile name."""
    process = subprocess.Popen(
        [sys.executable, "-c", NESTED, ") S 1 (x", "2"],
        env={**os.environ, "NESTED": NESTED},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for _ in range(7):
            assert process.stdout.readline() == "up\n"
        yield process
    finally:
        tree.kill(process.pid)
        process.kill()
        process.wait()
        process.stdout.close()


def gone(pids: set[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_all_descendants_are_found(root: subprocess.Popen[str]) -> None:
    assert Path(f"/proc/{root.pid}/comm").read_text() == ") S 1 (x\n"
    below = tree.descendants(root.pid)
    assert len(below) == 6
    assert root.pid not in below
    assert below <= tree.descendants(os.getpid())


def test_spared_branches_are_left_out_whole(root: subprocess.Popen[str]) -> None:
    below = tree.descendants(root.pid)
    branch = next(pid for pid in below if len(tree.descendants(pid)) == 2)
    rest = tree.descendants(root.pid, {branch})
    assert rest == below - {branch} - tree.descendants(branch)
    tree.kill(root.pid, {branch})
    assert gone(rest)
    assert all(alive(pid) for pid in (root.pid, branch, *tree.descendants(branch)))


def test_killing_takes_everything_below_and_not_the_root(root: subprocess.Popen[str]) -> None:
    below = tree.descendants(root.pid)
    tree.kill(root.pid)
    assert gone(below)
    assert alive(root.pid)
    assert tree.descendants(root.pid) == set()


def test_terminating_reaches_what_is_stopped(root: subprocess.Popen[str]) -> None:
    below = tree.descendants(root.pid)
    for pid in below:
        os.kill(pid, 19)
    tree.terminate(root.pid)
    assert gone(below)
