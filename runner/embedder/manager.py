"""Which embedder a configuration asks for, in which tier."""

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc
from wire import logs, transport
from wire.errors import Code, WireError
from wire.status import from_rpc_error
from wire.v1 import control_pb2, embedder_pb2, embedder_pb2_grpc

from runner.config.models import Config
from runner.embedder.container import ContainerEmbedder
from runner.embedder.home import Child, EmbedderHome, lock_within
from runner.embedder.process import ProcessEmbedder
from runner.errors import HostError, TierError
from runner.workspace.ownership import Owner

_CONTAINER_TIERS: Final = ("container", "micro_vm")


def embedder_for(config: Config, tier: str, runtime_base: Path, owner: Owner) -> "EmbedderManager":
    """One runner's share in the embedder of `tier`; touches nothing, and refuses
    (`WireError`) a place too deep for its socket.

    `owner` is whom the guests run as: in a tier of containers the embedder runs
    as the same one, so that they can connect to its socket.
    """
    home = home_for(config, tier, runtime_base, owner)
    _ = home.endpoint
    return EmbedderManager(home)


def home_for(config: Config, tier: str, runtime_base: Path, owner: Owner) -> EmbedderHome:
    """Where that embedder is, for who only reads its log; touches nothing."""
    if tier in _CONTAINER_TIERS:
        return ContainerEmbedder(runtime_base, config.embedder, config.container, owner)
    return ProcessEmbedder(runtime_base, config.embedder)


log = logging.getLogger(__name__)

_LEASE_WAIT_S: Final = 10.0
_SPAWN_WAIT_S: Final = 20.0
_ENDINGS: Final = ((signal.SIGTERM, 3.0), (signal.SIGKILL, 15.0))
"""What is tried, and for how many seconds; an engine takes its time to remove a container."""
_LAST_WAIT_S: Final = 0.1
"""The embedder itself looks at the leases for an instant now and then."""
_STATES: Final = {"loading": "starting", "ready": "ready", "failed": "failed"}


@dataclass(frozen=True)
class Timing:
    """Seconds. Importing a model's libraries can starve the process for long."""

    look: float = 1.0
    """Between two looks whether the process is there."""
    ask: float = 5.0
    """Between two questions to one that is ready."""
    answer: float = 5.0
    hung: float = 30.0
    hung_loading: float = 180.0
    backoff_first: float = 0.2
    backoff_max: float = 30.0
    backoff_reset: float = 60.0
    """Of health, after which earlier deaths are forgotten."""


class EmbedderManager:
    """One runner's share in the embedder of `home`.

    With `backend = "none"` there is none: `link` is empty and `status` says so.
    `runner.embedder.manager` makes the one that a configuration asks for.
    """

    def __init__(self, home: EmbedderHome, timing: Timing | None = None) -> None:
        self._home = home
        self._enabled = home.backend != "none"
        self._timing = timing or Timing()
        self._token = ""
        self._lease: int | None = None
        self._child: Child | None = None
        self._channel: grpc.aio.Channel | None = None
        self._supervision: asyncio.Task[None] | None = None
        self._failures = 0
        self._answered = 0.0
        self._was_ready = False
        self._status = control_pb2.GuestStatus(role="embedder")
        if self._enabled:
            self._note("stopped", "not started")
        else:
            self._note("disabled", 'embedder.backend = "none"')

    async def start(self) -> None:
        """Take the lease and see to it that an embedder runs from now on.

        Returns before it serves. Raises `WireError` where the directory cannot
        be used; an embedder that does not start is what `status` tells.
        """
        if not self._enabled or self._supervision is not None:
            return
        endpoint = self._home.endpoint
        self._token = self._home.prepare()
        self._lease = await lock_within(self._home.leases, fcntl.LOCK_SH, _LEASE_WAIT_S)
        if self._lease is None:
            raise HostError(
                Code.UNAVAILABLE,
                "an earlier embedder is ending and does not end",
                details=f"{self._home.leases} has been locked for {_LEASE_WAIT_S:g} s",
                resolution=f"kill -9 {await self._home.pid() or 'the process that holds it'}",
            )
        self._channel = transport.open_channel(endpoint, self._token)
        self._note("starting")
        self._supervision = asyncio.create_task(self._supervise(), name="embedder supervision")

    def link(self) -> tuple[str, str]:
        """Endpoint and token for guests, valid from `start` on; two empty strings for none."""
        return (self._home.endpoint, self._token) if self._enabled else ("", "")

    @property
    def log(self) -> Path:
        """Where the embedder logs."""
        return self._home.log

    async def status(self) -> control_pb2.GuestStatus:
        """How the embedder is at this moment: it is asked, for at most a second."""
        if self._supervision is not None:
            if self._home.is_running():
                await self._ask(timeout=1.0)
            elif self._status.state == "ready":
                self._note("unhealthy", "the process is gone")
        reply = control_pb2.GuestStatus()
        reply.CopyFrom(self._status)
        reply.pid = await self._home.pid() if self._supervision is not None else 0
        return reply

    async def stop(self) -> None:
        """Give up the lease, and end the embedder if nobody else holds one. Idempotent."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
            self._supervision = None
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None
            await self._end_if_last()
            self._note("stopped")

    async def _supervise(self) -> None:
        """One life of the embedder after the other."""
        while True:
            delay = min(
                self._timing.backoff_max, self._timing.backoff_first * 2 ** min(self._failures, 20)
            )
            state = "backing_off"
            self._was_ready = False
            try:
                await self._ensure_running()
                reason = await self._watch_until_gone()
                self._status.restarts += 1
            except Exception as error:
                reason = _one_line(error)
                told = self._child is not None and self._child.code == logs.EXIT_OPERATOR
                if told or isinstance(error, TierError):
                    state, delay = "failed", self._timing.backoff_max
            self._failures += 1
            self._note(state, f"{reason}; next start in {delay:g} s")
            log.warning("embedder: %s; next start in %g s", reason, delay)
            await asyncio.sleep(delay)

    async def _ensure_running(self) -> None:
        """Start an embedder unless one runs; of several runners only one does."""
        spawning = await lock_within(self._home.spawn_lock, fcntl.LOCK_EX, 2 * _SPAWN_WAIT_S)
        if spawning is None:
            raise HostError(Code.UNAVAILABLE, "another runner is starting the embedder, for long")
        try:
            if not self._home.is_running():
                self._child = child = await self._home.spawn(self._token)
                self._note("starting")
                await self._until_running(child)
        finally:
            os.close(spawning)

    async def _until_running(self, child: Child) -> None:
        deadline = time.monotonic() + _SPAWN_WAIT_S
        while not self._home.is_running():
            if child.exited.is_set():
                raise self._home.start_failure(child)
            if time.monotonic() > deadline:
                await child.send(signal.SIGKILL)
                raise HostError(
                    Code.UNAVAILABLE, f"the embedder did not start within {_SPAWN_WAIT_S:g} s"
                )
            await asyncio.sleep(0.02)

    async def _watch_until_gone(self) -> str:
        """Ask again and again; returns why this life of the embedder is over."""
        life = 0
        began = asked = self._answered = time.monotonic()
        while self._home.is_running():
            life, before = self._home.life() or life, life
            if before and life != before:
                return "another runner restarted it"
            if self._status.state != "ready" or time.monotonic() - asked >= self._timing.ask:
                asked = time.monotonic()
                await self._ask(self._timing.answer)
            if self._was_ready and time.monotonic() - began > self._timing.backoff_reset:
                self._failures = 0
            limit = self._timing.hung if self._was_ready else self._timing.hung_loading
            if time.monotonic() - self._answered > limit:
                await self._home.signal(signal.SIGKILL)
                return f"did not answer for {limit:g} s and was killed"
            await self._pause()
        if self._child is not None and self._child.exited.is_set():
            return _end_of(self._child)
        return "the process is gone"

    async def _pause(self) -> None:
        """Until the next look, or our child's end."""
        if self._child is None or self._child.exited.is_set():
            await asyncio.sleep(self._timing.look)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.look):
                await self._child.exited.wait()

    async def _ask(self, timeout: float) -> None:
        """Ask the embedder how it is, and note the answer or that there was none."""
        assert self._channel is not None
        stub = embedder_pb2_grpc.EmbedderStub(self._channel)
        try:
            info = await stub.Info(embedder_pb2.EmbedderInfoRequest(), timeout=timeout)
        except grpc.RpcError as error:
            if self._status.state in ("ready", "failed"):
                self._note("unhealthy", f"no answer: {from_rpc_error(error).brief}")
            return
        self._answered = time.monotonic()
        self._was_ready |= info.state == "ready"
        self._note(_STATES.get(info.state, "unhealthy"), info.reason)
        self._status.resident_bytes = info.resident_bytes
        if info.model_id:
            self._status.details = f"{info.model_id}, {info.dimensions} dimensions"

    def _note(self, state: str, reason: str = "") -> None:
        if state != self._status.state:
            self._status.since = datetime.now(UTC).isoformat(timespec="seconds")
        self._status.state = state
        self._status.reason = reason
        self._status.details = ""
        self._status.resident_bytes = 0

    async def _end_if_last(self) -> None:
        try:
            alone = await lock_within(self._home.leases, fcntl.LOCK_EX, _LAST_WAIT_S)
        except OSError as error:
            log.warning("embedder: %s; it ends by itself", error)
            return
        if alone is None:
            return
        try:
            for number, seconds in _ENDINGS:
                await self._home.signal(number)
                if self._child is not None:
                    await self._child.send(number)
                if await self._gone_within(seconds):
                    self._home.clear()
                    return
            log.error("the embedder does not end; it will when it can")
        finally:
            os.close(alone)

    async def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._home.is_running() or not (self._child is None or self._child.exited.is_set()):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.01)
        return True


def _end_of(child: Child) -> str:
    if child.code is None:
        return "it is gone"
    if child.code < 0:
        return f"was ended by {signal.Signals(-child.code).name}"
    return f"exited with status {child.code}"


def _one_line(error: Exception) -> str:
    if not isinstance(error, WireError):
        return f"the embedder cannot be started: {type(error).__name__}: {error}"
    why = f" ({error.details})" if error.details else ""
    fix = f"; fix: {error.resolution}" if error.resolution else ""
    return f"{error.brief}{why}{fix}"
