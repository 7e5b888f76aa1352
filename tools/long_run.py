"""Run the long tests, all or one part, and write down the result.

    .venv/bin/python tools/long_run.py [--part 2/6] [-- arguments of pytest]

Runs all tests, those marked `long` as well, with ten times the examples, from a new seed. Without
`--part` all parts run, one after the other. They have about as many tests each, and are meant to
take at most 45 minutes on two cores. A row for each part that ran whole is added to
`docs/long-runs.md`, unless pytest gets arguments of its own.
"""

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "long-runs.md"
PARTS: Final = 6


def counts(report: str) -> tuple[int, int, int]:
    """How many tests of a JUnit report passed, failed or broke, and were skipped."""
    suites = list(ElementTree.fromstring(report).iter("testsuite"))  # our own test runner wrote it
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    )
    return tests - failures - errors - skipped, failures + errors, skipped


def commit() -> str:
    """The commit that is checked out, with `+` behind it where files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip()


def run(part: str, arguments: list[str]) -> int:
    """Run one part. Returns pytest's exit code."""
    seed = os.environ.get("TESTS_SEED") or str(secrets.randbits(32))
    at, started = commit(), time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-n", "4", "--dist", "loadgroup", "--long"]
        options = ["--timeout", "3600", "--part", part, f"--junitxml={report.name}"]
        code = subprocess.run(
            [*command, *options, *arguments],
            cwd=ROOT,
            env={**os.environ, "TESTS_SEED": seed},
            check=False,
        ).returncode
        passed, failed, skipped = counts(Path(report.name).read_text() or "<testsuites/>")
    if not arguments and code in (0, 1):  # any other: they did not all run
        minutes = (time.monotonic() - started) / 60
        day = datetime.now(UTC).date()
        cells = (day, at, part, seed, passed, failed, skipped, f"{minutes:.0f}")
        with PAGE.open("a") as page:
            page.write(f"| {' | '.join(map(str, cells))} |\n")
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", metavar="K/N")
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    every = [given.part] if given.part else [f"{each + 1}/{PARTS}" for each in range(PARTS)]
    sys.exit(max([run(part, given.arguments) for part in every]))
