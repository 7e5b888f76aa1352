"""The agents of all users, as calls from outside reach them."""

import asyncio
import logging
from collections import defaultdict

import grpc
from wire.errors import Code, WireError
from wire.transport import open_channel

from runner.config.models import Config
from runner.host.control import connect_control
from runner.host.runtime import Runtime

log = logging.getLogger(__name__)

_Launch = tuple[int, int]
"""Which host runs: the file of its control token, which is made anew by each."""


class NoAgent(WireError):  # noqa: N818 - a condition, not a bug
    """No host runs for a user."""

    def __init__(self, user_id: str) -> None:
        super().__init__(
            Code.FAILED_PRECONDITION,
            f"no agent runs for {user_id}",
            resolution="ask the person who runs this host to start it: "
            f"runner --user {user_id} start --detach",
        )


class Agents:
    """One connection to each user's gateway, made when it is first needed and again when another
    host or another launch of the guest has taken its place."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connections: dict[str, tuple[_Launch, grpc.aio.Channel]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def channel(self, user_id: str) -> grpc.aio.Channel:
        """The connection to the agent of `user_id`; waits while that starts.

        Raises `WireError`: FAILED_PRECONDITION if no host runs, UNAVAILABLE if the agent does not
        answer. Neither says more of the host than that.
        """
        async with self._locks[user_id]:
            launch = self._launch(user_id)
            known = self._connections.get(user_id)
            if known is not None and known[0] == launch:
                return known[1]
            await self._drop(user_id)
            try:
                channel = await self._connect(user_id)
            except WireError as error:
                log.warning("the agent of %s cannot be reached: %s", user_id, error)
                raise away(user_id) from error
            if launch is None or channel is None:
                raise NoAgent(user_id)
            self._connections[user_id] = launch, channel
            return channel

    async def forget(self, user_id: str, channel: grpc.aio.Channel) -> bool:
        """Use `channel` no more. Returns whether this was the first call to find that."""
        async with self._locks[user_id]:
            known = self._connections.get(user_id)
            first = known is not None and known[1] is channel
            if first:
                await self._drop(user_id)
            return first

    async def close(self) -> None:
        for user_id in list(self._connections):
            await self._drop(user_id)

    def _launch(self, user_id: str) -> _Launch | None:
        try:
            found = Runtime.locate(self._config, user_id).token.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    async def _connect(self, user_id: str) -> grpc.aio.Channel | None:
        if (control := await connect_control(self._config, user_id)) is None:
            return None
        async with control:
            return open_channel(await control.gateway())

    async def _drop(self, user_id: str) -> None:
        if (known := self._connections.pop(user_id, None)) is not None:
            await known[1].close()


def away(user_id: str) -> WireError:
    """What is said to who calls an agent that does not answer."""
    return WireError(
        Code.UNAVAILABLE,
        f"the agent of {user_id} does not answer right now",
        resolution="try again in a moment; if that does not help, ask the person who runs this "
        f"host: runner --user {user_id} status",
    )
