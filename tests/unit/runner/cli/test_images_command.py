"""What `runner images` refuses before it asks an engine."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli.app import app


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("build", "--role", "kitchen"), "kitchen"),
        (("build", "--bootstrap-base", "--base-image", "mine"), "--bootstrap-base"),
        (("build", "--wheelhouse", "/nowhere/at/all"), "/nowhere/at/all"),
        (("build", "--with"), "--with"),
        (("load", "/nowhere/images.tar"), "/nowhere/images.tar"),
        (("save", "/nowhere/images.tar"), "/nowhere"),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_2_and_names_what_is_wrong(
    words: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXYDRA_CONTAINER__ENGINE", "unix:///nowhere/engine.sock")
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, ["images", *words])
    assert done.exit_code == 2
    assert named in done.output


def test_an_engine_that_is_not_there_is_said_with_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXYDRA_CONTAINER__ENGINE", f"unix://{tmp_path}/engine.sock")
    done = CliRunner().invoke(app, ["images", "list"])
    assert done.exit_code == 1
    assert f"{tmp_path}/engine.sock" in str(done.exception)
