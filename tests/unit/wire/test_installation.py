"""What is told to somebody who lacks an extra, for every way to install."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from wire import installation
from wire.installation import adding

ROOT = Path(__file__).resolve().parents[3]


class Installed:
    def __init__(self, origin: dict[str, Any] | None, installer: str = "pip") -> None:
        self.files = {
            "direct_url.json": None if origin is None else json.dumps(origin),
            "INSTALLER": f"{installer}\n",
        }

    def read_text(self, name: str) -> str | None:
        return self.files[name]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command for the extra `remote`, with PY for this Python."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    def ask(origin: dict[str, Any] | None, installer: str = "pip", receipt: str = "") -> str:
        monkeypatch.setattr(metadata, "distribution", lambda _: Installed(origin, installer))
        if receipt:
            (tmp_path / "uv-receipt.toml").write_text(receipt)
        return adding("remote").replace(sys.executable, "PY")

    return ask


def archive(path: Path) -> dict[str, Any]:
    return {"url": path.as_uri(), "archive_info": {}}


@pytest.mark.parametrize(
    ("origin", "installer", "command"),
    [
        (
            {"url": "file:///src/my%20ox", "dir_info": {"editable": True}},
            "pip",
            "PY -P -m pip install --constraint '/src/my ox/constraints.txt' "
            "--editable '/src/my ox[remote]'",
        ),
        ({"url": "file:///src", "dir_info": {}}, "pip", "PY -P -m pip install '/src[remote]'"),
        (
            {"url": "https://a.example/oxydra-0.1.0-py3-none-any.whl", "archive_info": {}},
            "uv",
            "uv pip install --python PY "
            "'oxydra[remote] @ https://a.example/oxydra-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://a.example/ox", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip",
            "PY -P -m pip install 'oxydra[remote] @ git+https://a.example/ox@abc'",
        ),
    ],
)
def test_an_extra_comes_from_where_the_rest_came_from(
    told: Any, origin: dict[str, Any], installer: str, command: str
) -> None:
    assert told(origin, installer).startswith(command)


def test_a_wheel_is_named_and_one_that_is_gone_is_said_to_be(told: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "oxydra-0.1.0-py3-none-any.whl"
    wheel.touch()
    assert told(archive(wheel)) == f"PY -P -m pip install '{wheel}[remote]'"
    wheel.unlink()
    assert told(archive(wheel)).endswith("that file is gone: name where it is now")


def test_a_tool_of_uv_keeps_the_extras_that_it_has(told: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "oxydra-0.1.0-py3-none-any.whl"
    wheel.touch()
    receipt = (
        "[tool]\n"
        f'requirements = [{{ name = "oxydra", extras = ["guest", "runner"], path = "{wheel}" }},'
        ' { name = "torch" }]\n'
    )
    command = f"uv tool install --force '{wheel}[guest,runner,remote]'"
    assert told(archive(wheel), "uv", receipt) == command


def test_what_came_out_of_a_directory_of_wheels_is_not_looked_for_in_an_index(told: Any) -> None:
    command = "PY -P -m pip install --no-index --find-links DIR 'oxydra[remote]'"
    assert told(None).startswith(command)


def test_this_installation_can_be_asked() -> None:
    assert re.search(r"\[remote\]'?$", adding("remote"))


def test_no_code_sends_anybody_to_an_index_for_our_name() -> None:
    found = subprocess.run(
        ["git", "grep", "-nE", r"install [^|]*['\" ]oxydra(\[|['\" ]|$)", "--", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in found.stdout.splitlines() if not line.startswith("tests/")]
    assert [line for line in lines if installation.__name__.replace(".", "/") not in line] == []
