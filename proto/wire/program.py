"""How every guest begins and ends: its arguments, its envelope, how long it lives, and why it could
not start.

A guest lives until it is asked to end, by a signal, or until its runner is gone: that holds the
other end of standard input, or calls it. One that cannot start gives the reason in its last log
line and exits with `EXIT_OPERATOR`.
"""

import argparse
import asyncio
import logging
import math
import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final, NoReturn, TypeVar

from wire import logs
from wire.errors import Code, WireError
from wire.identity import Party
from wire.kernel import prctl
from wire.logs import EXIT_OPERATOR

log = logging.getLogger(__name__)

EXIT_BUG: Final = 70
"""EX_SOFTWARE: a bug; starting again may help."""
_LAST_LOOK_S: Final = 1.0
"""A guest that stood still itself, as on a machine that was suspended, first hears what has come
in the meantime."""


class Lease:
    """Every call of the runner renews it: see `on_call` of `wire.transport.Server`. `then` is
    called once when `seconds` have passed without one; None: it never ends."""

    def __init__(self, seconds: float | None, then: Callable[[], None]) -> None:
        self._seconds = seconds
        self._then = then
        self._renewed = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count from now on."""
        if self._seconds is not None:
            self._renewed = asyncio.get_running_loop().time()
            self._wait()

    def renew(self, caller: Party) -> None:
        """Begin anew, if the runner makes this call."""
        if caller is Party.RUNNER:
            self._renewed = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Count no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _left(self) -> float:
        assert self._seconds is not None
        return self._renewed + self._seconds - asyncio.get_running_loop().time()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._left, self._look)

    def _look(self, *, last: bool = False) -> None:
        if self._left > 0:
            self._wait()
        elif not last:
            again = partial(self._look, last=True)
            self._timer = asyncio.get_running_loop().call_later(_LAST_LOOK_S, again)
        else:
            log.info("the runner is gone: no call of it for %g s", self._seconds)
            self._then()


class Parser(argparse.ArgumentParser):
    """The arguments of a guest. Bad ones raise `WireError`, so that the log says why it cannot
    start.

    `until` is the group of the ways in which a guest learns that its runner is gone: one of them
    may be given.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description)
        self.add_argument(
            "--bootstrap-stdin",
            action="store_true",
            required=True,
            help="read the envelope from standard input",
        )
        self.until = self.add_mutually_exclusive_group()
        self.until.add_argument(
            "--exit-with-parent", action="store_true", help="stop when standard input ends"
        )
        self.until.add_argument(
            "--lease",
            type=_seconds,
            metavar="SECONDS",
            help="stop when the runner has not called for so long",
        )

    def add_listener(self, flag: str, what: str, *, required: bool = True) -> None:
        """An argument for where it listens, read as an endpoint."""
        from wire.transport import listener  # gRPC takes time, which --help need not wait for

        text = f"{what}: a path, or tcp:*:PORT"
        self.add_argument(flag, type=listener, required=required, metavar="PLACE", help=text)

    def add_log_level(self) -> None:
        levels = ("debug", "info", "warning", "error")
        self.add_argument("--log-level", choices=levels, default="info")

    def error(self, message: str) -> NoReturn:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"bad arguments: {message}",
            details=self.format_usage().strip(),
            resolution=f"{self.prog} --help",
        )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (0 < seconds < math.inf):
        raise ValueError(text)
    return seconds


_Envelope = TypeVar("_Envelope")


def received(read: Callable[[BinaryIO], _Envelope], descriptor: int = 0) -> _Envelope:
    """What `read` makes of standard input, unbuffered: what follows it stays there."""
    with open(descriptor, "rb", buffering=0, closefd=False) as stream:
        return read(stream)


class Life:
    """How long a guest lives: `ended` is set when it is over.

    `lease` is for the `on_call` of its server; it counts from its `begin`. Needs a running loop.
    Raises `WireError` (INVALID_ARGUMENT) if standard input cannot end.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT),
    ) -> None:
        self.ended = asyncio.Event()
        self.lease = Lease(arguments.lease, self.ended.set)
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, self.ended.set)
        if arguments.exit_with_parent:
            try:
                loop.add_reader(0, self._read)
            except OSError:
                raise WireError(
                    Code.INVALID_ARGUMENT,
                    "standard input is a file, which never ends",
                    details="--exit-with-parent waits for the end of a pipe or socket",
                    resolution="start guests through the runner",
                ) from None

    def _read(self) -> None:
        try:
            more = os.read(0, 65536)
        except OSError:
            more = b""
        if not more:
            log.info("the runner is gone")
            asyncio.get_running_loop().remove_reader(0)
            self.ended.set()


def run(role: str, work: Callable[[], int], *, concealed: bool = True) -> int:
    """Log as `role` and do the `work`; returns its exit code, or that of its failure. No core dump
    ever holds what this process is told. Other runners of its account may look for one that is not
    `concealed`: where /proc hides what they cannot read (hidepid), they find no other."""
    if concealed:
        prctl.conceal()
    else:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logs.configure(role, "", "info")
    logging.captureWarnings(True)
    try:
        return work()
    except WireError as error:
        logs.log_startup_failure(log, error)
        return EXIT_OPERATOR
    except Exception:
        log.exception("%s failed unexpectedly", role)
        return EXIT_BUG
