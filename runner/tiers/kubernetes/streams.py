"""A pod's standard streams: the envelope goes in once, its output is followed into its log."""

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import TierError
from runner.tiers.kubernetes.cluster import UNREACHABLE, Cluster
from runner.tiers.kubernetes.pods import CONTAINER
from runner.tiers.running import OutputLog

log = logging.getLogger(__name__)

_STDIN: Final = b"\x00"
"""The channel number that begins each message."""
_PIECE: Final = 16 * 1024
_LINGER_S: Final = 5.0
"""How long the connection stays open behind the envelope: what a proxy on the way still holds when
it ends may be lost."""
_PAUSE_S: Final = 0.5
_LAST_S: Final = 10.0


async def send_envelope(
    cluster: Cluster, pod: str, envelope: bytes, *, incoming: Path | None = None
) -> "asyncio.Task[None]":
    """Send the envelope to the pod's standard input, and behind it what the file `incoming` holds.

    Returns the task that ends the connection a little later. Raises `TierError` if the envelope
    did not go out as a whole.
    """
    loop = asyncio.get_running_loop()
    sent: asyncio.Future[None] = loop.create_future()

    async def run() -> None:
        try:
            async with cluster.attached(pod, CONTAINER) as socket:
                for start in range(0, len(envelope), _PIECE):
                    await socket.send_bytes(_STDIN + envelope[start : start + _PIECE])
                if incoming is not None:
                    with incoming.open("rb") as file:
                        while part := await asyncio.to_thread(file.read, _PIECE):
                            await socket.send_bytes(_STDIN + part)
                sent.set_result(None)
                with contextlib.suppress(TimeoutError, *UNREACHABLE):
                    async with asyncio.timeout(_LINGER_S):
                        async for _ in socket:
                            pass
        except BaseException as error:
            if not sent.done():
                sent.set_exception(error)
            elif isinstance(error, asyncio.CancelledError):
                raise

    sending = asyncio.create_task(run())
    try:
        await sent
    except UNREACHABLE as error:
        sending.cancel()
        raise TierError(
            Code.UNAVAILABLE,
            f"the pod {pod} did not get its envelope",
            details=str(error) or type(error).__name__,
            resolution="runner logs; it is tried again with a new pod",
        ) from None
    except BaseException:
        sending.cancel()
        raise
    return sending


class Output:
    """Follows what a pod prints into `log`, from its start or, for one that was adopted, from now
    on."""

    def __init__(
        self, cluster: Cluster, pod: str, log: OutputLog, *, adopted: bool = False
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._log = log
        self._last = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z") if adopted else ""
        self._seen_at = time.monotonic()
        self._ended = asyncio.Event()
        self._following = asyncio.create_task(self._follow())

    async def finish(self, last_line: str = "") -> None:
        """Call this once the pod has ended: take in the rest, add `last_line`, close the log."""
        self._ended.set()
        await asyncio.wait({self._following}, timeout=_LAST_S)
        await self.abandon(last_line)

    async def abandon(self, last_line: str = "") -> None:
        """Stop following a pod that goes on, or one that has ended."""
        self._following.cancel()
        await asyncio.wait({self._following})
        if last_line:
            self._log.add_line(last_line)
        self._log.close()

    async def _follow(self) -> None:
        while True:
            last = self._ended.is_set()
            whole = False
            try:
                whole = await self._read()
            except (TierError, *UNREACHABLE) as error:
                log.debug("the log of %s: %s", self._pod, error)
            if last or (whole and self._ended.is_set()):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._ended.wait()

    async def _read(self) -> bool:
        """Copy lines until the stream ends. Returns whether that was its end."""
        options, before = {}, _ordered(self._last)
        if self._last:
            options["since_seconds"] = int(time.monotonic() - self._seen_at) + 2
        async with self._cluster.stream(
            f"read the log of {self._pod}",
            self._cluster.core.read_namespaced_pod_log,
            self._pod,
            self._cluster.namespace,
            container=CONTAINER,
            follow=True,
            timestamps=True,
            **options,
        ) as lines:
            held = b""
            async for block, _ in lines.iter_chunks():
                *whole, held = (held + block).split(b"\n")
                for line in whole:
                    self._take(line, before)
            if held:
                self._take(held, before)
        return True

    def _take(self, line: bytes, before: tuple[str, str]) -> None:
        """Copy a line that is later than `before`. Each begins with when it was printed."""
        moment, _, text = line.partition(b" ")
        stamp = moment.decode(errors="replace")
        if _ordered(stamp) <= before:
            return
        self._last, self._seen_at = stamp, time.monotonic()
        self._log.write(text + b"\n")


def _ordered(stamp: str) -> tuple[str, str]:
    """A moment as something that can be compared: fractions come without their last zeros."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return whole, fraction.ljust(9, "0")
