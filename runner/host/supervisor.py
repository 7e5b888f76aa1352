"""Keeps one guest running: start, health checks, restarts with back-off, end."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import grpc
from wire.errors import Code, WireError
from wire.identity import Peer
from wire.logs import EXIT_OPERATOR, find_startup_failure
from wire.text import parsed_json, visible_name
from wire.transport import check_health, open_channel
from wire.v1 import control_pb2

from runner.errors import HostError, TierError
from runner.logs import next_offset, read_from
from runner.tiers.base import Handle, LaunchSpec, Port, TierDriver
from runner.workspace.beneath import clear

_LAST_LINE_CHARS: Final = 300
log = logging.getLogger(__name__)
_FIX: Final = "runner logs"
_T = TypeVar("_T")


class NeedsOperator(Exception):  # noqa: N818 - a condition that the supervisor handles
    """The guest exited with `EXIT_OPERATOR`: starting it again would not help."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.brief)
        self.error = error


def meaning_of_end(role: str, code: int | None, output: str, when: str) -> Exception:
    """Why a guest ended: `NeedsOperator` with its own error, or a `TierError`.

    `code` is its exit code, negative for a signal, None if unknown; `output` is what this launch
    has logged; `when` ends the message, such as "before it was ready".
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
    """What a guest has logged last, in words, shortened."""
    line = (output.strip().splitlines() or ["it logged nothing"])[-1]
    with suppress(ValueError, KeyError, TypeError):
        line = visible_name(parsed_json(line)["message"])
    return line[:_LAST_LINE_CHARS]


def _how(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}"


@dataclass(frozen=True)
class Policy:
    """Time limits and counts of supervision; times are in seconds."""

    start_timeout: float = 60.0
    ready_poll: float = 0.02
    check_interval: float = 5.0
    check_timeout: float = 3.0
    failed_checks: int = 3
    """After so many unanswered checks in a row, a guest counts as hanging."""
    load_time: float = 0.0
    """Misses do not count so soon after a start: loading a model can starve the process."""
    backoff_first: float = 0.5
    backoff_max: float = 30.0
    stable_after: float = 60.0
    """After running for so long, earlier failures are forgotten."""
    stop_grace: float = 5.0
    orderly_end: float = 2.0
    """How long a guest that has removed its socket may take to end."""


@dataclass(frozen=True)
class Launch:
    """One start of a guest: what to run, and how to reach it.

    On another machine it is reached at `port` of where it then is. `fingerprint` is equal for
    launches that differ only in what is new in every launch.
    """

    spec: LaunchSpec
    peer: Peer
    port: Port | None = None
    fingerprint: str = ""

    def at(self, handle: Handle) -> "Launch":
        """The launch with the place where its guest is."""
        if not handle.address or self.port is None:
            return self
        return replace(self, peer=replace(self.peer, endpoint=handle.endpoint(self.port)))

    def inherited(self, handle: Handle, token: str) -> "Launch":
        """The launch of an equal guest that an earlier runner has started."""
        spec = replace(self.spec, launch_id=handle.launch_id)
        peer = replace(self.peer, token=token, launch_id=handle.launch_id)
        return replace(self, spec=spec, peer=peer).at(handle)


Adopt = Callable[[Launch], Awaitable[tuple[Launch, Handle] | None]]
"""Returns a launch as it was, with the handle of its guest, or None."""


@dataclass(repr=False, eq=False)
class Supervisor:
    """Supervises one guest of one role.

    `prepare` creates each launch. `on_handle` is called first with every new handle, and with None
    when it has ended. `verify` is called with a connection to every guest that answers, before it
    counts as ready; if it raises, the guest is ended.

    `shared` is for a guest that several runners share. It is held around each start and yields the
    handle of a guest that already runs, which is then watched instead of starting a new one. The
    socket of such a guest is never removed, because another runner may have started the next one,
    and no failure ends the supervision.

    `adopt` is asked before each start for an equal guest that an earlier runner has left running.
    `on_end` is told why a guest has ended that was not to, once it had been ready.

    `guard` runs beside each guest that is ready, with a connection to it; once it raises, the guest
    is ended.
    """

    driver: TierDriver
    role: str
    prepare: Callable[[], Launch]
    on_handle: Callable[[Handle | None], None]
    policy: Policy | None = None
    verify: Callable[[grpc.aio.Channel], Awaitable[None]] | None = None
    shared: Callable[[], AbstractAsyncContextManager[Handle | None]] | None = None
    adopt: Adopt | None = None
    guard: Callable[[grpc.aio.Channel], Awaitable[NoReturn]] | None = None
    on_end: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._policy = self.policy or Policy()
        self._handle: Handle | None = None
        self._launch: Launch | None = None
        self.connection: grpc.aio.Channel | None = None
        """To a guest that has answered; None if there is none now."""
        self._log_offset = 0
        self._life: asyncio.Task[None] | None = None
        self._cancelled: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self._failures = 0
        self.restarts = 0
        """How often the guest was started again."""
        self._state = "stopped"
        self._reason = ""
        self._last_end = ""
        self._socket: tuple[int, int] | None = None
        self._since = datetime.now(UTC)
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Start the guest and keep it running.

        Raises the error that the guest logged, or a `TierError`; then nothing of it runs. A `stop`
        during the start makes it raise CANCELLED.
        """
        await self._begin(give_up=True)

    def start_in_background(self) -> None:
        """Keep the guest running; failures are shown by `status`."""
        settled = asyncio.get_running_loop().create_future()
        settled.set_result(None)
        self._life = asyncio.create_task(self._live(settled, give_up=False, last=self._life))

    async def restart(self) -> None:
        """End the guest and start it again. Raises like `start`, but keeps trying unless a
        person has to fix something first. Who asks for the guest meanwhile gets the next one. If
        it is cancelled, it goes on in the background."""
        self._note("starting")
        try:
            await self._end_life()
        except (Exception, asyncio.CancelledError):
            self.start_in_background()  # which first goes on trying to end it
            raise
        self.restarts += 1
        self._failures = 0
        await self._begin(give_up=False)

    async def stop(self) -> None:
        """End the guest and the supervision. Interrupts `start`. Idempotent."""
        await self._end_life()
        self._note("stopped")

    async def release(self) -> None:
        """End the supervision but leave the guest running. Idempotent."""
        await self._cancel_life()
        await self._close_channel()
        self._handle = self._launch = None
        self._note("stopped")

    @property
    def alive(self) -> bool:
        """Whether the guest is kept running, or started again once it can be."""
        return self._life is not None and not self._life.done()

    @property
    def current(self) -> Launch:
        """The launch in hand, whether it answers or not; there must be one."""
        assert self._launch is not None
        return self._launch

    async def launch(self) -> Launch:
        """The launch that answers now. Waits while one is starting.

        Raises `HostError` (UNAVAILABLE) with the reason if there is none.
        """
        while self._state == "starting":
            await self._changed.wait()
        if self._launch is None or self._state not in ("ready", "unhealthy"):
            raise HostError(
                Code.UNAVAILABLE,
                f"the {self.role} guest is {self._state}",
                details=self._reason,
                resolution=_FIX,
            )
        return self._launch

    async def channel(self) -> grpc.aio.Channel:
        """The connection to that launch. Waits and raises like `launch`."""
        await self.launch()
        if self.connection is None:
            raise HostError(
                Code.UNAVAILABLE, f"the {self.role} guest is being ended", resolution=_FIX
            )
        return self.connection

    async def status(self) -> control_pb2.GuestStatus:
        """The current state of the guest, which is asked."""
        state, reason = self._state, self._reason
        reply = control_pb2.GuestStatus(
            role=self.role, restarts=self.restarts, last_end=self._last_end
        )
        if self._handle is not None:
            try:
                found = await self.driver.inspect(self._handle)
            except Exception as error:
                log.exception("the tier cannot say how the %s guest is", self.role)
                state, reason = "unhealthy", f"the tier cannot say how it is: {error!r}"
            else:
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
        """Once only: a start that is undone must not be cancelled again before all is undone."""
        if self._life is not None:
            if self._cancelled is not self._life:
                self._cancelled = self._life
                self._life.cancel()
            await asyncio.wait({self._life})
            self._life = None

    async def _end_life(self) -> None:
        await self._cancel_life()
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(
                HostError(Code.CANCELLED, f"the {self.role} guest was stopped while it started")
            )
        try:
            await self._end_guest(self._policy.stop_grace)
        except Exception as found:
            error = found if isinstance(found, WireError) else self._unexpected(found)
            self._note("failed", _one_line(error, with_fix=True))
            raise error from None

    async def _live(
        self,
        settled: asyncio.Future[None],
        give_up: bool,
        last: asyncio.Task[None] | None = None,
    ) -> None:
        """Start the guest again and again, until cancelled or a person is needed; first once the
        `last` such task, which was cancelled, has ended."""
        if last is not None:
            await asyncio.wait({last})
        while True:
            error, fatal = await self._one_life(settled)
            shared = self.shared is not None
            fatal = fatal or (shared and self._handle is None)
            try:
                await self._end_guest(grace=0.0)
            except Exception as found:  # the tier is away, say; the next life begins with this
                error = found if isinstance(found, WireError) else self._unexpected(found)
                fatal = False
            first = not settled.done()
            delay = self._policy.backoff_max if fatal else self._next_delay()
            done = (fatal and not shared) or (first and give_up)
            self._last_end = reason = _one_line(error, with_fix=fatal)
            if not done:
                reason += f"; next start in {delay:g} s"
            self._note("failed" if fatal or done else "backing_off", reason)
            if first:
                settled.set_exception(error)
            else:
                follows = f"to mend it: {error.resolution}" if done else "it is started again"
                self.on_end(f"{error.brief}; {follows}")
            if done:
                return
            await asyncio.sleep(delay)
            self.restarts += 1

    async def _one_life(self, settled: asyncio.Future[None]) -> tuple[WireError, bool]:
        """Run the guest from start to end. Returns why it ended, and whether a person is needed."""
        try:
            await self._end_guest(grace=0.0)  # the last one, if something kept it from being ended
            await self._bring_up()
            if not settled.done():
                settled.set_result(None)
            await self._guarded()
        except NeedsOperator as found:
            return found.error, True
        except WireError as found:
            return found, False
        except OSError as found:
            error = TierError(
                Code.FAILED_PRECONDITION,
                f"the {self.role} guest cannot be started: {found.strerror or found}",
                details=str(found.filename or found),
                resolution="make room and access there, then: runner restart",
            )
            return error, False
        except Exception as found:
            return self._unexpected(found), False

    def _unexpected(self, found: Exception) -> WireError:
        """What `status` shows of a failure that nobody has thought of. Supervision goes on."""
        log.error("unexpected failure in supervision", exc_info=found)
        return TierError(
            Code.INTERNAL, f"supervision of the {self.role} guest: {found!r}", resolution=_FIX
        )

    def _next_delay(self) -> float:
        self._failures += 1
        doubled = self._policy.backoff_first * 2.0 ** min(self._failures - 1, 30)
        return min(self._policy.backoff_max, doubled)

    async def _bring_up(self) -> None:
        self._note("starting")
        self._launch = launch = self.prepare()
        if self.adopt is not None and (found := await self.adopt(launch)) is not None:
            self._launch, self._handle = found
            launch = found[0]
            self.on_handle(self._handle)
        else:
            launch = await self._start(launch)
        await self._until_ready(launch)
        if self.verify is not None:
            assert self.connection is not None
            await self.verify(self.connection)
        self._note("ready")

    async def _start(self, launch: Launch) -> Launch:
        """Start the guest. Returns the launch with the place where it is."""
        socket = socket_at(launch.peer.endpoint)
        if socket is not None and self.shared is None:
            clear(socket, launch.spec.home)
        log_path, home = launch.spec.log_path, launch.spec.home
        clear(log_path, home, keep_file=True)
        self._log_offset = next_offset(log_path, home)
        async with self.shared() if self.shared is not None else nullcontext(None) as running:
            self._handle = running or await self.driver.start(launch.spec)
            self._launch = launch = launch.at(self._handle)
            self.on_handle(self._handle)
        return launch

    async def _until_ready(self, launch: Launch) -> None:
        assert self._handle is not None
        ended = asyncio.create_task(self.driver.wait(self._handle))
        try:
            async with asyncio.timeout(self._policy.start_timeout):
                while not await self._reachable(launch):
                    await asyncio.wait({ended}, timeout=self._policy.ready_poll)
                    if ended.done():
                        raise self._end(ended.result(), "before it was ready")
        except TimeoutError:
            raise TierError(
                Code.TIMEOUT,
                f"the {self.role} guest was not ready within {self._policy.start_timeout:g} s",
                details=last_line(self._output()),
                resolution=_FIX,
            ) from None
        finally:
            ended.cancel()

    async def _reachable(self, launch: Launch) -> bool:
        """Check once whether a starting guest answers. Uses a new connection each time, because
        gRPC waits long before it retries a refused one."""
        path = socket_at(launch.peer.endpoint)
        if path is not None and (path.is_symlink() or not path.is_socket()):
            return False
        channel = open_channel(launch.peer)
        if await check_health(channel, self._policy.check_timeout):
            self.connection = channel
            self._socket = _file_at(path)
            return True
        await channel.close()
        return False

    async def _guarded(self) -> NoReturn:
        """Watch a guest that is ready, and have it guarded meanwhile. Raises why it is to end."""
        watching: list[Awaitable[NoReturn]] = [self._watch()]
        if self.guard is not None:
            assert self.connection is not None
            watching.append(self.guard(self.connection))
        await first_of(*watching)

    async def _watch(self) -> NoReturn:
        """Watch a guest that is ready. Raises when it has ended or hangs."""
        assert self._handle is not None
        loop = asyncio.get_running_loop()
        ready_since = loop.time()
        misses = 0
        ended = asyncio.create_task(self.driver.wait(self._handle))
        try:
            while True:
                await asyncio.wait({ended}, timeout=self._policy.check_interval)
                if ended.done():
                    raise self._end(ended.result())
                if loop.time() - ready_since > self._policy.stable_after:
                    self._failures = 0
                await self._check_socket(ended)
                if await self._answers(self._policy.check_timeout):
                    misses = 0
                    self._note("ready")
                    continue
                misses += 1
                self._note("unhealthy", f"{misses} health checks in a row without an answer")
                loaded = loop.time() - ready_since > self._policy.load_time
                if misses >= self._policy.failed_checks and loaded:
                    raise TierError(Code.TIMEOUT, f"the {self.role} guest hangs: {self._reason}")
        finally:
            ended.cancel()

    async def _check_socket(self, ended: "asyncio.Task[int | None]") -> None:
        """Raise if another file is where the guest listens. Connections to it still work, but the
        next one would reach whoever put that file there."""
        assert self._launch is not None
        path = socket_at(self._launch.peer.endpoint)
        if self.shared is not None or _file_at(path) == self._socket:
            return
        await asyncio.wait({ended}, timeout=self._policy.orderly_end)
        if ended.done():
            raise self._end(ended.result())
        raise TierError(
            Code.UNAVAILABLE,
            f"the {self.role} guest's socket was removed or replaced",
            details=f"{path} is no longer what it made; only a program in that guest can do this",
            resolution=_FIX,
        )

    async def _answers(self, timeout: float) -> bool:
        return self.connection is not None and await check_health(self.connection, timeout)

    def _end(self, code: int | None, when: str = "") -> Exception:
        return meaning_of_end(self.role, code, self._output(), when)

    def _output(self) -> str:
        assert self._launch is not None
        spec = self._launch.spec
        return read_from(spec.log_path, spec.home, self._log_offset)

    async def _close_channel(self) -> None:
        channel, self.connection = self.connection, None
        if channel is not None:
            await channel.close()

    async def _end_guest(self, grace: float) -> None:
        await self._close_channel()
        if self._handle is not None:
            await self.driver.stop(self._handle, grace)
            self._handle = None
            self._tidy(lambda: self.on_handle(None))
        launch, self._launch = self._launch, None
        socket = None if launch is None else socket_at(launch.peer.endpoint)
        if launch is not None and socket is not None and self.shared is None:
            self._tidy(lambda: clear(socket, launch.spec.home))  # a killed guest leaves it behind

    def _tidy(self, step: Callable[[], object]) -> None:
        """A step after the end of a guest that must not keep the next one from starting, which
        does it again."""
        try:
            step()
        except OSError as error:
            log.warning("after the end of the %s guest: %s", self.role, error)

    def _note(self, state: str, reason: str = "") -> None:
        if state != self._state:
            self._since = datetime.now(UTC)
            level = logging.WARNING if reason else logging.INFO
            log.log(level, "%s guest: %s%s", self.role, state, f": {reason}" if reason else "")
        self._state, self._reason = state, reason
        self._changed.set()
        self._changed = asyncio.Event()


async def first_of(*works: Awaitable[_T]) -> _T:
    """What the first of these gives or raises. The others are cancelled then."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return await done.pop()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def disabled(role: str, reason: str, since: datetime) -> control_pb2.GuestStatus:
    """The status of a guest that is not wanted."""
    return control_pb2.GuestStatus(
        role=role, state="disabled", reason=reason, since=since.isoformat(timespec="seconds")
    )


def socket_at(endpoint: str) -> Path | None:
    """The socket on this machine that an endpoint names; None for another kind of endpoint."""
    return Path(endpoint.removeprefix("unix:")) if endpoint.startswith("unix:") else None


def _file_at(path: Path | None) -> tuple[int, int] | None:
    """What identifies the file at `path` while somebody has it open; None if there is none."""
    try:
        found = path.lstat() if path is not None else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


def _one_line(error: WireError, *, with_fix: bool) -> str:
    why = f" ({error.details})" if error.details else ""
    fix = f"; fix: {error.resolution}" if with_fix and error.resolution else ""
    return f"{error.brief}{why}{fix}"
