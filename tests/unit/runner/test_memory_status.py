"""Status asks a ready agent for its memory, and no agent for long."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from wire.transport import open_channel
from wire.v1 import control_pb2, gateway_pb2

from runner.host.guests import memory_status
from runner.host.supervisor import Supervisor
from tests.support.gateway.fake_gateway import FakeGateway


class Remembering(FakeGateway):
    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.hangs = asyncio.Event()
        self.asked = 0

    async def MemoryStatistics(
        self, request: Any, context: Any
    ) -> gateway_pb2.MemoryStatisticsReply:
        self.asked += 1
        if self.hangs.is_set():
            await asyncio.sleep(60)
        return gateway_pb2.MemoryStatisticsReply(notes=7)


class Agent:
    """The part of a supervisor that is asked."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def channel(self) -> grpc.aio.Channel:
        return self._channel


@pytest.fixture
async def gateway() -> AsyncIterator[Remembering]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        fake = Remembering(f"unix:{Path(directory)}/g.sock")  # type: ignore[abstract]
        await fake.start()
        yield fake
        await fake.stop()


async def asked(
    gateway: Remembering, state: str = "ready", **patience: float
) -> gateway_pb2.MemoryStatisticsReply | None:
    guests = [
        control_pb2.GuestStatus(role="agent", state=state),
        control_pb2.GuestStatus(role="shell", state="ready"),
    ]
    async with open_channel(gateway.peer) as channel:
        return await memory_status(cast(Supervisor, Agent(channel)), guests, **patience)


async def test_a_ready_agent_tells(gateway: Remembering) -> None:
    found = await asked(gateway)
    assert found is not None
    assert found.notes == 7


async def test_an_agent_that_is_not_ready_is_not_asked(gateway: Remembering) -> None:
    for state in ("starting", "unhealthy", "failed"):
        assert await asked(gateway, state) is None
    assert gateway.asked == 0


async def test_one_that_hangs_is_waited_for_briefly(gateway: Remembering) -> None:
    gateway.hangs.set()
    async with asyncio.timeout(60):
        assert await asked(gateway, within_s=0.5) is None
    assert gateway.asked == 1


async def test_one_that_went_away_is_no_error(gateway: Remembering) -> None:
    await gateway.stop()
    assert await asked(gateway) is None
