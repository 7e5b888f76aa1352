"""`runner sessions list`: titles are text, whatever is in them."""

import json

from wire.v1 import gateway_pb2

from tests.unit.runner.cli.conftest import RunCommand
from tests.unit.runner.cli.fake_memory import FakeMemory


def test_a_title_neither_breaks_the_list_nor_drives_the_terminal(
    memory: FakeMemory, run_command: RunCommand
) -> None:
    memory.sessions = [gateway_pb2.Session(session_id="s1", title="[/b] :smile: \x9b2J")]
    shown = run_command("sessions", "list")
    assert (shown.code, shown.err) == (0, "")
    assert "[/b] :smile: \ufffd2J" in shown.out
    told = run_command("sessions", "list", "--json").out
    assert "\x9b" not in told
    assert json.loads(told)[0]["title"] == "[/b] :smile: \x9b2J"
