"""What the real program forwards of requests, and every doubt for which it forwards nothing."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import Origin, names, origin
from tests.support.egress.program import Egress, head

HOST = "files.example.org"
OTHER = "other.example.org"
SMUGGLED = "GET /private HTTP/1.1\r\nHost: files.example.org\r\n\r\n"


@pytest.fixture
async def server(egress: Egress) -> AsyncIterator[Origin]:
    zone = {HOST: ["127.0.0.1"], OTHER: ["127.0.0.1"]}
    async with origin() as made, names(zone) as (at, _):
        await egress.configure(
            shell=pb.EgressPolicy(allow=[f"GET,HEAD,POST,PUT http://{HOST}:{made.port}/public/*"]),
            name_servers=[at],
        )
        yield made


def request(port: int, *headers: str, line: str = "", body: str = "") -> str:
    line = line or f"GET http://{HOST}:{port}/public/a HTTP/1.1"
    return "\r\n".join([line, f"Host: {HOST}:{port}", *headers, "", ""]) + body


@dataclass(frozen=True)
class Doubt:
    """A request that nobody forwards. `{port}` stands for the server's."""

    status: int
    text: str


LINE = "GET http://files.example.org:{port}/public/a HTTP/1.1\r\n"
POST = (
    "POST http://files.example.org:{port}/public/a HTTP/1.1\r\nHost: files.example.org:{port}\r\n"
)
GET = LINE + "Host: files.example.org:{port}\r\n"

DOUBTS = {
    # who it is for
    "another Host": Doubt(403, LINE + f"Host: {OTHER}\r\n\r\n"),
    "another port in Host": Doubt(403, LINE + f"Host: {HOST}:1\r\n\r\n"),
    "two Hosts": Doubt(400, GET + f"Host: {HOST}\r\n\r\n"),
    "no Host": Doubt(400, LINE + "\r\n"),
    "only a path": Doubt(400, f"GET /public/a HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
    "a user": Doubt(
        400, f"GET http://{HOST}@{OTHER}:{{port}}/public/a HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"
    ),
    "a fragment": Doubt(
        400, f"GET http://{HOST}:{{port}}/public/a#/b HTTP/1.1\r\nHost: {HOST}:{{port}}\r\n\r\n"
    ),
    "https": Doubt(
        400, f"GET https://{HOST}:{{port}}/public/a HTTP/1.1\r\nHost: {HOST}:{{port}}\r\n\r\n"
    ),
    "ftp": Doubt(400, f"GET ftp://{HOST}/public/a HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
    "a backslash": Doubt(
        400, f"GET http://{OTHER}\\@{HOST}:{{port}}/public/a HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    ),
    "a space in it": Doubt(400, f"GET http://{HOST}:{{port}}/public/a b HTTP/1.1\r\n\r\n"),
    "an asterisk": Doubt(400, f"OPTIONS * HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
    "an address as a number": Doubt(
        400, "GET http://2130706433:{port}/public/a HTTP/1.1\r\nHost: 2130706433:{port}\r\n\r\n"
    ),
    # what it is for
    "another host": Doubt(
        403, f"GET http://{OTHER}:{{port}}/public/a HTTP/1.1\r\nHost: {OTHER}:{{port}}\r\n\r\n"
    ),
    "another path": Doubt(403, GET.replace("/public/a", "/private") + "\r\n"),
    "a path upwards": Doubt(403, GET.replace("/public/a", "/public/../private") + "\r\n"),
    "a path upwards, escaped": Doubt(
        403, GET.replace("/public/a", "/public/%2e%2e/private") + "\r\n"
    ),
    "another method": Doubt(403, GET.replace("GET", "DELETE", 1) + "\r\n"),
    "TRACE": Doubt(400, GET.replace("GET", "TRACE", 1) + "\r\n"),
    "a small method": Doubt(400, GET.replace("GET", "get", 1) + "\r\n"),
    # where it ends
    "two lengths": Doubt(400, POST + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    "two same lengths": Doubt(400, POST + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    "a list of lengths": Doubt(400, POST + "Content-Length: 5, 5\r\n\r\nhello"),
    "a signed length": Doubt(400, POST + "Content-Length: +5\r\n\r\nhello"),
    "a length and chunks": Doubt(
        400, POST + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED
    ),
    "chunks and a length": Doubt(
        400, POST + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED
    ),
    "chunks twice": Doubt(
        400,
        POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "another encoding": Doubt(400, POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "an odd encoding": Doubt(400, POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "an encoding with a tab": Doubt(400, POST + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
    "a folded header": Doubt(400, GET + "A: b\r\n c: d\r\n\r\n"),
    "a space before the colon": Doubt(400, GET + "Transfer-Encoding : chunked\r\n\r\n"),
    "a header without a colon": Doubt(400, GET + "nonsense\r\n\r\n"),
    "a NUL": Doubt(400, GET + "A: b\0c\r\n\r\n"),
    "a bare line feed": Doubt(400, GET + "A: b\nB: c\r\n\r\n"),
    "a bare return": Doubt(400, GET + "A: b\rB: c\r\n\r\n"),
    # other protocols
    "a WebSocket": Doubt(
        403, GET + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ),
    "h2c": Doubt(
        403,
        GET + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n",
    ),
    "an upgrade that is not named": Doubt(403, GET + "Connection: upgrade\r\n\r\n"),
    "the preface of HTTP/2": Doubt(400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/0.9": Doubt(400, "GET http://files.example.org:{port}/public/a\r\n\r\n"),
    "HTTP/3": Doubt(400, GET.replace("HTTP/1.1", "HTTP/3.0") + "\r\n"),
    "TLS": Doubt(400, "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
    # how large it is
    "a large header": Doubt(431, GET + "A: " + "b" * 40_000 + "\r\n\r\n"),
    "headers without end": Doubt(431, GET + "A: b\r\n" * 10_000),
    "many headers": Doubt(400, GET + "A: b\r\n" * 110 + "\r\n"),
    "an expectation": Doubt(400, GET + "Expect: tea\r\n\r\n"),
}


async def test_every_doubt_about_a_request_refuses_it(egress: Egress, server: Origin) -> None:
    for name, doubt in DOUBTS.items():
        answer = await egress.say(doubt.text.replace("{port}", str(server.port)))
        assert (answer.status, bool(answer.refused)) == (doubt.status, True), (name, answer)
    assert server.requests == []
    assert server.connections == 0


@pytest.mark.parametrize(
    ("begin", "status"), [(f"{GET}A: ", 431), (f"CONNECT {HOST}:1 HTTP/1.1\r\n\r\nearly", 400)]
)
async def test_a_refusal_reaches_a_client_that_still_sends(
    egress: Egress, begin: str, status: int
) -> None:
    reader, writer = await egress.at_shell_listener()
    for piece in (begin, *["y" * 400_000] * 5):
        writer.write(piece.encode())
        await writer.drain()
        await asyncio.sleep(0.1)
    assert (await head(reader)).status == status
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.transport.abort()


async def test_a_body_of_chunks_is_written_anew(egress: Egress, server: Origin) -> None:
    answer = await egress.say(
        request(
            server.port,
            "Transfer-Encoding: chunked",
            "Trailer: Authorization",
            line=f"POST http://{HOST}:{server.port}/public/a HTTP/1.1",
            body="3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nAuthorization: x\r\n\r\n",
        )
    )
    assert answer.body == b"you sent hello to /public/a"
    (arrived,) = server.requests
    assert {name.lower() for name in arrived.headers} == {
        *("connection", "host", "transfer-encoding")
    }


@pytest.mark.parametrize(
    "altering",
    [
        "X-HTTP-Method-Override: DELETE",
        "x_http_method_override: DELETE",
        "X-Original-URL: /private",
        "X-Rewrite-URL: /private",
        "Destination: /private",
        "?_method=DELETE",
        "?a=b&%5Fmethod=DELETE",
        "?a=b;_METHOD=DELETE",
        "?X-HTTP-Method-Override=DELETE",
    ],
)
async def test_what_servers_take_for_another_request_meets_no_rule_that_reads(
    egress: Egress, altering: str
) -> None:
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        query, header = (altering, "") if altering[0] == "?" else ("", f"{altering}\r\n")
        said = f"GET http://{target}/public/a{query} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n"
        for rule, status in ((f"GET {target}/public/*", 403), (target, 200)):
            await egress.configure(shell=pb.EgressPolicy(allow=[rule]))
            assert (await egress.say(said)).status == status
    assert len(server.requests) == 1


async def test_what_follows_a_request_is_decided_by_itself(egress: Egress, server: Origin) -> None:
    """Also where somebody hopes that it is taken for a body, or for more of the first."""
    streams = await egress.at_shell_listener()
    streams[1].write(request(server.port).encode() + (SMUGGLED + SMUGGLED).encode())
    assert (await head(streams[0])).status == 200
    await streams[0].readexactly(len("you sent  to /public/a"))
    assert (await head(streams[0])).status == 400
    assert [each.raw_path for each in server.requests] == ["/public/a"]
    streams[1].transport.abort()


async def test_a_redirect_is_the_clients_to_follow(egress: Egress, server: Origin) -> None:
    line = f"GET http://{HOST}:{server.port}/public/redirect?http://{OTHER}/ HTTP/1.1"

    async def elsewhere(arrived: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": f"http://{OTHER}:{server.port}/"})

    async with origin(handle=elsewhere) as redirecting, names({HOST: ["127.0.0.1"]}) as (at, _):
        await egress.configure(
            shell=pb.EgressPolicy(allow=[f"{HOST}:{redirecting.port}"]), name_servers=[at]
        )
        line = f"GET http://{HOST}:{redirecting.port}/public/a HTTP/1.1"
        answer = await egress.say(request(redirecting.port, line=line))
    assert (answer.status, answer.headers["location"]) == (302, f"http://{OTHER}:{server.port}/")
    assert server.requests == []


async def test_a_body_is_asked_for_when_it_may_go_out(egress: Egress, server: Origin) -> None:
    reader, writer = await egress.at_shell_listener()
    line = f"PUT http://{HOST}:{server.port}/public/a HTTP/1.1"
    writer.write(
        request(server.port, "Expect: 100-continue", "Content-Length: 5", line=line).encode()
    )
    assert (await head(reader)).status == 100
    writer.write(b"hello")
    assert (await head(reader)).status == 200
    writer.transport.abort()


async def test_the_answer_to_head_has_no_body(egress: Egress, server: Origin) -> None:
    reader, writer = await egress.at_shell_listener()
    line = f"HEAD http://{HOST}:{server.port}/public/a HTTP/1.1"
    writer.write((request(server.port, line=line) + request(server.port)).encode())
    assert (await head(reader)).headers["content-length"] == "22"
    assert (await head(reader)).status == 200
    writer.transport.abort()


async def test_a_server_that_breaks_off_is_not_taken_for_one_that_is_done(egress: Egress) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await writer.drain()
        writer.transport.abort()

    broken = await asyncio.start_server(half, "127.0.0.1", 0)
    port = broken.sockets[0].getsockname()[1]
    async with names({HOST: ["127.0.0.1"]}) as (at, _):
        await egress.configure(shell=pb.EgressPolicy(allow=[f"{HOST}:{port}"]), name_servers=[at])
        reader, writer = await egress.at_shell_listener()
        line = f"GET http://{HOST}:{port}/ HTTP/1.1"
        writer.write(request(port, line=line).encode())
        assert (await head(reader)).status == 200
        assert not (await reader.read()).endswith(b"0\r\n\r\n")
        assert (await egress.end_of(HOST)).outcome == "failed"
        writer.transport.abort()
    broken.close()


async def test_headers_in_any_bytes_go_through(egress: Egress, server: Origin) -> None:
    answer = await egress.say(request(server.port, "X-Name: caf\xe9"))
    assert answer.status == 200
