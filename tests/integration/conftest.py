"""A gateway over a real memory, and the first user of it; other suites bring their own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from wire.identity import Party
from wire.transport import open_channel
from wire.v1 import gateway_pb2_grpc

from guest.memory.models import RemoteConfig
from tests.support import parties
from tests.support.gateway.gateways import Client, Gateways, hashing, open_gateways
from tests.support.memory import store
from tests.support.servers.sqld import running


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    async with open_gateways(embedder=hashing()) as opened:
        yield opened


@pytest.fixture
async def alice(gateways: Gateways) -> Client:
    return await gateways.serve("alice")


@pytest.fixture
async def runner(alice: Client) -> "AsyncIterator[gateway_pb2_grpc.GatewayAsyncStub]":
    """The gateway as the runner speaks with it."""
    peer = parties.peer(alice.address, Party.AGENT, alice.token)
    async with open_channel(peer) as channel:
        yield gateway_pb2_grpc.GatewayStub(channel)


@pytest.fixture
def memory_on_a_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test opens lies on a server of its own instead of in a file."""
    with running() as server:

        async def remote_of(_: Path) -> RemoteConfig:
            return RemoteConfig(server.url(), one_user=True)

        monkeypatch.setattr(store, "remote_of", remote_of)
        yield
