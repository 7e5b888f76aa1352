"""How much memory a guest has, as the host sees its processes."""

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
from wire.errors import Code

from runner.errors import TierError
from runner.host.logs import open_for_append
from runner.tiers.base import Capabilities, Confinement, Handle, Inspection, LaunchSpec, Network
from runner.tiers.process.bubblewrap import Bubblewrap
from runner.tiers.process.cgroup import Cgroup
from runner.workspace.mounts import Role


def resident_bytes(pid: int) -> int:
    """Of the process and all below it; 0 for one that is gone. Blocks for milliseconds."""
    found = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                found += each.memory_info().rss
    return found


_KILL_PATIENCE_S = 5.0
_CGROUP_LOOKS = 250
_CGROUP_LOOK_S = 0.02
_CLOCK_TOLERANCE_S = 1.0
"""The system clock may be set between two looks at a process's start time."""


@dataclass
class _Guest:
    """`ended` resolves to the exit code once the process and its group are gone.

    `stdin` is there where closing it is the polite way to end the guest:
    bubblewrap passes no signal on.
    """

    pid: int
    ended: asyncio.Task[int | None]
    stdin: asyncio.StreamWriter | None = None


class ProcessDriver:
    """See `runner.tiers.base.TierDriver`."""

    def __init__(self, bubblewrap: Bubblewrap | None = None) -> None:
        self._bubblewrap = bubblewrap or Bubblewrap()
        self._guests: dict[str, _Guest] = {}

    @property
    def capabilities(self) -> Capabilities:
        reason = self._bubblewrap.reason
        return Capabilities(
            tier="process",
            unsupported={Role.SHELL: reason} if reason else {},
            guests_outlive_runner=False,
            own_files=frozenset({Role.SHELL}),
        )

    async def check(self) -> list[str]:
        return []

    def confinement(self, spec: LaunchSpec) -> Confinement:
        return self._bubblewrap.confinement(spec)

    async def start(self, spec: LaunchSpec) -> Handle:
        confined = spec.role is Role.SHELL
        cgroup = None
        command = first = list(spec.command)
        if confined:
            _check_shell(spec, self._bubblewrap.reason)
            command = first = self._bubblewrap.command(spec)
            if (cgroup := Cgroup.create(spec.launch_id, spec.limits)) is not None:
                first = cgroup.command(command)
        log_fd = open_for_append(spec.log_path)
        try:
            process = await asyncio.create_subprocess_exec(
                *first,
                stdin=subprocess.PIPE,
                stdout=log_fd,
                stderr=log_fd,
                env=dict(spec.environment),
                cwd="/" if confined else spec.working_directory,
                start_new_session=True,
            )
        except OSError as error:
            raise TierError(
                Code.UNAVAILABLE,
                f"cannot start the {spec.role} guest",
                details=f"{command[0]}: {error.strerror}",
                resolution="check the installation: pip install 'oxydra[guest]'",
            ) from None
        finally:
            os.close(log_fd)
        ended = asyncio.create_task(_child_end(process, cgroup))
        assert process.stdin is not None
        process.stdin.write(spec.envelope)
        stdin = process.stdin if confined else None
        self._guests[spec.launch_id] = _Guest(process.pid, ended, stdin)
        return Handle(
            driver="process",
            role=spec.role,
            user_id=spec.user_id,
            launch_id=spec.launch_id,
            data={
                "pid": process.pid,
                "create_time": _create_time(process.pid),
                "command": command,
            },
        )

    async def inspect(self, handle: Handle) -> Inspection:
        guest = self._guests.get(handle.launch_id)
        if guest is None:
            return Inspection(running=False)
        if guest.ended.done():
            return Inspection(running=False, pid=guest.pid, exit_code=guest.ended.result())
        return Inspection(running=True, pid=guest.pid, resident_bytes=resident_bytes(guest.pid))

    async def wait(self, handle: Handle) -> int | None:
        guest = self._guests.get(handle.launch_id)
        return None if guest is None else await asyncio.shield(guest.ended)

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        guest = self._guests.get(handle.launch_id)
        if guest is None or guest.ended.done():
            return
        try:
            if grace > 0:
                if guest.stdin is not None:
                    guest.stdin.close()
                else:
                    _signal_group(guest.pid, signal.SIGTERM)
                await asyncio.wait({guest.ended}, timeout=grace)
        finally:
            if not guest.ended.done():
                _signal_group(guest.pid, signal.SIGKILL)
        await asyncio.wait({guest.ended}, timeout=_KILL_PATIENCE_S)
        if not guest.ended.done():
            raise TierError(
                Code.INTERNAL,
                f"the {handle.role} guest does not end",
                details=f"pid {guest.pid} survives SIGKILL: it waits for the kernel",
                resolution="look for a hanging disk or network mount: dmesg",
            )

    async def clear(self, user_id: str, workspace: Path) -> list[str]:  # noqa: ARG002
        return []

    async def recover(self, handle: Handle) -> bool:
        process = _same_process(handle)
        if process is None:
            return False
        ended = asyncio.create_task(_stranger_end(process))
        self._guests[handle.launch_id] = _Guest(process.pid, ended)
        return True


def _check_shell(spec: LaunchSpec, reason: str) -> None:
    if reason:
        raise TierError(Code.FAILED_PRECONDITION, "no shell guest here", details=reason)
    if spec.network is not Network.NONE:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "the process tier gives the shell no network",
            details=f"shell.network is {spec.network.value!r}, and the only network here is the "
            "host's own, with everything that listens on it",
            resolution='set shell.network = "none", or use: runner --tier container',
        )


async def _child_end(process: asyncio.subprocess.Process, cgroup: Cgroup | None) -> int:
    code = await process.wait()
    await _end_group(process.pid)
    for _ in range(_CGROUP_LOOKS):  # the kernel ends what was inside bubblewrap a moment later
        if cgroup is None or cgroup.remove():
            break
        await asyncio.sleep(_CGROUP_LOOK_S)
    return code


async def _stranger_end(process: psutil.Process) -> None:
    """Wait for a process that is not our child; nobody can tell us its exit code."""
    while True:
        try:
            await asyncio.to_thread(process.wait, 0.2)
            break
        except psutil.TimeoutExpired:
            continue
    await _end_group(process.pid)


async def _end_group(leader: int) -> None:
    """Kill what the guest left behind, and see it gone."""
    if not _signal_group(leader, signal.SIGKILL):
        return
    if members := _living_members(leader):
        await asyncio.to_thread(psutil.wait_procs, members, _KILL_PATIENCE_S)


def _signal_group(leader: int, number: signal.Signals) -> bool:
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


def _create_time(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return 0.0


def _same_process(handle: Handle) -> psutil.Process | None:
    """The process of `handle`, unless it is gone or its pid is somebody else's by now."""
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
