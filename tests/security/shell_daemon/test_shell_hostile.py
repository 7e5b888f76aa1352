"""Commands that attack the daemon above them. It is started as in a guest: the same
user as its commands, without capabilities."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent

import pytest
from wire.errors import Code, WireError
from wire.v1 import shell_pb2

from shell_daemon.processes import tree
from tests.support.guests.shell_backends import (
    WAIT,
    Daemon,
    Guest,
    OverGrpc,
    alive,
    left_behind,
    new_root,
)

MIB = 1024 * 1024


class Target(Guest):
    """A guest and the daemon that serves it."""

    def __init__(self, api: OverGrpc, daemon: Daemon) -> None:
        super().__init__(api, daemon.root)
        self.daemon = daemon

    @property
    def pid(self) -> int:
        return self.daemon.process.pid

    def ours(self) -> list[int]:
        """The daemon, its zygote and its supervisors."""
        found = [self.pid]
        for pid in tree.descendants(self.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may just end
                if Path(f"/proc/{pid}/comm").read_text().startswith("oxydra-"):
                    found.append(pid)
        return found

    def resident(self) -> int:
        """Bytes of memory that the daemon itself holds."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    root = new_root()
    without_capabilities = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    daemon = Daemon(root, under=without_capabilities)
    try:
        async with daemon.channel() as channel:
            await daemon.ready(channel)
            target = Target(OverGrpc(channel), daemon)
            yield target
            # Whatever was tried: it still works, and stops as it should.
            assert (await target.run("after", "echo fine")).stdout == b"fine\n"
        assert daemon.stop() == 0
        assert left_behind(root) == []
    finally:
        daemon.process.kill()
        daemon.process.wait()
        shutil.rmtree(root)


class TestSecrets:
    @pytest.mark.attempt(
        "using a socket that was inherited from the daemon",
        stopped_by="the daemon's descriptors close when a command is executed",
    )
    async def test_commands_hold_no_socket_of_ours(self, target: Target) -> None:
        ran = await target.run("a", "ls -l /proc/self/fd /proc/$$/fd; true", stdin=b"x")
        assert b"socket:" not in ran.stdout

    @pytest.mark.attempt(
        "`pkill python`, which would mean the daemon",
        stopped_by="the daemon's processes bear names of their own",
    )
    async def test_names_keep_pkill_python_from_meaning_us(self, target: Target) -> None:
        await target.run("a", "true")
        names = {Path(f"/proc/{pid}/comm").read_text() for pid in target.ours()}
        assert names == {"oxydra-shell\n", "oxydra-zygote\n", "oxydra-superv\n"}


class TestTrees:
    @pytest.mark.attempt(
        "killing the process above, to outlive one's command",
        stopped_by="the zygote ends what a dead supervisor leaves",
    )
    async def test_killing_the_supervisor_frees_nobody(self, target: Target) -> None:
        ran = await target.run(
            "a",
            "(setsid nohup sleep 1000 & echo $! > one);"
            "(setsid sh -c 'sleep 1001; :' & echo $! > two);"
            "kill -9 $PPID; sleep 1002",
        )
        assert ran.exit.exit_code == 137
        for name in ("one", "two"):
            assert not alive((target.shared / name).read_text().strip())

    @pytest.mark.attempt(
        "killing the supervisors of all commands",
        stopped_by="commands end with their supervisors; the daemon goes on",
    )
    async def test_killing_every_supervisor_ends_only_commands(self, target: Target) -> None:
        await target.start("a", "echo $$ > pid; sleep 1000")
        await target.appears("pid")
        pids = [
            pid
            for pid in target.ours()
            if Path(f"/proc/{pid}/comm").read_text() == "oxydra-superv\n"
        ]
        ran = await target.run("b", f"kill -9 {' '.join(map(str, pids))} $PPID; sleep 1000")
        assert ran.exit.exit_code == 137
        assert (await target.collect("a")).exit.exit_code == 137

    @pytest.mark.attempt(
        "forking and exiting without end, never the same process twice",
        stopped_by="a tree is stopped before it is killed, until nothing new is found in it",
    )
    async def test_what_hops_from_pid_to_pid_is_caught(self, target: Target) -> None:
        """Each of these forks and exits without end, and is never the same process twice."""
        script = """
            import os, signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                if os.fork():
                    os._exit(0)
                os.setsid()
        """
        ran = await target.run(
            "a",
            "cat > hop.py; for i in 1 2 3; do python3 hop.py & done; sleep 1000",
            stdin=dedented(script),
            timeout_ms=1000,
        )
        assert ran.exit.timed_out
        assert left_commands(target) == []

    @pytest.mark.attempt(
        "128 processes in sessions and groups of their own, deaf to SIGTERM",
        stopped_by="a tree is found by descent, not by session or group",
    )
    async def test_a_small_fork_storm_ends_with_its_command(self, target: Target) -> None:
        script = """
            import os, time, signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for _ in range(7):
                os.fork()
                if os.getpid() % 2 and os.getsid(0) != os.getpid():
                    os.setpgid(0, 0)
            open("up", "a").write("x")
            time.sleep(1000)
        """
        await target.start("a", "cat > storm.py; python3 storm.py", stdin=dedented(script))
        async with asyncio.timeout(60):
            while len(await target.appears("up")) < 128:
                await asyncio.sleep(0.02)
        await target.cancel("a")
        assert left_commands(target) == []

    @pytest.mark.attempt(
        "a subreaper between the daemon and one's children",
        stopped_by="a tree is found by descent, also below other subreapers",
    )
    async def test_a_nested_subreaper_does_not_shield_its_children(self, target: Target) -> None:
        script = """
            import ctypes, os, subprocess, time
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
            subprocess.run("(setsid sleep 1000 & echo $! > pid)", shell=True)
            if os.fork():
                os._exit(0)
            time.sleep(1000)
        """
        ran = await target.run("a", "cat > t.py; python3 t.py", stdin=dedented(script))
        assert ran.exit.exit_code == 0
        assert not alive((target.shared / "pid").read_text().strip())
        assert left_commands(target) == []

    @pytest.mark.attempt(
        "holding another command's output pipe open",
        stopped_by="a command has ended when its tree has, not when its pipe closes",
    )
    async def test_a_stranger_who_holds_the_pipe_cannot_delay_the_end(self, target: Target) -> None:
        await target.start("b", f"echo $$ > pid; {WAIT} echo b")
        await target.appears("pid")
        await target.start("a", "exec 3> /proc/$(cat pid)/fd/1; echo > held; yes >&3")
        async with asyncio.timeout(60):
            while not (target.shared / "held").exists():
                await asyncio.sleep(0.01)
            target.let_go()
            assert (await target.collect("b")).exit.exit_code == 0
        await target.cancel("a")


def dedented(script: str) -> bytes:
    return dedent(script).encode()


def left_commands(target: Target) -> list[int]:
    ours = set(target.ours())
    return [pid for pid in tree.descendants(target.pid) if pid not in ours]


class TestFloods:
    @pytest.mark.attempt(
        "floods of output that nobody reads",
        stopped_by="output is kept to a bounded buffer",
    )
    async def test_yes_without_a_reader_stays_within_the_buffer(self, target: Target) -> None:
        await target.run("warm", "yes | head -c 10000000")
        before = target.resident()
        ran = await asyncio.gather(
            *(target.start(f"a{number}", "yes & yes >&2", timeout_ms=1000) for number in range(4))
        )
        assert len(ran) == 4
        highest = 0
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            highest = max(highest, target.resident())
            await asyncio.sleep(0.05)
        for number in range(4):
            ended = await target.collect(f"a{number}")
            assert ended.exit.timed_out
            assert ended.skipped > MIB
            assert len(ended.stdout) <= 256 * 1024 + 65536
        assert highest - before < 24 * MIB

    @pytest.mark.attempt(
        "a flood of output for a reader that stalls",
        stopped_by="a command waits for its reader",
    )
    async def test_yes_before_a_reader_that_stalls_is_made_to_wait(self, target: Target) -> None:
        command = "echo first; until [ -e go ]; do sleep 0.01; done; yes"
        await target.start("a", command, timeout_ms=60_000)
        events = target.api.stream("Output", shell_pb2.ExecOutputRequest(exec_id="a"))
        await anext(events)
        (target.shared / "go").touch()
        await anext(events)
        before = target.resident()
        await asyncio.sleep(1)
        assert target.resident() - before < 16 * MIB
        await target.cancel("a")
        await events.aclose()
        ran = await target.collect("a")
        assert ran.skipped + len(ran.stdout) < 32 * MIB

    @pytest.mark.attempt(
        "100 MiB of standard input that nobody reads",
        stopped_by="input is dropped with its command",
    )
    async def test_standard_input_that_nobody_reads_is_not_hoarded(self, target: Target) -> None:
        await target.run("warm", "true", stdin=bytes(MIB))
        before = target.resident()
        for number in range(100):
            await target.run(f"a{number}", "true", stdin=bytes(MIB))
        assert target.resident() - before < 16 * MIB

    @pytest.mark.attempt(
        "a request of 20 MiB",
        stopped_by="a bound on the size of a message, and on each field",
    )
    async def test_oversized_requests_are_refused_before_they_are_read(
        self, target: Target
    ) -> None:
        with pytest.raises(WireError) as raised:
            await target.start("a", "true", stdin=bytes(20 * MIB))
        assert raised.value.code is Code.RESOURCE_EXHAUSTED
        with pytest.raises(WireError, match="command: 2000000 characters"):
            await target.start("a", "x" * 2_000_000)
