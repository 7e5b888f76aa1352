"""What an agent of the process tier is put under before it starts, tried with real processes."""

import errno
import json
import os
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.process import network_isolation
from runner.tiers.process.driver import ProcessDriver
from runner.tiers.process.network_isolation import NetworkIsolation, program
from tests.support.ordinary_user import NOBODY

REACH = """
import ctypes, errno, json, os, socket, subprocess, sys, threading

def made(family, kind=socket.SOCK_STREAM):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return ""

def called(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(each) for each in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else ""

def thread():
    found["in a thread"] = made(socket.AF_INET)

host = os.open("/proc/self/ns/net", os.O_RDONLY)
found = {
    "families": {
        name: made(getattr(socket, name), kind)
        for name, kind in (
            ("AF_UNIX", socket.SOCK_STREAM), ("AF_INET", socket.SOCK_STREAM),
            ("AF_INET6", socket.SOCK_DGRAM), ("AF_NETLINK", socket.SOCK_RAW),
            ("AF_PACKET", socket.SOCK_RAW), ("AF_VSOCK", socket.SOCK_STREAM),
        )
    },
    "io_uring": called(425, 1, 0),
    "setns": called({"x86_64": 308, "aarch64": 268}[os.uname().machine], host, 0),
    "pidfd_getfd": called(438, 0, 0, 0),
    "interfaces": [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]],
    "namespace": os.readlink("/proc/self/ns/net"),
    "ids": [os.getuid(), os.getgid()],
}
socket.socketpair()
other = threading.Thread(target=thread)
other.start()
other.join()
inner = "import socket; socket.socket(socket.AF_INET)"
found["in a child"] = subprocess.run([sys.executable, "-c", inner], capture_output=True).returncode
print(json.dumps(found))
"""
NONE = "EAFNOSUPPORT"
RUNNERS = pytest.mark.parametrize(
    "uid", [pytest.param(0, marks=pytest.mark.root), pytest.param(NOBODY, marks=pytest.mark.root)]
)
"""The runner's account; root itself, too, could leave a namespace."""


class _Isolation(NetworkIsolation):
    """One that has found this out already."""

    def __init__(self, *, namespace: bool, reason: str = "") -> None:
        self.has_namespace, self.reason = namespace, reason


def isolated(uid: int, *, namespace: bool) -> Any:
    """What a program finds that runs so. The tests' own Python and this clone may lie where only
    root reaches them: so it is the system's, and the code is opened here."""
    with open(network_isolation.__file__) as code:
        at = f"/proc/self/fd/{code.fileno()}"
        with (
            mock.patch.object(sys, "executable", "/usr/bin/python3"),
            mock.patch.object(network_isolation, "__file__", at),
        ):
            command = _Isolation(namespace=namespace).begun([sys.executable, "-c", REACH])
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            user=uid,
            group=uid,
            check=False,
            cwd="/",
            pass_fds=[code.fileno()],
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@RUNNERS
@pytest.mark.parametrize("namespace", [True, False])
def test_it_makes_unix_sockets_only_and_takes_nobodys(uid: int, *, namespace: bool) -> None:
    found = isolated(uid, namespace=namespace)
    assert found["families"] == {
        "AF_UNIX": "",
        **dict.fromkeys(("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"), NONE),
    }
    assert (found["io_uring"], found["setns"], found["pidfd_getfd"]) == ("ENOSYS", "EPERM", "EPERM")
    assert found["in a thread"] == NONE
    assert found["in a child"] != 0
    assert found["ids"] == [uid, uid]


@RUNNERS
def test_its_namespace_holds_nothing_but_a_dead_loopback(uid: int) -> None:
    found = isolated(uid, namespace=True)
    assert found["interfaces"] == ["lo"]
    assert found["namespace"] != os.readlink("/proc/self/ns/net")


def test_this_machine_has_both() -> None:
    tried = NetworkIsolation()
    assert (tried.reason, tried.has_namespace) == ("", True)


async def test_without_a_namespace_the_operator_is_told() -> None:
    notices = await ProcessDriver(isolation=_Isolation(namespace=False)).check()
    assert any("filter of system calls alone" in each for each in notices)
    assert not [each for each in await ProcessDriver().check() if "namespace" in each]


async def test_without_a_filter_no_agent_starts() -> None:
    driver = ProcessDriver(isolation=_Isolation(namespace=False, reason="prctl: no such call"))
    with pytest.raises(TierError, match="cannot isolate the agent") as raised:
        await driver.check()
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert raised.value.details == "prctl: no such call"
    assert "--tier container" in raised.value.resolution


def test_what_cannot_be_done_is_said_and_nothing_is_run() -> None:
    words = _Isolation(namespace=True).begun(["/no/such/program"])
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 126
    assert "cannot start /no/such/program without a network" in done.stderr


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_whole(machine: str) -> None:
    """Each step has eight bytes, and the last one returns."""
    steps = program(machine)
    assert len(steps) % 8 == 0
    assert steps[-8:-6] == b"\x06\x00"
    assert (errno.EAFNOSUPPORT | 0x50000).to_bytes(4, "little") in steps


def test_a_machine_whose_calls_nobody_knows_runs_no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: mock.Mock(machine="riscv64"))
    assert "machines with a 64-bit Python only" in NetworkIsolation().reason
