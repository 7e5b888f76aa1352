"""Workers as processes: started quickly, listened to, killed at any moment."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

from tests.faults import worker
from tests.support.crashing.killing import Line, Lines

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_PRELOADED: Final = ("tests.faults.faults", "pytest")
"""What every worker would import again otherwise, and its parent's main module does."""
_TURN: Final = threading.Lock()
"""Held while `multiprocessing` looks after its children: it is not made for many threads."""


class Child:
    """A worker; `hear` is called with every line that it says."""

    def __init__(self, task: worker.Task, hear: Callable[[Line], None]) -> None:
        reader, writer = _CONTEXT.Pipe(duplex=False)
        self._lines = Lines(reader, hear)
        self._process = fork(_live, task, writer)
        writer.close()

    def listen(self, seconds: float, until: Callable[[Line], bool] = lambda _: False) -> bool:
        """Hear what it says for so long, or up to a line; whether that line has come."""
        return self._lines.listen(seconds, until)

    def kill(self) -> None:
        """End it at once, and hear what it had said. It must not have ended by itself."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        join(self._process, -signal.SIGKILL)
        self._lines.close()

    def stop(self, patience: float) -> None:
        """Let it end what it has begun."""
        self._process.terminate()
        assert self.listen(patience, lambda line: line.get("did") == "end"), "it does not end"
        join(self._process, 0)
        self._lines.close()


def fork(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """A process that runs `target`, with everything imported already."""
    process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
    with _TURN:
        _start_forkserver()
        process.start()
    return process


def join(process: BaseProcess, code: int) -> None:
    """Wait for the end of a process, which must be this one."""
    with _TURN:
        process.join()
        assert process.exitcode == code, f"a process ended by itself: {process.exitcode}"


@cache
def _start_forkserver() -> None:
    """With our path in the environment: it looks for what it preloads nowhere else."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        _CONTEXT.set_forkserver_preload(list(_PRELOADED))
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _live(task: worker.Task, writer: "Connection[object, object]") -> None:
    worker.run(task, writer.fileno())
