"""Where the real program connects to: never where a name or an address leads inside."""

from collections.abc import AsyncIterator

import pytest
from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import Certificates, Origin, names, origin
from tests.support.egress.program import Egress, head

INSIDE = {
    "loopback.example.org": ["127.0.0.1"],
    "loopback6.example.org": ["::1"],
    "private.example.org": ["10.1.2.3"],
    "private6.example.org": ["fd00::1"],
    "link.example.org": ["169.254.7.7"],
    "metadata.example.org": ["169.254.169.254"],
    "metadata6.example.org": ["fd00:ec2::254"],
    "azure.example.org": ["168.63.129.16"],
    "carrier.example.org": ["100.64.0.1"],
    "zero.example.org": ["0.0.0.0"],
    "everybody.example.org": ["255.255.255.255"],
    "multicast.example.org": ["224.0.0.1"],
    "mapped.example.org": ["::ffff:127.0.0.1"],
    "translated.example.org": ["64:ff9b::7f00:1"],
    "sixtofour.example.org": ["2002:7f00:1::"],
    "mixed.example.org": ["93.184.216.34", "127.0.0.1"],
}
LITERALS = ["127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "[fd00:ec2::254]", "0.0.0.0"]


@pytest.fixture
async def server(egress: Egress) -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


async def test_what_leads_inside_is_not_connected_to(egress: Egress, server: Origin) -> None:
    """Even where a rule names it: a rule opens a host, and not this machine or its network."""
    where = [*INSIDE, *LITERALS]
    async with names(INSIDE) as (at, _):
        await egress.configure(
            shell=pb.EgressPolicy(allow=[f"{each}:{server.port}" for each in where]),
            name_servers=[at],
            private_networks=[],
        )
        for host in where:
            target = f"{host}:{server.port}"
            got = await egress.say(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")
            assert (got.status, got.refused) == (403, "address"), (host, got)
            tunnel, (_, writer) = await egress.tunnel(target)
            assert (tunnel.status, tunnel.refused) == (403, "address"), (host, tunnel)
            writer.transport.abort()
    assert server.connections == 0
    assert {each.decision for each in egress.begun} == {"refused"}
    assert "mixed.example.org is 127.0.0.1" in " ".join(each.reason for each in egress.begun)


@pytest.mark.parametrize("own", ["93.184.216.34", "2606:2800:220:1::1"])
async def test_the_hosts_own_public_addresses_are_refused_like_private_ones(
    egress: Egress, own: str
) -> None:
    host = "mine.example.org"
    async with names({host: [own]}) as (at, _):
        opened = {"shell": pb.EgressPolicy(allow=[f"{host}:1"]), "name_servers": [at]}
        await egress.configure(**opened, own_addresses=[own])
        got, (_, writer) = await egress.tunnel(f"{host}:1")
        assert (got.status, got.refused) == (403, "address")
        assert "this machine's own" in got.body.decode()
        writer.transport.abort()


async def test_a_name_is_resolved_once_for_a_check_and_a_connection(
    egress: Egress, server: Origin
) -> None:
    """It leads to an open network the first time that it is asked for, and then elsewhere."""
    zone = {"rebind-*": ["127.0.0.1", "169.254.169.254"]}
    async with names(zone) as (at, asked):
        await egress.configure(
            shell=pb.EgressPolicy(allow=[f"*.example.org:{server.port}"]), name_servers=[at]
        )
        for host in ("rebind-a.example.org", "rebind-b.example.org"):
            target = f"{host}:{server.port}"
            got = await egress.say(f"GET http://{target}/x HTTP/1.1\r\nHost: {target}\r\n\r\n")
            assert (got.status, got.body) == (200, b"you sent  to /x")
            assert [each.what for each in asked.of("question", host)].count("type 1") == 1
            assert egress.begun[-1].address == "127.0.0.1"
    assert server.connections == 2


async def test_a_name_that_leads_inside_the_second_time_leads_nowhere(
    egress: Egress, server: Origin
) -> None:
    zone = {"rebind-*": ["93.184.216.34", "127.0.0.1"]}
    async with names(zone) as (at, _):
        host = "rebind-a.example.org"
        for _ in range(2):  # the first has no answer from there, or one from the real internet
            await egress.configure(
                shell=pb.EgressPolicy(allow=[f"*.example.org:{server.port}"]),
                name_servers=[at],
                private_networks=[],
            )
            got, (_, writer) = await egress.tunnel(f"{host}:{server.port}")
            assert got.status in (403, 502)
            writer.transport.abort()
        assert got.refused == "address"
    assert server.connections == 0


async def test_one_address_that_does_not_answer_leaves_the_others(
    egress: Egress, certificates: Certificates
) -> None:
    host = "files.example.org"
    async with (
        origin(certificates.server(host), address="127.0.0.2") as server,
        names({host: ["127.0.0.3", "127.0.0.2"]}) as (at, _),
    ):
        target = f"{host}:{server.port}"
        await egress.configure(shell=pb.EgressPolicy(allow=[target]), name_servers=[at])
        got, (reader, writer) = await egress.tunnel(target)
        assert got.status == 200
        await writer.start_tls(certificates.client(), server_hostname=host)
        writer.write(f"GET / HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert (await head(reader)).status == 200
        writer.transport.abort()


async def test_a_name_that_is_not_there_is_said_to_be(egress: Egress, server: Origin) -> None:
    async with names({}) as (at, _):
        await egress.configure(shell=pb.EgressPolicy(allow=["no.example.org:1"]), name_servers=[at])
        got, (_, writer) = await egress.tunnel("no.example.org:1")
    assert (got.status, got.refused) == (502, "unreachable")
    assert "no.example.org is not found" in got.body.decode()
    writer.transport.abort()
