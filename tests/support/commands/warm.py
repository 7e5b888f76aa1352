"""Commands of `runner` that begin as forks of a process which has imported what they need.

Imports take most of a short command's time. Each command is a process of its own, a child of this
one, with arguments, environment, directory, standard streams and signals as any other. Only its
command line in `/proc` is that of the process it was forked from: a test that looks there, or is
about imports, starts the program itself.
"""

import ctypes
import gc
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

_ROOT: Final = Path(__file__).parents[3]
_IMPORTED: Final = (
    "runner.cli.app",
    "runner.cli.chat.chat",
    "runner.cli.operation.lifecycle",
    "runner.host.host",
    "wire.v1.gateway_pb2_grpc",
)
_REQUEST_BYTES_MAX: Final = 1 << 17
_SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT: Final = 0x8000
_one_at_a_time: Final = threading.Lock()


class Popen(subprocess.Popen[str]):
    """`subprocess.Popen` with `text=True`, for `[sys.executable, "-m", module, *arguments]`."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        """Called by `subprocess.Popen`; with `self.pid` set it waits as for any child."""
        directory, environment = rest[4:6]
        to_read, _, _, output, _, errors = pipes = rest[9:15]
        streams = [
            usual if given == -1 else given for usual, given in enumerate((to_read, output, errors))
        ]
        request = {"command": args[2:], "directory": str(directory), "environment": environment}
        with _one_at_a_time:
            socket.send_fds(_starter(os.getpid()), [json.dumps(request).encode()], streams)
            self.pid = int(_starter(os.getpid()).recv(64))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@cache
def _starter(pid: int) -> socket.socket:
    """The connection of process `pid`, this one, to a process that starts its commands."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, "-m", "tests.support.commands.warm", str(there.fileno())],
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
    )
    there.close()
    return here


def _serve(connection: socket.socket) -> None:
    """Start what is asked for until nobody can ask any more."""
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    while True:
        request, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 3)
        if not request:
            return
        pid = ctypes.CDLL(None, use_errno=True).syscall(
            _SYS_CLONE[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0
        )
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            connection.close()
            _become(json.loads(request), streams)
        for each in streams:
            os.close(each)
        connection.send(str(pid).encode())


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the command, in this new process, and leave it as the command does."""
    for usual, given in enumerate(streams):
        os.dup2(given, usual)
        os.close(given)
    sys.stdin = open(0, errors="surrogateescape")  # noqa: SIM115
    sys.stdout = open(1, "w", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace")  # noqa: SIM115
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    module, *arguments = request["command"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
