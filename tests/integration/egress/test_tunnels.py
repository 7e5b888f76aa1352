"""What a tunnel of the real program carries, and what it does not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from wire.v1 import egress_pb2 as pb

from tests.support.egress.hellos import extension, hello, in_records
from tests.support.egress.origins import Certificates, names, origin
from tests.support.egress.program import SHELL_TOKEN, Egress, head, said

HOST = "files.example.org"


@dataclass
class Listener:
    """A server that writes down what comes, and says `says` to whoever connects."""

    port: int = 0
    says: bytes = b""
    heard: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(self.says)
        while data := await reader.read(65_536):
            self.heard.append(data)
        self.closed.set()
        writer.close()


@pytest.fixture
async def listener(egress: Egress) -> AsyncIterator[Listener]:
    made = Listener()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with names({HOST: ["127.0.0.1"], "other.example.org": ["127.0.0.1"]}) as (at, _):
        allow = [f"{HOST}:{made.port}", f"127.0.0.1:{made.port}"]
        await egress.configure(shell=pb.EgressPolicy(allow=allow), name_servers=[at])
        yield made
    server.close()


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (in_records(hello("other.example.org")), "names other.example.org"),
        (in_records(hello(None)), "does not name it"),
        (in_records(hello(HOST, extra=extension(0xFE0D, bytes(32)))), "encrypted client hello"),
        (b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n", "does not begin as TLS does"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "does not begin as TLS does"),
        (b"CONNECT other.example.org:443 HTTP/1.1\r\n\r\n", "does not begin as TLS does"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not begin as TLS does"),
    ],
    ids=["another name", "no name", "encrypted", "http", "http/2", "a proxy chain", "ssh"],
)
async def test_a_tunnel_carries_tls_for_its_host_alone(
    egress: Egress, listener: Listener, first: bytes, why: str
) -> None:
    answer, (reader, writer) = await egress.tunnel(f"{HOST}:{listener.port}")
    assert answer.status == 200
    for at in range(0, len(first), 100):
        writer.write(first[at : at + 100])
        await writer.drain()
    async with asyncio.timeout(60):
        assert (await reader.read())[:1] in (b"", b"\x15")
        await listener.closed.wait()
    assert listener.heard == []
    ended = await egress.end_of(HOST)
    assert (ended.outcome, ended.sent) == ("refused", 0)
    assert why in ended.reason


@pytest.mark.parametrize(
    ("allow", "deny", "carried"),
    [
        (["*:{port}"], [], True),
        (["*.example.org:{port}"], [], False),
        (["GET *:{port}", "files.example.org:{port}"], [], False),
        (["*:{port}"], ["hidden.example.net"], False),
    ],
)
async def test_a_name_may_be_hidden_only_where_every_name_is_allowed(
    egress: Egress, listener: Listener, allow: list[str], deny: list[str], carried: bool
) -> None:
    async with names({HOST: ["127.0.0.1"]}) as (at, _):
        rules = [each.format(port=listener.port) for each in allow]
        await egress.configure(shell=pb.EgressPolicy(allow=rules, deny=deny), name_servers=[at])
        whole = in_records(hello(HOST, extra=extension(0xFE0D, bytes(32))))
        _, (reader, writer) = await egress.tunnel(f"{HOST}:{listener.port}")
        writer.write(whole)
        async with asyncio.timeout(60):
            while carried and b"".join(listener.heard) != whole:
                await asyncio.sleep(0.01)
            if not carried:
                assert (await reader.read())[:1] == b"\x15"
                assert not listener.heard
        writer.close()
        await listener.closed.wait()


async def test_a_hello_in_pieces_and_records_goes_on_as_it_is(
    egress: Egress, listener: Listener
) -> None:
    whole = in_records(hello(HOST), 1, 50, 3)
    _, (_, writer) = await egress.tunnel(f"{HOST}:{listener.port}")
    for byte in whole:
        writer.write(bytes((byte,)))
        await writer.drain()
    async with asyncio.timeout(60):
        while b"".join(listener.heard) != whole:
            await asyncio.sleep(0.01)
    writer.close()
    await listener.closed.wait()


async def test_nothing_comes_back_before_the_client_has_said_whom_it_wants(
    egress: Egress, listener: Listener
) -> None:
    listener.says = b"220 mail.example.org ESMTP\r\n"
    answer, (reader, writer) = await egress.tunnel(f"{HOST}:{listener.port}")
    assert answer.status == 200
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.5)
    writer.transport.abort()


async def test_an_address_needs_no_name(egress: Egress, listener: Listener) -> None:
    _, (_, writer) = await egress.tunnel(f"127.0.0.1:{listener.port}")
    writer.write(in_records(hello(None)))
    async with asyncio.timeout(60):
        while not listener.heard:
            await asyncio.sleep(0.01)
    writer.close()


DOUBTS = [
    ("CONNECT {host}:{port} HTTP/1.1\r\nHost: other.example.org:443\r\n\r\n", 403, "another"),
    ("CONNECT {host} HTTP/1.1\r\n\r\n", 400, "no port"),
    ("CONNECT {host}:0 HTTP/1.1\r\n\r\n", 400, "no port"),
    ("CONNECT {host}:70000 HTTP/1.1\r\n\r\n", 400, "no port"),
    ("CONNECT user@{host}:{port} HTTP/1.1\r\n\r\n", 400, "not a host and port"),
    ("CONNECT https://{host}:{port} HTTP/1.1\r\n\r\n", 400, "not a host and port"),
    ("CONNECT {host}:{port}/path HTTP/1.1\r\n\r\n", 400, "not a host and port"),
    ("CONNECT {host}:{port} HTTP/2.0\r\n\r\n", 400, "followed by"),
    ("CONNECT {host}:{port}\r\n\r\n", 400, "followed by"),
    ("CONNECT  {host}:{port} HTTP/1.1\r\n\r\n", 400, "followed by"),
    ("CONNECT {host}:{port} HTTP/1.1\nHost: a\r\n\r\n", 400, "followed by"),
    ("CONNECT {host}:{port} HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400, "cannot be read"),
    ("CONNECT {host}:{port} HTTP/1.1\r\nA : b\r\n\r\n", 400, "cannot be read"),
    ("CONNECT {host}:{port} HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 400, "no content-length"),
    (
        "CONNECT {host}:{port} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "no transfer-encoding",
    ),
    ("CONNECT {host}:{port} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "twice"),
    ("CONNECT {host}:{port} HTTP/1.1\r\n\r\nearly", 400, "before the tunnel"),
    ("CONNECT {host}:1 HTTP/1.1\r\n\r\n", 403, "not allowed"),
    ("CONNECT other.example.org:{port} HTTP/1.1\r\n\r\n", 403, "not allowed"),
    ("connect {host}:{port} HTTP/1.1\r\n\r\n", 400, "only HTTP"),
    ("CONNECT {host}:{port} HTTP/1.1\r\n" + "A: " + "b" * 40_000, 431, "more than"),
    (
        "CONNECT {host}:{port} HTTP/1.1\r\n"
        + "".join(f"A{number}: b\r\n" for number in range(101))
        + "\r\n",
        431,
        "more than",
    ),
]
"""Requests for a tunnel, and with which status and words each is refused."""


async def test_every_doubt_about_a_connect_refuses_it(egress: Egress, listener: Listener) -> None:
    for row, status, why in DOUBTS:
        answer = await egress.say(row.format(host=HOST, port=listener.port))
        assert (answer.status, why in answer.body.decode()) == (status, True), (row, answer)
    assert listener.connections == 0


async def test_what_a_server_said_before_it_closed_arrives(
    egress: Egress, certificates: Certificates
) -> None:
    async with (
        origin(certificates.server(HOST)) as server,
        names({HOST: ["127.0.0.1"]}) as (at, _),
    ):
        target = f"{HOST}:{server.port}"
        await egress.configure(shell=pb.EgressPolicy(allow=[target]), name_servers=[at])
        _, (reader, writer) = await egress.tunnel(target)
        await writer.start_tls(certificates.client(), server_hostname=HOST)
        writer.write(f"GET /bytes?20 HTTP/1.0\r\nHost: {target}\r\n\r\n".encode())
        assert (await head(reader)).status == 200
        await asyncio.sleep(0.5)  # the server has sent what fits, and waits
        assert len(await reader.read()) == 20 * 2**20
        writer.close()


async def test_a_tunnel_whose_client_leaves_ends(egress: Egress, listener: Listener) -> None:
    _, (_, writer) = await egress.tunnel(f"{HOST}:{listener.port}")
    writer.write(in_records(hello(HOST)))
    await writer.drain()
    writer.close()
    async with asyncio.timeout(60):
        await listener.closed.wait()
    assert (await egress.end_of(HOST)).outcome == "done"


async def test_tls_of_the_listener_is_not_enough(egress: Egress, listener: Listener) -> None:
    request = f"CONNECT {HOST}:{listener.port} HTTP/1.1\r\n\r\n"
    answer = await said(await egress.at_shell_listener(token=SHELL_TOKEN + "x"), request)
    assert (answer.status, answer.refused) == (403, "token")
    assert listener.connections == 0
