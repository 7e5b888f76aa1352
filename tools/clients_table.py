"""The tables of clients: what programs that others wrote were seen to do with an agent.

`python tools/clients_table.py` collects the tests marked `client` and rewrites `docs/clients.md`.
With a file it writes that.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from marked_tests import cell, marked_tests, test_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "clients.md"
HEAD = "| what it can | test |"

_INTRODUCTION = """\
# Clients

Programs that others wrote, and what each of them can do with an agent. Every row is a test in which
that very program does it, in each run of CI, where a skipped test is a failure;
`.venv/bin/python tools/clients_table.py` writes this page, and a test refuses an old one.
"""


@dataclass(frozen=True)
class Row:
    """One thing that one client can do."""

    client: str
    what: str
    test: str


def collected() -> list[Row]:
    """What the marked tests show.

    Raises `SystemExit` if they cannot be collected, and `ValueError` for a marker that lacks the
    client or what it can.
    """
    places = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _marks(path)]
    marked = marked_tests("client", places) if places else []
    return [row_of(mark, test_of(item)) for mark, item in marked]


def page(rows: Iterable[Row]) -> str:
    """The page: a table for each client, in the order of their names."""
    unique = list(dict.fromkeys(rows))
    sections = [
        "\n".join(
            [
                f"\n## {client}\n",
                HEAD,
                "|---|---|",
                *(f"| {cell(row.what)} | `{row.test}` |" for row in unique if row.client == client),
            ]
        )
        for client in sorted({row.client for row in unique}, key=str.casefold)
    ]
    return "\n".join([_INTRODUCTION.rstrip("\n"), *sections]) + "\n"


def _marks(path: Path) -> bool:
    return "mark.client(" in path.read_text(encoding="utf-8")


def row_of(mark: pytest.Mark, test: str) -> Row:
    """The row that `mark` on `test` asks for. Raises `ValueError` if it lacks something."""
    given = [str(each).strip() for each in mark.args]
    if len(given) != 2 or not all(given) or mark.kwargs:
        raise ValueError(f"{test}: client() needs the name of a client and what it can")
    client, what = given
    return Row(client, what, test)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    made = collected()
    target.write_text(page(made), encoding="utf-8")
    print(f"{len(made)} rows in {target}")
