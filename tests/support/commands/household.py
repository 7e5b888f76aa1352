"""A machine of its own for the real command: home, workspaces, runtime directory."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.support.commands import warm
from tests.support.guests.engine import engine_objects
from tests.support.scratch import SCRATCH

RUNNER = (sys.executable, "-m", "runner.cli")
COMMAND = (*RUNNER, "--insecure")


class Household:
    """Temporary directories under a path short enough for sockets, and what is left in them.

    Commands ask for the process tier; with `containers` they ask for none, which is the
    container tier.
    """

    def __init__(self, *, containers: bool = False) -> None:
        self.command = RUNNER if containers else COMMAND
        self.containers = containers
        self.path = Path(tempfile.mkdtemp(prefix="ox", dir=SCRATCH))
        self.workspaces = self.path / "w"
        self.runtime = self.path / "r"
        self.working_directory = self.path / "here"
        self.working_directory.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            **{name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ},
            "HOME": str(self.path / "home"),
            "XDG_CONFIG_HOME": str(self.path / "home" / "config"),
            "OXYDRA_WORKSPACE_ROOT": str(self.workspaces),
            "OXYDRA_RUNTIME_DIR": str(self.runtime),
            "HF_HUB_OFFLINE": "1",
        }
        self.hosts: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [*self.command, *arguments]
        with warm.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.working_directory,
        ) as process:
            try:
                output, errors = process.communicate(stdin, timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def works(self, *arguments: str, stdin: str = "") -> str:
        """What a command that must succeed says."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def said(self, *turns: str) -> str:
        """The transcript of a chat."""
        return self.works("chat", stdin="".join(f"{turn}\n" for turn in turns))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command whose input and output the test holds."""
        process = subprocess.Popen(
            [*self.command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.working_directory,
        )
        self.hosts.append(process)
        return process

    def embedder_state(self, user: str = "default") -> str:
        guests = json.loads(self.run("--user", user, "status", "--json").stdout)["guests"]
        return str(next(guest["state"] for guest in guests if guest["role"] == "embedder"))

    def processes(self) -> list[str]:
        """Command lines of everything that was started from here and still runs."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "environ", "cwd", "status"]):
            seen = process.info
            if seen["pid"] == os.getpid() or seen["status"] == psutil.STATUS_ZOMBIE:
                continue
            traces = [*(seen["cmdline"] or ()), *(seen["environ"] or {}).values(), seen["cwd"]]
            if any(trace and str(self.path) in trace for trace in traces):
                found.append(" ".join(seen["cmdline"] or ()))
        return found

    def guest_pids(self, module: str) -> list[int]:
        """Processes of this household that run `module`."""
        pids = []
        for process in psutil.process_iter(["pid", "cmdline", "environ", "cwd"]):
            seen = process.info
            traces = [*(seen["cmdline"] or ()), seen["cwd"] or ""]
            if module in (seen["cmdline"] or ()) and any(str(self.path) in t for t in traces):
                pids.append(int(seen["pid"]))
        return pids

    def sockets(self) -> list[str]:
        return [str(path) for path in self.path.rglob("*") if path.is_socket()]

    def held_locks(self) -> list[str]:
        """Files that somebody still holds locked."""
        held = []
        for path in self.path.rglob("*"):
            if not path.is_file():
                continue
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(str(path))
        return held

    def left_behind(self) -> list[str]:
        """Everything that a command which has ended should have taken with it."""
        engine = engine_objects(self.path) if self.containers else []
        return [*self.processes(), *self.sockets(), *self.held_locks(), *engine]

    def settles(self) -> bool:
        """Whether a host in the background, once stopped, leaves nothing behind either.

        `stop` returns when the host has ended; its interpreter ends a moment later.
        """
        return soon(lambda: not self.left_behind())

    def gone(self) -> bool:
        """Whether all processes end by themselves, as after a kill of their runner."""
        return soon(lambda: not self.processes())

    def stop(self, user: str = "default") -> None:
        """Stop the user's host, unless nothing of this household is left."""
        if self.left_behind():
            self.works("--user", user, "stop")

    def remove(self) -> None:
        for process in self.hosts:
            process.kill()
            process.communicate()
        shutil.rmtree(self.path)


def soon(holds: Callable[[], bool], within: float = 60) -> bool:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
