"""When the processes above a command misbehave: nothing is left, every caller gets an answer."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from wire.errors import Code, WireError
from wire.identity import Party

from shell_daemon.limits import Settings
from shell_daemon.processes import pool, process
from shell_daemon.processes.process import Supervisor, exit_code
from shell_daemon.processes.supervisor import Run
from shell_daemon.shell import Shell
from tests.support import parties
from tests.support.guests.shell_backends import (
    WAIT,
    Guest,
    InProcess,
    alive,
    held,
    in_process,
    left_behind,
    new_root,
)


def parent_of(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def supervisors() -> list[int]:
    """The supervisors of the only zygote that this process has."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            named = entry.name.isdigit() and (entry / "comm").read_text() == "oxydra-superv\n"
            if named and parent_of(parent_of(entry.name)) == os.getpid():
                found.append(int(entry.name))
    return found


SPREAD = "(setsid sleep 1000 & echo $! > child); echo $$ > pid; sleep 1001"


async def test_a_killed_supervisor_takes_its_command_along() -> None:
    async with in_process() as guest:
        await guest.start("a", SPREAD)
        await guest.start("b", f"{WAIT} echo spared")
        pid, child = await guest.appears("pid"), await guest.appears("child")
        os.kill(parent_of(pid), signal.SIGKILL)
        ran = await guest.collect("a")
        assert ran.exit.exit_code == 137
        assert b"supervisor was killed" in ran.stderr
        assert not alive(pid)
        assert not alive(child)
        guest.let_go()
        assert (await guest.collect("b")).stdout == b"spared\n"


async def test_a_stopped_supervisor_goes_on_when_it_must_act() -> None:
    async with in_process() as guest:
        await guest.start("a", SPREAD)
        pid = await guest.appears("pid")
        stopped = parent_of(pid)
        os.kill(stopped, signal.SIGSTOP)
        async with asyncio.timeout(60):
            await guest.cancel("a")
        assert stopped in supervisors(), "it has done it itself"


@pytest.mark.root
async def test_a_supervisor_that_does_not_act_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "KILL_S", 0.1)
    monkeypatch.setattr(process, "PATIENCE_S", 0.1)
    async with in_process() as guest:
        await guest.start("a", SPREAD)
        pid, child = await guest.appears("pid"), await guest.appears("child")
        supervisor = parent_of(pid)
        with held(supervisor):
            async with asyncio.timeout(60):
                await guest.cancel("a")
        assert not any(alive(one) for one in (supervisor, pid, child))
        assert (await guest.collect("a")).exit.cancelled


def open_shell(root: Path, on_lost: Callable[[], None]) -> Shell:
    settings = Settings(shared=root / "shared", tmp=root / "tmp")
    shell = Shell(settings, parties.identity(Party.SHELL), admit=lambda _: None, on_lost=on_lost)
    shell.open()
    return shell


async def test_a_killed_zygote_ends_everything_and_says_so() -> None:
    root, lost = new_root(), asyncio.Event()
    shell = open_shell(root, lost.set)
    guest = Guest(InProcess(shell), root)
    await guest.start("a", SPREAD)
    pid = await guest.appears("pid")
    os.kill(parent_of(parent_of(pid)), signal.SIGKILL)
    async with asyncio.timeout(60):
        await lost.wait()
        assert (await guest.collect("a")).exit.exit_code == 137
        while left_behind(root):
            await asyncio.sleep(0.01)
    await guest.start("b", "true")
    ran = await guest.collect("b")
    assert (ran.exit.exit_code, ran.stderr) == (126, b"oxydra: the shell daemon is stopping\n")
    await shell.close()
    shutil.rmtree(root)


async def test_closing_ends_all_and_is_idempotent() -> None:
    root = new_root()
    shell = open_shell(root, lambda: None)
    guest = Guest(InProcess(shell), root)
    await guest.start("a", "trap '' TERM; " + SPREAD)
    await guest.start("b", "sleep 1000")
    await guest.appears("pid")
    async with asyncio.timeout(60):
        await shell.close()
        await shell.close()
    assert left_behind(root) == []
    for name in "ab":
        assert (await guest.collect(name)).exit.cancelled
    shutil.rmtree(root)


async def test_supervisors_are_reused_and_few_are_kept() -> None:
    async with in_process() as guest:
        await guest.run("first", "true")
        (first,) = supervisors()
        for number in range(20):
            await guest.run(f"a{number}", "true")
        # Some may still be on their way back when the next command begins.
        assert first in supervisors()
        assert len(supervisors()) <= pool.IDLE_MAX
        await asyncio.gather(*(guest.run(f"b{number}", "sleep 0.2") for number in range(10)))
        async with asyncio.timeout(60):
            while len(supervisors()) > pool.IDLE_MAX:
                await asyncio.sleep(0.01)
        assert len(supervisors()) == pool.IDLE_MAX


async def test_a_late_order_to_end_does_not_reach_the_next_command() -> None:
    async with in_process() as guest:
        await guest.run("first", "true")
        # The timeout of a command falls on its very end, again and again.
        for number in range(30):
            ended = await guest.run(f"a{number}", "sleep 0.02", timeout_ms=20 + number % 8)
            assert ended.exit.exit_code in (0, 143)
            ran = await guest.run(f"b{number}", "echo whole")
            assert (ran.stdout, ran.exit.exit_code) == (b"whole\n", 0)


async def test_where_no_process_can_be_created_the_command_says_so() -> None:
    """The zygote closes the connection when its fork fails."""
    ours, theirs = socket.socketpair()
    lost: list[Supervisor] = []
    supervisor = Supervisor(ours, on_free=lambda _: None, on_lost=lost.append, thaw=lambda _: None)
    request = Run(number=1, file="/bin/true", argv=["true"], environment={}, grace=1.0)
    started = await supervisor.run(request, [])
    theirs.close()
    while not lost:
        await asyncio.sleep(0.01)
    lost[0].settle()
    exited = await started.exited
    assert (exited.exit_code, "limit on processes" in exited.failure) == (126, True)
    assert started.gone.done()


async def test_a_shell_that_cannot_be_executed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = tmp_path / "bash"
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(bash))
    async with in_process() as guest:
        ran = await guest.run("a", "true")
        assert ran.exit.exit_code == 126
        assert ran.stderr == f"oxydra: {bash}: No such file or directory\n".encode()
        bash.symlink_to("/bin/sh")
        assert (await guest.run("b", "echo again")).stdout == b"again\n"


def test_a_foreign_proc_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(WireError, match="/proc is missing") as raised:
        pool.check_proc()
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert raised.value.resolution


def test_wait_statuses_read_as_in_a_shell() -> None:
    assert [exit_code(status) for status in (0, 256, 255 << 8, 9, 15, None)] == [
        *(0, 1, 255, 137, 143, 137)
    ]
