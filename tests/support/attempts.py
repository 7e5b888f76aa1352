"""What somebody tries and must not succeed with: a row each in `docs/attempts.md`.

A test that is one attempt by itself carries the marker `attempt`. Where attempts are the data of a
test, `attempt` and `rows` make them rows for `parametrize`, and `tries` marks a test that makes
all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import pytest


class Named(Protocol):
    """What is tried, as the table names it, and what keeps it from succeeding."""

    @property
    def name(self) -> str: ...

    @property
    def stopped_by(self) -> str: ...


_Row = TypeVar("_Row", bound=Named)
_Test = TypeVar("_Test", bound=Callable[..., object])


def attempt(what: str, *values: object, stopped_by: str, long: bool = False) -> Any:
    """A row for `parametrize`: what is tried, what the test is given, what stops it."""
    named = pytest.mark.attempt(what, stopped_by=stopped_by)
    marks = [named, pytest.mark.long] if long else [named]
    return pytest.param(*values, id=what.replace(" ", "_"), marks=marks)


def rows(table: Iterable[_Row]) -> list[Any]:
    """The same where each row says by itself what it is."""
    return [attempt(row.name, row, stopped_by=row.stopped_by) for row in table]


def one_of_each_kind(table: Sequence[_Row]) -> list[Any]:
    """The same where every run makes the first of those that one thing stops, and a long run all:
    for what is slow to try, and is tried at a lower level too."""
    first: dict[str, _Row] = {}
    for row in table:
        first.setdefault(row.stopped_by, row)
    return [
        attempt(row.name, row, stopped_by=row.stopped_by, long=row not in first.values())
        for row in table
    ]


def tries(table: Iterable[Named]) -> Callable[[_Test], _Test]:
    """Marks a test that makes all the attempts of `table`."""

    def marked(test: _Test) -> _Test:
        for row in table:
            test = pytest.mark.attempt(row.name, stopped_by=row.stopped_by)(test)
        return test

    return marked
