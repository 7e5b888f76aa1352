"""`runner ask`, against a scripted gateway."""

import json
import os
from pathlib import Path

import pytest
from wire.limits import FILE_MAX_BYTES, TURN_TEXT_MAX_CHARS
from wire.v1 import gateway_pb2

from tests.support.gateway.fake_gateway import (
    Event,
    FakeGateway,
    completed,
    failed,
    says,
    text,
    tool,
)
from tests.unit.runner.cli.conftest import RunCommand

RECEIPT = gateway_pb2.MemoryReceipt(action="saved", outcome="done", note_id="note-1")


def test_the_answer_alone_is_on_standard_output(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    memory.script = says(
        *tool("memory_save", "Stored"), text("It is "), text("tea."), completed("x", RECEIPT)
    )
    done = run_command("ask", "what is it?")
    assert (done.code, done.out) == (0, "It is tea.\n")
    assert "memory_save" in done.err
    assert "✓ saved note-1" in done.err


def test_an_answer_that_was_not_streamed_is_shown(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    memory.script = says(completed("whole\x1b[31m"))
    assert run_command("ask", "what?").out == "whole␛[31m\n"


def test_a_pipe_is_the_context_of_the_question(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    run_command("ask", "what is this?", stdin=b"line 1\nline 2\n")
    assert memory.turns[-1].text == "what is this?\n\nline 1\nline 2"
    run_command("ask", "what is that?", typed="not read")
    assert memory.turns[-1].text == "what is that?"


def test_files_go_with_the_question(
    memory: FakeGateway, run_command: RunCommand, tmp_path: Path
) -> None:
    pdf, text_file = tmp_path / "a bill (1).pdf", tmp_path / "b.txt"
    pdf.write_bytes(b"%PDF-" + bytes(600_000))
    text_file.write_bytes(b"")
    words = ("ask", "--attach", str(pdf), "--attach", str(text_file), "what is due?")
    assert run_command(*words).code == 0
    attached = [*memory.turns[-1].attachments]
    assert [each[len("/shared/attachments/") + 13 :] for each in attached] == [
        "a_bill_1_.pdf",
        "b.txt",
    ]
    assert [memory.files[each] for each in attached] == [pdf.read_bytes(), b""]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "No such file or directory"),
        ("", "Is a directory"),
        ("pipe", "it is not a plain file"),
        ("/dev/zero", "it is not a plain file"),
        ("huge", "it has more than 1,073,741,824 bytes"),
        ("~nobody-at-all/x", "No such file or directory"),
    ],
)
def test_nothing_but_a_plain_file_of_a_sound_size_goes_along(
    memory: FakeGateway, run_command: RunCommand, tmp_path: Path, name: str, why: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", FILE_MAX_BYTES + 1)
    path = name if name.startswith("~") else str(tmp_path / name)
    refused = run_command("ask", "--attach", path, "what?")
    assert (refused.code, refused.out) == (1, "")
    assert f"the file cannot be attached: {path}: {why}\n  fix: ls -lL " in refused.err
    assert memory.turns == []
    assert memory.sessions == {}, "a question that was not asked leaves no conversation"


@pytest.mark.parametrize(
    "ending",
    [
        failed(
            "no quota left", "raise the quota", details='the provider says: "\x1b[2Jno\nfix: x"'
        ),
        failed("cancelled", code="cancelled"),
    ],
)
def test_a_turn_that_failed_is_1(
    memory: FakeGateway, run_command: RunCommand, ending: Event
) -> None:
    memory.script = says(text("It is"), ending)
    done = run_command("ask", "what is it?")
    assert (done.code, done.out) == (1, "It is\n")
    assert ending.failed.message in done.err
    if ending.failed.details:
        words = '  the provider says: "␛[2Jno fix: x"\n'
        assert f"✗ no quota left\n{words}  fix: raise the quota\n" in done.err


def test_events_are_lines_of_json(memory: FakeGateway, run_command: RunCommand) -> None:
    memory.script = says(*tool("file_read", "a\x1bb"), text("tea"), completed("tea", RECEIPT))
    done = run_command("ask", "--json", "what is it?")
    assert done.code == 0
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["event"] for event in events] == [
        "tool_started",
        "tool_finished",
        "text",
        "completed",
    ]
    assert events[1]["summary"] == "a\x1bb"
    assert "\x1b" not in done.out
    assert events[-1]["receipts"][0]["note_id"] == "note-1"
    assert done.err == ""


def test_nobody_can_approve_without_a_terminal(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    approval = gateway_pb2.ApprovalRequested(approval_id="a", text="allow shell_exec?")
    memory.script = says(Event(approval=approval), completed("refused"))
    done = run_command("ask", "run it")
    assert "allow shell_exec" in done.err
    assert "no: standard input is not a terminal" in done.err


def test_it_goes_on_where_it_is_told(memory: FakeGateway, run_command: RunCommand) -> None:
    for session_id, title in (("s1", "Plans for May"), ("s2", "Tea")):
        memory.sessions[session_id] = gateway_pb2.Session(session_id=session_id, title=title)

    def asked(*options: str) -> str:
        assert run_command("ask", "what?", *options).code == 0
        return memory.turns[-1].session_id

    assert asked("--session", "plans for") == "s1"
    assert asked("--session", "s2") == "s2"
    assert asked("--session", "new-one") == "new-one"
    assert memory.sessions[asked("--session", "A walk in June")].title == "A walk in June"
    last = memory.turns[-1].session_id
    assert asked("--last") == last
    assert asked() not in ("s1", "s2", last)


def test_another_model_answers_if_it_can(memory: FakeGateway, run_command: RunCommand) -> None:
    assert run_command("ask", "what?", "--model", "openai:m").code == 0
    assert memory.turns[-1].model == "openai:m"
    done = run_command("ask", "what?", "--model", "nobody:knows")
    assert done.code == 1
    assert "accepted: offline" in done.err
    assert len(memory.sessions) == 1


def test_what_the_runtime_says_in_passing_is_no_answer(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    notice = Event(notice=gateway_pb2.Notice(text="another model answers"))
    memory.script = says(notice, text("tea"), completed("tea"))
    done = run_command("ask", "what?")
    assert done.out == "tea\n"
    assert "another model answers" in done.err


def test_a_title_of_several_sessions_lists_them(
    memory: FakeGateway, run_command: RunCommand
) -> None:
    for number in ("1", "2"):
        memory.sessions[f"s{number}"] = gateway_pb2.Session(
            session_id=f"s{number}", title=f"Plans {number}"
        )
    done = run_command("ask", "what?", "--session", "plans")
    assert done.code == 1
    assert "s1 (Plans 1)" in done.err
    assert "s2 (Plans 2)" in done.err
    assert memory.turns == []


@pytest.mark.parametrize(
    ("words", "stdin", "code", "told"),
    [
        (["what?", "--last", "--session", "s"], b"", 2, "--last means"),
        (["what?", "--last"], b"", 1, "there is no session to go on with"),
        (["  "], b"context", 1, "there is no question"),
        (["what?"], b"x" * (TURN_TEXT_MAX_CHARS + 1), 1, "the question is too long"),
        (["what?"], "é".encode() * (2 * TURN_TEXT_MAX_CHARS + 1), 1, "the question is too long"),
        (["sum up"], b"Gr\xf6\xdfe", 1, "standard input is not UTF-8 text: nothing was sent"),
        (["sum up"], b"Gr\xf6\xdfe", 1, "iconv -t UTF-8"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run_command: RunCommand, words: list[str], stdin: bytes, code: int, told: str
) -> None:
    done = run_command("ask", *words, stdin=stdin)
    assert done.code == code
    assert told in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("reason", "fix"), [("length", 'ask --last "go on"'), ("repeated", "fix: ask otherwise")]
)
def test_an_incomplete_answer_names_the_command_that_goes_on_where_that_helps(
    memory: FakeGateway, run_command: RunCommand, reason: str, fix: str
) -> None:
    half = gateway_pb2.TurnIncomplete(
        reason=reason, message="the answer is incomplete", resolution="ask otherwise"
    )
    memory.script = says(text("Tea is at"), Event(incomplete=half))
    done = run_command("ask", "when is tea?")
    assert done.code == 1
    assert fix in done.err
    assert "/retry" not in done.err
