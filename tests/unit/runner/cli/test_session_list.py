"""`runner sessions`: titles are text, whatever is in them; forgetting asks."""

import json

from wire.v1 import gateway_pb2

from tests.support.gateway.fake_gateway import FakeGateway
from tests.unit.runner.cli.conftest import RunCommand


def test_a_title_neither_breaks_the_list_nor_drives_the_terminal(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    memory.sessions["s1"] = gateway_pb2.Session(session_id="s1", title="[/b] :smile: \x9b2J")
    shown = run_command("sessions", "list")
    assert (shown.code, shown.err) == (0, "")
    assert "[/b] :smile: \ufffd2J" in shown.out
    told = run_command("sessions", "list", "--json").out
    assert "\x9b" not in told
    assert json.loads(told)[0]["title"] == "[/b] :smile: \x9b2J"


def test_forgetting_a_session_asks_and_an_end_of_input_is_a_no(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    memory.sessions["s1"] = gateway_pb2.Session(session_id="s1", title="The boat", turns=2)
    no = run_command("sessions", "forget", "s1", typed="")
    assert (no.code, no.out.strip()) == (1, "")
    assert "Forget s1 (The boat), 2 turns? This cannot be undone" in no.err
    assert len(memory.sessions) == 1
    piped = run_command("sessions", "forget", "s1", stdin=b"y\n")
    assert "  fix: runner sessions forget s1 --yes\n" in piped.err
    yes = run_command("sessions", "forget", "s1", typed="y\n")
    assert (yes.code, yes.out.strip()) == (0, "s1 is forgotten")
    assert memory.sessions == {}


def test_a_conversation_is_shown_without_the_steps_in_which_nothing_is_said(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    memory.sessions["s1"] = gateway_pb2.Session(session_id="s1")
    said = (("user", "keep it"), ("assistant", ""), ("tool", "memory_save: \x1b[31mStored"))
    memory.history["s1"] = [gateway_pb2.HistoryEvent(role=role, text=text) for role, text in said]
    shown = run_command("sessions", "show", "s1").out
    assert "\nuser  \nkeep it\n\ntool  \nmemory_save: \u241b[31mStored\n" in shown
    assert "assistant" not in shown
    told = json.loads(run_command("sessions", "show", "s1", "--json").out)
    assert [event["role"] for event in told["events"]] == ["user", "assistant", "tool"]
