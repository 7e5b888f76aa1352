"""The agent's listener of the real program: servers that it uses by their names, with keys that it
does not have."""

import asyncio

import pytest
from aiohttp import web
from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import Certificates, origin
from tests.support.egress.program import AGENT_TOKEN, Egress, head, said

KEY = "sk-the-key-that-no-guest-has"
ASK = f"GET /openai/x HTTP/1.1\r\nHost: egress\r\nOxydra-Token: {AGENT_TOKEN}\r\n\r\n".encode()


def upstream(port: int, *, scheme: str = "http", ca_pem: str = "") -> pb.EgressUpstream:
    return pb.EgressUpstream(
        name="openai",
        url=f"{scheme}://localhost:{port}/v1",
        headers={"Authorization": f"Bearer {KEY}"},
        ca_pem=ca_pem,
    )


async def test_the_key_is_put_in_and_what_the_agent_sent_is_not(egress: Egress) -> None:
    async with origin() as server:
        await egress.configure(upstreams=[upstream(server.port)])
        answer = await egress.ask(
            "/openai/models?limit=1",
            authorization="Bearer dummy",
            x_api_key="dummy",
            oxydra_session="session-1",
            oxydra_turn="turn-1",
            x_stainless="1",
        )
        assert (answer.status, answer.body) == (200, b"you sent  to /v1/models?limit=1")
        (arrived,) = server.requests
        assert arrived.headers.getall("authorization") == [f"Bearer {KEY}"]
        assert arrived.headers["host"] == f"localhost:{server.port}"
        assert arrived.headers["x-stainless"] == "1"
        text = str(arrived.raw_headers)
        assert not any(word in text.lower() for word in ("dummy", "oxydra", AGENT_TOKEN))
    (begun,) = egress.begun
    assert (begun.upstream, begun.session_id, begun.path) == ("openai", "session-1", "/v1/models")


async def test_ollamas_own_api_is_beside_v1(egress: Egress) -> None:
    async with origin() as server:
        where = f"http://localhost:{server.port}"
        for base, name, found in (
            ("/v1", "ollama", "/api/ps"),
            ("/api", "ollama", "/api/ps"),
            ("", "ollama", "/api/ps"),
            ("/a/v1", "ollama", "/a/api/ps"),
            ("/v1", "openai", "/v1/api/ps"),
        ):
            await egress.configure(upstreams=[pb.EgressUpstream(name=name, url=where + base)])
            assert (await egress.ask(f"/{name}/api/ps")).body == f"you sent  to {found}".encode()
        studio = pb.EgressUpstream(name="lmstudio", url=f"{where}/v1")
        await egress.configure(upstreams=[studio])
        for path, found in (("/api/v0/models", ""), ("/api/v0/models/m", "/v1")):
            answer = await egress.ask(f"/lmstudio{path}")
            assert answer.body == f"you sent  to {found}{path}".encode()
        await egress.configure(upstreams=[pb.EgressUpstream(name="ollama", url=f"{where}/v1")])
        answer = await egress.ask("/ollama/api/tags")
        assert answer.body == b"you sent  to /v1/api/tags"
        await egress.configure(upstreams=[upstream(server.port)])
        for method, found in (("POST", "/api/show"), ("GET", "/v1/api/show")):
            answer = await egress.ask("/openai/api/show", method=method)
            assert answer.body == f"you sent  to {found}".encode()


async def test_an_upstream_proves_itself_by_its_own_authority(
    egress: Egress, certificates: Certificates
) -> None:
    async with origin(certificates.server("localhost")) as server:
        await egress.configure(
            upstreams=[upstream(server.port, scheme="https", ca_pem=certificates.pem)]
        )
        assert (await egress.ask("/openai/models")).status == 200
        await egress.configure(upstreams=[upstream(server.port, scheme="https")])
        answer = await egress.ask("/openai/models")
        assert (answer.status, answer.refused) == (502, "untrusted")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/anthropic/messages", 404, "upstream"),
        ("/openai/../private", 400, "request"),
        ("/openai/%2e%2e/private", 400, "request"),
        ("/google/models", 403, "missing"),
        ("/", 404, "upstream"),
    ],
)
async def test_what_leads_to_no_upstream_says_so(
    egress: Egress, path: str, status: int, code: str
) -> None:
    missing = pb.EgressUpstream(name="google", url="http://localhost:1", missing="no key is set")
    async with origin() as server:
        await egress.configure(upstreams=[upstream(server.port), missing])
        answer = await egress.ask(path)
        assert (answer.status, answer.refused) == (status, code)
        assert server.connections == 0


async def test_a_server_that_is_not_there_is_told_from_one_that_broke_off(egress: Egress) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(rude, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await egress.configure(upstreams=[upstream(port)])
    answer = await egress.ask("/openai/models", method="POST", content_length="0")
    assert (answer.status, answer.refused) == (502, "cut")
    server.close()
    await server.wait_closed()
    answer = await egress.ask("/openai/models")
    assert (answer.status, answer.refused) == (502, "unreachable")


async def test_an_answer_comes_piece_by_piece_as_it_is_said(egress: Egress) -> None:
    """Each piece has arrived before the next one is said."""
    turn = asyncio.Semaphore(0)

    async def speak(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(20):
            await turn.acquire()
            await response.write(f"data: {number}\n\n".encode())
        return response

    async with origin(handle=speak) as server:
        await egress.configure(upstreams=[upstream(server.port)])
        reader, writer = await egress.at_agent_listener()
        writer.write(ASK)
        assert (await head(reader)).headers["content-type"] == "text/event-stream"
        for number in range(20):
            turn.release()
            async with asyncio.timeout(60):
                assert await reader.readuntil(b"\n\n\r\n") == (
                    f"{len(f'data: {number}') + 2:x}\r\ndata: {number}\n\n\r\n".encode()
                )
        writer.transport.abort()


async def test_a_client_that_leaves_ends_the_request_outside(egress: Egress) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    server = web.Server(wait, handler_cancellation=True)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    await egress.configure(upstreams=[upstream(port)])
    _, writer = await egress.at_agent_listener()
    writer.write(ASK)
    async with asyncio.timeout(60):
        await arrived.wait()
        writer.transport.abort()
        await gone.wait()
    assert (await egress.end_of("localhost")).outcome == "cut"
    listening.close()


async def test_connections_to_an_upstream_are_used_again_and_not_by_commands(
    egress: Egress,
) -> None:
    async with origin() as server:
        await egress.configure(
            upstreams=[upstream(server.port)],
            shell=pb.EgressPolicy(allow=[f"127.0.0.1:{server.port}"]),
        )
        for _ in range(5):
            assert (await egress.ask("/openai/models")).status == 200
        assert server.connections == 1
        target = f"127.0.0.1:{server.port}"
        for _ in range(2):
            await egress.say(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")
        assert server.connections == 3


async def test_what_is_no_upstreams_is_a_proxys_request_by_the_agents_policy(
    egress: Egress,
) -> None:
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        await egress.configure(agent=pb.EgressPolicy(allow=[target]))
        assert (await egress.ask(f"http://{target}/x", host=target)).status == 200
        assert (await egress.ask("http://127.0.0.2:1/x", host="127.0.0.2:1")).refused == "policy"
        answer = await said(
            await egress.at_agent_listener(),
            f"CONNECT {target} HTTP/1.1\r\nOxydra-Token: nonsense\r\n\r\n",
        )
        assert (answer.status, answer.refused) == (403, "token")
