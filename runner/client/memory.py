"""What a running agent guest is asked about its memory, by the host and by commands."""

import asyncio
from collections.abc import Sequence
from typing import Final

from wire.errors import WireError
from wire.status import answered
from wire.transport import open_channel
from wire.v1 import control_pb2, gateway_pb2, gateway_pb2_grpc

from runner.host.supervisor import Supervisor
from runner.workspace.mounts import Role

_TOKEN_S: Final = 60.0
_BACKUP_S: Final = 3600.0
_STATISTICS_S: Final = 60.0


async def renew_token(endpoint: str, gateway_token: str, memory_token: str) -> None:
    """The guest proves `memory_token` with its server before it uses it.

    Raises `WireError` where the guest or the server refuses.
    """
    async with open_channel(endpoint, gateway_token) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        request = gateway_pb2.SetMemoryTokenRequest(auth_token=memory_token)
        await answered(stub.SetMemoryToken(request, timeout=_TOKEN_S))


async def make_backup(endpoint: str, gateway_token: str) -> gateway_pb2.BackupMemoryReply:
    """A consistent, checked copy of the memory in the workspace. Raises `WireError`."""
    async with open_channel(endpoint, gateway_token) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        request = gateway_pb2.BackupMemoryRequest()
        return await answered(stub.BackupMemory(request, timeout=_BACKUP_S))


async def memory_statistics(
    agent: "gateway_pb2_grpc.GatewayAsyncStub",
) -> gateway_pb2.MemoryStatisticsReply:
    """What the memory holds, and how it is. Raises `WireError`."""
    request = gateway_pb2.MemoryStatisticsRequest()
    return await answered(agent.MemoryStatistics(request, timeout=_STATISTICS_S))


async def reembed_memory(agent: "gateway_pb2_grpc.GatewayAsyncStub") -> int:
    """Have all vectors made anew, in the background; of how many passages. Raises `WireError`."""
    request = gateway_pb2.ReembedMemoryRequest()
    return (await answered(agent.ReembedMemory(request, timeout=_STATISTICS_S))).passages


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
