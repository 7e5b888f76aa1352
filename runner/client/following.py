"""A turn, followed to its end over as many connections as that takes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Self

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient, GatewayLost

Connect = Callable[[], Awaitable[GatewayClient]]
"""Connects to the current launch. Raises `WireError`, UNAVAILABLE while there is none."""

RECONNECT_WITHIN_S: Final = 60.0
RECONNECT_EVERY_S: Final = 0.25


@dataclass(repr=False, eq=False)
class Connection:
    """The connection to an agent that may be restarted, which is waited for `within_s` seconds.
    `first` is one that there is already."""

    connect: Connect
    within_s: float = RECONNECT_WITHIN_S
    first: GatewayClient | None = None

    async def __aenter__(self) -> Self:
        if self.first is None:
            await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client(self) -> GatewayClient:
        """The current connection. There is one while this is entered."""
        assert self.first is not None
        return self.first

    async def open(self) -> GatewayClient:
        """Connect anew. Raises `WireError` if the agent does not come back in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.within_s
        while True:
            try:
                client = await self.connect()
                break
            except WireError as error:
                if error.code is not Code.UNAVAILABLE or loop.time() > deadline:
                    raise
                await asyncio.sleep(RECONNECT_EVERY_S)
        before, self.first = self.first, client
        if before is not None:
            await before.close()
        return client

    async def close(self) -> None:
        client, self.first = self.first, None
        if client is not None:
            await client.close()


async def started(
    agent: GatewayClient, request: gateway_pb2.StartTurnRequest, reconnect: Connect
) -> GatewayClient:
    """Start a turn once, whatever becomes of the connection; returns the connection to follow it
    by. The request needs a `turn_id`: where it is known already, it has begun."""
    try:
        await agent.start_turn(request)
    except GatewayLost:
        agent = await reconnect()
        try:
            await agent.start_turn(request)
        except WireError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
    return agent


async def followed(
    agent: GatewayClient, turn_id: str, reconnect: Connect | None = None
) -> AsyncGenerator[gateway_pb2.TurnEvent, None]:
    """The events of a turn, the outcome last.

    An agent that is away is waited for, `RECONNECT_WITHIN_S`: by `reconnect`, which itself waits as
    `Connection.open` does, or over a channel that finds a restarted agent by itself. Leaving leaves
    the turn alone. Raises NOT_FOUND for a turn that never began, and what `reconnect` raises.
    """
    loop = asyncio.get_running_loop()
    after, away_since = 0, 0.0
    while True:
        try:
            async with aclosing(agent.follow_turn(turn_id, after)) as events:
                async for event in events:
                    after, away_since = event.index + 1, 0.0
                    yield event
            return
        except WireError as error:
            away_since = away_since or loop.time()
            if error.code is not Code.UNAVAILABLE or loop.time() - away_since > RECONNECT_WITHIN_S:
                raise
            await asyncio.sleep(RECONNECT_EVERY_S)
        if reconnect is not None:
            agent = await reconnect()
