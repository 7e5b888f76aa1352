"""The daemon as a process: how it starts, refuses, stops, dies, and what it leaves: nothing."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from wire import envelope, logs, transport
from wire.errors import Code, WireError
from wire.identity import Party
from wire.limits import ENVELOPE_VERSION
from wire.status import from_rpc_error
from wire.v1 import shell_pb2, shell_pb2_grpc
from wire.v1.bootstrap_pb2 import ServiceEnvelope

from shell_daemon.processes import tree
from tests.support import parties
from tests.support.guests.shell_backends import (
    TOKEN,
    Daemon,
    Guest,
    OverGrpc,
    alive,
    held,
    left_behind,
    new_root,
)

STDIN = "--bootstrap-stdin"
SPREAD = """
    (setsid nohup env -i sleep 1000 & echo $! > orphan)
    trap '' TERM
    echo $$ > pid
    while :; do sleep 0.1; done
"""
ENVELOPE = envelope.service(TOKEN, parties.identity(Party.SHELL))
NO_TOKEN = envelope.service("", parties.identity(Party.SHELL))
NO_IDENTITY = envelope.encode(ServiceEnvelope(version=ENVELOPE_VERSION, token=TOKEN))


@pytest.fixture
def root() -> Iterator[Path]:
    root = new_root()
    yield root
    shutil.rmtree(root)


@pytest.fixture
async def daemon(root: Path) -> AsyncIterator[Daemon]:
    daemon = Daemon(root)
    yield daemon
    daemon.process.kill()
    daemon.process.wait()
    assert daemon.process.stdin is not None
    daemon.process.stdin.close()
    assert await nothing_left(root)


@pytest.fixture
async def guest(daemon: Daemon) -> AsyncIterator[Guest]:
    async with daemon.channel() as channel:
        await daemon.ready(channel)
        yield Guest(OverGrpc(channel), daemon.root)


async def nothing_left(root: Path) -> bool:
    deadline = time.monotonic() + 60
    while left_behind(root) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return left_behind(root) == []


def zygote_of(daemon: Daemon) -> int:
    return next(
        pid
        for pid in tree.descendants(daemon.process.pid)
        if Path(f"/proc/{pid}/comm").read_text() == "oxydra-zygote\n"
    )


class TestToken:
    @pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper()])
    async def test_no_call_passes_with_another(self, daemon: Daemon, token: str) -> None:
        async with daemon.channel() as channel:
            await daemon.ready(channel)
        async with transport.open_channel(parties.shell(daemon.endpoint, token)) as channel:
            stub = shell_pb2_grpc.ShellStub(channel)
            for call in (
                stub.Hello(shell_pb2.ShellHelloRequest()),
                stub.Start(shell_pb2.StartExecRequest(exec_id="a", command="touch ran")),
                stub.Cancel(shell_pb2.CancelExecRequest(exec_id="a")),
                stub.Release(shell_pb2.ReleaseExecRequest(exec_id="a")),
                anext(aiter(stub.Output(shell_pb2.ExecOutputRequest(exec_id="a")))),
            ):
                with pytest.raises(grpc.RpcError) as raised:
                    await call
                assert from_rpc_error(raised.value).code is Code.UNAUTHENTICATED
        assert not (daemon.root / "shared" / "ran").exists()

    async def test_it_is_in_no_argument_and_no_environment(
        self, daemon: Daemon, guest: Guest
    ) -> None:
        await guest.start("a", "echo $$ > pid; sleep 1000; true")
        await guest.appears("pid")
        pids = [daemon.process.pid, *tree.descendants(daemon.process.pid)]
        assert len(pids) >= 4
        for pid in pids:
            for name in ("cmdline", "environ"):
                assert TOKEN.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()

    def test_the_socket_is_its_owner_s_alone(self, daemon: Daemon, guest: Guest) -> None:
        assert (daemon.root / "shell.sock").stat().st_mode & 0o777 == 0o600


class TestStopping:
    @pytest.mark.parametrize("how", [signal.SIGTERM, "parent"])
    async def test_asked_to_it_ends_everything_at_once(
        self, daemon: Daemon, guest: Guest, how: signal.Signals | str
    ) -> None:
        await guest.start("a", SPREAD)
        pid, orphan = await guest.appears("pid"), await guest.appears("orphan")
        reader = asyncio.create_task(guest.collect("a"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        if isinstance(how, signal.Signals):
            daemon.process.send_signal(how)
            code = await asyncio.to_thread(daemon.process.wait, 60)
        else:
            code = await asyncio.to_thread(daemon.stop)
        assert time.monotonic() - began < 20, "five seconds, on a machine that is not busy"
        assert code == 0
        assert not alive(pid)
        assert not alive(orphan)
        assert left_behind(daemon.root) == []
        assert not (daemon.root / "shell.sock").exists()
        ran = await reader
        assert (ran.exit.cancelled, ran.exit.exit_code) == (True, 137)

    @pytest.mark.parametrize(
        "number", sorted({1, 2, 3, 10, 12, 14, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 34, 64})
    )
    async def test_no_other_signal_ends_or_stops_it(
        self, daemon: Daemon, guest: Guest, number: int
    ) -> None:
        await guest.run("a", f"kill -{number} {daemon.process.pid}; sleep 0.1")
        assert (await guest.run("b", "echo still")).stdout == b"still\n"
        assert psutil.Process(daemon.process.pid).status() != psutil.STATUS_STOPPED

    async def test_killed_it_leaves_nothing_either(self, daemon: Daemon, guest: Guest) -> None:
        await guest.start("a", SPREAD)
        await guest.appears("pid")
        async with asyncio.timeout(60):  # one of them comes and goes
            while len(everything := tree.descendants(daemon.process.pid)) < 5:
                await asyncio.sleep(0.01)
        daemon.process.kill()
        daemon.process.wait()
        assert await nothing_left(daemon.root)
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in everything) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert [pid for pid in everything if alive(pid)] == []

    async def test_without_its_zygote_it_gives_up_and_leaves_nothing(
        self, daemon: Daemon, guest: Guest
    ) -> None:
        await guest.start("a", SPREAD)
        await guest.appears("pid")
        os.kill(zygote_of(daemon), signal.SIGKILL)
        assert await asyncio.to_thread(daemon.process.wait, 60) == 1
        assert await nothing_left(daemon.root)
        assert '"zygote_lost"' in (daemon.root / "log").read_text()

    @pytest.mark.root
    async def test_a_zygote_that_does_not_answer_is_given_up(
        self, daemon: Daemon, guest: Guest
    ) -> None:
        await guest.run("first", "true")
        with held(zygote_of(daemon)):
            for number in range(8):
                await guest.start(f"a{number}", "sleep 1000")
            assert await asyncio.to_thread(daemon.process.wait, 60) == 1
        assert '"zygote_silent"' in (daemon.root / "log").read_text()
        assert await nothing_left(daemon.root)

    async def test_it_starts_again_over_a_stale_socket(self, root: Path) -> None:
        first = Daemon(root)
        async with first.channel() as channel:
            await first.ready(channel)
        first.process.kill()
        first.process.wait()
        assert (root / "shell.sock").exists()
        second = Daemon(root)
        async with second.channel() as channel:
            await second.ready(channel)
            ran = await Guest(OverGrpc(channel), root).run("a", "echo again")
            assert ran.stdout == b"again\n"
        assert second.stop() == 0


class TestStarting:
    @pytest.mark.parametrize(
        ("arguments", "brief"),
        [
            ([], "bad arguments: the following arguments are required"),
            (
                ["--socket", "S", STDIN, "--no-such-flag"],
                "bad arguments: unrecognized",
            ),
            (
                ["--socket", "S", STDIN, "--max-commands", "many"],
                "bad arguments: argument",
            ),
            (["--socket", "S", STDIN, "--max-commands", "0"], "commands_max: 0"),
            (["--socket", "S", STDIN, "--default-timeout", "1e9"], "timeout_default"),
            (
                ["--socket", "S", STDIN, "--root-shared", "/nowhere"],
                "shared: /nowhere",
            ),
            (
                ["--socket", "S", STDIN, "--log-level", "loud"],
                "bad arguments: argument",
            ),
            (["--socket", "/nowhere/s", STDIN], "cannot listen on unix:/nowhere/s"),
            (["--socket", "/tmp/" + "x" * 200, STDIN], "socket path is too long"),
        ],
    )
    def test_what_cannot_work_is_an_operator_s_error(
        self, root: Path, arguments: list[str], brief: str
    ) -> None:
        roots = ["--root-shared", str(root / "shared"), "--root-tmp", str(root / "tmp")]
        arguments = [str(root / "s") if word == "S" else word for word in arguments]
        done = run_main([*roots, *arguments] if arguments else [], ENVELOPE)
        assert done.returncode == logs.EXIT_OPERATOR
        failure = logs.find_startup_failure(done.stderr.decode())
        assert failure is not None
        assert brief in failure.brief
        assert left_behind(root) == []

    @pytest.mark.parametrize("stdin", [b"", b"token\n", NO_TOKEN, NO_IDENTITY])
    def test_without_an_envelope_it_does_not_start(self, root: Path, stdin: bytes) -> None:
        roots = ["--root-shared", str(root / "shared"), "--root-tmp", str(root / "tmp")]
        done = run_main(["--socket", str(root / "s"), STDIN, *roots], stdin)
        assert done.returncode == logs.EXIT_OPERATOR
        failure = logs.find_startup_failure(done.stderr.decode())
        assert isinstance(failure, WireError)
        assert failure.brief.startswith(("bad bootstrap envelope", "no complete identity"))

    def test_a_file_cannot_stand_for_the_parent(self, root: Path) -> None:
        (root / "in").write_bytes(ENVELOPE)
        with (root / "in").open("rb") as stdin:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "shell_daemon.server", "--exit-with-parent"),
                    *("--socket", str(root / "s"), STDIN),
                    *("--root-shared", str(root / "shared"), "--root-tmp", str(root / "tmp")),
                ],
                stdin=stdin,
                stderr=subprocess.PIPE,
                timeout=30,
                check=False,
            )
        failure = logs.find_startup_failure(done.stderr.decode())
        assert failure is not None
        assert failure.brief == "standard input is a file, which never ends"
        assert not (root / "s").exists()

    def test_the_console_script_is_this_program(self) -> None:
        script = Path(sys.executable).parent / "oxydra-shell-daemon"
        done = subprocess.run([script, "--help"], capture_output=True, timeout=30, check=False)
        assert done.returncode == 0
        assert b"--root-shared" in done.stdout


def run_main(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "shell_daemon.server", *arguments],
        input=stdin,
        capture_output=True,
        timeout=30,
        check=False,
    )


async def test_its_log_names_commands_and_never_their_content(daemon: Daemon, guest: Guest) -> None:
    await guest.run("the-id", "echo a-secret-word; exit 3")
    log = (daemon.root / "log").read_text()
    assert "command the-id ended" in log
    assert '"outcome": "3"' in log
    assert "a-secret-word" not in log


async def test_a_sealed_daemon_waits_for_its_starter_to_admit_others(root: Path) -> None:
    daemon = Daemon(root, "--sealed")
    other = "the-agents-own-token"
    try:
        async with (
            daemon.channel() as channel,
            transport.open_channel(parties.shell(daemon.endpoint, other)) as outside,
        ):
            await daemon.ready(channel)
            starter, agent = OverGrpc(channel), OverGrpc(outside)
            with pytest.raises(WireError, match="being checked") as raised:
                await agent.call("Hello", shell_pb2.ShellHelloRequest())
            assert raised.value.code is Code.UNAVAILABLE
            for bad in ("", "short", "ünicode-token", "a\nb" * 8):
                with pytest.raises(WireError, match="token: it is not a token") as raised:
                    await starter.call("Admit", shell_pb2.AdmitRequest(token=bad))
                assert not bad or bad not in str(raised.value)
            await starter.call("Admit", shell_pb2.AdmitRequest(token=other))
            await agent.call("Hello", shell_pb2.ShellHelloRequest())
        assert daemon.stop() == 0
    finally:
        daemon.process.kill()
        daemon.process.wait()
