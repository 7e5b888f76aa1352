"""Guests in pods: whoever connects to their ports, or answers at one, is heard only if it proves to
be who it must be."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from wire import tls
from wire.egress.forwarder import EgressAddress as ShellEgress
from wire.egress.forwarder import Forwarder
from wire.endpoint import Endpoint
from wire.errors import Code, WireError
from wire.identity import Identity, Party, Peer
from wire.status import from_rpc_error
from wire.transport import Server, check_health, open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc, shell_pb2, shell_pb2_grpc

from guest.egress_client import EgressClient, EgressUnreachable
from runner.host.authority import Authority
from tests.support import parties
from tests.support.guests.on_ports import LAUNCH, TOKEN, OnPorts, elsewhere, on_ports
from tests.support.ports import free_port

OTHER = "a-later-launch"
STRANGERS = Authority.new()
UNPROVEN = "did not prove to be who it must be"


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """Writes down that it was reached."""

    def __init__(self) -> None:
        self.reached = 0

    async def Hello(self, request: gateway_pb2.HelloRequest, context: Any) -> Any:
        self.reached += 1
        return gateway_pb2.HelloReply(user_id="alice")


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()  # type: ignore[abstract]


@pytest.fixture
async def port(gateway: Gateway) -> AsyncIterator[int]:
    """Of an agent's gateway."""
    port = free_port()
    identity = parties.identity(Party.AGENT, LAUNCH)
    server = Server(f"tcp:*:{port}", TOKEN, identity, {Party.RUNNER, Party.CLI})
    gateway_pb2_grpc.add_GatewayServicer_to_server(gateway, server.grpc)
    await server.start()
    await server.set_serving(True)
    yield port
    await server.stop(0)


async def hello(channel: grpc.aio.Channel) -> WireError | None:
    """Why a call failed."""
    metadata = (("oxydra-token", TOKEN),)
    async with channel:
        stub: Any = gateway_pb2_grpc.GatewayStub(channel)
        try:
            await stub.Hello(gateway_pb2.HelloRequest(), metadata=metadata, timeout=20)
        except grpc.RpcError as error:
            return from_rpc_error(error)
    return None


def runner(port: int, **other: Any) -> Peer:
    """The agent as its runner knows it."""
    peer = parties.peer(elsewhere(port), Party.AGENT, TOKEN, Party.RUNNER, LAUNCH)
    return replace(peer, **other)


async def test_the_launch_that_is_meant_answers(port: int, gateway: Gateway) -> None:
    for host in ("127.0.0.1", "localhost", "127.0.0.2"):
        peer = runner(port, endpoint=f"tcp:{host}:{port}")
        assert await hello(open_channel(peer)) is None
        async with open_channel(peer) as channel:
            assert await check_health(channel)
    assert gateway.reached == 3


@pytest.mark.attempt(
    "an address beyond this machine, of which nobody knows whose it is now",
    stopped_by="no channel is opened there without the id of the launch that is meant",
)
async def test_without_the_launch_nobody_connects(port: int, gateway: Gateway) -> None:
    with pytest.raises(WireError, match="no launch is named"):
        open_channel(runner(port, launch_id=""))
    async with open_channel(runner(port, endpoint=f"tcp:127.0.0.1:{port}", launch_id="")) as local:
        assert not await check_health(local), "its name is another one, too"
    assert gateway.reached == 0


@pytest.mark.attempt(
    "another launch, role or authority at the address of a guest's pod",
    stopped_by="a client demands the certificate of the very launch, and sends nothing before",
)
@pytest.mark.parametrize(
    "other",
    [
        {"launch_id": OTHER},
        {"launch_id": f"{LAUNCH}-2"},
        {"party": Party.SHELL},
        {"identity": replace(parties.identity(Party.RUNNER), authority=STRANGERS.public)},
    ],
)
async def test_another_server_gets_no_call(
    port: int, gateway: Gateway, other: dict[str, Any]
) -> None:
    failure = await hello(open_channel(runner(port, **other)))
    assert failure is not None
    assert failure.code is Code.UNAVAILABLE
    assert UNPROVEN in failure.brief
    assert gateway.reached == 0


@pytest.mark.attempt(
    "a call from the network to a guest's port, without certificate or with one of others",
    stopped_by="mutual TLS: only parties of the runner's authority are heard",
)
@pytest.mark.parametrize("caller", ["nobody", "in the clear", "another authority", "forged"])
async def test_a_stranger_is_not_heard(port: int, gateway: Gateway, caller: str) -> None:
    foreign = STRANGERS.issue(Party.RUNNER)
    if caller == "in the clear":
        channel = grpc.aio.insecure_channel(f"127.0.0.2:{port}")
    elif caller == "nobody":
        credentials = grpc.ssl_channel_credentials(parties.AUTHORITY.public.encode())
        named = [("grpc.ssl_target_name_override", f"agent.{LAUNCH}")]
        channel = grpc.aio.secure_channel(f"127.0.0.2:{port}", credentials, options=named)
    else:
        theirs = replace(foreign, authority=parties.AUTHORITY.public)
        channel = open_channel(runner(port, identity=foreign if caller != "forged" else theirs))
    failure = await hello(channel)
    assert failure is not None
    assert failure.code is Code.UNAVAILABLE
    assert gateway.reached == 0


@pytest.mark.attempt(
    "a call from another guest's pod, with the token",
    stopped_by="a server serves the roles that it must, by the first word of their names",
)
@pytest.mark.parametrize("caller", [Party.SHELL, Party.EGRESS, Party.EMBEDDER, Party.AGENT])
@pytest.mark.parametrize("launch_id", ["", "runner", LAUNCH])
async def test_another_role_is_not_served(
    port: int, gateway: Gateway, caller: Party, launch_id: str
) -> None:
    identity = parties.identity(caller, launch_id)
    failure = await hello(open_channel(runner(port, identity=identity)))
    assert failure is not None
    assert failure.code is Code.PERMISSION_DENIED
    assert gateway.reached == 0


async def test_a_caller_may_prove_its_launch_too(port: int) -> None:
    assert (
        await hello(open_channel(runner(port, identity=parties.identity(Party.RUNNER, "l"))))
        is None
    )


# The listeners of egress


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("egress")


@pytest.fixture
async def egress(directory: Path) -> AsyncIterator[OnPorts]:
    async with on_ports(Party.EGRESS, directory) as guest:
        yield guest


def at_listener(egress: OnPorts, number: int, caller: Identity, launch_id: str = LAUNCH) -> Peer:
    return Peer(elsewhere(egress.ports[number]), Party.EGRESS, "t", caller, launch_id)


async def said(egress: OnPorts, number: int, context: ssl.SSLContext, name: str) -> bytes:
    """What a listener answers to a request; nothing if it hangs up. Raises `ssl.SSLError`."""
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.2", egress.ports[number], ssl=context, server_hostname=name
        )
        writer.write(b"OXYDRA/1 t - -\r\n" if number == 2 else b"")
        writer.write(b"GET / HTTP/1.1\r\nhost: egress\r\n\r\n")
        async with asyncio.timeout(60):
            answer = await reader.read(65536)
        writer.transport.abort()
    except ConnectionError:
        return b""
    return answer


@pytest.mark.parametrize(("number", "party"), [(1, Party.AGENT), (2, Party.SHELL)])
async def test_a_listener_answers_its_guest(egress: OnPorts, number: int, party: Party) -> None:
    for launch_id in ("", LAUNCH):
        context = tls.client_context(parties.identity(party, launch_id))
        answer = await said(egress, number, context, f"egress.{LAUNCH}")
        assert b"oxydra-refused: not_ready" in answer.lower()


@pytest.mark.attempt(
    "a request at a listener's port by another guest, a stranger, or without certificate",
    stopped_by="a listener serves one guest of the runner's authority",
)
@pytest.mark.parametrize(("number", "party"), [(1, Party.AGENT), (2, Party.SHELL)])
async def test_nobody_else_is_answered_at_a_listener(
    egress: OnPorts, number: int, party: Party
) -> None:
    anyone = ssl.create_default_context(cadata=parties.AUTHORITY.public)
    anyone.verify_flags &= ~ssl.VERIFY_X509_STRICT
    foreign = replace(STRANGERS.issue(party, LAUNCH), authority=parties.AUTHORITY.public)
    served = {party, Party.RUNNER} if party == Party.AGENT else {party}
    others = [parties.identity(each) for each in Party if each not in served]
    contexts = [anyone, *map(tls.client_context, (foreign, *others))]
    for context in contexts:
        try:
            assert await said(egress, number, context, f"egress.{LAUNCH}") == b""
        except ssl.SSLError:
            continue


async def by_agent(peer: Peer) -> None:
    client = EgressClient(peer)
    try:
        answer = await client.http.get("https://egress/openai/models")
        assert answer.headers["oxydra-refused"] == "not_ready"
    finally:
        await client.close()


async def by_shell(peer: Peer) -> None:
    forwarder = Forwarder(peer.identity)
    place = Endpoint.of_target(peer.endpoint, peer.launch_id)
    forwarder.egress = ShellEgress(place, peer.token, peer.name)
    _, writer = await forwarder.connect("- -")
    writer.transport.abort()


WAYS = [(1, Party.AGENT, by_agent), (2, Party.SHELL, by_shell)]


@pytest.mark.parametrize(("number", "party", "ask"), WAYS)
async def test_a_guest_finds_its_listener(
    egress: OnPorts, number: int, party: Party, ask: Callable[[Peer], Any]
) -> None:
    await ask(at_listener(egress, number, parties.identity(party)))


@pytest.mark.attempt(
    "another launch, or a stranger, at the port of egress's listener",
    stopped_by="guests demand the certificate of the very launch before they send a word",
)
@pytest.mark.parametrize(("number", "party", "ask"), WAYS)
async def test_a_listener_of_others_is_not_used(
    egress: OnPorts, number: int, party: Party, ask: Callable[[Peer], Any]
) -> None:
    ours = parties.identity(party)
    strange = replace(ours, authority=STRANGERS.public)
    for peer in (at_listener(egress, number, ours, OTHER), at_listener(egress, number, strange)):
        with pytest.raises((EgressUnreachable, WireError)):
            await ask(peer)
    with pytest.raises((WireError, httpx2.ConnectError), match="no launch is named"):
        await ask(at_listener(egress, number, ours, ""))


@pytest.mark.attempt(
    "a way out of the shell to an address of which nobody knows whose it is",
    stopped_by="the shell takes a listener beyond its machine only with the launch of egress",
)
async def test_the_shell_is_not_told_of_an_unknown_listener(tmp_path: Path) -> None:
    async with on_ports(Party.SHELL, tmp_path) as shell, open_channel(shell.peer()) as channel:
        stub: Any = shell_pb2_grpc.ShellStub(channel)
        told = shell_pb2.SetEgressRequest(door="tcp:10.0.0.9:7005", token="a-token-of-egress")
        for launch_id, field in (("", "door: "), ("*", "door_launch_id: ")):
            told.door_launch_id = launch_id
            with pytest.raises(grpc.RpcError) as raised:
                await stub.SetEgress(told)
            failure = from_rpc_error(raised.value)
            assert failure.code is Code.INVALID_ARGUMENT
            assert failure.brief.startswith(field)
        told.door_launch_id = LAUNCH
        await stub.SetEgress(told)
