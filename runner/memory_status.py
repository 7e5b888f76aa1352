"""How an agent's memory is, as part of the status: asked quickly or not at all."""

import asyncio
from collections.abc import Sequence
from typing import Final

from wire.errors import WireError
from wire.v1 import control_pb2, gateway_pb2, gateway_pb2_grpc

from runner.memory_calls import memory_statistics
from runner.mounts import Role
from runner.supervisor import Supervisor

_PATIENCE_S: Final = 1.0


async def memory_status(
    agent: Supervisor, guests: Sequence[control_pb2.GuestStatus]
) -> gateway_pb2.MemoryStatisticsReply | None:
    """What the memory holds; None where the agent is not ready or does not say in time."""
    if not any(guest.role == Role.AGENT and guest.state == "ready" for guest in guests):
        return None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await memory_statistics(gateway_pb2_grpc.GatewayStub(await agent.channel()))
    except (TimeoutError, WireError):
        return None
