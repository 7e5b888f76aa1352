"""Those who are slow, many or large do not take the real program down, nor keep others out."""

import asyncio
import os
import resource
import ssl
from collections.abc import Iterator

import pytest
from wire.v1 import egress_pb2 as pb

from egress.proxy.listener import CONNECTION_BYTES, CONNECTIONS_MAX
from tests.support.egress.origins import Certificates, names, origin
from tests.support.egress.program import Egress, head

HOST = "files.example.org"
MANY = 2_000


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many as the test's own clients need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_slow_clients_are_told_to_hurry_and_then_left(egress: Egress) -> None:
    """Whoever says nothing, half of a head, or nothing in a tunnel."""
    async with origin() as server, names({HOST: ["127.0.0.1"]}) as (at, _):
        target = f"{HOST}:{server.port}"
        await egress.configure(shell=pb.EgressPolicy(allow=[target]), name_servers=[at])
        silent = await egress.at_shell_listener()
        half = await egress.at_shell_listener()
        half[1].write(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n".encode())
        _, tunnel = await egress.tunnel(target)
        raw = await asyncio.open_unix_connection(str(egress.shell_listener))
        async with asyncio.timeout(60):
            assert (await head(silent[0])).status == 408
            assert (await head(half[0])).status == 408
            assert await tunnel[0].read() in (b"", b"\x15\x03\x03\0\2\2\x31")
            assert await raw[0].read() == b""
        assert (await egress.end_of(HOST)).outcome == "refused"
        assert server.requests == []
        for _, writer in (silent, half, tunnel, raw):
            writer.transport.abort()


@pytest.mark.usefixtures("descriptors")
async def test_two_thousand_connections_do_not_take_it_down(egress: Egress) -> None:
    """Its memory stays bounded, and who comes after them is served."""
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        await egress.configure(
            shell=pb.EgressPolicy(allow=[target]), agent=pb.EgressPolicy(allow=[target])
        )
        before = resident_mb(egress)
        room = asyncio.Semaphore(50)

        async def connect() -> asyncio.StreamWriter | None:
            async with room:
                try:
                    return (await egress.at_shell_listener())[1]
                except OSError:
                    return None

        writers = await asyncio.gather(*(connect() for _ in range(MANY)))
        held = [each for each in writers if each is not None]
        assert len(held) >= CONNECTIONS_MAX
        assert len(os.listdir(f"/proc/{egress.process.pid}/fd")) < CONNECTIONS_MAX + 100
        assert resident_mb(egress) - before < 150
        assert (await egress.ask(f"http://{target}/x", host=target)).status == 200
        for each in held:
            each.transport.abort()
        request = f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n"
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await egress.say(request)
                    break
                except OSError:
                    await asyncio.sleep(0.1)
        assert answer.status == 200


async def test_connections_over_the_limit_are_refused_with_the_reason(egress: Egress) -> None:
    async with origin() as server, names({HOST: ["127.0.0.1"]}) as (at, _):
        target = f"{HOST}:{server.port}"
        await egress.configure(
            shell=pb.EgressPolicy(allow=[target]),
            name_servers=[at],
            limits=pb.EgressLimits(connections=3),
        )
        open_ones = [await egress.tunnel(target) for _ in range(3)]
        assert {each.status for each, _ in open_ones} == {200}
        one_more, (_, writer) = await egress.tunnel(target)
        assert (one_more.status, one_more.refused) == (429, "limit")
        assert "egress.limits.connections" in one_more.body.decode()
        writer.transport.abort()
        open_ones[0][1][1].transport.abort()
        async with asyncio.timeout(60):
            while (again := (await egress.tunnel(target)))[0].status != 200:
                again[1][1].transport.abort()
                await asyncio.sleep(0.05)


async def test_a_limit_of_bytes_ends_a_download_in_its_middle(egress: Egress) -> None:
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        await egress.configure(
            shell=pb.EgressPolicy(allow=[target]), limits=pb.EgressLimits(turn_bytes=5_000_000)
        )
        reader, writer = await egress.at_shell_listener()
        writer.write(f"GET http://{target}/bytes?50 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert (await head(reader)).status == 200
        received = 0
        try:
            while data := await reader.read(2**20):
                received += len(data)
        except ConnectionError:
            pass
        assert received <= 5_000_000
        assert (await egress.end_of("127.0.0.1")).outcome == "limit"
        writer.transport.abort()
        answer = await egress.say(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")
        assert (answer.status, answer.refused) == (429, "limit")


@pytest.mark.usefixtures("descriptors")
async def test_answers_that_nobody_reads_fit_into_the_memory(
    egress: Egress, certificates: Certificates
) -> None:
    """Each connection takes what the start counts on, also where its TLS ends at egress."""
    async with (
        origin(certificates.server(HOST)) as server,
        names({HOST: ["127.0.0.1"]}) as (at, _),
    ):
        target = f"{HOST}:{server.port}"
        opened, ca = pb.EgressPolicy(allow=[target]), certificates.pem
        configured = await egress.configure(
            shell=opened, name_servers=[at], ca_pem=ca, inspected=[target]
        )
        trusting = ssl.create_default_context(cadata=configured.authority_pem)
        before, held = resident_mb(egress), []
        for _ in range(100):
            _, (reader, writer) = await egress.tunnel(target)
            await writer.start_tls(trusting, server_hostname=HOST)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET /bytes?2 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            held.append((reader, writer))
        received, earlier = 0, -1
        while received != earlier or len(server.requests) < 100:
            await asyncio.sleep(1)
            counters = await egress.stub.Counters(pb.EgressCountersRequest())
            received, earlier = sum(each.received for each in counters.counts), received
        assert (resident_mb(egress) - before) * 2**20 < 100 * CONNECTION_BYTES
        for _, writer in held:
            writer.transport.abort()


async def test_a_client_that_does_not_read_fills_no_memory(egress: Egress) -> None:
    async with origin() as server:
        target = f"127.0.0.1:{server.port}"
        await egress.configure(shell=pb.EgressPolicy(allow=[target]))
        before = resident_mb(egress)
        streams = [await egress.at_shell_listener() for _ in range(10)]
        request = f"GET http://{target}/forever HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
        for reader, writer in streams:
            writer.write(request)
            assert (await head(reader)).status == 200
        await asyncio.sleep(1)
        assert resident_mb(egress) - before < 60
        for _, writer in streams:
            writer.transport.abort()


def resident_mb(egress: Egress) -> int:
    with open(f"/proc/{egress.process.pid}/smaps_rollup") as rollup:
        lines = dict(line.split(":", 1) for line in rollup if ":" in line[:20])
    return int(lines["Rss"].split()[0]) // 1024
