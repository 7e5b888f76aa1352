"""Keeps one guest running: start, real health checks, restart with back-off, end."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import grpc
from wire.errors import Code, WireError
from wire.logs import EXIT_OPERATOR, find_startup_failure
from wire.transport import check_health, open_channel
from wire.v1 import control_pb2

from runner.errors import HostError, TierError
from runner.host.cleanup import clear, clear_unless_file
from runner.logs import next_offset, read_from
from runner.tiers.base import Handle, LaunchSpec, TierDriver

_LAST_LINE_CHARS: Final = 300


class NeedsOperator(Exception):  # noqa: N818 - a condition that the supervisor handles
    """The guest ended with `EXIT_OPERATOR`; starting it again would not help."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.brief)
        self.error = error


def meaning_of_end(role: str, code: int | None, output: str, when: str) -> Exception:
    """`NeedsOperator` with what the guest said, or a `TierError` that tells how it ended.

    `output` is what this launch logged; `code` is negative for a signal.
    """
    told = find_startup_failure(output)
    if code == EXIT_OPERATOR and told is not None:
        return NeedsOperator(told)
    return TierError(
        Code.UNAVAILABLE,
        f"the {role} guest {_how(code)} {when}".strip(),
        details=last_line(output),
        resolution="runner logs",
    )


def last_line(output: str) -> str:
    """The last thing a guest said, short."""
    text = output.strip()
    return text.splitlines()[-1][:_LAST_LINE_CHARS] if text else "it logged nothing"


def _how(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}"


log = logging.getLogger(__name__)

_FIX: Final = "runner logs"


@dataclass(frozen=True)
class Policy:
    """Patience, in seconds unless it says otherwise."""

    start_timeout: float = 60.0
    ready_poll: float = 0.02
    check_interval: float = 2.0
    check_timeout: float = 3.0
    failed_checks: int = 3
    """This many unanswered checks in a row mean that a guest hangs."""
    load_time: float = 0.0
    """So soon after a start they mean nothing: loading a model can starve its process."""
    backoff_first: float = 0.5
    backoff_max: float = 30.0
    stable_after: float = 60.0
    """Running this long clears the memory of earlier failures."""
    stop_grace: float = 5.0


@dataclass(frozen=True)
class Launch:
    """One start of a guest: what to run, and where and how it will answer."""

    spec: LaunchSpec
    endpoint: str
    token: str


class Supervisor:
    """One guest of one role. `prepare` makes each launch anew; `on_handle` hears of every
    handle that begins or ends (None) before anything else happens. `verify` is asked about
    every guest that answers before it counts as ready; what it raises ends that guest.

    `shared` is for a guest that several runners have in common. It is held around each
    start and gives the handle of the guest that runs already, which is then watched
    instead of a new one. The socket of such a guest is never removed, because another
    runner may have started the next one, and no failure ends the supervision."""

    def __init__(
        self,
        driver: TierDriver,
        role: str,
        prepare: Callable[[], Launch],
        *,
        on_handle: Callable[[Handle | None], None],
        policy: Policy | None = None,
        verify: Callable[[grpc.aio.Channel], Awaitable[None]] | None = None,
        shared: Callable[[], AbstractAsyncContextManager[Handle | None]] | None = None,
    ) -> None:
        self._verify = verify
        self._shared = shared
        self._driver = driver
        self._role = role
        self._prepare = prepare
        self._on_handle = on_handle
        self._policy = policy or Policy()
        self._handle: Handle | None = None
        self._launch: Launch | None = None
        self._channel: grpc.aio.Channel | None = None
        self._log_offset = 0
        self._life: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self._failures = 0
        self._restarts = 0
        self._state = "stopped"
        self._reason = ""
        self._since = datetime.now(UTC)
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Bring the guest up and keep it up from then on.

        Raises the error that the guest itself logged, or a `TierError`; then
        nothing of it runs. `stop` in the meantime ends this with CANCELLED.
        """
        await self._begin(give_up=True)

    def start_in_background(self) -> None:
        """Keep the guest up from now on; `status` tells of failures."""
        settled = asyncio.get_running_loop().create_future()
        settled.set_result(None)
        self._life = asyncio.create_task(self._live(settled, give_up=False))

    async def restart(self) -> None:
        """End the guest and bring it up again; raises as `start` does, but goes on
        trying unless a person has to mend something first."""
        await self._end_life()
        self._restarts += 1
        self._failures = 0
        await self._begin(give_up=False)

    async def stop(self) -> None:
        """End the guest and the supervision. Idempotent; interrupts `start`."""
        await self._end_life()
        self._note("stopped")

    async def release(self) -> None:
        """End the supervision and let the guest run on. Idempotent."""
        await self._cancel_life()
        await self._close_channel()
        self._handle = self._launch = None
        self._note("stopped")

    async def launch(self) -> Launch:
        """The launch that answers now; waits while one is starting.

        Raises `HostError` (UNAVAILABLE) with the reason where none does.
        """
        while self._state == "starting":
            await self._changed.wait()
        if self._launch is None or self._state not in ("ready", "unhealthy"):
            raise HostError(
                Code.UNAVAILABLE,
                f"the {self._role} guest is {self._state}",
                details=self._reason,
                resolution=_FIX,
            )
        return self._launch

    async def channel(self) -> grpc.aio.Channel:
        """The connection to the launch that answers now; waits and raises as `launch` does."""
        await self.launch()
        assert self._channel is not None
        return self._channel

    async def status(self) -> control_pb2.GuestStatus:
        """How the guest is at this moment: it is asked, not remembered."""
        state, reason = self._state, self._reason
        reply = control_pb2.GuestStatus(role=self._role, restarts=self._restarts)
        if self._handle is not None:
            found = await self._driver.inspect(self._handle)
            reply.pid, reply.resident_bytes = found.pid, found.resident_bytes
            if state == "ready" and not (found.running and await self._answers(timeout=1.0)):
                state, reason = "unhealthy", "it did not answer the health check just now"
        reply.state, reply.reason = state, reason
        reply.since = self._since.isoformat(timespec="seconds")
        return reply

    async def _begin(self, *, give_up: bool) -> None:
        self._settled = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(self._settled, give_up))
        await self._settled

    async def _cancel_life(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
            self._life = None

    async def _end_life(self) -> None:
        await self._cancel_life()
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(
                HostError(Code.CANCELLED, f"the {self._role} guest was stopped while it started")
            )
        await self._end_guest(self._policy.stop_grace)

    async def _live(self, settled: asyncio.Future[None], give_up: bool) -> None:
        """Up, down and up again, until cancelled or a person is needed."""
        while True:
            error, fatal = await self._one_life(settled)
            shared = self._shared is not None
            fatal = fatal or (shared and self._handle is None)
            try:
                await self._end_guest(grace=0.0)
            except WireError as stuck:
                error, fatal = stuck, True
            first = not settled.done()
            delay = self._policy.backoff_max if fatal else self._next_delay()
            done = (fatal and not shared) or (first and give_up)
            reason = _one_line(error, with_fix=fatal)
            if not done:
                reason += f"; next start in {delay:g} s"
            self._note("failed" if fatal or done else "backing_off", reason)
            if first:
                settled.set_exception(error)
            if done:
                return
            await asyncio.sleep(delay)
            self._restarts += 1

    async def _one_life(self, settled: asyncio.Future[None]) -> tuple[WireError, bool]:
        """From start to end: why it ended, and whether a person is needed."""
        try:
            await self._bring_up()
            if not settled.done():
                settled.set_result(None)
            await self._watch()
        except NeedsOperator as found:
            return found.error, True
        except WireError as found:
            return found, False
        except OSError as found:
            error = TierError(
                Code.FAILED_PRECONDITION,
                f"the {self._role} guest cannot be started: {found.strerror or found}",
                details=str(found.filename or found),
                resolution="make room and access there, then: runner restart",
            )
            return error, False
        except Exception as found:
            log.exception("unexpected failure in supervision")
            return TierError(Code.INTERNAL, repr(found), resolution=_FIX), False

    def _next_delay(self) -> float:
        self._failures += 1
        doubled = self._policy.backoff_first * 2.0 ** min(self._failures - 1, 30)
        return min(self._policy.backoff_max, doubled)

    async def _bring_up(self) -> None:
        """Start the guest and wait until it answers."""
        self._note("starting")
        self._launch = launch = self._prepare()
        clear_unless_file(launch.spec.log_path)
        self._log_offset = next_offset(launch.spec.log_path)
        async with self._shared() if self._shared is not None else nullcontext(None) as running:
            self._handle = running or await self._driver.start(launch.spec)
            self._on_handle(self._handle)
        ended = asyncio.create_task(self._driver.wait(self._handle))
        try:
            async with asyncio.timeout(self._policy.start_timeout):
                while not await self._reachable(launch):
                    await asyncio.wait({ended}, timeout=self._policy.ready_poll)
                    if ended.done():
                        raise self._end(ended.result(), "before it was ready")
        except TimeoutError:
            raise TierError(
                Code.TIMEOUT,
                f"the {self._role} guest was not ready within {self._policy.start_timeout:g} s",
                details=last_line(self._output()),
                resolution=_FIX,
            ) from None
        finally:
            ended.cancel()
        if self._verify is not None:
            assert self._channel is not None
            await self._verify(self._channel)
        self._note("ready")

    async def _reachable(self, launch: Launch) -> bool:
        """One look at a guest that is starting. Each with a fresh connection, for
        gRPC waits long before it tries again where it was once refused."""
        path = _socket_of(launch.endpoint)
        if path is not None and (path.is_symlink() or not path.is_socket()):
            return False
        channel = open_channel(launch.endpoint, launch.token)
        if await check_health(channel, self._policy.check_timeout):
            self._channel = channel
            return True
        await channel.close()
        return False

    async def _watch(self) -> NoReturn:
        """Watch a guest that is ready until it is down or hangs; raises what happened."""
        assert self._handle is not None
        loop = asyncio.get_running_loop()
        ready_since = loop.time()
        misses = 0
        ended = asyncio.create_task(self._driver.wait(self._handle))
        try:
            while True:
                await asyncio.wait({ended}, timeout=self._policy.check_interval)
                if ended.done():
                    raise self._end(ended.result())
                if loop.time() - ready_since > self._policy.stable_after:
                    self._failures = 0
                if await self._answers(self._policy.check_timeout):
                    misses = 0
                    self._note("ready")
                    continue
                misses += 1
                self._note("unhealthy", f"{misses} health checks in a row without an answer")
                loaded = loop.time() - ready_since > self._policy.load_time
                if misses >= self._policy.failed_checks and loaded:
                    raise TierError(Code.TIMEOUT, f"the {self._role} guest hangs: {self._reason}")
        finally:
            ended.cancel()

    async def _answers(self, timeout: float) -> bool:
        return self._channel is not None and await check_health(self._channel, timeout)

    def _end(self, code: int | None, when: str = "") -> Exception:
        return meaning_of_end(self._role, code, self._output(), when)

    def _output(self) -> str:
        """What the guest of this launch has logged."""
        assert self._launch is not None
        return read_from(self._launch.spec.log_path, self._log_offset)

    async def _close_channel(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _end_guest(self, grace: float) -> None:
        await self._close_channel()
        if self._handle is not None:
            await self._driver.stop(self._handle, grace)
            self._handle = None
            self._on_handle(None)
        if self._launch is not None and self._shared is None:
            _remove_socket(self._launch.endpoint)
        self._launch = None

    def _note(self, state: str, reason: str = "") -> None:
        if state != self._state:
            self._since = datetime.now(UTC)
            level = logging.WARNING if reason else logging.INFO
            log.log(level, "%s guest: %s%s", self._role, state, f": {reason}" if reason else "")
        self._state, self._reason = state, reason
        self._changed.set()
        self._changed = asyncio.Event()


def _socket_of(endpoint: str) -> Path | None:
    return Path(endpoint.removeprefix("unix:")) if endpoint.startswith("unix:") else None


def _remove_socket(endpoint: str) -> None:
    """A killed guest leaves its socket behind."""
    if (path := _socket_of(endpoint)) is not None:
        clear(path)


def _one_line(error: WireError, *, with_fix: bool) -> str:
    why = f" ({error.details})" if error.details else ""
    fix = f"; fix: {error.resolution}" if with_fix and error.resolution else ""
    return f"{error.brief}{why}{fix}"
