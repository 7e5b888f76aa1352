"""The table of attempts is made from the tests, and each of its rows is whole."""

import os
import subprocess
import sys

import attempts_table
import pytest
from attempts_table import EVERY_TIER, HEAD, PAGE, Tried, table

pytestmark = pytest.mark.xdist_group("attempts_table")

ATTEMPTS_MIN = 200
REFRESH = "tests/security tries something else: .venv/bin/python tools/attempts_table.py"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of the page as the tests make it now."""
    page = tmp_path_factory.mktemp("table") / PAGE.name
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST")}
    made = subprocess.run(
        [sys.executable, attempts_table.__file__, str(page)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return page.read_text().splitlines()


def test_the_table_is_what_the_tests_try(fresh: list[str]) -> None:
    assert PAGE.read_text().splitlines() == fresh, REFRESH


def test_there_are_enough_and_each_says_what_where_and_what_stops_it(fresh: list[str]) -> None:
    rows = [line.split(" | ") for line in fresh[fresh.index(HEAD) + 2 :]]
    assert len(rows) >= ATTEMPTS_MIN
    for what, tiers, stopped_by, test in rows:
        assert what.removeprefix("| ").strip()
        assert tiers.strip()
        assert stopped_by.strip()
        assert test.startswith("`tests/security/")


def tried(what: str, stopped_by: str, test: str = "one.py::test", tier: str = "") -> Tried:
    return Tried(pytest.mark.attempt(what, stopped_by=stopped_by).mark, tier or EVERY_TIER, test)


def test_an_attempt_in_several_tiers_is_one_row() -> None:
    once = tried("mounting", "no right", tier="process")
    again = Tried(once.mark, "container", once.test)
    (row,) = table([once, again, again])
    assert row.tiers == ("process", "container")


@pytest.mark.parametrize("test", ["one.py::test", "two.py::test"])
def test_a_name_for_two_attempts_is_refused(test: str) -> None:
    with pytest.raises(ValueError, match="two attempts are called 'mounting'"):
        table([tried("mounting", "no right"), tried("mounting", "no right", test)])


@pytest.mark.parametrize(("what", "stopped_by"), [("", "no right"), ("mounting", " ")])
def test_an_attempt_that_does_not_say_what_it_is_is_refused(what: str, stopped_by: str) -> None:
    with pytest.raises(ValueError, match="lacks its name or what stops it"):
        table([tried(what, stopped_by)])
