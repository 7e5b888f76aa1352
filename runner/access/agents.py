"""The agents of all users, as calls from outside reach them."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc
from wire.errors import Code, WireError
from wire.limits import ERROR_METADATA_KEY
from wire.status import from_rpc_error
from wire.transport import open_channel

from runner.config.models import Config
from runner.host.control import connect_control
from runner.host.runtime import Runtime

log = logging.getLogger(__name__)

_NOT_ANSWERED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_Launch = tuple[int, int]
"""Which host runs: the file of its control token, which is made anew by each."""


class NoAgent(WireError):  # noqa: N818 - a condition, not a bug
    """No host runs for a user."""


@dataclass(frozen=True)
class _Connection:
    launch: _Launch
    channel: grpc.aio.Channel


class Agents:
    """One connection to each user's gateway, made when it is first needed and again when another
    host or another launch of the guest has taken its place."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connections: dict[str, _Connection] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def channel(self, user_id: str) -> grpc.aio.Channel:
        """The connection to the agent of `user_id`; waits while that starts.

        Raises `WireError`: FAILED_PRECONDITION if no host runs, UNAVAILABLE if the agent does not
        answer. Neither says more of the host than that.
        """
        async with self._locks[user_id]:
            launch = self._launch(user_id)
            known = self._connections.get(user_id)
            if known is not None and known.launch == launch:
                return known.channel
            await self._drop(user_id)
            try:
                channel = await self._connect(user_id)
            except WireError as error:
                log.warning("the agent of %s cannot be reached: %s", user_id, error)
                raise away(user_id) from error
            if launch is None or channel is None:
                raise NoAgent(
                    Code.FAILED_PRECONDITION,
                    f"no agent runs for {user_id}",
                    resolution="ask the person who runs this host to start it: "
                    f"runner --user {user_id} start --detach",
                )
            self._connections[user_id] = _Connection(launch, channel)
            return channel

    async def forget(self, user_id: str, channel: grpc.aio.Channel) -> bool:
        """Do not use `channel` any more; the next call gets another one. Returns whether this was
        the first call to find that."""
        async with self._locks[user_id]:
            known = self._connections.get(user_id)
            first = known is not None and known.channel is channel
            if first:
                await self._drop(user_id)
            return first

    async def close(self) -> None:
        """Close all connections."""
        for user_id in list(self._connections):
            await self._drop(user_id)

    def _launch(self, user_id: str) -> _Launch | None:
        try:
            found = Runtime.locate(self._config, user_id).token.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    async def _connect(self, user_id: str) -> grpc.aio.Channel | None:
        control = await connect_control(self._config, user_id)
        if control is None:
            return None
        async with control:
            return open_channel(await control.gateway())

    async def _drop(self, user_id: str) -> None:
        known = self._connections.pop(user_id, None)
        if known is not None:
            await known.channel.close()


class Replies:
    """One call of a user's gateway, of which the replies are read one by one.

    Connects anew, once, where another launch of the agent serves by now. `request` is a message as
    bytes; a caller gets what `back` makes of a reply.
    """

    def __init__(
        self,
        agents: Agents,
        user_id: str,
        path: str,
        request: bytes,
        back: Callable[[bytes], bytes],
    ) -> None:
        self._back = back
        self._agents = agents
        self._user_id = user_id
        self._path = path
        self._request = request
        self._call: Any = None
        self._channel: Any = None
        self._cancelled = False

    async def read(self) -> bytes | None:
        """The next reply; None after the last one. A reply is asked of the agent only here.

        Raises `WireError`, and `asyncio.CancelledError` after `cancel`.
        """
        if self._call is not None:
            return await self._next(self._call)
        for _ in range(2):
            self._channel = await self._agents.channel(self._user_id)
            if self._cancelled:
                break
            call: Any = self._channel.unary_stream(self._path)
            try:
                self._call = call(self._request)
                return await self._next(self._call)
            except (_OtherLaunchError, grpc.aio.UsageError):  # the latter: closed meanwhile
                log.info("the agent of %s was started again; connecting anew", self._user_id)
                await self._agents.forget(self._user_id, self._channel)
        if self._cancelled:
            raise asyncio.CancelledError
        raise away(self._user_id)

    def cancel(self) -> None:
        """End the call, also at the agent. Idempotent."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    async def _next(self, call: Any) -> bytes | None:
        try:
            reply = await call.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled or (task is not None and task.cancelling()):
                raise
            raise away(self._user_id) from None  # another call has found that the agent has gone
        except grpc.aio.AioRpcError as error:
            metadata = error.trailing_metadata() or ()
            told = any(key == ERROR_METADATA_KEY for key, _ in metadata)
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise _OtherLaunchError from None
            if told or error.code() not in _NOT_ANSWERED:
                raise from_rpc_error(error) from None
            if await self._agents.forget(self._user_id, self._channel):
                log.warning("the agent of %s does not answer right now", self._user_id)
                log.info("%s", error.details())
            raise away(self._user_id) from None
        return None if reply is grpc.aio.EOF else self._back(reply)


class _OtherLaunchError(Exception):
    """The gateway has not taken a call, because it is not the one that was asked before."""


def away(user_id: str) -> WireError:
    """What is said to who calls an agent that does not answer."""
    return WireError(
        Code.UNAVAILABLE,
        f"the agent of {user_id} does not answer right now",
        resolution="try again in a moment; if that does not help, ask the person who runs this "
        f"host: runner --user {user_id} status",
    )
