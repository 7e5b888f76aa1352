"""Connections of commands to a user's running host and agent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from wire.errors import Code, WireError

from runner.cli.options import Options
from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.errors import HostError
from runner.host.control import ControlClient, connect_control
from runner.workspace.mounts import Role

CHANNEL: Final = "cli"
"""The channel that conversations and notes record."""

_T = TypeVar("_T")


async def host_runs(config: Config, user_id: str) -> bool:
    control = await connect_control(config, user_id)
    if control is None:
        return False
    await control.close()
    return True


async def connect_host(config: Config, user_id: str, *, resolution: str) -> ControlClient:
    """Connect to the user's host. Raises `HostError` if none runs.

    Connect again for each question: a restarted host has another token.
    """
    control = await connect_control(config, user_id)
    if control is None:
        raise HostError(
            Code.FAILED_PRECONDITION,
            f"no runner runs for user {user_id}",
            details="only a running agent opens a memory and answers",
            resolution=resolution,
        )
    return control


async def connect_agent(config: Config, user_id: str, *, resolution: str) -> GatewayClient:
    """Connect to the user's agent.

    Raises `WireError` if it does not run; UNAVAILABLE only if waiting can help.
    """
    async with await connect_host(config, user_id, resolution=resolution) as control:
        try:
            endpoint, token = await control.gateway()
        except WireError as error:
            for guest in (await control.status()).guests:
                if guest.role == Role.AGENT and guest.state == "failed":
                    raise HostError(
                        Code.FAILED_PRECONDITION,
                        f"the agent cannot start: {guest.reason}",
                        resolution="runner logs, then: runner restart",
                    ) from error
            raise
    return await GatewayClient.open(endpoint, token, channel_name=CHANNEL)


@asynccontextmanager
async def running_agent(options: Options) -> AsyncIterator[GatewayClient]:
    """The agent of the user that the command line names."""
    async with await connect_agent(
        options.load(), options.user_id, resolution=_start(options)
    ) as agent:
        yield agent


def ask_agent(options: Options, question: Callable[[GatewayClient], Awaitable[_T]]) -> _T:
    """The running agent's answer to `question`, over its own connection."""

    async def answer() -> _T:
        async with running_agent(options) as agent:
            return await question(agent)

    return asyncio.run(answer())


def ask_host(options: Options, question: Callable[[ControlClient], Awaitable[_T]]) -> _T:
    """The running host's answer to `question`, over its own connection."""

    async def answer() -> _T:
        config, resolution = options.load(), _start(options)
        async with await connect_host(config, options.user_id, resolution=resolution) as host:
            return await question(host)

    return asyncio.run(answer())


def _start(options: Options) -> str:
    return options.command("start", "--detach", insecure=options.insecure)
