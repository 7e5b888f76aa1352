"""Whether the network of a cluster enforces its policies: it may take them without a word and do
nothing, or need some time."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from wire.boundary import POLICED_CHECKS
from wire.errors import Code, WireError
from wire.network_probe import POLICED
from wire.v1 import control_pb2

from runner.boundary.check import AGENT, PROOF, require_passed
from runner.errors import TierError

log = logging.getLogger(__name__)

WITHIN_S: Final = 30.0
EVERY_S: Final = 300.0
_POLICED: Final = frozenset({*POLICED_CHECKS, *(AGENT + way for way in POLICED)})
_LATE: Final = _POLICED | {PROOF, AGENT + PROOF}
"""What may come later than a pod: policies, and who listens where they forbid to connect."""
_IN_A_ROW: Final = 2


async def until_enforced(
    run: Callable[[], Awaitable[control_pb2.BoundaryReport]],
    *,
    within_s: float = WITHIN_S,
    pause_s: float = 1.0,
) -> control_pb2.BoundaryReport:
    """Run the boundary self-test of a pod until it has passed twice in a row. Returns the last
    report.

    Where nothing but policies or their proof fails it is run again, `pause_s` seconds later, until
    `within_s` have passed: they may come after the pod. Whatever else fails is the last report at
    once.
    """
    deadline = time.monotonic() + within_s
    passed = 0
    while True:
        report = await run()
        passed = passed + 1 if report.passed else 0
        if passed == _IN_A_ROW or not (report.passed or _fails_only_in(_LATE, report)):
            return report
        if not passed and time.monotonic() >= deadline:
            return report
        await asyncio.sleep(pause_s)


async def watch_policies(
    run: Callable[[], Awaitable[control_pb2.BoundaryReport]],
    *,
    changed: asyncio.Event | None = None,
    every_s: float = EVERY_S,
    pause_s: float = 1.0,
) -> control_pb2.BoundaryReport:
    """Repeat the part of the self-test that policies answer for, for as long as nothing is open
    that they shut. Returns the first report of something open, after a second run `pause_s`
    seconds later has found it, too.

    It is run every `every_s` seconds, and whenever `changed` is set, which is cleared: when pods
    or policies have changed. A run that proves nothing, as while the API server is away or the
    guest hangs, is only logged: the guest's own supervision sees to the latter.
    """
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await (changed or asyncio.Event()).wait()
        if changed is not None:
            changed.clear()
        if await _open(run) is not None:
            await asyncio.sleep(pause_s)
            if (again := await _open(run)) is not None:
                return again


async def _open(
    run: Callable[[], Awaitable[control_pb2.BoundaryReport]],
) -> control_pb2.BoundaryReport | None:
    """The report of a run that has found open what policies shut; else None."""
    try:
        report = await run()
    except WireError as error:
        log.warning("what policies shut cannot be tried now: %s", error)
        return None
    failed = {check.name: check.details for check in _failed(report)}
    if failed.keys() & _POLICED:
        return report
    if failed:
        log.warning("what policies shut could not be tried: %s", failed)
    return None


def require_enforced(report: control_pb2.BoundaryReport, guest: str = "shell") -> None:
    """The same as `require_passed` for a pod: raises `TierError` (FAILED_PRECONDITION), with what
    to do about the network where nothing else has failed."""
    if not _fails_only_in(_POLICED, report):
        require_passed(report, guest)
        return
    reached = "\n".join(f"{each.name}: {each.details}" for each in _failed(report))
    raise TierError(
        Code.FAILED_PRECONDITION,
        "this cluster's network does not enforce NetworkPolicy",
        details=f"from the {guest} pod there are ways that policies forbid, and nothing else keeps "
        f"it from them:\n{reached}",
        resolution="install a network plugin that enforces them, such as Calico or Cilium; "
        "then runner start",
    )


def _fails_only_in(names: frozenset[str], report: control_pb2.BoundaryReport) -> bool:
    """Whether checks have failed, and only such."""
    failed = {check.name for check in _failed(report)}
    return bool(failed) and failed <= names


def _failed(report: control_pb2.BoundaryReport) -> list[control_pb2.BoundaryCheck]:
    return [check for check in report.checks if not check.passed]
