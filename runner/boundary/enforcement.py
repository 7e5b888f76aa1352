"""Whether the network of a cluster enforces its policies: it may take them without a word and do
nothing, or need some time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from wire.boundary import POLICED_CHECKS
from wire.errors import Code
from wire.v1 import control_pb2
from wire.ways_out import POLICED

from runner.boundary.check import AGENT, require_passed
from runner.errors import TierError

WITHIN_S: Final = 30.0
_POLICED: Final = frozenset({*POLICED_CHECKS, *(AGENT + way for way in POLICED)})
_IN_A_ROW: Final = 2


async def until_enforced(
    run: Callable[[], Awaitable[control_pb2.BoundaryReport]],
    *,
    within_s: float = WITHIN_S,
    pause_s: float = 1.0,
) -> control_pb2.BoundaryReport:
    """Run the boundary self-test of a pod until it has passed twice in a row. Returns the last
    report.

    Where nothing but policies fails it is run again, `pause_s` seconds later, until `within_s` have
    passed: they may come after the pod. Whatever else fails is the last report at once.
    """
    deadline = time.monotonic() + within_s
    passed = 0
    while True:
        report = await run()
        passed = passed + 1 if report.passed else 0
        if passed == _IN_A_ROW or not (report.passed or _unenforced(report)):
            return report
        if not passed and time.monotonic() >= deadline:
            return report
        await asyncio.sleep(pause_s)


def require_enforced(report: control_pb2.BoundaryReport, guest: str = "shell") -> None:
    """The same as `require_passed` for a pod: raises `TierError` (FAILED_PRECONDITION), with what
    to do about the network where nothing else has failed."""
    if not _unenforced(report):
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


def _unenforced(report: control_pb2.BoundaryReport) -> bool:
    """Whether checks have failed, and only those that policies answer for."""
    names = {check.name for check in _failed(report)}
    return bool(names) and names <= _POLICED


def _failed(report: control_pb2.BoundaryReport) -> list[control_pb2.BoundaryCheck]:
    return [check for check in report.checks if not check.passed]
