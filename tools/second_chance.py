"""Decide whether the tests that failed in a JUnit report may run once more.

    .venv/bin/python tools/second_chance.py REPORT NAMES

Tests on real processes, engines and clocks sometimes fail because of the machine. If only a few
failed, they run again, and their names are added to the file NAMES, which CI prints at its end:
each such test is to be mended. Tests of a boundary never run again, nor do tests that memory is not
lost, half-written, falsely claimed or kept after it was forgotten: if such a test fails once,
something is wrong.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

AGAIN_MAX: Final = 3
"""So many tests of one run of CI may fail once, in all its reports."""
_NEVER_AGAIN: Final = re.compile(
    r"^tests\.(security|faults)\."
    r"|\.test_(database|(\w+_)?crash)(_\w+)?(\.|::)"
    r"|::test_\w*(claimed_falsely|killed_at_any_moment|_loses_no_|nothing_is_lost)"
)


def failed(report: str) -> list[str]:
    """The names of the tests that failed or broke."""
    root = ElementTree.fromstring(report)  # our own test runner wrote it
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]


def refusal(names: list[str], earlier: int = 0) -> str:
    """Why these tests may not run again after `earlier` others did; empty if they may."""
    if not names:
        return "the report names no failed test"
    if (count := earlier + len(names)) > AGAIN_MAX:
        return f"{count} tests failed; only up to {AGAIN_MAX} are run again"
    if grave := [name for name in names if _NEVER_AGAIN.search(name)]:
        return "these must not fail even once:\n" + "\n".join(grave)
    return ""


def main(report: Path, used: Path) -> None:
    """Add the names to `used`, or exit with why they may not run again."""
    names = failed(report.read_text())
    with used.open("a+") as lines:
        lines.seek(0)
        if why := refusal(names, len(lines.readlines())):
            raise SystemExit(f"no second run: {why}")
        lines.writelines(f"{name}\n" for name in names)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
