"""A server on the runner's loopback, which egress reaches by the runner's socket alone: the real
program, with the runner's real sockets before a server."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from wire.egress.loopback import LoopbackServer
from wire.identity import Party
from wire.v1 import egress_pb2 as pb

from runner.host.loopback import HostLoopback, socket_name
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.egress.origins import MIB, origin
from tests.support.egress.program import Egress

TOKEN = "the-runners-token-for-egress"


@asynccontextmanager
async def handing(egress: Egress, port: int, path: str = "/v1") -> AsyncIterator[HostLoopback]:
    """The agent's provider is at this port of the loopback."""
    server = LoopbackServer("127.0.0.1", port, path)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxl-") as root:
        workspace = Workspace(Path(root), "alice")
        host = HostLoopback(workspace, parties.identity(Party.RUNNER), TOKEN)
        await host.serve({server})
        provider = pb.EgressUpstream(
            name="openai",
            url=str(server),
            headers={"Authorization": "Bearer sk-local-key"},
            host_socket=str(workspace.host_sockets / socket_name(server)),
            host_token=TOKEN,
        )
        await egress.configure(upstreams=[provider])
        try:
            yield host
        finally:
            await host.close()


async def test_the_server_is_reached_by_the_socket(egress: Egress) -> None:
    async with origin() as server, handing(egress, server.port) as host:
        for _ in range(2):  # each by a connection of its own
            answer = await egress.ask("/openai/models?limit=1", x_stainless="1")
            assert (answer.status, answer.body) == (200, b"you sent  to /v1/models?limit=1")
        assert server.connections == 2
        arrived = server.requests[0]
        assert arrived.headers["authorization"] == "Bearer sk-local-key"
        assert arrived.headers["host"] == f"127.0.0.1:{server.port}"
        assert "oxydra" not in str(arrived.raw_headers).lower()
        await host.close()
        answer = await egress.ask("/openai/models")
        assert (answer.status, answer.refused) == (502, "unreachable")
        assert len(server.requests) == 2


async def test_what_streams_comes_whole(egress: Egress) -> None:
    async with origin() as server, handing(egress, server.port, ""):
        answer = await egress.ask("/openai/bytes?3")
        assert (answer.status, len(answer.body)) == (200, 3 * len(MIB))


async def test_a_server_that_does_not_run_is_said_to_be_so(egress: Egress) -> None:
    async with handing(egress, 1):
        answer = await egress.ask("/openai/models")
        assert (answer.status, answer.refused) == (502, "unreachable")
        assert b"http://127.0.0.1:1/v1 of this machine cannot be reached" in answer.body


async def test_no_server_can_speak_for_the_runner(egress: Egress) -> None:
    async def lying(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=502, text="no", headers={"oxydra-token": "a guess"})

    async with origin(handle=lying) as server, handing(egress, server.port):
        answer = await egress.ask("/openai/models")
        assert (answer.status, answer.refused, answer.body) == (502, "", b"no")


async def test_a_redirect_leads_nowhere_else(egress: Egress) -> None:
    async with origin() as other, origin() as server, handing(egress, server.port, ""):
        answer = await egress.ask(f"/openai/redirect?http://127.0.0.1:{other.port}/")
        assert answer.status == 302
        assert other.connections == 0
