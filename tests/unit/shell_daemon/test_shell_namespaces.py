"""The process namespace for commands, where the kernel does not shield the daemon."""

import os
import subprocess
import sys

import pytest

from shell_daemon.processes import namespaces

_INSIDE = """
import os, signal, sys
from shell_daemon.processes import namespaces
ready = int(sys.argv[1])
namespaces.enter()
os.write(2, b"said inside\\n")
pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
fields = dict(line.split(":\\t") for line in open("/proc/self/status") if line.startswith("Cap"))
held = sorted({int(value, 16) for value in fields.values()})
os.write(ready, repr((os.getpid(), pids, held)).encode() + b"\\n")
sys.stdin.read()
"""


def test_who_can_read_the_first_process_is_not_shielded_from_it() -> None:
    assert not namespaces.is_shielded(os.getpid())
    assert namespaces.is_shielded(2**22 + 1)


@pytest.mark.root
def test_inside_there_is_nothing_but_what_was_started_there() -> None:
    """A guard stays outside, hands on what is said, and ends with the first process inside."""
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", _INSIDE, str(writing)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(writing,),
        text=True,
    ) as guard:
        os.close(writing)
        with os.fdopen(reading) as report:
            assert report.readline() == "(1, [1], [0])\n"
        assert guard.poll() is None
        _, said = guard.communicate("")
        assert (said, guard.returncode) == ("said inside\n", 0)


@pytest.mark.root
def test_the_namespace_ends_with_its_guard() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", _INSIDE, str(writing)], stdin=subprocess.PIPE, pass_fds=(writing,)
    ) as guard:
        guard.kill()
        os.close(writing)
        with os.fdopen(reading) as report:  # ends when nobody holds the other end any more
            report.read()
