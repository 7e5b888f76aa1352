"""Nothing goes out unless the real program was told what may, and somebody records it; and what
happens to what is under way when that changes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest
from wire.identity import Party
from wire.transport import open_channel, unix_endpoint
from wire.v1 import egress_pb2 as pb
from wire.v1 import egress_pb2_grpc

from tests.support import parties
from tests.support.egress.hellos import hello, in_records
from tests.support.egress.origins import Origin, names, origin
from tests.support.egress.program import AGENT_TOKEN, RUNNER_TOKEN, TOKEN, Egress, said

HOST = "files.example.org"


@pytest.fixture
async def server() -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


@pytest.fixture
async def name_server() -> AsyncIterator[str]:
    async with names({HOST: ["127.0.0.1"]}) as (at, _):
        yield at


def request(port: int, path: str = "/") -> str:
    return f"GET http://{HOST}:{port}{path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n"


async def test_nothing_goes_out_before_it_was_told_what_may(egress: Egress, server: Origin) -> None:
    answer = await egress.say(request(server.port))
    assert (answer.status, answer.refused) == (503, "not_ready")
    assert "waits to hear what may leave" in answer.body.decode()
    got, (_, writer) = await egress.tunnel(f"{HOST}:{server.port}")
    assert (got.status, got.refused) == (503, "not_ready")
    writer.transport.abort()
    assert server.connections == 0


async def test_nothing_goes_out_while_nobody_records_it(
    egress: Egress, server: Origin, name_server: str
) -> None:
    allow = pb.EgressPolicy(allow=[f"{HOST}:{server.port}"])
    await egress.configure(shell=allow, name_servers=[name_server])
    await egress.unwatch()
    answer = await egress.say(request(server.port))
    assert (answer.status, answer.refused) == (503, "not_ready")
    assert server.connections == 0
    egress.watch()
    assert (await egress.say(request(server.port))).status == 200


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"shell": pb.EgressPolicy(allow=["ftp://x"])}, "is not a rule"),
        ({"shell": pb.EgressPolicy(presets=["nonsense"])}, "no such preset"),
        ({"private_networks": ["10.1.2.3/8"]}, "10.1.2.3/8"),
        ({"ca_pem": "nonsense"}, "certificates"),
        ({"proxy": "socks5://a:1"}, "proxy"),
        ({"agent_token": ""}, "tokens"),
        ({"upstreams": [pb.EgressUpstream(name="x", url="ftp://x")]}, "upstream"),
    ],
    ids=["rule", "preset", "network", "authority", "proxy", "token", "upstream"],
)
async def test_what_cannot_be_read_shuts_the_listeners_until_something_can(
    egress: Egress, server: Origin, name_server: str, fields: dict[str, object], why: str
) -> None:
    allow = pb.EgressPolicy(allow=[f"{HOST}:{server.port}"])
    await egress.configure(shell=allow, name_servers=[name_server])
    assert (await egress.say(request(server.port))).status == 200
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await egress.configure(**fields)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    answer = await egress.say(request(server.port))
    assert (answer.status, answer.refused) == (503, "not_ready")
    assert why in answer.body.decode()
    await egress.configure(shell=allow, name_servers=[name_server])
    assert (await egress.say(request(server.port))).status == 200


async def test_who_does_not_prove_its_role_is_not_heard(egress: Egress, server: Origin) -> None:
    await egress.configure(shell=pb.EgressPolicy(allow=[f"127.0.0.1:{server.port}"]))
    for party in (Party.AGENT, Party.RUNNER, Party.EMBEDDER):
        with suppress(ConnectionError):
            streams = await egress.at_shell_listener(party=party)
            assert (await said(streams, request(server.port))).status == 0
    with suppress(ConnectionError):
        assert (await said(await egress.at_agent_listener(party=Party.SHELL), "GET / ")).status == 0
    assert server.connections == 0
    for party in (Party.AGENT, Party.SHELL):
        endpoint = unix_endpoint(egress.directory / "egress.sock")
        channel = open_channel(parties.peer(endpoint, Party.EGRESS, TOKEN, party))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await egress_pb2_grpc.EgressStub(channel).Configure(pb.EgressConfiguration())
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        await channel.close()


async def test_a_reload_cuts_tunnels_that_would_not_be_opened_any_more(
    egress: Egress, name_server: str
) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    kept, cut = f"{HOST}:{port}", f"127.0.0.1:{port}"
    await egress.configure(shell=pb.EgressPolicy(allow=[kept, cut]), name_servers=[name_server])
    _, (staying, stays) = await egress.tunnel(kept)
    _, (leaving, writer) = await egress.tunnel(cut)
    writer.write(in_records(hello(None)))
    await egress.configure(shell=pb.EgressPolicy(allow=[kept]), name_servers=[name_server])
    async with asyncio.timeout(60):
        assert await leaving.read() == b""
    assert (await egress.end_of("127.0.0.1")).outcome == "cut"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(staying.read(1), 0.3)
    stays.transport.abort()
    listening.close()


async def test_its_memory_is_closed_and_it_ends_with_its_runner(egress: Egress) -> None:
    pid = egress.process.pid
    assert egress.process.stdin is not None
    with open(f"/proc/{pid}/status") as status:
        assert "TracerPid:\t0" in status.read()
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0  # what is not dumpable belongs to root
    egress.process.stdin.close()
    async with asyncio.timeout(60):
        assert await egress.process.wait() == 0


async def test_the_runners_own_rules_are_for_the_runner_alone(
    egress: Egress, server: Origin, name_server: str
) -> None:
    allow = pb.EgressPolicy(allow=[f"{HOST}:{server.port}"])
    await egress.configure(runner=allow, name_servers=[name_server])

    async def asked(party: Party, token: str, *, greets: bool) -> str:
        line = f"OXYDRA/1 {token} - -\r\n" if greets else ""
        head = request(server.port).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
        if not greets:
            head = head.replace("\r\n", f"\r\nOxydra-Token: {token}\r\n", 1)
        answer = await said(await egress.at_agent_listener(party), line + head)
        return answer.refused or str(answer.status)

    assert await asked(Party.RUNNER, RUNNER_TOKEN, greets=True) == "200"
    assert egress.begun[-1].role == "runner"
    connections = server.connections
    assert await asked(Party.AGENT, AGENT_TOKEN, greets=False) == "policy"
    assert await asked(Party.AGENT, RUNNER_TOKEN, greets=False) == "token"
    assert await asked(Party.AGENT, RUNNER_TOKEN, greets=True) == "request"
    assert await asked(Party.RUNNER, AGENT_TOKEN, greets=True) == "token"
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        await asked(Party.SHELL, RUNNER_TOKEN, greets=True)
    assert server.connections == connections
