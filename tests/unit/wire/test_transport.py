"""Token, error mapping and health over real sockets."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from wire import transport
from wire.endpoint import Endpoint
from wire.errors import Code, WireError
from wire.identity import Identity, Party, Peer
from wire.status import STATUS_OF, answered, from_rpc_error
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.host.authority import Authority
from tests.support import parties
from tests.support.ports import free_port


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """Raises what the request names."""

    async def Hello(self, request: gateway_pb2.HelloRequest, context: Any) -> Any:
        if request.client == "bug":
            raise ZeroDivisionError("a secret detail")
        if request.client == "wait":
            await asyncio.Event().wait()
        if request.client:
            raise WireError(
                Code(request.client), "it broke", details="because ü", resolution="do this"
            )
        return gateway_pb2.HelloReply(user_id="alice")

    async def FollowTurn(self, request: gateway_pb2.FollowTurnRequest, context: Any) -> Any:
        yield gateway_pb2.TurnEvent(index=0)
        if request.turn_id == "bug":
            raise ZeroDivisionError("a secret detail")
        raise WireError(Code.CONFLICT, "busy", resolution="wait")


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    yield path
    shutil.rmtree(path)


def free_address() -> str:
    return f"tcp:127.0.0.1:{free_port()}"


@pytest.fixture(params=["unix", "tcp"])
async def endpoint(request: pytest.FixtureRequest, socket_dir: Path) -> AsyncIterator[str]:
    address = f"unix:{socket_dir}/s.sock" if request.param == "unix" else free_address()
    server = parties.server(address, "right-token", Party.AGENT)
    gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), server.grpc)  # type: ignore[abstract]
    await server.start()
    await server.set_serving(True)
    yield address
    await server.stop(0)


async def call(endpoint: str, client: str = "", token: str = "right-token") -> Any:
    async with transport.open_channel(parties.gateway(endpoint, token)) as channel:
        return await gateway_pb2_grpc.GatewayStub(channel).Hello(
            gateway_pb2.HelloRequest(client=client)
        )


def without_token(endpoint: str) -> grpc.aio.Channel:
    """A channel of a command that has its identity only."""
    identity = parties.identity(Party.CLI)
    parts = (identity.authority, identity.key, identity.certificate)
    return grpc.aio.secure_channel(
        Endpoint.of_target(endpoint).for_grpc,
        grpc.ssl_channel_credentials(*(part.encode() for part in parts)),
        options=[("grpc.ssl_target_name_override", "agent")],
    )


async def test_a_connection_that_is_closed_here_is_no_cancellation(endpoint: str) -> None:
    async with transport.open_channel(parties.gateway(endpoint, "right-token")) as channel:
        hello = gateway_pb2_grpc.GatewayStub(channel).Hello
        asking = asyncio.create_task(hello_to(hello))
        await asyncio.sleep(0.05)
    with pytest.raises(WireError) as raised:
        await asking
    assert raised.value.code is Code.UNAVAILABLE


async def test_who_asks_may_still_be_cancelled(endpoint: str) -> None:
    async with transport.open_channel(parties.gateway(endpoint, "right-token")) as channel:
        asking = asyncio.create_task(hello_to(gateway_pb2_grpc.GatewayStub(channel).Hello))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def hello_to(hello: Any) -> Any:
    return await answered(hello(gateway_pb2.HelloRequest(client="wait")))


async def drain(stub: Any, text: str, seen: list[Any] | None = None) -> None:
    async for event in stub.FollowTurn(gateway_pb2.FollowTurnRequest(turn_id=text)):
        (seen if seen is not None else []).append(event)


async def test_the_right_token_passes(endpoint: str) -> None:
    assert (await call(endpoint)).user_id == "alice"


@pytest.mark.parametrize("token", ["", "wrong", "right-token-and-more", "right-toke"])
async def test_any_other_token_is_refused(endpoint: str, token: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        await call(endpoint, token=token)
    assert from_rpc_error(raised.value).code is Code.UNAUTHENTICATED


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_read_only_after_its_token(endpoint: str, stream: bool) -> None:
    """Bytes that are no message: who has no token is told nothing about them."""
    method = f"/wire.v1.Gateway/{'FollowTurn' if stream else 'Hello'}"
    garbage = b"\xff" * 1000

    async def call(channel: Any) -> None:
        if not stream:
            await channel.unary_unary(method)(garbage)
        async for _ in channel.unary_stream(method)(garbage):
            pytest.fail("an answer to no message")

    async def answer(channel: grpc.aio.Channel) -> grpc.StatusCode:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(channel)
        return raised.value.code()

    async with without_token(endpoint) as channel:
        assert await answer(channel) is STATUS_OF[Code.UNAUTHENTICATED]
    async with transport.open_channel(parties.gateway(endpoint, "right-token")) as channel:
        assert await answer(channel) is STATUS_OF[Code.INVALID_ARGUMENT]


async def test_a_call_without_token_is_refused(endpoint: str) -> None:
    async with without_token(endpoint) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        with pytest.raises(grpc.RpcError) as raised:
            await stub.Hello(gateway_pb2.HelloRequest())
        assert from_rpc_error(raised.value).code is Code.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as raised:
            await drain(stub, "")
        assert from_rpc_error(raised.value).code is Code.UNAUTHENTICATED


@pytest.mark.parametrize("code", list(Code))
async def test_every_code_crosses_with_all_its_words(endpoint: str, code: Code) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        await call(endpoint, client=code.value)
    error = from_rpc_error(raised.value)
    assert (error.code, error.brief, error.details, error.resolution) == (
        code,
        "it broke",
        "because ü",
        "do this",
    )


def test_every_code_has_a_status_of_its_own() -> None:
    assert set(STATUS_OF) == set(Code)
    assert len(set(STATUS_OF.values())) == len(STATUS_OF)


async def test_errors_in_mid_stream_keep_what_came_before(endpoint: str) -> None:
    async with transport.open_channel(parties.gateway(endpoint, "right-token")) as channel:
        seen: list[Any] = []
        with pytest.raises(grpc.RpcError) as raised:
            await drain(gateway_pb2_grpc.GatewayStub(channel), "", seen)
        assert len(seen) == 1
        assert from_rpc_error(raised.value).code is Code.CONFLICT


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_bug_is_internal_and_tells_nothing(endpoint: str, streaming: bool) -> None:
    async with transport.open_channel(parties.gateway(endpoint, "right-token")) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        hello = stub.Hello(gateway_pb2.HelloRequest(client="bug"))
        with pytest.raises(grpc.RpcError) as raised:
            await (drain(stub, "bug") if streaming else hello)
    error = from_rpc_error(raised.value)
    assert error.code is Code.INTERNAL
    assert "secret" not in str(error)


async def test_a_sealed_server_answers_its_starter_only_until_it_admits_others(
    socket_dir: Path,
) -> None:
    address = f"unix:{socket_dir}/s.sock"
    server = parties.server(address, "starter-token", Party.AGENT, sealed=True)
    gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), server.grpc)  # type: ignore[abstract]
    await server.start()

    async def answer(token: str) -> Code | None:
        async with transport.open_channel(parties.gateway(address, token)) as channel:
            stub: Any = gateway_pb2_grpc.GatewayStub(channel)
            try:
                await stub.Hello(gateway_pb2.HelloRequest())
            except grpc.RpcError as error:
                return from_rpc_error(error).code
            return None

    assert await answer("starter-token") is None
    assert await answer("agent-token") is Code.UNAVAILABLE
    server.admit("agent-token")
    assert await answer("agent-token") is None
    assert await answer("starter-token") is None
    assert await answer("another-token") is Code.UNAUTHENTICATED
    await server.stop(0)


async def test_a_dead_endpoint_is_unavailable(socket_dir: Path) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        await call(f"unix:{socket_dir}/nobody.sock")
    assert from_rpc_error(raised.value).code is Code.UNAVAILABLE


async def test_health_needs_no_token_and_follows_set_serving(socket_dir: Path) -> None:
    address = f"unix:{socket_dir}/h.sock"
    server = parties.server(address, "t", Party.AGENT)
    await server.start()
    async with without_token(address) as channel:
        await server.set_serving(True)
        assert await transport.check_health(channel)
        await server.set_serving(False)
        assert not await transport.check_health(channel)
    await server.stop(0)
    assert not (socket_dir / "h.sock").exists()


async def silent(address: str) -> asyncio.Server:
    """A server that takes every connection and says nothing."""
    path = address.removeprefix("unix:")
    return await asyncio.start_unix_server(lambda reader, writer: asyncio.sleep(1000), path)


async def test_a_channel_that_is_closed_meanwhile_is_not_healthy(socket_dir: Path) -> None:
    address = f"unix:{socket_dir}/h.sock"
    server = await silent(address)
    channel = transport.open_channel(parties.gateway(address, "t"))
    asking = asyncio.create_task(transport.check_health(channel, timeout=30))
    await asyncio.sleep(0.1)
    await channel.close()
    assert await asking is False
    assert await transport.check_health(channel) is False
    server.close()


async def test_a_health_check_can_be_cancelled(socket_dir: Path) -> None:
    address = f"unix:{socket_dir}/h.sock"
    server = await silent(address)
    async with transport.open_channel(parties.gateway(address, "t")) as channel:
        asking = asyncio.create_task(transport.check_health(channel, timeout=30))
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    server.close()


async def test_the_socket_is_private_and_a_stale_one_is_replaced(socket_dir: Path) -> None:
    path = socket_dir / "s.sock"
    path.touch()
    server = parties.server(f"unix:{path}", "t", Party.AGENT)
    await server.start()
    assert path.is_socket()
    assert path.stat().st_mode & 0o777 == 0o600
    await server.stop(0)


async def test_a_socket_for_all_uids_is_open_to_those_that_reach_it(socket_dir: Path) -> None:
    path = socket_dir / "s.sock"
    server = transport.Server(
        f"unix:{path}", "t", parties.identity(Party.EMBEDDER), {Party.AGENT}, for_all_uids=True
    )
    await server.start()
    assert path.stat().st_mode & 0o777 == 0o666
    await server.stop(0)


async def test_an_endpoint_that_cannot_be_bound_is_a_clear_error() -> None:
    server = parties.server("unix:/nonexistent-dir/s.sock", "t", Party.AGENT)
    with pytest.raises(WireError, match="cannot listen on"):
        await server.start()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "unix:",
        "unix:relative",
        "tcp:0.0.0.0:1",
        "tcp:127.0.0.1:",
        "tcp:127.0.0.1:x",
        "http://x",
    ],
)
def test_only_local_endpoints_are_accepted(address: str) -> None:
    with pytest.raises(WireError, match="bad endpoint"):
        Endpoint.of_target(address)


def test_a_socket_path_over_the_limit_is_refused() -> None:
    assert transport.unix_endpoint(Path("/" + "x" * 106)).startswith("unix:/")
    with pytest.raises(WireError, match="too long"):
        transport.unix_endpoint(Path("/" + "ü" * 54))


def test_tokens_are_long_and_never_repeat() -> None:
    tokens = {transport.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43


class Strangers:
    """Clients and servers that are not who they should be, by the name of what is wrong."""

    other = Authority.new()
    ours = parties.identity(Party.CLI)
    clients: ClassVar[dict[str, Identity]] = {
        "another authority": other.issue(Party.CLI),
        "a certificate of another authority": replace(
            other.issue(Party.CLI), authority=ours.authority
        ),
        "a server of another authority is expected": replace(
            ours, authority=other.issue(Party.CLI).authority
        ),
    }


UNPROVEN = "did not prove to be who it must be"


@pytest.mark.parametrize("name", Strangers.clients)
async def test_a_client_of_another_authority_is_not_heard(endpoint: str, name: str) -> None:
    peer = Peer(endpoint, Party.AGENT, "right-token", Strangers.clients[name])
    assert (await refusal(peer)).code is Code.UNAVAILABLE


async def test_a_client_without_a_certificate_is_not_heard(endpoint: str) -> None:
    target = Endpoint.of_target(endpoint).for_grpc
    authority = parties.identity(Party.CLI).authority.encode()
    naked = grpc.aio.secure_channel(
        target,
        grpc.ssl_channel_credentials(authority),
        options=[("grpc.ssl_target_name_override", "agent")],
    )
    for channel in (naked, grpc.aio.insecure_channel(target)):
        async with channel:
            with pytest.raises(grpc.RpcError) as raised:
                await gateway_pb2_grpc.GatewayStub(channel).Hello(gateway_pb2.HelloRequest())
            assert from_rpc_error(raised.value).code is Code.UNAVAILABLE
            assert not await transport.check_health(channel)


@pytest.mark.parametrize("party", [Party.SHELL, Party.EMBEDDER, Party.RUNNER, Party.CLI])
async def test_a_server_of_another_role_gets_no_call(endpoint: str, party: Party) -> None:
    found = await refusal(parties.peer(endpoint, party, "right-token"))
    assert found.code is Code.UNAVAILABLE
    assert UNPROVEN in found.brief
    assert found.resolution


@pytest.mark.parametrize("caller", list(Party))
async def test_a_server_answers_the_roles_that_it_serves(socket_dir: Path, caller: Party) -> None:
    address = f"unix:{socket_dir}/s.sock"
    identity = parties.identity(Party.SHELL)
    serves = {Party.RUNNER, Party.AGENT}
    server = transport.Server(address, "right-token", identity, serves)
    gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), server.grpc)  # type: ignore[abstract]
    await server.start()
    await server.set_serving(True)
    peer = parties.shell(address, "right-token", caller)
    async with transport.open_channel(peer) as channel:
        assert await transport.check_health(channel) is (caller in serves)
        stub: Any = gateway_pb2_grpc.GatewayStub(channel)
        if caller in serves:
            assert (await stub.Hello(gateway_pb2.HelloRequest())).user_id == "alice"
        else:
            for call in (stub.Hello(gateway_pb2.HelloRequest()), drain(stub, "")):
                with pytest.raises(grpc.RpcError) as raised:
                    await call
                found = from_rpc_error(raised.value)
                assert found.code is Code.PERMISSION_DENIED
                assert found.brief == f"this server does not serve {caller}"
                assert found.details == "it serves agent, runner, by the names in certificates"
    await server.stop(0)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\n\r\n", bytes(range(256))])
async def test_nothing_is_said_to_a_server_without_a_certificate(
    socket_dir: Path, says: bytes
) -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65536))
        writer.write(says)
        writer.write_eof()
        heard.extend(await reader.read())
        writer.close()

    server = await asyncio.start_unix_server(listen, socket_dir / "s.sock")
    found = await refusal(parties.gateway(f"unix:{socket_dir}/s.sock", "right-token"))
    assert found.code is Code.UNAVAILABLE
    assert heard
    assert b"right-token" not in heard
    server.close()


async def test_a_server_that_comes_back_is_found_again_by_the_same_channel(
    socket_dir: Path,
) -> None:
    address = f"unix:{socket_dir}/s.sock"
    async with transport.open_channel(parties.gateway(address, "t")) as channel:
        for authority in (parties.AUTHORITY, Authority.new(), parties.AUTHORITY):
            server = transport.Server(address, "t", authority.issue(Party.AGENT), {Party.CLI})
            await server.start()
            await server.set_serving(True)
            ours = authority is parties.AUTHORITY
            async with asyncio.timeout(60):
                while ours and not await transport.check_health(channel):
                    await asyncio.sleep(0.05)
            assert await transport.check_health(channel) is ours
            await server.stop(0)


async def refusal(peer: Peer) -> WireError:
    """What a call to `peer` is answered."""
    async with transport.open_channel(peer) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            await gateway_pb2_grpc.GatewayStub(channel).Hello(gateway_pb2.HelloRequest())
    return from_rpc_error(raised.value)
