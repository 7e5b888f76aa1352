"""A company's proxy behind the real program: everything goes by it, and it alone resolves names."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import Certificates, origin
from tests.support.egress.program import Egress, head
from tests.support.internet.arrivals import Arrivals
from tests.support.internet.proxy import Proxy

HOST = "only-the-proxy-knows.example.org"
USER = "alice:secret"
AUTHORIZATION = f"Basic {base64.b64encode(USER.encode()).decode()}"


@dataclass
class Company:
    """The proxy's address, and what it was asked for."""

    url: str
    arrivals: Arrivals


@pytest.fixture
async def company() -> AsyncIterator[Company]:
    arrivals = Arrivals()
    proxy = Proxy(
        "proxy",
        lambda _, port: asyncio.open_connection("127.0.0.1", port),
        arrivals,
        user=USER,
    )
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield Company(f"http://127.0.0.1:{port}", arrivals)
    server.close()


async def test_tunnels_and_requests_go_by_the_proxy(
    egress: Egress, company: Company, certificates: Certificates
) -> None:
    async with origin(certificates.server(HOST)) as secure, origin() as plain:
        targets = f"{HOST}:{secure.port}", f"{HOST}:{plain.port}"
        await egress.configure(
            shell=pb.EgressPolicy(allow=targets),
            proxy=company.url,
            proxy_authorization=AUTHORIZATION,
            private_networks=[],
        )
        answer, (reader, writer) = await egress.tunnel(targets[0])
        assert answer.status == 200
        await writer.start_tls(certificates.client(), server_hostname=HOST)
        writer.write(f"GET /a HTTP/1.1\r\nHost: {targets[0]}\r\n\r\n".encode())
        assert (await head(reader)).status == 200
        writer.transport.abort()
        got = await egress.say(f"GET http://{targets[1]}/b HTTP/1.1\r\nHost: {targets[1]}\r\n\r\n")
        assert (got.status, got.body) == (200, b"you sent  to /b")
        assert "proxy-authorization" not in secure.requests[0].headers
    asked = [each.what for each in company.arrivals.of("request")]
    assert asked == [f"CONNECT {targets[0]}", f"GET http://{targets[1]}/b"]


async def test_addresses_are_checked_and_a_refusing_proxy_is_told(
    egress: Egress, company: Company
) -> None:
    allow = ["10.1.2.3:1", f"{HOST}:1"]
    await egress.configure(
        shell=pb.EgressPolicy(allow=allow), proxy=company.url, private_networks=[]
    )
    inside, (_, writer) = await egress.tunnel("10.1.2.3:1")
    assert (inside.status, inside.refused) == (403, "address")
    writer.transport.abort()
    assert company.arrivals.all == []
    without, (_, writer) = await egress.tunnel(f"{HOST}:1")
    assert (without.status, without.refused) == (502, "proxy")
    assert "407" in without.body.decode()
    writer.transport.abort()
    got = await egress.say(f"GET http://{HOST}:1/ HTTP/1.1\r\nHost: {HOST}:1\r\n\r\n")
    assert (got.status, got.refused) == (502, "proxy")
