"""An agent that is told where the guests beside it are, and told again when they are elsewhere."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from wire import envelope as framing
from wire.errors import Code, WireError
from wire.identity import Party
from wire.tls import server_context
from wire.transport import check_health, open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.client.gateway import GatewayClient
from tests.support import parties
from tests.support.gateway.gateways import run_turn
from tests.support.guests.on_ports import TOKEN, OnPorts, elsewhere, on_ports
from tests.support.ports import free_port
from tests.support.scratch import SCRATCH
from tests.support.settings import EGRESS_TOKEN, configure, envelope_for

GUARD_S = 60
LAUNCH = "launch-of-the-agent"


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=SCRATCH))
    for name in ("internal", "shared", "tmp", "vault", "ipc", "a", "b"):
        (made / name).mkdir()
    yield made
    shutil.rmtree(made)


class Agent:
    """The guest, on a port of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def channel(self, caller: Party) -> grpc.aio.Channel:
        endpoint = elsewhere(self._port)
        return open_channel(parties.peer(endpoint, Party.AGENT, TOKEN, caller, LAUNCH))

    async def set_peers(self, caller: Party = Party.RUNNER, **links: Any) -> None:
        async with self.channel(caller) as channel:
            await GatewayClient(channel, "host").set_peers(pb.SetPeersRequest(**links))

    async def hello(self) -> pb.HelloReply:
        async with self.channel(Party.CLI) as channel:
            stub: Any = gateway_pb2_grpc.GatewayStub(channel)
            hello: pb.HelloReply = await stub.Hello(pb.HelloRequest())
            return hello

    async def say(self, text: str, model: str = "") -> pb.TurnEvent:
        """How a turn ended."""
        async with self.channel(Party.CLI) as channel:
            stub: Any = gateway_pb2_grpc.GatewayStub(channel)
            session = await stub.CreateSession(pb.CreateSessionRequest())
            request = pb.StartTurnRequest(session_id=session.session_id, text=text, model=model)
            events: list[pb.TurnEvent] = [event async for event in run_turn(stub, request)]
            return events[-1]


@asynccontextmanager
async def started(place: Path, *, provider: bool = False) -> AsyncIterator[Agent]:
    """An agent that knows no more of the others than that they will be."""
    port = free_port()
    told = envelope_for(place)
    told.tier, told.token, told.gateway = "kubernetes", TOKEN, f"tcp:*:{port}"
    told.identity.CopyFrom(parties.identity(Party.AGENT, LAUNCH).message())
    for name, token in (("shell", TOKEN), ("embedder", TOKEN), ("egress", EGRESS_TOKEN)):
        getattr(told, name).CopyFrom(parties.link("", token))
    if provider:
        configure(told, "agent", provider="openai", model="m", base_url="http://127.0.0.1:9/v1")
        told.upstreams["openai"] = ""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "guest.app", "--bootstrap-stdin", "--lease", "60"),
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(framing.encode(told))
    process.stdin.close()
    agent = Agent(port)
    async with asyncio.timeout(GUARD_S), agent.channel(Party.RUNNER) as channel:
        while not await check_health(channel):
            assert process.returncode is None
            await asyncio.sleep(0.05)
    try:
        yield agent
    finally:
        process.kill()
        await process.wait()


def at(guest: OnPorts) -> Any:
    return parties.link(guest.endpoint, TOKEN, guest.launch_id)


async def test_commands_run_in_the_shell_that_is_there_now(place: Path) -> None:
    async with started(place) as agent:
        assert (await agent.hello()).shell.startswith("unavailable: ")
        for name in ("a", "b"):
            async with on_ports(Party.SHELL, place / name, launch_id=f"shell-{name}") as shell:
                await agent.set_peers(shell=at(shell))
                (place / name / "shared" / "whose").write_text(name)
                assert (await agent.hello()).shell == "ready"
                assert (await agent.say("run cat whose")).completed.text == name
            assert (await agent.hello()).shell.startswith("unavailable: ")


@asynccontextmanager
async def listener(name: str, said: str) -> AsyncIterator[Any]:
    """A listener beyond this machine, where a model says one thing; yields the link to it."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        chunk = {**choice, "delta": message}
        del chunk["message"]
        body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        text = f"data: {web.json_response({**body, 'choices': [chunk]}).text}\n\ndata: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    port = free_port()
    context = server_context(parties.identity(Party.EGRESS, name))
    await web.TCPSite(runner, "127.0.0.2", port, ssl_context=context).start()
    yield parties.link(elsewhere(port), EGRESS_TOKEN, name)
    await runner.cleanup()


async def test_models_are_asked_through_egress_that_is_there_now(place: Path) -> None:
    async with started(place, provider=True) as agent:
        failed = (await agent.say("hello")).failed
        assert "the egress guest does not answer" in failed.message
        for name in ("egress-a", "egress-b"):
            async with listener(name, f"by {name}") as link:
                await agent.set_peers(egress=link)
                assert (await agent.say("hello")).completed.text == f"by {name}"
        async with listener("egress-c", "by nobody") as link:
            link.launch_id = "egress-d"
            await agent.set_peers(egress=link)
            assert (await agent.say("hello")).WhichOneof("event") == "failed"


async def test_nobody_but_the_runner_says_where_they_are(place: Path) -> None:
    async with started(place) as agent, on_ports(Party.SHELL, place / "a") as shell:
        for party in sorted(set(Party) - {Party.RUNNER}):
            with pytest.raises(WireError) as raised:
                await agent.set_peers(party, shell=at(shell))
            assert raised.value.code is Code.PERMISSION_DENIED
        assert (await agent.hello()).shell.startswith("unavailable: ")
        link = at(shell)
        link.launch_id = ""
        with pytest.raises(WireError, match=r"shell\.endpoint.*no launch is named"):
            await agent.set_peers(shell=link)
