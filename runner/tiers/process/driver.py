"""The process tier: the agent, egress and the embedder are child processes, the agent without a
network; the shell runs in bubblewrap."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Final

import psutil
from wire.errors import Code
from wire.installation import adding

from runner.errors import TierError
from runner.logs import open_for_append
from runner.tiers.base import Capabilities, Confinement, Handle, LaunchSpec, Network
from runner.tiers.process import prologue
from runner.tiers.process.bubblewrap import Bubblewrap
from runner.tiers.process.cgroup import HOW, Cgroup, ControlGroups
from runner.tiers.process.network_isolation import NetworkIsolation
from runner.tiers.running import OutputLog, RunningGuest, RunningGuests, wait_in_thread
from runner.workspace.mounts import SERVED, Role

_KILL_TIMEOUT_S: Final = 5.0
_BLOCK: Final = 64 * 1024
_UMASK: Final = 0o022
"""Of commands, as in containers: what they make in a project is for its owner's other programs."""
_CGROUP_TRIES: Final = 250
_CGROUP_PAUSE_S: Final = 0.02
_LIMITED: Final = (Role.SHELL, *SERVED)
"""The roles that get a control group where there are any: what others can make grow."""
_CLOCK_TOLERANCE_S: Final = 1.0
"""The system clock may be set between two looks at a process's start time."""


class ProcessDriver(RunningGuests):
    """See `runner.tiers.base.TierDriver`."""

    def __init__(
        self,
        bubblewrap: Bubblewrap | None = None,
        groups: ControlGroups | None = None,
        isolation: NetworkIsolation | None = None,
    ) -> None:
        super().__init__()
        self._isolation = isolation or NetworkIsolation()
        self._bubblewrap = bubblewrap or Bubblewrap()
        self._groups = groups or ControlGroups()

    @property
    def capabilities(self) -> Capabilities:
        reason = self._bubblewrap.reason
        return Capabilities(
            tier="process",
            unsupported={Role.SHELL: reason} if reason else {},
            own_files=frozenset({Role.SHELL}),
            limits_memory=not self._groups.reason,
            own_network=self._isolation.has_namespace,
        )

    async def check(self) -> list[str]:
        notices = []
        _check_agent(self._isolation.reason)
        if not self._isolation.has_namespace:
            notices.append(
                "the agent guest has no network namespace of its own: a filter of system calls "
                "alone keeps it from the network; allow user namespaces: "
                "sysctl user.max_user_namespaces=15000"
            )
        if not self._bubblewrap.reason and (reason := self._groups.reason):
            notices.append(
                f"the shell guest watches its own memory: {reason}; for limits of the kernel: {HOW}"
            )
        return notices

    def confinement(self, spec: LaunchSpec) -> Confinement:
        return self._bubblewrap.confinement(spec)

    async def start(self, spec: LaunchSpec) -> Handle:
        confined = spec.role is Role.SHELL
        cgroup = None
        command = first = list(spec.command)
        if confined:
            _check_shell(spec, self._bubblewrap.reason)
            command = self._bubblewrap.command(spec)
            first = prologue.begun(command)
        if spec.role in _LIMITED and (cgroup := self._group(spec)) is not None:
            first = cgroup.command(first)
        if spec.role is Role.AGENT:
            _check_agent(self._isolation.reason)
            if shutil.which(command[0]) is None:  # which would otherwise be found out only inside
                raise _not_started(spec, os.strerror(errno.ENOENT))
            first = self._isolation.begun(command)
        with contextlib.ExitStack() as undo:
            stdout, log = self._output(spec, undo)
            try:
                # asyncio would kill the process with the event loop, but the embedder outlives the
                # runner that started it.
                process = subprocess.Popen(  # noqa: ASYNC220, S603
                    first,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=subprocess.STDOUT,
                    env=dict(spec.environment),
                    cwd="/" if confined else spec.working_directory,
                    start_new_session=True,
                    umask=_UMASK if confined else -1,
                )
            except OSError as error:
                raise _not_started(spec, error.strerror or str(error)) from None
            if log is not None:
                undo.pop_all()
        copying = _copied(process, log)
        assert process.stdin is not None
        threading.Thread(target=_send, args=(process.stdin, spec.envelope), daemon=True).start()
        ended = partial(_wait_for_child, process, copying, cgroup)
        guest = _watched(spec.role, process.pid, ended)
        if confined:  # bubblewrap forwards no signals; its guest ends with its standard input
            guest = replace(guest, terminate=process.stdin.close)
        self._guests[spec.launch_id] = guest
        created = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            created = psutil.Process(process.pid).create_time()
        data = {"pid": process.pid, "create_time": created, "command": command}
        return Handle("process", spec.role, spec.user_id, spec.launch_id, data)

    def _group(self, spec: LaunchSpec) -> Cgroup | None:
        if self._groups.reason:
            return None
        try:
            return self._groups.create(spec.launch_id, spec.limits)
        except OSError as error:
            raise TierError(
                Code.FAILED_PRECONDITION,
                f"the {spec.role} guest's memory cannot be limited any more",
                details=str(error),
                resolution="runner restart",
            ) from None

    @staticmethod
    def _output(spec: LaunchSpec, undo: contextlib.ExitStack) -> tuple[int, OutputLog | None]:
        """Where the guest's output goes. The embedder, which outlives its runner and runs nobody's
        commands, writes to its log itself; all others write into a pipe."""
        if spec.role is Role.EMBEDDER:
            descriptor = open_for_append(spec.log_path, spec.home)
            undo.callback(os.close, descriptor)
            return descriptor, None
        log = OutputLog(spec.log_path, spec.home, spec.role, spec.user_id)
        undo.callback(log.close)
        return subprocess.PIPE, log

    async def clear(self, user_id: str, home: Path) -> list[str]:
        return []

    async def recover(self, handle: Handle) -> bool:
        process = _same_process(handle)
        if process is None:
            return False
        ended = partial(_wait_for_stranger, process)
        self._guests[handle.launch_id] = _watched(handle.role, process.pid, ended)
        return True


def _not_started(spec: LaunchSpec, why: str) -> TierError:
    return TierError(
        Code.UNAVAILABLE,
        f"cannot start the {spec.role} guest",
        details=f"{spec.command[0]}: {why}",
        resolution=f"check the installation: {adding('guest')}",
    )


def _check_agent(reason: str) -> None:
    if reason:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "cannot isolate the agent from the network on this machine",
            details=reason,
            resolution="use a Linux kernel with seccomp, or: runner --tier container",
        )


def _check_shell(spec: LaunchSpec, reason: str) -> None:
    if reason:
        raise TierError(Code.FAILED_PRECONDITION, "no shell guest here", details=reason)
    if spec.network is not Network.NONE:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "the process tier gives the shell no network",
            details="the only one here is the host's own, with everything that listens on it",
            resolution="runner --tier container",
        )


def _watched(role: Role, pid: int, wait: Callable[[], int | None]) -> RunningGuest:
    return RunningGuest(
        pid=pid,
        ended=wait_in_thread(wait),
        terminate=partial(_signal_group, pid, signal.SIGTERM),
        kill=partial(_signal_group, pid, signal.SIGKILL),
        stuck=TierError(
            Code.INTERNAL,
            f"the {role} guest does not end",
            details=f"pid {pid} survives SIGKILL: it waits for the kernel",
            resolution="look for a hanging disk or network mount: dmesg",
        ),
    )


def _send(stdin: IO[bytes], envelope: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # the guest has ended or is ending
        while envelope:
            envelope = envelope[stdin.write(envelope) :]


def _copied(process: "subprocess.Popen[bytes]", log: OutputLog | None) -> threading.Thread | None:
    """The thread that copies what the guest prints to its log."""
    if log is None or process.stdout is None:
        return None
    output = process.stdout

    def copy() -> None:
        with output, contextlib.closing(log):
            while block := output.read(_BLOCK):
                log.write(block)

    copying = threading.Thread(target=copy, name="guest-log", daemon=True)
    copying.start()
    return copying


def _wait_for_child(
    process: "subprocess.Popen[bytes]", copying: threading.Thread | None, cgroup: Cgroup | None
) -> int:
    code = process.wait()
    assert process.stdin is not None
    process.stdin.close()
    _end_group(process.pid)
    if copying is not None:
        copying.join(_KILL_TIMEOUT_S)  # what has left the group may hold the pipe a moment longer
    for _ in range(_CGROUP_TRIES):  # what was inside bubblewrap ends a moment later
        if cgroup is None or cgroup.remove():
            break
        time.sleep(_CGROUP_PAUSE_S)
    return code


def _wait_for_stranger(process: psutil.Process) -> None:
    """Wait for a process that is not our child. Its exit code cannot be known."""
    process.wait()
    _end_group(process.pid)


def _end_group(leader: int) -> None:
    """Kill what the guest has left running, and wait until it is gone."""
    if _signal_group(leader, signal.SIGKILL) and (members := _living_members(leader)):
        psutil.wait_procs(members, _KILL_TIMEOUT_S)


def _signal_group(leader: int, number: signal.Signals) -> bool:
    """Whether the group of `leader` still had a process."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    return True


def _living_members(leader: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            zombie = process.info["status"] == psutil.STATUS_ZOMBIE
            if not zombie and os.getpgid(process.pid) == leader:
                members.append(process)
    return members


def _same_process(handle: Handle) -> psutil.Process | None:
    """The process of `handle`; None if it is gone or another process has its pid."""
    try:
        process = psutil.Process(int(handle.data["pid"]))
        known = float(handle.data["create_time"])
        with process.oneshot():
            same = (
                abs(process.create_time() - known) < _CLOCK_TOLERANCE_S
                and process.cmdline() == list(handle.data["command"])
                and process.status() != psutil.STATUS_ZOMBIE
            )
    except (psutil.Error, KeyError, TypeError, ValueError):
        return None
    return process if same else None
