"""Limits at the listeners of the real program, also in mid-stream and after a change."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from wire import zones
from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import Certificates, names, origin
from tests.support.egress.program import Egress, head

MB = 1_000_000


class Site:
    """A server that commands may reach, and the program that lets them."""

    def __init__(self, egress: Egress, at: str, port: int) -> None:
        self.egress = egress
        self.target = f"files.example.org:{port}"
        self._at = at

    async def limit(self, *, spent: tuple[pb.EgressSpent, ...] = (), **limits: int) -> None:
        await self.egress.configure(
            shell=pb.EgressPolicy(allow=[self.target]),
            name_servers=[self._at],
            limits=pb.EgressLimits(**limits),
            spent=spent,
        )

    async def get(self, path: str = "/", turn_id: str = "turn-1") -> tuple[int, str, bytes]:
        """The status, egress's word for a refusal, and what came until the end."""
        reader, writer = await self.egress.at_shell_listener(turn_id=turn_id)
        writer.write(
            f"GET http://{self.target}{path} HTTP/1.1\r\nHost: {self.target}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        try:
            async with asyncio.timeout(60):
                answer = await head(reader)
                return answer.status, answer.refused, answer.body + await until_end(reader)
        finally:
            writer.transport.abort()


async def until_end(reader: asyncio.StreamReader) -> bytes:
    """All that comes, whether the other side ends it or breaks it off."""
    received = bytearray()
    try:
        while piece := await reader.read(2**16):
            received += piece
    except ConnectionError:
        pass
    return bytes(received)


@pytest.fixture
async def site(egress: Egress) -> AsyncIterator[Site]:
    async with origin() as server, names({"files.example.org": ["127.0.0.1"]}) as (at, _):
        yield Site(egress, at, server.port)


async def test_requests_of_a_turn(site: Site) -> None:
    await site.limit(turn_requests=2)
    assert [(await site.get())[0] for _ in range(3)] == [200, 200, 429]
    status, refused, body = await site.get()
    assert (status, refused) == (429, "limit")
    assert b"the limit of 2 requests a turn is reached (egress.limits.turn_requests)" in body
    assert (await site.get(turn_id="turn-2"))[0] == 200
    begun = [each for each in site.egress.begun if each.decision == "refused"]
    assert len(begun) == 2
    assert "2 requests a turn" in begun[0].reason
    await site.limit(turn_requests=5)
    assert (await site.get())[0] == 200, "a changed limit holds at once"


async def test_bytes_end_an_answer_on_its_way(site: Site) -> None:
    await site.limit(host_day_bytes=20 * MB)
    status, _, body = await site.get("/forever")
    assert status == 200
    assert 10 * MB < len(body) < 25 * MB
    ended = await site.egress.end_of("files.example.org")
    assert ended.outcome == "limit"
    assert "20 MB to files.example.org a day is reached" in ended.reason
    assert (await site.get())[0] == 429


async def test_bytes_end_a_tunnel_on_its_way(egress: Egress, certificates: Certificates) -> None:
    context = certificates.server("files.example.org")
    async with origin(context) as server, names({"files.example.org": ["127.0.0.1"]}) as (at, _):
        site = Site(egress, at, server.port)
        await site.limit(turn_bytes=20 * MB)
        answer, (reader, writer) = await egress.tunnel(site.target)
        assert answer.status == 200
        await writer.start_tls(certificates.client(), server_hostname="files.example.org")
        writer.write(f"GET /forever HTTP/1.1\r\nHost: {site.target}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            received = len(await until_end(reader))
        writer.transport.abort()
    assert 10 * MB < received < 25 * MB
    ended = await egress.end_of("files.example.org")
    assert (ended.outcome, "20 MB a turn is reached" in ended.reason) == ("limit", True)


async def test_what_was_spent_before_counts(site: Site) -> None:
    spent = pb.EgressSpent(
        role="shell", host="files.example.org", day=zones.today().isoformat(), requests=9
    )
    await site.limit(day_requests=10, spent=(spent,))
    assert [(await site.get())[0] for _ in range(2)] == [200, 429]


async def test_connections_at_once(site: Site) -> None:
    await site.limit(connections=3)
    held = [await site.egress.at_shell_listener() for _ in range(3)]
    for reader, writer in held:
        url = f"http://{site.target}/forever"
        writer.write(f"GET {url} HTTP/1.1\r\nHost: {site.target}\r\n\r\n".encode())
        assert (await head(reader)).status == 200
    status, refused, body = await site.get()
    assert (status, refused) == (429, "limit")
    assert b"3 connections at once" in body
    for _, writer in held:
        writer.transport.abort()
    async with asyncio.timeout(60):
        while (await site.get())[0] != 200:
            await asyncio.sleep(0.05)


async def test_servers_of_the_settings_have_no_limits(egress: Egress) -> None:
    async with origin() as server:
        await egress.configure(
            upstreams=[pb.EgressUpstream(name="memory", url=f"http://127.0.0.1:{server.port}")],
            limits=pb.EgressLimits(turn_requests=1, day_requests=1, host_day_bytes=1),
        )
        for _ in range(3):
            answer = await egress.ask("/memory/", **{"oxydra-turn": "turn-1"})
            assert answer.status == 200
