"""The running agent of a user, for a command that asks it something."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from wire.errors import Code
from wire.transport import open_channel
from wire.v1 import gateway_pb2_grpc

from runner.cli.chat.chat import CHANNEL
from runner.cli.options import Options
from runner.client.gateway import GatewayClient
from runner.errors import HostError
from runner.host.control import ControlClient, connect_control

if TYPE_CHECKING:
    from wire.v1.gateway_pb2_grpc import GatewayAsyncStub


async def running(options: Options) -> ControlClient:
    """The host of the user. Raises `HostError` where none runs."""
    control = await connect_control(options.load(), options.user_id)
    if control is None:
        raise HostError(
            Code.FAILED_PRECONDITION,
            f"no runner runs for user {options.user_id}",
            details="only the agent itself opens a memory",
            resolution=options.command("start", "--detach", insecure=options.insecure),
        )
    return control


@asynccontextmanager
async def agent_of(options: Options) -> "AsyncIterator[GatewayAsyncStub]":
    """The gateway of the user's agent. Raises `WireError` where it does not run."""
    async with await running(options) as control:
        endpoint, token = await control.gateway()
    async with open_channel(endpoint, token) as channel:
        yield gateway_pb2_grpc.GatewayStub(channel)


@asynccontextmanager
async def gateway_of(options: Options) -> AsyncIterator[GatewayClient]:
    """The same agent as surfaces see it. Raises `WireError` where it does not run."""
    async with await running(options) as control:
        endpoint, token = await control.gateway()
    client = await GatewayClient.open(endpoint, token, channel_name=CHANNEL)
    try:
        yield client
    finally:
        await client.close()
