"""Whom the real program asks for the addresses of names, how often, and what it says of answers."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from wire.identity import Party
from wire.v1 import egress_pb2 as pb

from egress.outbound.dialing import ADDRESSES_MAX, Dialer, OutboundClients
from tests.support.egress.origins import names, origin
from tests.support.egress.program import Egress
from tests.support.internet.arrivals import Arrivals
from tests.support.internet.names import Names

LOOKUPS = """
import asyncio, ssl
from egress.outbound.dialing import Dialer

async def look():
    dialer = Dialer((), (), ssl.create_default_context())
    for name in ("short", "pinned", "files.example.org"):
        print(*await dialer.lookup(name))

asyncio.run(look())
"""


class Deaf(Names):
    """Does not answer about names that begin with "dead"; about others below `broken` it says that
    it cannot."""

    def answer(self, question: bytes) -> bytes:
        reply = super().answer(question)
        if b"\6broken" in question:
            return reply[:2] + b"\x81\x82" + reply[4:6] + bytes(6) + question[12:]
        return reply

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if b"dead" in data:
            self.answer(data)  # which notes that it was asked
        else:
            super().datagram_received(data, addr)


@asynccontextmanager
async def deaf() -> AsyncIterator[tuple[str, Arrivals]]:
    zone, arrivals = {"files.example.org": ["127.0.0.1"], "six.example.org": ["::1"]}, Arrivals()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Deaf(zone, arrivals), ("127.0.0.1", 0)
    )
    yield "{}:{}".format(*transport.get_extra_info("sockname")), arrivals
    transport.close()


async def test_a_dead_name_server_holds_up_nobody_else(egress: Egress) -> None:
    """As many commands as there may be connections wait for it, each name asked for once."""
    async with deaf() as (at, asked), origin() as server:
        opened = pb.EgressPolicy(allow=[f"*.example.org:{server.port}"])
        await egress.configure(shell=opened, agent=opened, name_servers=[at])

        async def get(host: str) -> tuple[int, bytes]:
            target = f"{host}.example.org:{server.port}"
            said = f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n"
            answer = await egress.say(said)
            return answer.status, answer.body

        async with asyncio.timeout(60):
            waiting = [asyncio.create_task(get(f"dead{each % 20}")) for each in range(60)]
            while len({each.to for each in asked.of("question") if each.to[:4] == "dead"}) < 20:
                await asyncio.sleep(0.02)
            target = f"files.example.org:{server.port}"
            assert (await egress.ask(f"http://{target}/", host=target)).status == 200
            assert [each.result() for each in waiting if each.done()] == []
            for status, body in await asyncio.gather(*waiting):
                assert (status, b"no name server answers about dead" in body) == (502, True)
        firsts = [each.what for each in asked.of("question", "dead7.example.org")]
        assert firsts.count("type 1") <= 5  # tries of one question


async def test_what_name_servers_say_is_told(egress: Egress) -> None:
    async with deaf() as (at, _), origin(address="::1") as server:
        await egress.configure(shell=pb.EgressPolicy(allow=[f"*:{server.port}"]), name_servers=[at])
        told = {
            "no.example.org": (502, b"the name no.example.org is not found"),
            "a.broken.example.org": (502, b"no name server answers about a.broken"),
            "six.example.org": (200, b"you sent"),
        }
        for host, (status, words) in told.items():
            target = f"{host}:{server.port}"
            answer = await egress.say(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")
            assert (answer.status, words in answer.body) == (status, True), answer


async def test_what_was_checked_is_what_is_connected_to() -> None:
    """A name that was asked for again led to where a later answer, or older private networks,
    let it."""
    async with names({}) as (at, asked), origin() as server:
        dialer = Dialer((), (at,), ssl.create_default_context())
        outside = OutboundClients(dialer)
        async with outside.client(Party.SHELL, ("127.0.0.1",), upstream=None) as client:
            url = f"http://files.example.org:{server.port}/"
            assert (await client.get(url)).status == 200
        addresses, protocol = ("127.0.0.1",), asyncio.Protocol()
        await dialer.connect("files.example.org", server.port, addresses, protocol)
        await outside.close()
    assert (server.connections, asked.of("question")) == (2, [])


async def test_of_a_name_with_thousands_of_addresses_a_few_count() -> None:
    """All of them were kept, for a thousand names, and looked at for each request."""
    async with names({"files.example.org": [f"192.0.2.{n}" for n in range(1, 60)]}) as (at, _):
        dialer = Dialer((), (at,), ssl.create_default_context())
        assert len(await dialer.lookup("files.example.org")) == ADDRESSES_MAX


@pytest.mark.root
async def test_hosts_and_search_domains_of_the_machine_count(tmp_path: Path) -> None:
    """As its own resolver does it: the file first, and short names below the search domains."""
    zone = {"short.example.com": ["192.0.2.1"], "files.example.org": ["192.0.2.2"]}
    async with names(zone) as (at, asked):
        (tmp_path / "hosts").write_text("192.0.2.3 files.example.org pinned\n")
        (tmp_path / "resolv.conf").write_text(f"nameserver {at}\nsearch example.com\n")
        mounted = [
            f"mount --bind {tmp_path / each} /etc/{each}" for each in ("hosts", "resolv.conf")
        ]
        script = " && ".join([*mounted, f"exec {sys.executable} -P -c '{LOOKUPS}'"])
        looking = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "sh", "-c", script), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await looking.communicate()
    assert said.decode().split() == ["192.0.2.1", "192.0.2.3", "192.0.2.3"]
    assert asked.of("question", "files.example.org") == []
