"""What a running agent guest is asked about its memory, by the host and by commands."""

from typing import Final

from wire.status import answered
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

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
