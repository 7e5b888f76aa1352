"""The table of attempts: what `tests/security` tries, in which tiers, and what stops it.

`python tools/attempts_table.py` collects these tests and rewrites `docs/attempts.md` from their
markers `attempt` and `tier`. With a file it writes that.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from marked_tests import cell, marked_tests, test_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "attempts.md"
EVERY_TIER = "every"
HEAD = "| attempt | tier | what stops it | test |"

_INTRODUCTION = """\
# Attempts

What `tests/security` tries that must not succeed, and what stops it: {count} attempts. Each run
of CI makes {usual} of them; there a skipped test is a failure. A row comes from the test that makes
the attempt; `.venv/bin/python tools/attempts_table.py` writes it, and a test refuses an old one.
What is promised is in [the threat model](threat-model.md).

A tier in the table is one in whose guests the attempt is made; `{every}` means that the code under
attack is the same in all of them. Each run makes an attempt in the container tier, and in another
one where that tier's own code stops it; in the tiers behind `long:` `make test-long` makes it. Of
kinds that are slow to make each run makes some.
`micro_vm` is that tier on gVisor's kernel. What a command wins there that is of no use, such as a
device of gVisor's own kernel, is named beside the attempt, with the reason; an exemption that is
not needed fails the test, and it holds only where the guest's kernel was found to be gVisor's.

"""


@dataclass(frozen=True)
class Tried:
    """One attempt as one test makes it in one tier. Two with the same mark are the same."""

    mark: pytest.Mark
    tier: str
    test: str
    long: bool = False


@dataclass(frozen=True)
class Row:
    """One attempt, wherever it is made."""

    what: str
    tiers: tuple[str, ...]
    long: tuple[str, ...]
    stopped_by: str
    test: str


def collected() -> list[Tried]:
    """What the tests try.

    Raises `SystemExit` if they cannot be collected.
    """
    return [
        Tried(mark, str(tier.args[0]) if tier else EVERY_TIER, test_of(item), _is_long(item))
        for mark, item in marked_tests("attempt", [ROOT / "tests" / "security"])
        for tier in [item.get_closest_marker("tier")]
    ]


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


def table(tried: Iterable[Tried]) -> list[Row]:
    """One row for each attempt, file by file.

    Raises `ValueError` for an attempt without a name or without what stops it, and for a name that
    means two attempts.
    """
    marks: dict[str, pytest.Mark] = {}
    found: dict[str, Row] = {}
    for one in tried:
        what = str(one.mark.args[0]).strip() if one.mark.args else ""
        stopped_by = str(one.mark.kwargs.get("stopped_by", "")).strip()
        if not what or not stopped_by:
            raise ValueError(f"{one.test}: {what!r} lacks its name or what stops it")
        row = found.setdefault(what, Row(what, (), (), stopped_by, one.test))
        if marks.setdefault(what, one.mark) is not one.mark or row.test != one.test:
            raise ValueError(f"two attempts are called {what!r}: in {row.test} and {one.test}")
        if one.tier in (*row.tiers, *row.long):
            continue
        if one.long:
            found[what] = replace(row, long=(*row.long, one.tier))
        else:
            found[what] = replace(row, tiers=(*row.tiers, one.tier))
    return sorted(found.values(), key=lambda row: row.test.partition("::")[0])


def _where(row: Row) -> str:
    long = [f"long: {', '.join(row.long)}"] if row.long else []
    return "; ".join([", ".join(row.tiers), *long] if row.tiers else long)


def page(rows: list[Row]) -> str:
    """The page with all of them."""
    lines = [
        f"| {cell(row.what)} | {_where(row)} | {cell(row.stopped_by)} | `{row.test}` |"
        for row in rows
    ]
    usual = sum(1 for row in rows if row.tiers)
    introduction = _INTRODUCTION.format(count=len(rows), usual=usual, every=EVERY_TIER)
    return introduction + "\n".join([HEAD, "|---|---|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    made = table(collected())
    target.write_text(page(made))
    print(f"{len(made)} attempts in {target}")
