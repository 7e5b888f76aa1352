"""The guest as a process: envelope in, gateway up, clean end; and every way not to start."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from wire import envelope as framing
from wire.errors import Code, WireError
from wire.logs import EXIT_OPERATOR, find_startup_failure
from wire.transport import check_health, open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from tests.support import parties
from tests.support.gateway.gateways import run_turn
from tests.support.guests.shell_backends import TOKEN as SHELL_TOKEN
from tests.support.guests.shell_backends import Daemon, new_root
from tests.support.scratch import SCRATCH
from tests.support.servers.egress_listener import hanging, served
from tests.support.settings import EGRESS_TOKEN, TOKEN, configure, envelope_for, with_provider

GUARD_S = 60


class Guest:
    """A guest process in a workspace of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.envelope = envelope_for(place)
        for name in ("internal", "shared", "tmp", "vault", "ipc"):
            (place / name).mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def log(self) -> str:
        return (self.place / "guest.log").read_text()

    @property
    def failure(self) -> WireError:
        found = find_startup_failure(self.log.strip().splitlines()[-1])
        assert found is not None, self.log
        return found

    def spawn(self, *arguments: str, given: bytes | None = None) -> subprocess.Popen[bytes]:
        with (self.place / "guest.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "guest.app", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | {"OPENAI_API_KEY": "sk-of-the-environment-1234"},
            )
        self._processes.append(process)
        assert process.stdin is not None
        if given is None:
            given = framing.encode(self.envelope)
        process.stdin.write(given)
        process.stdin.flush()
        return process

    def fails(self, given: bytes | None = None) -> WireError:
        """Start it, see it refuse, and read why."""
        process = self.spawn("--bootstrap-stdin", given=given)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(GUARD_S) == EXIT_OPERATOR, self.log
        return self.failure

    @asynccontextmanager
    async def client(self) -> AsyncIterator["gateway_pb2_grpc.GatewayAsyncStub"]:
        async with open_channel(parties.gateway(self.envelope.gateway, TOKEN)) as channel:
            async with asyncio.timeout(GUARD_S):
                while not (self.place / "ipc/gateway.sock").exists():
                    assert self._processes[-1].poll() is None, self.log
                    await asyncio.sleep(0.01)
                while not await check_health(channel):
                    await asyncio.sleep(0.01)
            yield gateway_pb2_grpc.GatewayStub(channel)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


@pytest.fixture
def guest() -> Iterator[Guest]:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as place:
        running = Guest(Path(place))
        yield running
        running.close()


async def say(
    stub: "gateway_pb2_grpc.GatewayAsyncStub", text: str, session: str = "s"
) -> pb.TurnEvent:
    await stub.CreateSession(pb.CreateSessionRequest(session_id=session))
    request = pb.StartTurnRequest(session_id=session, text=text)
    return [event async for event in run_turn(stub, request)][-1]


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "parent"])
async def test_it_serves_and_ends_cleanly(guest: Guest, end: str) -> None:
    process = guest.spawn("--bootstrap-stdin", "--exit-with-parent")
    async with guest.client() as stub:
        hello = await stub.Hello(pb.HelloRequest())
        assert (hello.user_id, hello.provider) == ("alice", "offline")
        assert any("built-in offline model" in notice for notice in hello.notices)
        assert "Saved" in (await say(stub, "remember that my name is Shantanu")).completed.text
    began = time.monotonic()
    if end == "parent":
        assert process.stdin is not None
        process.stdin.close()
    else:
        process.send_signal(getattr(signal, end))
    assert process.wait(GUARD_S) == 0
    assert time.monotonic() - began < 20, "five seconds, on a machine that is not busy"
    assert list((guest.place / "ipc").iterdir()) == []
    assert find_startup_failure(guest.log) is None
    assert "Shantanu" not in guest.log


@pytest.mark.parametrize("opening", ["a new session", "an old one"])
async def test_it_gets_ready_for_turns_when_a_session_is_opened(guest: Guest, opening: str) -> None:
    """Who only searches has no model's library in memory."""
    guest.envelope.log_level = "debug"
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub, asyncio.timeout(GUARD_S):
        assert (await stub.Hello(pb.HelloRequest())).model == "offline"
        await stub.SaveNote(pb.SaveNoteRequest(text="the boat is called Fram"))
        await stub.SearchNotes(pb.SearchNotesRequest(query="boat"))
        await stub.SetProviderKey(pb.SetProviderKeyRequest(provider="openai"))
        await stub.ListSessions(pb.ListSessionsRequest())
        assert "ready for turns" not in guest.log
        if opening == "a new session":
            await stub.CreateSession(pb.CreateSessionRequest())
        else:
            with pytest.raises(grpc.RpcError):
                await stub.GetSession(pb.GetSessionRequest(session_id="none"))
        while "ready for turns" not in guest.log:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("provider", "fallbacks"), [("openai", []), ("openai", ["openai:n"]), ("anthropic", [])]
)
async def test_nothing_of_another_http_client_is_imported_with_a_provider(
    guest: Guest, tmp_path: Path, provider: str, fallbacks: list[str]
) -> None:
    """The libraries of both would take it, and 7 MB of memory, because a memory on a server has
    it."""
    with_provider(guest.envelope, tmp_path / "http.sock")
    configure(guest.envelope, "agent", provider=provider, api_key_env="KEY", fallbacks=fallbacks)
    guest.envelope.upstreams[provider] = ""
    guest.envelope.log_level = "debug"
    process = guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub, asyncio.timeout(GUARD_S):
        await stub.CreateSession(pb.CreateSessionRequest())
        while "ready for turns" not in guest.log:
            await asyncio.sleep(0.01)
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "jiter" in mapped, "the provider's library is there"
    assert "aiohttp" not in mapped


async def test_the_shell_is_said_to_be_what_it_is(guest: Guest) -> None:
    """There, then dead, then there again; and refused by policy before it is reached."""
    root = new_root()
    daemon = Daemon(root)
    guest.envelope.shell.CopyFrom(parties.link(daemon.endpoint, SHELL_TOKEN))
    configure(guest.envelope, "shell", deny=["touch *"], timeout_s=1)
    try:
        async with daemon.channel() as channel:
            await daemon.ready(channel)
        guest.spawn("--bootstrap-stdin")
        async with guest.client() as stub:
            assert (await stub.Hello(pb.HelloRequest())).shell == "ready"
            assert (await say(stub, "run echo hi")).completed.text == "hi"
            assert "does not permit" in (await say(stub, "run t\\ouch x")).completed.text
            assert "was stopped" in (await say(stub, "run sleep 60")).completed.text
            daemon.process.kill()
            daemon.process.wait()
            assert (await stub.Hello(pb.HelloRequest())).shell.startswith("unavailable: ")
            daemon = Daemon(root)
            async with asyncio.timeout(GUARD_S):
                while (await stub.Hello(pb.HelloRequest())).shell != "ready":
                    await asyncio.sleep(0.1)
        assert SHELL_TOKEN not in guest.log
    finally:
        daemon.process.kill()
        daemon.process.wait()
        shutil.rmtree(root)


async def test_without_a_shell_it_is_not_offered(guest: Guest) -> None:
    guest.envelope.shell.unavailable_reason = "bubblewrap is not installed"
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        assert (await stub.Hello(pb.HelloRequest())).shell == "bubblewrap is not installed"
        offered = (await stub.ListTools(pb.ListToolsRequest())).tools
        assert "shell_exec" not in {tool.name for tool in offered}
        said = (await say(stub, "run ls")).completed.text
        assert said == "There is no shell here: bubblewrap is not installed."


async def test_a_second_start_still_knows(guest: Guest) -> None:
    first = guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        await say(stub, "remember that my name is Shantanu")
    first.terminate()
    assert first.wait(GUARD_S) == 0
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        last = await say(stub, "what do you know about my name?", "another")
        assert "my name is Shantanu" in last.completed.text


async def test_a_running_turn_is_recorded_when_the_guest_is_stopped(guest: Guest) -> None:
    with_provider(guest.envelope, guest.place / "listener")
    process = guest.spawn("--bootstrap-stdin", "--exit-with-parent")
    async with served(guest.place / "listener", hanging), guest.client() as stub:
        await stub.CreateSession(pb.CreateSessionRequest(session_id="s"))
        call = run_turn(stub, pb.StartTurnRequest(session_id="s", text="are you there?"))
        stream = aiter(call)
        assert (await anext(stream)).WhichOneof("event") == "started"
        while not (await stub.GetSession(pb.GetSessionRequest(session_id="s"))).events:
            await asyncio.sleep(0.01)
        process.terminate()
        assert (await anext(stream)).failed.code == "interrupted"
    assert process.wait(GUARD_S) == 0
    guest.envelope.settings.clear()
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        history = await stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [(event.text, event.incomplete) for event in history.events] == [
            ("are you there?", "interrupted")
        ]
        (turn,) = (await stub.ListTurns(pb.ListTurnsRequest())).turns
        assert turn.state == "interrupted"
        assert (await say(stub, "help")).WhichOneof("event") == "completed"


async def test_a_turn_of_a_killed_guest_is_interrupted_and_says_so(guest: Guest) -> None:
    with_provider(guest.envelope, guest.place / "listener")
    process = guest.spawn("--bootstrap-stdin")
    async with served(guest.place / "listener", hanging), guest.client() as stub:
        await stub.CreateSession(pb.CreateSessionRequest(session_id="s"))
        await stub.StartTurn(
            pb.StartTurnRequest(session_id="s", text="are you there?", turn_id="t")
        )
        while not (await stub.GetSession(pb.GetSessionRequest(session_id="s"))).events:
            await asyncio.sleep(0.01)
        (running,) = (await stub.ListTurns(pb.ListTurnsRequest())).turns
        assert running.state == "running"
        process.kill()
        with pytest.raises(grpc.RpcError):
            _ = [e async for e in stub.FollowTurn(pb.FollowTurnRequest(turn_id="t", after=1))]
    process.wait()
    (guest.place / "ipc/gateway.sock").unlink()
    guest.envelope.settings.clear()
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        (event,) = [e async for e in stub.FollowTurn(pb.FollowTurnRequest(turn_id="t", after=1))]
        assert (event.failed.code, event.failed.resolution != "") == ("interrupted", True)
        assert (await say(stub, "help")).WhichOneof("event") == "completed"
        turns = (await stub.ListTurns(pb.ListTurnsRequest(session_id="s"))).turns
        assert [turn.state for turn in turns] == ["completed", "interrupted"]
        history = await stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [event.incomplete for event in history.events] == ["interrupted", "", ""]


async def test_secrets_are_in_no_log_environment_argument_or_file(guest: Guest) -> None:
    secret = "memory-key-0123456789abcdef"
    with_provider(guest.envelope, guest.place / "nobody")
    guest.envelope.secrets.memory_key = secret
    guest.envelope.log_level = "debug"
    process = guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        assert (await say(stub, "hi")).failed.code == "unavailable"
        running = psutil.Process(process.pid)
        exposed = f"{running.environ()}{running.cmdline()}"
    process.terminate()
    assert process.wait(GUARD_S) == 0
    files = b"".join(path.read_bytes() for path in guest.place.rglob("*") if path.is_file())
    for hidden in (secret, TOKEN, EGRESS_TOKEN):
        assert hidden not in exposed
        assert hidden.encode() not in files


def test_a_truncated_envelope(guest: Guest) -> None:
    error = guest.fails(framing.encode(guest.envelope)[:-1])
    assert error.code is Code.INVALID_ARGUMENT
    assert "truncated" in error.details
    assert error.resolution


def test_a_bad_setting(guest: Guest) -> None:
    configure(guest.envelope, "agent", provider="magic")
    assert guest.fails().brief.startswith(
        "bad setting agent.provider: 'magic'; accepted: one of offline"
    )


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("agent", {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}),
        ("memory", {"remote_url": "http://127.0.0.1:9"}),
        ("mcp", {"servers": {"docs": {"url": "http://127.0.0.1:9"}}}),
    ],
)
def test_nothing_outside_without_a_listener(
    guest: Guest, section: str, settings: dict[str, Any]
) -> None:
    """The attack: a way around the egress guest, which an envelope without one would open."""
    configure(guest.envelope, section, **settings)
    guest.envelope.secrets.api_key = "sk-test-0123456789"
    error = guest.fails()
    assert "needs a way out, and the envelope names none" in error.brief


def test_a_provider_without_its_key(guest: Guest) -> None:
    with_provider(guest.envelope, guest.place / "listener", "there is none")
    configure(guest.envelope, "agent", base_url="", api_key_env="K")
    error = guest.fails()
    assert error.brief == "no API key for provider 'openai'"


def test_a_corrupt_database(guest: Guest) -> None:
    database = guest.place / "internal/memory.db"
    database.write_bytes(b"this is not a database, whatever it says it is" * 100)
    before = database.read_bytes()
    error = guest.fails()
    assert error.code is Code.DATA_LOSS
    assert error.resolution
    assert database.read_bytes() == before
    assert list((guest.place / "ipc").iterdir()) == []


async def test_a_database_that_another_guest_holds(guest: Guest) -> None:
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        guest.envelope.gateway = f"unix:{guest.place}/ipc/other.sock"
        error = await asyncio.to_thread(guest.fails)
        assert "memory.db" in str(error)
        assert error.resolution
        assert (await stub.Hello(pb.HelloRequest())).user_id == "alice"


@pytest.mark.parametrize("place", ["absent", "a file"])
def test_a_gateway_address_that_cannot_be_bound(guest: Guest, place: str) -> None:
    (guest.place / "a file").touch()
    guest.envelope.gateway = f"unix:{guest.place / place}/gateway.sock"
    assert "cannot listen" in guest.fails().brief


def test_a_missing_directory(guest: Guest) -> None:
    (guest.place / "shared").rmdir()
    error = guest.fails()
    assert "shared" in error.brief
    assert error.resolution


def test_a_standard_input_that_cannot_end(guest: Guest) -> None:
    path = guest.place / "envelope"
    path.write_bytes(framing.encode(guest.envelope))
    with path.open("rb") as regular:
        ran = subprocess.run(
            [sys.executable, "-m", "guest.app", "--bootstrap-stdin", "--exit-with-parent"],
            stdin=regular,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
    assert ran.returncode == EXIT_OPERATOR
    failure = find_startup_failure(ran.stderr)
    assert failure is not None
    assert failure.brief == "standard input is a file, which never ends"


async def test_stopping_before_it_is_ready(guest: Guest) -> None:
    process = guest.spawn("--bootstrap-stdin", "--exit-with-parent")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(GUARD_S) == 0
    assert list((guest.place / "ipc").iterdir()) == []


def test_bad_arguments_show_the_usage() -> None:
    for arguments in ([], ["--bootstrap-stdin", "--no-such"]):
        ran = subprocess.run(
            [sys.executable, "-m", "guest.app", *arguments],
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
        assert ran.returncode == EXIT_OPERATOR
        failure = find_startup_failure(ran.stderr)
        assert failure is not None
        assert failure.brief.startswith("bad arguments: ")
        assert "usage: oxydra-guest" in failure.details
