"""A change of the policy while the real program waits for somebody, between a decision and the
first byte that goes out by it, or after that."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from wire.v1 import egress_pb2 as pb

from tests.support.egress.hellos import hello, in_records
from tests.support.egress.program import Answer, Egress, running
from tests.support.internet.arrivals import Arrivals
from tests.support.internet.names import Names

HOST = "files.example.org"


@pytest.fixture
async def egress(tmp_path: Path) -> AsyncIterator[Egress]:
    async with running(tmp_path) as made:
        yield made


@dataclass
class Held:
    """Somebody whom egress waits for: until `free`, once it is `reached`."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self.free.wait()


@dataclass
class Site(Held):
    """A server that answers when it is free, and what it has heard."""

    port: int = 0
    heard: bytes = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            self.heard += await reader.read(65_536)
            await self.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    @property
    def target(self) -> str:
        return f"{HOST}:{self.port}"


class SlowNames(Names):
    """A name server that answers when `held` is free."""

    def __init__(self, held: Held) -> None:
        super().__init__({HOST: ["127.0.0.1"]}, Arrivals())
        self.held = held
        self.answering: set[asyncio.Task[None]] = set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        task = asyncio.create_task(self._answer(data, addr))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    async def _answer(self, data: bytes, addr: tuple[str, int]) -> None:
        await self.held.wait()
        super().datagram_received(data, addr)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    made.free.set()
    server.close()


@asynccontextmanager
async def name_server(held: Held) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: SlowNames(held), ("127.0.0.1", 0))
    yield "{}:{}".format(*transport.get_extra_info("sockname"))
    transport.close()


def at_once() -> Held:
    held = Held()
    held.free.set()
    return held


async def by_request(egress: Egress, target: str) -> Answer:
    return await egress.say(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n")


async def by_tunnel(egress: Egress, target: str) -> Answer:
    answer, (_, writer) = await egress.tunnel(target)
    writer.transport.abort()
    return answer


Way = Callable[[Egress, str], Coroutine[Any, Any, Answer]]
ways = pytest.mark.parametrize("way", [by_request, by_tunnel])


@ways
@pytest.mark.parametrize("waits_for", ["a person", "a name server", "the record"])
@pytest.mark.attempt(
    "a request that waits while a person denies its host",
    stopped_by="the decision is made again when its passage is registered",
)
async def test_a_deny_while_it_waits_counts(egress: Egress, way: Way, waits_for: str) -> None:
    held, free = Held(), at_once()
    async with site() as there, name_server(held if waits_for == "a name server" else free) as at:
        there.free.set()

        async def hold(event: pb.EgressEvent) -> None:
            if event.WhichOneof("event") == {"a person": "question", "the record": "begun"}.get(
                waits_for
            ):
                await held.wait()

        egress.held = hold
        egress.answers = lambda _: True
        asks = pb.EgressPolicy(ask=True)
        opened = pb.EgressPolicy(allow=[there.target])
        await egress.configure(shell=asks if waits_for == "a person" else opened, name_servers=[at])
        going = asyncio.create_task(way(egress, there.target))
        async with asyncio.timeout(60):
            await held.reached.wait()
            denied = pb.EgressPolicy(allow=[there.target], deny=[HOST], ask=True)
            await egress.configure(shell=denied, name_servers=[at])
            held.free.set()
            answer = await going
    assert (answer.status, answer.refused) == (403, "policy")
    assert f"the rule {HOST} denies it" in answer.body.decode()
    assert there.heard == b""


@ways
@pytest.mark.parametrize("now", ["nobody is asked", "a part is allowed"])
@pytest.mark.attempt(
    "a person's yes to what the rules would not ask for any more",
    stopped_by="the answer counts only if the rules of now still ask the same",
)
async def test_a_yes_to_what_is_not_asked_any_more_opens_nothing(
    egress: Egress, way: Way, now: str
) -> None:
    held = Held()
    async with site() as there, name_server(at_once()) as at:

        async def hold(event: pb.EgressEvent) -> None:
            if event.HasField("question"):
                await held.wait()

        egress.held, egress.answers = hold, lambda _: True
        await egress.configure(shell=pb.EgressPolicy(ask=True), name_servers=[at])
        going = asyncio.create_task(way(egress, there.target))
        async with asyncio.timeout(60):
            await held.reached.wait()
            part = pb.EgressPolicy(ask=True, allow=[f"POST {there.target}/public/*"])
            rules = part if now == "a part is allowed" else pb.EgressPolicy()
            await egress.configure(shell=rules, name_servers=[at])
            held.free.set()
            answer = await going
    assert (answer.status, answer.refused, there.heard) == (403, "policy", b"")


@ways
@pytest.mark.attempt(
    "a request that is being connected while a person denies its host",
    stopped_by="a change of the policy ends every passage that it forbids",
)
async def test_a_deny_while_it_is_connected_counts(egress: Egress, way: Way) -> None:
    """The server's queue is full, so that the kernel lets the connection wait."""
    held = at_once()
    listening = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = listening.getsockname()[1]
    filling = [socket.socket() for _ in range(4)]
    for each in filling:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    async with name_server(held) as at:
        opened = pb.EgressPolicy(allow=[f"{HOST}:{port}"])
        await egress.configure(shell=opened, name_servers=[at])
        going = asyncio.create_task(way(egress, f"{HOST}:{port}"))
        async with asyncio.timeout(60):
            while not egress.begun:
                await asyncio.sleep(0.02)
            await egress.configure(shell=pb.EgressPolicy(), name_servers=[at])
            answer = await going
    assert (answer.status, answer.refused) == (403, "policy")
    assert (await egress.end_of(HOST)).outcome == "cut"
    for each in (*filling, listening):
        each.close()


@pytest.mark.attempt(
    "a request to a server of the settings that is withdrawn while it is connected to",
    stopped_by="a change of the settings ends every passage that it forbids",
)
@pytest.mark.parametrize("change", ["the server is gone", "it lies elsewhere", "nothing counts"])
async def test_a_server_of_the_settings_that_is_gone_is_asked_nothing(
    egress: Egress, change: str
) -> None:
    """Egress waits for its TLS, which says nothing; so no byte of the request was sent."""
    async with site() as there:
        upstream = pb.EgressUpstream(name="model", url=f"https://127.0.0.1:{there.port}")
        await egress.configure(upstreams=[upstream])
        going = asyncio.create_task(egress.ask("/model/chat"))
        async with asyncio.timeout(60):
            await there.reached.wait()
            if change == "nothing counts":
                with suppress(Exception):
                    await egress.configure(agent_token="")
            else:
                upstream.url += "/elsewhere"
                kept = [upstream] if change == "it lies elsewhere" else []
                await egress.configure(upstreams=kept)
            answer = await going
    assert (answer.status, answer.refused) == (403, "policy")
    assert b"chat" not in there.heard


async def test_what_waits_for_an_answer_ends_and_another_goes_on(egress: Egress) -> None:
    held = at_once()
    async with site() as one, site() as other, name_server(held) as at:
        both = pb.EgressPolicy(allow=[one.target, other.target])
        await egress.configure(shell=both, name_servers=[at])
        ends = asyncio.create_task(by_request(egress, one.target))
        goes_on = asyncio.create_task(by_request(egress, other.target))
        async with asyncio.timeout(60):
            await one.reached.wait()
            await other.reached.wait()
            only = pb.EgressPolicy(allow=[other.target])
            await egress.configure(shell=only, name_servers=[at])
            assert ((await ends).status, (await ends).refused) == (403, "policy")
            other.free.set()
            assert ((await goes_on).status, (await goes_on).body) == (200, b"hello")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"private_networks": []}, "127.0.0.1"),
        ({"inspected": True}, "whether its requests are read"),
        ({"proxy": "http://proxy.example.org:3128"}, "the proxy"),
    ],
)
async def test_what_no_rule_says_ends_what_goes_there_too(
    egress: Egress, change: dict[str, Any], why: str
) -> None:
    held = at_once()
    async with site() as there, name_server(held) as at:
        opened = pb.EgressPolicy(allow=[there.target])
        await egress.configure(shell=opened, name_servers=[at])
        answer, (reader, writer) = await egress.tunnel(there.target)
        assert answer.status == 200
        writer.write(in_records(hello(HOST)))
        async with asyncio.timeout(60):
            await there.reached.wait()
            now = change | ({"inspected": [there.target]} if "inspected" in change else {})
            await egress.configure(shell=opened, name_servers=[at], **now)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.transport.abort()
    ended = await egress.end_of(HOST)
    assert (ended.outcome, why in ended.reason) == ("cut", True)
