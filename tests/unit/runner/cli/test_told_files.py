"""What a turn changed in files: the receipt, `/diff` and `/undo files`."""

import json
from io import StringIO

import pytest
from rich.console import Console
from wire.v1 import gateway_pb2

from runner.cli.chat.calls import files_line
from runner.cli.chat.commands import SlashCommands
from runner.cli.chat.terminal import TerminalScreen
from runner.cli.output import event_as_json
from tests.support.gateway.fake_gateway import FakeGateway, completed, says
from tests.unit.runner.cli.test_piped_chat import chat

Change = gateway_pb2.FileChange
Changes = gateway_pb2.FileChanges
A = Change(path="/projects/api/a.py", kind="changed", added=2, removed=1, by_tool=True)
NEW = Change(path="/projects/api/src/new.py", kind="added", added=38, by_tool=True)
OTHER = Change(path="/projects/api/b.py", kind="changed", removed=11)
ALL = Changes(files=3, added=40, removed=12, changes=[A, OTHER, NEW])
DIFF = """--- a/projects/api/a.py
+++ b/projects/api/a.py
@@ -1 +1,2 @@
-one
+two\x1b[31m
+three
"""


@pytest.fixture
def changed(gateway: FakeGateway) -> FakeGateway:
    """One whose only turn has changed files."""
    gateway.script = says(completed("done", files=ALL))
    gateway.changed_files["t1"] = gateway_pb2.TurnDiffReply(files=ALL, diff=DIFF)
    gateway.history["s1"] = [gateway_pb2.HistoryEvent(turn_id="t1", role="user", text="do it")]
    return gateway


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (ALL, "✓ changed 3 files, +40 −12: api/a.py, api/b.py, api/src/new.py"),
        (Changes(files=1, added=2, removed=1, changes=[A]), "✓ changed 1 file, +2 −1: api/a.py"),
        (
            Changes(
                files=1_000, changes=[Change(path=f"/projects/a/{'x' * 20}{n}") for n in "123"]
            ),
            f"✓ changed 1,000 files, +0 −0: a/{'x' * 20}1, a/{'x' * 20}2, …",
        ),
        (
            Changes(files=1, changes=[Change(path="/projects/a/x\n✓ y")]),
            "✓ changed 1 file, +0 −0: a/x\\n✓ y",
        ),
        (
            Changes(files=1, changes=[A], ignored=True),
            "✓ changed 1 file, +0 −0: api/a.py",
        ),
        (
            Changes(files=1, changes=[A], uncounted="the disk is full", ignored=True),
            "✓ changed 1 file, +0 −0: api/a.py (not all are counted: the disk is full)",
        ),
        (
            Changes(uncounted="no bubblewrap"),
            "? changes to files are not counted: no bubblewrap",
        ),
        (Changes(ignored=True), ""),
    ],
)
def test_a_receipt_is_one_line(files: Changes, line: str) -> None:
    assert files_line(files) == line


def test_it_is_in_the_events_for_programs() -> None:
    told = event_as_json(completed("done", files=ALL))["files"]
    assert json.loads(json.dumps(told))["changes"][0]["path"] == "/projects/api/a.py"
    assert (told["files"], told["added"], told["uncounted"]) == (3, 40, "")


async def test_a_turn_ends_with_it_and_history_has_it(changed: FakeGateway) -> None:
    _, out, _ = await chat(changed, "do it")
    line = "✓ changed 3 files, +40 −12: api/a.py, api/b.py, api/src/new.py\n"
    assert out == f"> do it\ndone\n{line}○ memory unchanged\n\n"
    _, _, err = await chat(changed, "", session="s1")
    assert f"> do it\n{line}" in err


async def test_the_diff_is_shown_whole_and_of_one_file(changed: FakeGateway) -> None:
    code, out, err = await chat(changed, "do it\n/diff\n/diff a.py\n/diff c.py")
    _, whole, one, none = out.split("\n> /diff")
    assert code == 1
    assert "+two␛[31m\n+three\n✓ changed 3 files" in whole
    assert "@@" not in one
    assert "api/a.py, api/b.py" in none
    assert "of the turn > do it" in err
    _, out, _ = await chat(changed, "/diff")
    assert "there is no turn in this session yet" in out


async def test_what_tools_did_is_put_back_and_the_rest_is_asked_about(
    changed: FakeGateway,
) -> None:
    _, out, _ = await chat(changed, "do it\n/undo files")
    shown = out.rpartition("> /undo files\n")[2]
    assert "it changed during this turn, and by no file tool:\n  api/b.py\n" in shown
    assert "[y/N] no" in shown
    assert "✓ api/a.py put back\n✓ api/src/new.py removed\n" in shown
    assert "✓ api/b.py" not in shown
    asked = [each for each in changed.seen if isinstance(each, gateway_pb2.UndoFilesRequest)]
    assert [(each.turn_id, each.not_only_tools) for each in asked] == [("t1", False)]


async def test_undo_says_that_files_have_an_undo_of_their_own(changed: FakeGateway) -> None:
    code, out, _ = await chat(changed, "do it\n/undo\n/undo everything")
    assert code == 1
    assert "fix: /undo files takes back changes to files" in out
    assert "/undo everything is not known" in out
    assert "/undo files" in SlashCommands(None, None, None).names  # type: ignore[arg-type]


async def test_a_diff_has_colours_in_a_terminal() -> None:
    console = Console(file=StringIO(), force_terminal=True, color_system="standard", width=80)
    await TerminalScreen(console).diff(DIFF)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[31m-one" in shown
    assert "\x1b[32m+three" in shown
