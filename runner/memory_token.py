"""Handing a running agent guest another token for its memory server."""

from typing import Final

import grpc
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

_TIMEOUT_S: Final = 60.0


async def renew_token(endpoint: str, gateway_token: str, memory_token: str) -> None:
    """The guest proves `memory_token` with its server before it uses it.

    Raises `WireError` where the guest or the server refuses.
    """
    async with open_channel(endpoint, gateway_token) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        request = gateway_pb2.SetMemoryTokenRequest(auth_token=memory_token)
        try:
            await stub.SetMemoryToken(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
