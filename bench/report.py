"""How figures are summed up and judged."""

import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: int) -> float:
    """The `percent`th percentile, 1 to 99, of two values or more."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def p50(seconds: Sequence[float]) -> float:
    """The median, in milliseconds."""
    return statistics.median(seconds) * 1000


def p95(seconds: Sequence[float]) -> float:
    """The 95th percentile of two values or more, in milliseconds."""
    return percentile(seconds, 95) * 1000


def verdict(met: bool) -> str:
    """Whether a figure reaches its goal, for a row of the report."""
    return "met" if met else "MISSED"
