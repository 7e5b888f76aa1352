"""Token, error mapping and health over real sockets."""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from wire import transport
from wire.errors import Code, WireError
from wire.status import STATUS_OF, from_rpc_error
from wire.v1 import gateway_pb2, gateway_pb2_grpc


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """Raises what the request names."""

    async def Hello(self, request: gateway_pb2.HelloRequest, context: Any) -> Any:
        if request.client == "bug":
            raise ZeroDivisionError("a secret detail")
        if request.client:
            raise WireError(
                Code(request.client), "it broke", details="because ü", resolution="do this"
            )
        return gateway_pb2.HelloReply(user_id="alice")

    async def RunTurn(self, request: gateway_pb2.RunTurnRequest, context: Any) -> Any:
        yield gateway_pb2.TurnEvent(index=0)
        if request.text == "bug":
            raise ZeroDivisionError("a secret detail")
        raise WireError(Code.CONFLICT, "busy", resolution="wait")


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    yield path
    shutil.rmtree(path)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp:127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(params=["unix", "tcp"])
async def endpoint(request: pytest.FixtureRequest, socket_dir: Path) -> AsyncIterator[str]:
    address = f"unix:{socket_dir}/s.sock" if request.param == "unix" else free_address()
    server = transport.Server(address, "right-token")
    gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), server.grpc)  # type: ignore[abstract]
    await server.start()
    await server.set_serving(True)
    yield address
    await server.stop(0)


async def call(endpoint: str, client: str = "", token: str = "right-token") -> Any:
    async with transport.open_channel(endpoint, token) as channel:
        return await gateway_pb2_grpc.GatewayStub(channel).Hello(
            gateway_pb2.HelloRequest(client=client)
        )


async def drain(stub: Any, text: str, seen: list[Any] | None = None) -> None:
    async for event in stub.RunTurn(gateway_pb2.RunTurnRequest(text=text)):
        (seen if seen is not None else []).append(event)


async def test_the_right_token_passes(endpoint: str) -> None:
    assert (await call(endpoint)).user_id == "alice"


@pytest.mark.parametrize("token", ["", "wrong", "right-token-and-more", "right-toke"])
async def test_any_other_token_is_refused(endpoint: str, token: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        await call(endpoint, token=token)
    assert from_rpc_error(raised.value).code is Code.UNAUTHENTICATED


async def test_a_call_without_token_is_refused(endpoint: str) -> None:
    async with grpc.aio.insecure_channel(transport.grpc_target(endpoint)) as channel:
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
    async with transport.open_channel(endpoint, "right-token") as channel:
        seen: list[Any] = []
        with pytest.raises(grpc.RpcError) as raised:
            await drain(gateway_pb2_grpc.GatewayStub(channel), "", seen)
        assert len(seen) == 1
        assert from_rpc_error(raised.value).code is Code.CONFLICT


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_bug_is_internal_and_tells_nothing(endpoint: str, streaming: bool) -> None:
    async with transport.open_channel(endpoint, "right-token") as channel:
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
    server = transport.Server(address, "starter-token", sealed=True)
    gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), server.grpc)  # type: ignore[abstract]
    await server.start()

    async def answer(token: str) -> Code | None:
        async with transport.open_channel(address, token) as channel:
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
    server = transport.Server(address, "t")
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
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
    channel = transport.open_channel(address, "t")
    asking = asyncio.create_task(transport.check_health(channel, timeout=30))
    await asyncio.sleep(0.1)
    await channel.close()
    assert await asking is False
    assert await transport.check_health(channel) is False
    server.close()


async def test_a_health_check_can_be_cancelled(socket_dir: Path) -> None:
    address = f"unix:{socket_dir}/h.sock"
    server = await silent(address)
    async with transport.open_channel(address, "t") as channel:
        asking = asyncio.create_task(transport.check_health(channel, timeout=30))
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    server.close()


async def test_the_socket_is_private_and_a_stale_one_is_replaced(socket_dir: Path) -> None:
    path = socket_dir / "s.sock"
    path.touch()
    server = transport.Server(f"unix:{path}", "t")
    await server.start()
    assert path.is_socket()
    assert path.stat().st_mode & 0o777 == 0o600
    await server.stop(0)


async def test_an_endpoint_that_cannot_be_bound_is_a_clear_error() -> None:
    server = transport.Server("unix:/nonexistent-dir/s.sock", "t")
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
        transport.grpc_target(address)


def test_a_socket_path_over_the_limit_is_refused() -> None:
    assert transport.unix_endpoint(Path("/" + "x" * 106)).startswith("unix:/")
    with pytest.raises(WireError, match="too long"):
        transport.unix_endpoint(Path("/" + "ü" * 54))


def test_tokens_are_long_and_never_repeat() -> None:
    tokens = {transport.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
