"""Commands whose packages are not installed say what to install."""

import sys

import pytest
from typer.testing import CliRunner

from runner.cli.app import app
from runner.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [("serve", "uvicorn", "serve"), ("mcp", "mcp.server.stdio", "mcp"), ("acp", "acp", "acp")],
)
def test_a_command_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, command: str, module: str, extra: str
) -> None:
    for name in [each for each in sys.modules if each.startswith(("runner.cli.", "runner.serve"))]:
        if name.rpartition(".")[2] in ("mcp", "acp", "server"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    failed = CliRunner().invoke(app, [command]).exception
    assert isinstance(failed, ConfigError)
    assert "packages that are not installed" in failed.brief
    assert extra in failed.resolution
