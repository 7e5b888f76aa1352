"""The relay: calls that carry an access token are passed on to the agent of the token's user.

    token ─ scope ─ number of calls ─ channel ─ gateway

Nothing of a call is read before its token was recognised. A reply is asked of the gateway only when
the one before it was taken, so a slow reader slows the agent's stream and not this process. Who
leaves cancels the call at the gateway too.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import grpc
from wire.errors import Code, WireError
from wire.limits import ERROR_METADATA_KEY
from wire.status import abort, from_rpc_error

from runner.access.agents import Agents, away
from runner.access.scopes import METHODS, Method
from runner.access.tokens import Token, Tokens

log = logging.getLogger(__name__)

CALLS_MAX: Final = 32
"""How many calls of one token may run at once."""
REFUSALS_MAX: Final = 20
REFUSALS_WITHIN_S: Final = 60.0
_LOGGED_MAX: Final = 50
_PEERS_MAX: Final = 1_000
_SCHEME: Final = "Bearer "
_ASK: Final = "ask the person who runs this host for another one"
_NOT_ANSWERED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_NO_TOKEN: Final = partial(
    WireError,
    Code.UNAUTHENTICATED,
    "this access token is not known",
    details="it was revoked, or it is not the whole token; it travels as the metadata "
    "authorization: Bearer oxa_…",
    resolution=_ASK,
)
_EXPIRED: Final = partial(
    WireError, Code.UNAUTHENTICATED, "this access token has expired", resolution=_ASK
)
_REVOKED: Final = partial(
    WireError, Code.UNAUTHENTICATED, "this access token was revoked", resolution=_ASK
)
_TOO_MANY_REFUSALS: Final = partial(
    WireError,
    Code.RESOURCE_EXHAUSTED,
    "too many calls with an unknown access token",
    details=f"more than {REFUSALS_MAX} in {REFUSALS_WITHIN_S:.0f} s from this address",
    resolution="use the right token, which is let in at any time",
)
_TOO_MANY_CALLS: Final = partial(
    WireError,
    Code.RESOURCE_EXHAUSTED,
    "too many calls of this access token at once",
    details=f"{CALLS_MAX} run already",
    resolution="wait until some have ended, or close streams that nobody reads",
)
_CLOSED: Final = partial(
    WireError,
    Code.UNAVAILABLE,
    "nobody can be let in right now",
    resolution="ask the person who runs this host: its list of access tokens cannot be read",
)
_INTERNAL: Final = partial(
    WireError,
    Code.INTERNAL,
    "internal error",
    resolution="tell the person who runs this host; its log has the traceback",
)

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(eq=False)
class _Call:
    """A call that runs. `limit` ends it."""

    token: Token
    limit: asyncio.Timeout
    end: Callable[[], WireError] = _EXPIRED


class Refusals:
    """Counts calls without a known token, by where they come from.

    A known token is let in however many there were: otherwise one account at a shared socket, or
    one machine behind a shared address, could lock out all others. What keeps a token from being
    guessed is its length; this keeps guesses from filling the log.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._counts: Counter[str] = Counter()

    def note(self, peer: str) -> WireError:
        """Count one, and return what to answer."""
        now = self._clock()
        if now - self._since > REFUSALS_WITHIN_S or len(self._counts) > _PEERS_MAX:
            self._since, self._counts = now, Counter()
        self._counts[peer] += 1
        if self._counts[peer] > REFUSALS_MAX:
            return _TOO_MANY_REFUSALS()
        if (told := self._counts.total()) <= _LOGGED_MAX:
            more = "; more of them are not logged for a while" if told == _LOGGED_MAX else ""
            log.warning("refused a call from %s: unknown access token%s", peer, more)
        return _NO_TOKEN()


class Relay(grpc.GenericRpcHandler):
    """Serves the gateway's contract for whoever has a token. `close` ends all calls."""

    def __init__(self, tokens: Tokens, agents: Agents) -> None:
        self._tokens = tokens
        self._agents = agents
        self._refusals = Refusals()
        self._calls: set[_Call] = set()
        self._used: dict[str, str] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = METHODS.get(handler_call_details.method)
        if method is None:
            return None

        async def call(_: AsyncIterator[bytes], context: Context) -> None:
            await self._answer(method, context)

        return grpc.stream_stream_rpc_method_handler(call)

    def check_calls(self) -> None:
        """End the calls whose token was revoked. Call it again and again."""
        if not self._calls:
            return
        try:
            kept = {token.digest for token in self._tokens.all()}
        except (WireError, OSError):
            kept = set()
        for call in self._calls:
            if call.token.digest not in kept and not call.limit.expired():
                call.end = _REVOKED
                call.limit.reschedule(asyncio.get_running_loop().time())

    def take_used(self) -> Mapping[str, str]:
        """When tokens were used last since this was asked the last time, by digest."""
        used, self._used = self._used, {}
        return used

    async def _answer(self, method: Method, context: Context) -> None:
        began = time.monotonic()
        outcome, who = "ok", "nobody"
        try:
            token = self._admitted(context)
            who = f"{token.user_id}/{token.name}"
            method.check(token.scopes)
            async with self._running(token):
                await self._relay(method, token, context)
        except WireError as error:
            outcome = error.code
            await abort(context, error)
        except asyncio.CancelledError:
            outcome = "left"
            raise
        except Exception:
            log.exception("unexpected failure in a call of %s", method.name)
            outcome = Code.INTERNAL
            await abort(context, _INTERNAL())
        finally:
            took = time.monotonic() - began
            log.debug("%s called %s: %s after %.3f s", who, method.name, outcome, took)

    def _admitted(self, context: Context) -> Token:
        try:
            token = self._tokens.find(_bearer(context))
        except WireError as error:
            log.error("%s", error)
            raise _CLOSED() from error
        if token is None:
            raise self._refusals.note(_address(context.peer()))
        if token.lifetime_s() <= 0:
            raise _EXPIRED()
        self._used[token.digest] = datetime.now(UTC).isoformat(timespec="seconds")
        return token

    @asynccontextmanager
    async def _running(self, token: Token) -> AsyncIterator[None]:
        """Let a call run until its token ends, if not too many do."""
        if sum(call.token.digest == token.digest for call in self._calls) >= CALLS_MAX:
            raise _TOO_MANY_CALLS()
        limit = asyncio.timeout(token.lifetime_s())
        call = _Call(token, limit)
        try:
            async with limit:
                self._calls.add(call)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise call.end() from None
        finally:
            self._calls.discard(call)

    async def _relay(self, method: Method, token: Token, context: Context) -> None:
        request = await context.read()
        if request is grpc.aio.EOF:
            raise WireError(Code.INVALID_ARGUMENT, f"{method.name} was called without a request")
        request = method.through(token.channel, request)
        if not await self._passed(method.path, token.user_id, request, context):
            log.info("the agent of %s was started again; connecting anew", token.user_id)
            if not await self._passed(method.path, token.user_id, request, context):
                raise away(token.user_id)

    async def _passed(self, path: str, user_id: str, request: bytes, context: Context) -> bool:
        """Pass on one call. False if the gateway has not taken it, because another launch serves
        there by now."""
        channel = await self._agents.channel(user_id)
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
        call = method(request)
        try:
            async for reply in call:
                await context.write(reply)
            return True
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None  # the caller is gone in the middle of a write
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                await self._agents.forget(user_id, channel)
                return False
            raise await self._failure(user_id, channel, error) from None
        finally:
            call.cancel()

    async def _failure(
        self, user_id: str, channel: grpc.aio.Channel, error: grpc.aio.AioRpcError
    ) -> WireError:
        metadata = error.trailing_metadata() or ()
        told = any(key == ERROR_METADATA_KEY for key, _ in metadata)
        if told or error.code() not in _NOT_ANSWERED:
            return from_rpc_error(error)
        log.warning("the agent of %s went away: %s", user_id, error.details())
        await self._agents.forget(user_id, channel)
        return away(user_id)


def _bearer(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value.startswith(_SCHEME):
            return value.removeprefix(_SCHEME)
    return ""


def _address(peer: str) -> str:
    """Where a call comes from, without the port, such as `ipv4:192.0.2.7`."""
    return "the socket" if peer.startswith("unix:") else peer.rpartition(":")[0]
