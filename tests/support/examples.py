"""What random examples are drawn from, and how many of them a property is tried with."""

import os
from collections.abc import Callable
from typing import Any, Final

from hypothesis import settings

SEED: Final = int(os.environ.get("TESTS_SEED", "0"))


def scaled(count: int) -> int:
    """So many in every run; with `--long` ten times as many."""
    return count * settings().max_examples // 100


def examples(count: int) -> Callable[[Any], Any]:
    """Try a property with so many examples; `--long` tries it with ten times as many."""
    return settings(max_examples=scaled(count))
