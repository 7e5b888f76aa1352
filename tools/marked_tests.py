"""Tests by a marker of theirs, as the tables of `docs/` are made from them."""

from collections.abc import Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

NOT_MADE = ("skip", "skipif", "xfail")
"""Tests with these marks are in no table: they may not run, or not succeed."""


class _Collector:
    """A plugin of pytest that keeps the tests that would run."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = [
            item
            for item in session.items
            if not any(item.get_closest_marker(name) for name in NOT_MADE)
        ]


def marked_tests(marker: str, places: Iterable[Path]) -> list[tuple[pytest.Mark, pytest.Item]]:
    """Each use of `marker` on a test in `places`, with the test.

    Raises `SystemExit` if they cannot be collected.
    """
    collector = _Collector()
    options = ["--collect-only", "-qq", "--long", "-p", "no:cacheprovider"]
    with redirect_stdout(StringIO()) as said:
        ended = pytest.main([*options, *map(str, places)], [collector])
    if ended != pytest.ExitCode.OK:
        raise SystemExit(f"{said.getvalue()}the tests cannot be collected")
    return [(mark, item) for item in collector.items for mark in item.iter_markers(marker)]


def test_of(item: pytest.Item) -> str:
    """The test's id, without its parameters."""
    return item.nodeid.partition("[")[0]


def cell(text: str) -> str:
    """`text` as it stands in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
