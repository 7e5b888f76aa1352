"""The trial of an agent guest's ways out: for the runner alone, and while the guest goes on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from wire.errors import Code
from wire.identity import Party
from wire.network_probe import WAYS, Spec
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from guest.gateway import service
from tests.support import parties
from tests.support.gateway.gateways import Client, Gateways, open_gateways, refusal


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    async with open_gateways() as opened:
        yield opened


async def _try(alice: Client, party: Party, spec: bytes) -> Any:
    peer = parties.peer(alice.address, Party.AGENT, alice.token, party)
    async with open_channel(peer) as channel:
        request = pb.ProbeNetworkRequest(spec=spec)
        return await gateway_pb2_grpc.GatewayStub(channel).ProbeNetwork(request)


async def test_every_way_is_tried(alice: Client) -> None:
    reply = await _try(alice, Party.RUNNER, Spec().to_json())
    assert tuple(way.name for way in reply.ways) == WAYS
    assert all(way.shut is not bool(way.found) for way in reply.ways)
    (interfaces,) = (way for way in reply.ways if way.name == "interfaces")
    assert not interfaces.shut, "these tests run where there is a network"


@pytest.mark.parametrize("party", [Party.SHELL, Party.EGRESS, Party.CLI, Party.ACCESS])
async def test_only_the_runner_has_them_tried(alice: Client, party: Party) -> None:
    refused = await refusal(_try(alice, party, Spec().to_json()))
    assert refused.code is Code.PERMISSION_DENIED


async def test_a_bad_specification_is_refused(alice: Client) -> None:
    refused = await refusal(_try(alice, Party.RUNNER, b"{}"))
    assert refused.code is Code.INVALID_ARGUMENT


async def test_the_guest_answers_meanwhile(alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, going_on = asyncio.get_running_loop(), asyncio.Event()

    def slow(_: Spec) -> list[Any]:
        asyncio.run_coroutine_threadsafe(going_on.wait(), loop).result(30)
        return []

    monkeypatch.setattr(service, "try_all", slow)
    trial = asyncio.create_task(_try(alice, Party.RUNNER, Spec().to_json()))
    await asyncio.sleep(0.1)
    assert (await alice.stub.Hello(pb.HelloRequest())).user_id == "alice"
    going_on.set()
    assert list((await trial).ways) == []
