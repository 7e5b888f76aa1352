"""Who calls from outside, and the way from there to an agent.

    token, cookie or the operator's terminal ─ Caller ─ scope ─ number of calls ─ channel ─ gateway

Every face that people or programs reach from outside stands on this: it makes a `Caller` of what it
was shown, and does everything else through `Callers.agent`. What a caller was shown to be is looked
at again while its calls run, so that a token that was revoked, or a session that was ended, ends
what is open with it.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Self

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from wire.errors import Code, WireError
from wire.limits import ALWAYS, ERROR_METADATA_KEY
from wire.status import from_rpc_error
from wire.v1 import gateway_pb2

from runner.access.agents import Agents, away
from runner.access.scopes import METHODS, OWN, Method, Scope
from runner.access.tokens import EXPIRES_DAYS, Token, Tokens, digest
from runner.client.calls import CallChannel
from runner.config.models import Config

log = logging.getLogger(__name__)

CALLS_MAX: Final = 32  # of one caller at once
LARGE_MAX: Final = 4
"""How many large requests of one caller are read at once."""
REFUSALS_MAX: Final = 20
REFUSALS_WITHIN_S: Final = 60.0
WATCH_S: Final = 0.25
"""How long a revoked token may still receive on a stream that is open."""
_NOTE_USED_S: Final = 2.0
_LOGGED_MAX: Final = 50
_PEERS_MAX: Final = 1_000
INVITED: Final = "browser"
"""What tokens are named after that a link has made."""
_NOT_ANSWERED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_ASK: Final = "ask the person who runs this host for another one"
_NO_TOKEN: Final = partial(
    WireError,
    Code.UNAUTHENTICATED,
    "this access token is not known",
    details="it was revoked, or it is not the whole token: it begins with oxa_ and has 47 "
    "characters",
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
    "too many calls of this login or access token at once",
    details=f"{CALLS_MAX} run already",
    resolution="wait until some have ended, or close streams that nobody reads",
)
_CLOSED: Final = partial(
    WireError,
    Code.UNAVAILABLE,
    "nobody can be let in right now",
    resolution="ask the person who runs this host: its list of access tokens cannot be read",
)


def _never() -> WireError | None:
    return None


@dataclass(frozen=True)
class Caller:
    """Somebody who was let in.

    Attributes:
        user_id: Whose agent; of the operator the one to begin with.
        scopes: What they may do there.
        channel: What sessions and notes record as the channel of what they do.
        operator: Whether they have this account, and so may act for every user.
        key: What their calls are counted by: the operator, a token or whom a proxy names, and
            nothing that they can have more of.
        ended: Why they are not let in any more; None while they are.
    """

    user_id: str
    scopes: frozenset[Scope]
    channel: str
    operator: bool = False
    key: str = "operator"
    ended: Callable[[], WireError | None] = field(default=_never, compare=False, repr=False)

    @classmethod
    def at_terminal(cls, user_id: str, channel: str) -> Self:
        """Who runs a command of this account for `user_id`."""
        return cls(user_id, frozenset(Scope), channel, operator=True)

    def check(self) -> None:
        """Raises `WireError` where they are not let in any more."""
        if (why := self.ended()) is not None:
            raise why

    def check_user(self, user_id: str) -> None:
        """Raises `WireError` (PERMISSION_DENIED) where `user_id` is none of their business."""
        if not self.operator and user_id != self.user_id:
            raise WireError(
                Code.PERMISSION_DENIED,
                "this is another user's agent",
                details=f"who is logged in is {self.user_id}",
                resolution="ask the person who runs this host",
            )


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
        return self.count(peer, _NO_TOKEN(), "unknown access token")

    def count(self, peer: str, otherwise: WireError, what: str) -> WireError:
        """Count one who showed `what`; return `otherwise` unless there were too many."""
        now = self._clock()
        if now - self._since > REFUSALS_WITHIN_S or len(self._counts) > _PEERS_MAX:
            self._since, self._counts = now, Counter()
        self._counts[peer] += 1
        if self._counts[peer] > REFUSALS_MAX:
            return _TOO_MANY_REFUSALS()
        if (told := self._counts.total()) <= _LOGGED_MAX:
            more = "; more of them are not logged for a while" if told == _LOGGED_MAX else ""
            log.warning("refused a call from %s: %s%s", peer, what, more)
        return otherwise


@dataclass(eq=False)
class _Running:
    """A call that runs; `stop` ends it, `why` says then why."""

    caller: Caller
    stop: Callable[[], object]
    why: WireError | None = None


class Callers:
    """Lets callers in, and watches over their calls. An async context manager: while it is
    entered, calls of whoever is not let in any more end within `WATCH_S`."""

    def __init__(self, tokens: Tokens, agents: Agents) -> None:
        self.tokens = tokens
        self.agents = agents
        self._refusals = Refusals()
        self._running: set[_Running] = set()
        self._large: defaultdict[str, asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, LARGE_MAX)
        )
        self._used: dict[str, str] = {}
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    def locate(cls, config: Config) -> Self:
        """Touches nothing on disk."""
        return cls(Tokens.locate(config), Agents(config))

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await self.agents.close()

    def with_token(self, secret: str, address: str) -> Caller:
        """Who has the access token `secret`. `address` is where they call from, for the log.

        Raises `WireError`: UNAUTHENTICATED for a token that is unknown or has expired,
        RESOURCE_EXHAUSTED for too many of those, UNAVAILABLE if tokens cannot be read.
        """
        if (token := self._found(digest(secret))) is None:
            raise self._refusals.note(address)
        if token.lifetime_s() <= 0:
            raise _EXPIRED()
        self._used[token.digest] = datetime.now(UTC).isoformat(timespec="seconds")
        return self._of(token)

    def with_key(self, key: str) -> Caller:
        """Who was let in by a token, as the caller of that `key`. Raises `WireError`:
        UNAUTHENTICATED if it was revoked, UNAVAILABLE if tokens cannot be read."""
        if (token := self._found(key)) is None:
            raise _REVOKED()
        return self._of(token)

    def _found(self, key: str) -> Token | None:
        try:
            return self.tokens.find(key)
        except WireError as error:
            log.error("%s", error)
            raise _CLOSED() from error

    def invited(self, user_id: str) -> Caller:
        """Somebody who was let in as `user_id` without a token: by a new one, whose secret nobody
        has, so that what they may do ends when that is revoked or expires."""
        name = f"{INVITED}-{secrets.token_hex(2)}"
        token, _ = self.tokens.create(user_id, name, OWN, timedelta(days=EXPIRES_DAYS))
        self._used[token.digest] = datetime.now(UTC).isoformat(timespec="seconds")
        return self._of(token)

    def _of(self, token: Token) -> Caller:
        return Caller(
            token.user_id,
            token.scopes,
            token.channel,
            key=token.digest,
            ended=partial(self._token_ended, token),
        )

    def refuse(self, address: str, why: WireError) -> WireError:
        """Count somebody at `address` who showed something else than a token that is not known.
        Returns what to answer: `why`, unless there were too many."""
        return self._refusals.count(address, why, why.brief)

    def agent(self, caller: Caller, user_id: str = "") -> grpc.aio.Channel:
        """The caller's agent, as a channel for `GatewayClient.over`: what a caller has no scope for
        is refused, and every request names the caller's channel. Calls raise `WireError`.

        `user_id` is for operators. Raises `WireError` (PERMISSION_DENIED) for another user's.
        """
        user_id = user_id or caller.user_id
        caller.check_user(user_id)

        def begin(described: MethodDescriptor, request: Message) -> Replies:
            return self.call(caller, user_id, METHODS[described.name], request)

        return CallChannel(begin)

    def call(self, caller: Caller, user_id: str, method: Method, request: Message) -> "Replies":
        """A call of which nothing was sent yet. Raises `WireError` (PERMISSION_DENIED)."""
        caller.check_user(user_id)
        method.check(caller.scopes)
        request = method.through(caller.channel, caller.scopes, request)
        if isinstance(request, gateway_pb2.DecideRequest):
            request.limited = not caller.operator
        return Replies(self, caller, user_id, method, request)

    def large(self, caller: Caller) -> asyncio.Semaphore:
        """What a large request of `caller` is read and understood in: few are at once."""
        return self._large[caller.key]

    def begin(self, caller: Caller, stop: Callable[[], object]) -> _Running:
        """Count a call until `done`; `stop` ends it when its caller is not let in any more.

        Raises `WireError`: why they are not let in, and RESOURCE_EXHAUSTED if too many calls run.
        """
        caller.check()
        if sum(call.caller.key == caller.key for call in self._running) >= CALLS_MAX:
            raise _TOO_MANY_CALLS()
        call = _Running(caller, stop)
        self._running.add(call)
        return call

    def done(self, call: _Running) -> None:
        self._running.discard(call)

    def end_calls(self, why: WireError) -> None:
        for call in list(self._running):
            call.why = why
            call.stop()

    def check_calls(self) -> None:
        """End the calls of those who are not let in any more."""
        for call in list(self._running):
            if call.why is None and (why := call.caller.ended()) is not None:
                call.why = why
                call.stop()

    def _token_ended(self, token: Token) -> WireError | None:
        if token.lifetime_s() <= 0:
            return _EXPIRED()
        try:
            kept = self.tokens.find(token.digest)
        except (WireError, OSError):
            kept = None
        return None if kept else _REVOKED()

    async def _watch(self) -> None:
        """End calls, and keep when tokens were used."""
        loop = asyncio.get_running_loop()
        noted = loop.time()
        try:
            while True:
                await asyncio.sleep(WATCH_S)
                self.check_calls()
                if loop.time() - noted > _NOTE_USED_S:
                    noted = loop.time()
                    self._note_used()
        finally:
            self._note_used()

    def _note_used(self) -> None:
        used, self._used = self._used, {}
        if not used:
            return
        try:
            self.tokens.note_used(used)
        except (OSError, WireError) as error:
            log.warning("when tokens were used cannot be kept: %s", error)


class Replies:
    """Replies of a user's gateway to one call, which counts as one of its caller's while it runs.

    It ends when they are not let in any more; `read` then raises why. Connects anew, once, where
    another launch of the agent serves by now.
    """

    def __init__(
        self, callers: Callers, caller: Caller, user_id: str, method: Method, request: Message
    ) -> None:
        self._callers = callers
        self._caller = caller
        self._user_id = user_id
        self._method = method
        self._request = request.SerializeToString()
        self._running: _Running | None = None
        self._call: Any = None
        self._channel: Any = None
        self._cancelled = False

    async def read(self) -> Message | None:
        """The next reply; None after the last one. It is asked of the agent only here. Raises
        `WireError`, as `begin` does, too, and `asyncio.CancelledError` after `cancel`."""
        if self._running is None:
            self._running = self._callers.begin(self._caller, self._end)
        try:
            reply = await (self._begun() if self._call is None else self._next())
        except BaseException as error:
            self.cancel()
            if isinstance(error, asyncio.CancelledError) and self._running.why is not None:
                raise self._running.why from None
            raise
        if reply is grpc.aio.EOF:
            self._callers.done(self._running)
            return None
        told: Any = self._method.reply.FromString(reply)
        for asked in (*getattr(told, "approvals", ()), getattr(told, "approval", None)):
            if asked is not None and ALWAYS in asked.offers and not self._caller.operator:
                asked.offers.remove(ALWAYS)
        return self._method.back(self._caller.scopes, told)

    def cancel(self) -> None:
        """End the call, also at the agent. Idempotent."""
        self._end()
        if self._running is not None:
            self._callers.done(self._running)

    def _end(self) -> None:
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    async def _begun(self) -> Any:
        for _ in range(2):
            self._channel = await self._callers.agents.channel(self._user_id)
            if self._cancelled:
                raise asyncio.CancelledError
            begin: Any = self._channel.unary_stream(self._method.path)
            try:
                self._call = begin(self._request)
                return await self._next()
            except (_OtherLaunchError, grpc.aio.UsageError):  # the latter: closed meanwhile
                log.info("the agent of %s was started again; connecting anew", self._user_id)
                await self._callers.agents.forget(self._user_id, self._channel)
        if self._cancelled:
            raise asyncio.CancelledError
        raise away(self._user_id)

    async def _next(self) -> Any:
        try:
            return await self._call.read()
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
            if await self._callers.agents.forget(self._user_id, self._channel):
                log.warning("the agent of %s does not answer right now", self._user_id)
                log.info("%s", error.details())
            raise away(self._user_id) from None


class _OtherLaunchError(Exception):
    """The gateway has not taken a call, because it is not the one that was asked before."""
