"""Clients of other guests, which move while something is under way."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from aiohttp import web
from wire.endpoint import NOWHERE
from wire.errors import Code, WireError
from wire.identity import Party, Peer
from wire.v1 import bootstrap_pb2, shell_pb2, shell_pb2_grpc
from wire.v1.gateway_pb2 import SetPeersRequest

from guest import connection
from guest.connection import Connection
from guest.egress_client import EgressUnreachable, url_of
from guest.errors import GuestError, ToolError
from guest.memory.models import RemoteConfig
from guest.memory.storage.base import Statement
from guest.memory.storage.hrana import NoAnswer, PipelineClient, ServerAddress
from guest.peers import PeerAddresses
from guest.tools.shell.client import Command, ShellClient, ShellTimeouts
from guest.tools.shell.program import ProgramLostError
from tests.support import parties
from tests.support.servers.egress_listener import egress_at, served
from tests.support.settings import EGRESS_TOKEN

GUARD_S = 30
SHELL_TOKEN = "token-of-the-shell-0123"


class Shell(shell_pb2_grpc.ShellServicer):
    """Commands that say where they run, and end when they may."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.known: set[str] = set()

    async def Hello(self, request: Any, context: Any) -> Any:
        return shell_pb2.ShellHelloReply()

    async def Start(self, request: Any, context: Any) -> Any:
        self.known.add(request.exec_id)
        return shell_pb2.StartExecReply()

    async def Run(self, request: Any, context: Any) -> Any:
        self.known.add(request.exec_id)
        yield shell_pb2.ExecOutputEvent(
            stdout=shell_pb2.OutputChunk(data=self.name.encode(), offset=0)
        )
        self.began.set()
        await self.may_end.wait()
        yield shell_pb2.ExecOutputEvent(exit=shell_pb2.ExecExit())

    async def Output(self, request: Any, context: Any) -> Any:
        if request.exec_id not in self.known:
            raise WireError(Code.NOT_FOUND, "no such command")
        self.began.set()
        await self.may_end.wait()
        yield shell_pb2.ExecOutputEvent(exit=shell_pb2.ExecExit())

    async def Cancel(self, request: Any, context: Any) -> Any:
        return shell_pb2.CancelExecReply()

    async def Release(self, request: Any, context: Any) -> Any:
        return shell_pb2.ReleaseExecReply()


class Two:
    """Two shells, of which the second takes the place of the first."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.shells = Shell("first"), Shell("second")  # type: ignore[abstract]
        self.peers = [
            parties.shell(f"unix:{directory}/{shell.name}.sock", SHELL_TOKEN)
            for shell in self.shells
        ]
        self._stack = stack

    async def start(self, number: int) -> None:
        server = parties.server(self.peers[number].endpoint, SHELL_TOKEN, Party.SHELL)
        shell_pb2_grpc.add_ShellServicer_to_server(self.shells[number], server.grpc)
        await server.start()
        self._stack.push_async_callback(server.stop, 0)

    def client(self, peer: Peer | None = None, **patience: float) -> ShellClient:
        client = ShellClient(peer or self.peers[0], ShellTimeouts(**patience))
        self._stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        yield Two(tmp_path, stack)


def run(client: ShellClient) -> "asyncio.Task[str]":
    async def output() -> str:
        ended = await client.run(Command("x", "/shared", GUARD_S))
        return bytes(ended.stdout.head).decode()

    return asyncio.create_task(output())


async def within(awaited: Any) -> Any:
    async with asyncio.timeout(GUARD_S):
        return await awaited


async def test_a_command_ends_where_it_runs_and_the_next_one_runs_elsewhere(two: Two) -> None:
    await two.start(0)
    await two.start(1)
    client = two.client()
    under_way = run(client)
    await within(two.shells[0].began.wait())
    client.move(two.peers[1])
    assert client.peer == two.peers[1]
    for shell in reversed(two.shells):
        shell.may_end.set()
    assert await within(run(client)) == "second"
    assert await within(under_way) == "first"


async def test_a_command_waits_for_a_shell_that_is_being_started(two: Two) -> None:
    client = two.client(replace(two.peers[0], endpoint=NOWHERE), reach_s=GUARD_S)
    assert (await client.state()).startswith("unavailable: ")
    waiting = run(client)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await two.start(1)
    two.shells[1].may_end.set()
    client.move(two.peers[1])
    assert await within(waiting) == "second"
    assert await client.state() == "ready"


async def test_one_that_does_not_come_is_said_to_be_away(two: Two) -> None:
    client = two.client(replace(two.peers[0], endpoint=NOWHERE), reach_s=0.2)
    with pytest.raises(GuestError, match="does not answer; the command was not started") as raised:
        await run(client)
    assert raised.value.code is Code.UNAVAILABLE


async def test_a_command_on_a_shell_that_stays_too_long_is_lost(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "GRACE_S", 0.1)
    await two.start(0)
    await two.start(1)
    client = two.client()
    program = client.program()
    await program.start(["x"], cwd="/shared", environment={})
    output = asyncio.ensure_future(anext(program.output()))
    await within(two.shells[0].began.wait())
    two.shells[0].began.clear()
    under_way = run(client)
    await within(two.shells[0].began.wait())
    client.move(two.peers[1])
    with pytest.raises(ToolError, match="the shell restarted and the command was lost"):
        await within(under_way)
    with pytest.raises(ProgramLostError):
        await within(output)


async def test_closing_ends_what_is_left_on_both(two: Two) -> None:
    await two.start(0)
    await two.start(1)
    both = Connection(two.peers[0], shell_pb2_grpc.ShellStub)
    calls = []
    for number in (0, 1):
        calls.append(both.stub.Run(shell_pb2.StartExecRequest(exec_id="x")))
        await within(calls[-1].read())
        if number == 0:
            both.move(two.peers[1])
    await within(both.close())
    for call in calls:
        with pytest.raises((asyncio.CancelledError, grpc.RpcError)):
            await within(call.read())


# The listener


@asynccontextmanager
async def listeners(directory: Path, *handlers: Any) -> AsyncIterator[list[Any]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(served(directory / f"d{number}", handler))
            for number, handler in enumerate(handlers)
        ]


async def test_requests_go_to_the_new_listener_and_answers_come_from_the_old(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()
    asked: list[str] = []

    async def first(request: web.BaseRequest) -> web.StreamResponse:
        asked.append("first")
        if request.path.endswith("quick"):
            return web.Response(text="from the first")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await may_end.wait()
        await response.write(b" two")
        return response

    async def second(_: web.BaseRequest) -> web.StreamResponse:
        asked.append("second")
        return web.Response(text="from the second")

    async with listeners(tmp_path, first, second) as (client, other):
        here = client.peer
        for _ in range(2):
            assert (await client.http.get(url_of("a/quick"))).text == "from the first"
        async with client.http.stream("GET", url_of("a/slow")) as response:
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"one"
            client.move(other.peer)
            assert (await client.http.get(url_of("a/quick"))).text == "from the second"
            may_end.set()
            assert b"".join([piece async for piece in pieces]) == b" two"
        assert (await client.http.get(url_of("a/quick"))).text == "from the second"
        client.move(here)
        assert (await client.http.get(url_of("a/quick"))).text == "from the first"
    assert asked == ["first"] * 3 + ["second"] * 2 + ["first"]


async def test_a_listener_that_is_being_started_is_shut(tmp_path: Path) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="open")

    client = egress_at(tmp_path / "d")
    there = client.peer
    client.move(replace(there, endpoint=NOWHERE))
    with pytest.raises(EgressUnreachable):
        await client.http.get(url_of("a"))
    async with served(tmp_path / "d", answer):
        client.move(there)
        assert (await client.http.get(url_of("a"))).text == "open"
    with pytest.raises(httpx2.ConnectError):
        await client.http.get(url_of("a"))
    await client.close()


async def test_a_memory_server_is_asked_by_the_new_listener(tmp_path: Path) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()
    asked: list[str] = []

    async def first(_: web.BaseRequest) -> web.StreamResponse:
        asked.append("first")
        began.set()
        await may_end.wait()
        return web.Response(status=404, text="from the first")

    async def second(_: web.BaseRequest) -> web.StreamResponse:
        asked.append("second")
        return web.Response(status=404, text="from the second")

    async with listeners(tmp_path, first, second) as (egress, other):
        config = RemoteConfig("https://db.example", timeout_s=GUARD_S, egress=egress)
        client = PipelineClient(ServerAddress(url_of("memory")), None, config.timeout_s, egress)

        async def ask() -> str:
            try:
                await client.query(Statement("SELECT 1"))
            except Exception as error:
                return str(error)
            raise AssertionError

        under_way = asyncio.create_task(ask())
        await within(began.wait())
        egress.move(other.peer)
        assert "from the second" in await ask()
        may_end.set()
        assert "from the first" in await within(under_way)
        egress.move(replace(other.peer, endpoint=NOWHERE))
        with pytest.raises(NoAnswer) as raised:
            await client.query(Statement("SELECT 1"))
        assert not raised.value.sent
        await within(client.close())
    assert asked == ["first", "second"]


# What the runner says


class Client:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.moves = 0

    def move(self, peer: Peer) -> None:
        self.peer = peer
        self.moves += 1


@pytest.fixture
def shell() -> Client:
    return Client(parties.shell("unix:/run/shell.sock", SHELL_TOKEN))


@pytest.fixture
def learned() -> list[str]:
    return []


@pytest.fixture
def peers(shell: Client, learned: list[str]) -> PeerAddresses:
    return PeerAddresses({Party.SHELL: shell}, learned.append)


def link(**fields: Any) -> bootstrap_pb2.Link:
    made = parties.link("tcp:10.0.0.7:7002", SHELL_TOKEN, "launch-2")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_guest_is_where_the_last_link_says(
    peers: PeerAddresses, shell: Client, learned: list[str]
) -> None:
    peers.set(SetPeersRequest())
    peers.set(SetPeersRequest(shell=parties.link("unix:/run/shell.sock", SHELL_TOKEN)))
    assert shell.moves == 0
    peers.set(SetPeersRequest(shell=link(token="another-token-0123456")))
    assert learned == ["another-token-0123456"]
    assert (shell.peer.endpoint, shell.peer.name) == ("tcp:10.0.0.7:7002", "shell.launch-2")
    again = link(token="another-token-0123456")
    again.identity.CopyFrom(parties.AUTHORITY.issue(Party.AGENT).message())
    peers.set(SetPeersRequest(shell=again))
    assert shell.moves == 1, "the same guest, with an identity that was issued anew"
    peers.set(SetPeersRequest(shell=link(endpoint="", launch_id="")))
    assert shell.peer.endpoint == NOWHERE
    peers.set(SetPeersRequest(shell=link()))
    peers.set(SetPeersRequest(shell=bootstrap_pb2.Link(unavailable_reason="there is none")))
    assert (shell.peer.endpoint, shell.moves) == (NOWHERE, 4)


def test_a_guest_without_which_this_one_was_started_is_ignored(
    peers: PeerAddresses, shell: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "guest.peers")
    peers.set(SetPeersRequest(shell=link(), embedder=link(endpoint="nonsense")))
    assert shell.moves == 1
    assert "started without embedder" in caplog.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("endpoint", "tcp:*:7002"),
        ("endpoint", "tcp:0.0.0.0:7002"),
        ("endpoint", "/run/shell.sock"),
        ("launch_id", ""),
        ("launch_id", "*"),
        ("launch_id", "a.b"),
        ("identity", None),
        ("identity", "key"),
        ("identity", "certificate"),
        ("identity", "authority"),
    ],
)
def test_a_bad_link_is_named_and_changes_nothing(
    shell: Client, learned: list[str], field: str, value: str | None
) -> None:
    client = Client(parties.peer("unix:/run/d.sock", Party.EGRESS, EGRESS_TOKEN, Party.AGENT))
    peers = PeerAddresses({Party.SHELL: shell, Party.EGRESS: client}, learned.append)
    bad = link()
    if field != "identity":
        setattr(bad, field, value)
    elif value is None:
        bad.ClearField("identity")
    else:
        setattr(bad.identity, value, "no PEM")
    with pytest.raises(WireError) as raised:
        peers.set(SetPeersRequest(shell=link(), egress=bad))
    assert raised.value.code is Code.INVALID_ARGUMENT
    named = "endpoint" if (field, value) == ("launch_id", "") else field
    assert f"egress.{named}" in raised.value.brief
    assert (shell.moves, client.moves, learned) == (0, 0, [])
