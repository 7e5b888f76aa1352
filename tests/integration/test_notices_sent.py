"""Notices leave by egress alone: by real apprise, to servers that stand for ntfy and for mail."""

import asyncio
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from wire.errors import Code, WireError
from wire.identity import Party, Peer
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb

from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.egress.log import Requests, Wanted
from runner.host.host import Host
from runner.notices import delivery, sending
from runner.notices.addresses import Address
from runner.notices.delivery import Delivery
from tests.support import parties
from tests.support.gateway.gateways import open_gateways
from tests.support.scratch import SCRATCH
from tests.support.servers.authority import Authority

_PASSWORD = "mail-password-4711"


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxn-") as path:
        yield Path(path)


@asynccontextmanager
async def ntfy() -> AsyncIterator[tuple[int, list[dict[str, str]]]]:
    """A server that takes what is published: its port, and the messages."""
    messages: list[dict[str, str]] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length:")[2].split()[0])
        messages.append(json.loads(await reader.readexactly(size)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], messages


@asynccontextmanager
async def mail(authority: Authority) -> AsyncIterator[tuple[int, list[str]]]:
    """A mail server, TLS from the first byte on: its port, and what it was told."""
    said: list[str] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        in_data = False
        while line := (await reader.readline()).decode():
            said.append(line.rstrip())
            verb = line[:4].upper().strip()
            if in_data and line != ".\r\n":
                continue
            answer = {"EHLO": "250-here\r\n250 AUTH PLAIN", "AUTH": "235 yes", "DATA": "354 go on"}
            in_data = verb == "DATA"
            writer.write(f"{answer.get(verb, '250 yes')}\r\n".encode())
            if verb == "QUIT":
                break
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate_for("localhost"))
    async with await asyncio.start_server(take, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], said


def config(root: Path, *variables: str) -> Config:
    return Config.model_validate(
        {
            "workspace_root": root / "ws",
            "runtime_dir": root / "rt",
            "tier": "process",
            "embedder": {"backend": "none"},
            "shell": {"enabled": False},
            "agent": {"provider": "offline"},
            "egress": {"private_networks": ["127.0.0.0/8", "::1/128"], "ca_file": root / "ca.pem"},
            "notices": {"urls_env": variables},
        }
    )


async def until(true: object) -> None:
    async with asyncio.timeout(60):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0.02)


async def test_notices_go_out_by_egress_and_are_recorded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PAUSE_FIRST_S", 0.05)
    authority = Authority(root)
    (root / "ca.pem").write_text(authority.pem)
    settings = config(root, "NTFY", "MAIL", "AWAY")
    async with ntfy() as (port, messages), mail(authority) as (mail_port, said):
        environ = {
            "NTFY": f"ntfy://127.0.0.1:{port}/my-topic-4711",
            "MAIL": f"mailtos://u:{_PASSWORD}@example.org:{mail_port}?mode=ssl&smtp=localhost",
            "AWAY": "json://10.1.2.3/path-4711",
        }
        async with Host(settings, "alice", environ=environ) as host:
            sent = {each.to: each.problem for each in await host.test_notices()}
            assert (sent["NTFY"], sent["MAIL"]) == ("", "")
            assert "10.1.2.3 may not be reached: it is private" in sent["AWAY"]
            assert messages[0]["topic"] == "my-topic-4711"
            assert "rcpt TO:<u@example.org>" in said

            text = 'see <a href="https://x.example/">this</a><img src=https://x.example/?data>'
            notice = pb.AddNoticeRequest(kind="guest", text=text, key="k")
            async with await GatewayClient.open(await host.gateway(), channel_name="t") as agent:
                await agent.add_notice(notice)
            await until(lambda: len(messages) == 2 and said.count(".") == 2)
            assert messages[1]["message"] == f"guest: {text}"
            assert [each for each in said if each.startswith("Content-Type")] == [
                'Content-Type: text/plain; charset="utf-8"'
            ] * 2  # no program of mail asks for what a model names there
            assert messages[1]["title"] == "Oxydra (alice): 1 notice"
            shown = str(await host.status()) + str(await host.get_egress())
        rows = Requests.locate(settings, "alice").list(Wanted(role="runner"))
    found = {(each.role, each.host, each.decision) for each in rows}
    assert ("runner", "127.0.0.1", "allowed") in found
    assert ("runner", "localhost", "allowed") in found
    assert ("runner", "10.1.2.3", "refused") in found
    assert "notices do not reach AWAY" in shown
    for text in (shown, *(path.read_text() for path in root.rglob("*.log*"))):
        assert "4711" not in text


async def test_without_an_address_a_test_says_how_to_name_one(root: Path) -> None:
    (root / "ca.pem").write_text(Authority(root).pem)
    async with Host(config(root), "alice", environ={}) as host:
        with pytest.raises(WireError) as refused:
            await host.test_notices()
        assert refused.value.code is Code.FAILED_PRECONDITION


_TRY = """
import socket, subprocess, sys
from runner.notices.sending import go_by
proxy, server = (("127.0.0.1", int(port)) for port in sys.argv[1:])
go_by(proxy)
for tried in (
    lambda: socket.create_connection(server),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", server),
    lambda: subprocess.run(["true"]),
):
    try:
        tried()
        print("done")
    except OSError as error:
        print(error)
socket.create_connection(proxy)
"""


async def test_what_sends_reaches_its_proxy_and_nothing_else() -> None:
    async with ntfy() as (proxy, _), ntfy() as (server, _):
        tried = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _TRY, str(proxy), str(server)), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await tried.communicate()
    assert said.decode().splitlines() == ["notices go through egress alone"] * 4
    assert tried.returncode == 0


async def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SEND_S", 1.0)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as silent:
        proxy = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        why = await sending.send("json://h.example/x", "t", "b", proxy=proxy, ca_pem="")
    assert why == "it was not sent within 1 seconds"


@pytest.fixture
async def agent() -> AsyncIterator[grpc.aio.Channel]:
    async with open_gateways() as gateways:
        served = await gateways.serve("alice")
        peer = parties.peer(served.address, Party.AGENT, served.token)
        async with open_channel(peer) as channel:
            yield channel


@pytest.fixture
def alice(agent: grpc.aio.Channel) -> GatewayClient:
    return GatewayClient(agent, "host")


class Service:
    """Stands for what sends: takes messages, or does not."""

    def __init__(self, agent: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: list[str] = []
        self.why = ""
        self._agent = agent
        monkeypatch.setattr(delivery, "send", self._send)

    async def _send(self, _: str, __: str, body: str, **___: str) -> str:
        self.bodies.append(body)
        return self.why

    async def _channel(self) -> grpc.aio.Channel:
        return self._agent

    async def _egress(self) -> Peer:
        return parties.peer("unix:/nowhere", Party.EGRESS, "token")

    @asynccontextmanager
    async def serving(self, url: str = "ntfys://topic") -> AsyncIterator[Delivery]:
        delivering = Delivery("alice", self._channel, self._egress)
        await delivering.serve([Address.of("X", url)])
        try:
            yield delivering
        finally:
            await delivering.close()


async def add(client: GatewayClient, *numbers: int) -> None:
    for number in numbers:
        request = pb.AddNoticeRequest(kind="guest", text=f"n{number}", key=f"k{number}")
        await client.add_notice(request)


async def test_a_message_is_sent_before_it_counts_as_told_and_no_more_than_twice(
    agent: grpc.aio.Channel, alice: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(agent, monkeypatch)
    await add(alice, 1)

    async def ends(*_: object) -> None:
        await asyncio.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(GatewayClient, "mark_notices", ends)
        async with service.serving():
            await until(lambda: service.bodies == ["guest: n1"])
    for _ in range(2):
        async with service.serving():
            await until(lambda: len(service.bodies) >= 2)
            await asyncio.sleep(0.2)
        assert service.bodies == ["guest: n1"] * 2
    await add(alice, 2)
    async with service.serving():
        await until(lambda: service.bodies[2:] == ["guest: n2"])
    async with service.serving("ntfys://another"):
        await until(lambda: service.bodies[3:] == ["guest: n1\nguest: n2"])
    await alice.mark_notices(read_up_to=2)
    async with service.serving("ntfys://third"):
        await asyncio.sleep(0.2)
    assert len(service.bodies) == 4


async def test_a_loop_of_notices_is_a_few_messages(
    agent: grpc.aio.Channel, alice: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PAUSE_FIRST_S", 0.1)
    service = Service(agent, monkeypatch)
    async with service.serving():
        for number in range(300):
            await add(alice, number)
        await until(lambda: "n299" in service.bodies[-1])
    assert len(service.bodies) < 10
    assert any(body.endswith("more: runner notices") for body in service.bodies)
    assert all(body.count("\n") <= 5 for body in service.bodies)


async def test_a_service_that_is_away_is_told_and_tried_again_with_longer_pauses(
    agent: grpc.aio.Channel, alice: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PAUSE_FIRST_S", 0.05)
    service = Service(agent, monkeypatch)
    service.why = "it is away"
    await add(alice, 1)
    async with service.serving() as delivering:
        await until(lambda: len(service.bodies) == 3)
        assert delivering.problems() == ["notices do not reach X: it is away"]
        await asyncio.sleep(0.3)
        assert len(service.bodies) <= 4
        service.why = ""
        await until(lambda: not delivering.problems())
        count = len(service.bodies)
        await asyncio.sleep(0.3)
        assert len(service.bodies) == count
