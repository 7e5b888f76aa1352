"""The tables of clients are made from the tests."""

import os
import subprocess
import sys
from pathlib import Path

import clients_table
import pytest
from clients_table import PAGE, Row, page, row_of

REFRESH = "a client does something else: .venv/bin/python tools/clients_table.py"


def test_the_page_is_what_the_tests_show(tmp_path: Path) -> None:
    made = tmp_path / PAGE.name
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST")}
    program = [sys.executable, clients_table.__file__, str(made)]
    subprocess.run(program, env=environment, check=True, capture_output=True)
    assert PAGE.read_text() == made.read_text(), REFRESH


def test_a_client_has_one_table_whatever_files_its_tests_are_in() -> None:
    rows = [
        Row("curl", "asks", "one.py::asks"),
        Row("an editor", "saves a|b", "two.py::saves"),
        Row("curl", "leaves", "two.py::leaves"),
        Row("curl", "asks", "one.py::asks"),
    ]
    assert page(rows).endswith(
        "\n## an editor\n\n| what it can | test |\n|---|---|\n| saves a\\|b | `two.py::saves` |\n"
        "\n## curl\n\n| what it can | test |\n|---|---|\n| asks | `one.py::asks` |\n"
        "| leaves | `two.py::leaves` |\n"
    )


@pytest.mark.parametrize("given", [(), ("curl",), ("curl", " "), ("curl", "asks", "more")])
def test_a_mark_that_does_not_say_who_can_what_is_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="name of a client and what it can"):
        row_of(pytest.mark.client(*given).mark, "one.py::test")
