"""Connections between machines on which nothing is said for long."""

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
import pytest
from wire import transport
from wire.identity import Party
from wire.transport import Server, check_health, open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from tests.support import parties
from tests.support.ports import free_port

LAUNCH = "0b9e7c1e-quiet"
TOKEN = "t0ken-of-a-quiet-server"
FASTER = 20
QUIET_S = 6.0
"""A client asks once a second whether the server is there, and is refused after five times."""


class Quiet(gateway_pb2_grpc.GatewayServicer):
    """Says something, and then nothing until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def FollowTurn(self, request: gateway_pb2.FollowTurnRequest, context: Any) -> Any:
        yield gateway_pb2.TurnEvent(index=0)
        await self.may_end.wait()
        yield gateway_pb2.TurnEvent(index=1)


@pytest.fixture
async def quiet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Quiet, str]]:
    """A server as between machines, where all that takes time goes faster."""
    options = transport.NOTICING_LOSS
    faster = tuple((name, n // FASTER if name.endswith("_ms") else n) for name, n in options)
    monkeypatch.setattr(transport, "NOTICING_LOSS", faster)
    port = free_port()
    service = Quiet()  # type: ignore[abstract]
    identity = parties.identity(Party.AGENT, LAUNCH)
    server = Server(f"tcp:*:{port}", TOKEN, identity, {Party.RUNNER})
    gateway_pb2_grpc.add_GatewayServicer_to_server(service, server.grpc)
    await server.start()
    await server.set_serving(True)
    yield service, f"tcp:localhost:{port}"
    await server.stop(0)


async def test_neither_a_silent_call_nor_an_idle_connection_is_cut_off(
    quiet: tuple[Quiet, str],
) -> None:
    service, endpoint = quiet
    peer = parties.peer(endpoint, Party.AGENT, TOKEN, launch_id=LAUNCH)
    async with open_channel(peer) as calling, open_channel(peer) as idle:
        stub = gateway_pb2_grpc.GatewayStub(calling)
        events = stub.FollowTurn(gateway_pb2.FollowTurnRequest()).__aiter__()
        await anext(events)
        assert await check_health(idle)
        ready = grpc.ChannelConnectivity.READY
        changes = [
            asyncio.create_task(each.wait_for_state_change(ready)) for each in (calling, idle)
        ]
        done, pending = await asyncio.wait(changes, timeout=QUIET_S)
        for change in pending:
            change.cancel()
        assert not done, "the server took the questions whether it is there for an attack"
        service.may_end.set()
        assert (await anext(events)).index == 1


def test_grpc_knows_every_option() -> None:
    spec = find_spec("grpc._cython.cygrpc")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).read_bytes()
    for name, _ in (*transport.OPTIONS, *transport.NOTICING_LOSS):
        assert name.encode() in library, f"gRPC has no {name} and would ignore it"
