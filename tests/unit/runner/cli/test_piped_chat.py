"""Turns from a pipe: strictly in order, a plain transcript, an honest exit code."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import pytest
from wire.errors import Code, WireError
from wire.limits import TURN_TEXT_MAX_CHARS
from wire.v1 import control_pb2, gateway_pb2

from runner.cli.chat.chat import read_lines, talk
from runner.cli.chat.commands import COMMANDS
from runner.cli.chat.hosting import Streams
from runner.cli.chat.screen import Screen
from runner.client import following
from runner.client.gateway import GatewayClient
from tests.support.gateway.fake_gateway import (
    Event,
    FakeGateway,
    completed,
    failed,
    says,
    text,
    tool,
)

TurnRequest = gateway_pb2.StartTurnRequest


async def host_status() -> control_pb2.StatusReply:
    agent = control_pb2.GuestStatus(role="agent", state="ready", pid=4242, restarts=2)
    return control_pb2.StatusReply(workspace="/w/alice", pid=4241, guests=[agent])


def connector(gateway: FakeGateway) -> following.Connect:
    async def connect() -> GatewayClient:
        return await GatewayClient.open(gateway.peer, channel_name="cli")

    return connect


def write_all(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(data)


async def chat(
    gateway: FakeGateway,
    typed: str | bytes,
    *,
    session: str | None = None,
    reconnect_within_s: float = following.RECONNECT_WITHIN_S,
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one piped chat."""
    given, give = os.pipe()
    giving = asyncio.create_task(
        asyncio.to_thread(write_all, give, typed if isinstance(typed, bytes) else typed.encode())
    )
    directory = Path(gateway.endpoint.removeprefix("unix:")).parent
    with (
        os.fdopen(given) as stdin,
        (directory / "out").open("w+") as stdout,
        (directory / "err").open("w+") as stderr,
    ):
        code = await talk(
            connector(gateway),
            host_status,
            Streams(stdin, stdout, stderr),
            session=session,
            reconnect_within_s=reconnect_within_s,
        )
    await giving
    return code, (directory / "out").read_text(), (directory / "err").read_text()


async def test_turns_run_in_order_and_the_transcript_reads_well(gateway: FakeGateway) -> None:
    code, out, err = await chat(gateway, "one\n\n  \ntwo")
    assert code == 0
    assert out == (
        "> one\nyou said: one\n○ memory unchanged\n\n> two\nyou said: two\n○ memory unchanged\n\n"
    )
    assert err == "Oxydra 0.1.0 · user alice · process tier · offline\n"
    assert [turn.text for turn in gateway.turns] == ["one", "two"]
    assert {turn.session_id for turn in gateway.turns} == {"s1"}
    assert {turn.channel for turn in gateway.turns} == {"cli"}


async def test_the_greeting_passes_on_what_the_agent_says_of_itself(gateway: FakeGateway) -> None:
    gateway.notices = ["no provider is configured:\nthe offline model answers"]
    _, _, err = await chat(gateway, "")
    assert err.splitlines()[1:] == ["no provider is configured: the offline model answers"]
    assert gateway.sessions == {}


async def test_a_tool_call_is_a_line_of_its_own_between_the_parts_of_an_answer(
    gateway: FakeGateway,
) -> None:
    gateway.script = says(
        text("Let me see."),
        *tool("memory_save", "Stored: [id: note-7]"),
        *tool("file_read", "path is outside /shared\nand more", ok=False),
        text("Done.\n"),
        completed("Done.\n"),
    )
    code, out, _ = await chat(gateway, "go")
    assert code == 0
    assert out == (
        "> go\nLet me see.\n● memory_save → Stored\n"
        "● file_read ✗ path is outside /shared and more\nDone.\n○ memory unchanged\n\n"
    )


async def test_what_follows_a_tool_call_does_not_pass_for_a_receipt(gateway: FakeGateway) -> None:
    gateway.script = says(
        text("Let me see."),
        *tool("file_read", "done"),
        text("✓ saved note-7"),
        completed(),
    )
    _, out, _ = await chat(gateway, "go")
    assert out == (
        "> go\nLet me see.\n● file_read → done\n│ ✓ saved note-7\n○ memory unchanged\n\n"
    )


async def test_an_answer_that_was_not_streamed_is_shown_once(gateway: FakeGateway) -> None:
    gateway.script = says(completed("whole"))
    assert (await chat(gateway, "go"))[1] == "> go\nwhole\n○ memory unchanged\n\n"


async def test_a_failed_turn_says_why_and_the_chat_goes_on(gateway: FakeGateway) -> None:
    async def script(_: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        if request.text == "bad":
            yield text("I will")
            yield failed("the key is refused", "set OPENAI_API_KEY", details="they say: no")
        else:
            yield completed("fine")

    gateway.script = script
    code, out, _ = await chat(gateway, "bad\ngood\n")
    assert code == 1
    assert out == (
        "> bad\nI will\n✗ the key is refused\n  they say: no\n  fix: set OPENAI_API_KEY\n"
        "○ memory unchanged\n\n"
        "> good\nfine\n○ memory unchanged\n\n"
    )


async def test_a_turn_that_is_not_utf8_is_not_sent_and_the_next_one_is(
    gateway: FakeGateway,
) -> None:
    code, out, _ = await chat(gateway, b"Gr\xf6\xdfe\nnext \xc3\xa4\n")
    assert code == 1
    lines = out.splitlines()
    assert lines[1:3] == ["✗ the turn is not UTF-8 text and was not sent", "  fix: iconv -t UTF-8"]
    assert [each.text for each in gateway.turns] == ["next ä"]


async def test_a_turn_that_is_too_long_is_not_sent(gateway: FakeGateway) -> None:
    code, out, _ = await chat(gateway, "x" * (3 * TURN_TEXT_MAX_CHARS) + "\nshort\n")
    assert code == 1
    shown, brief, fix, empty, rest = out.split("\n", 4)
    assert shown == "> " + "x" * 197 + "…"
    assert brief == "✗ the turn is longer than 100000 characters and was not sent"
    assert (fix, empty) == ("  fix: send it in parts", "")
    assert rest == "> short\nyou said: short\n○ memory unchanged\n\n"
    assert [turn.text for turn in gateway.turns] == ["short"]


async def test_a_refused_turn_says_why_and_the_chat_goes_on(gateway: FakeGateway) -> None:
    async def script(_: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        if request.text == "bad":
            raise WireError(Code.CONFLICT, "the session is busy", resolution="wait for it")
        yield completed("fine")

    gateway.script = script
    code, out, _ = await chat(gateway, "bad\ngood\n")
    assert code == 1
    assert out == (
        "> bad\n✗ the session is busy\n  fix: wait for it\n○ memory unchanged\n\n"
        "> good\nfine\n○ memory unchanged\n\n"
    )


async def test_terminal_escapes_in_turns_answers_and_tools_are_made_harmless(
    gateway: FakeGateway,
) -> None:
    gateway.script = says(
        *tool("file\x1b[2J", "\x9b31mred"),
        text("\x1b]0;owned\x07"),
        failed("bad \x1b[A", "do \x08"),
    )
    _, out, err = await chat(gateway, b"hi \x1b[31m\n")
    assert not [c for c in out + err if not c.isprintable() and c != "\n"]
    assert "␛]0;owned␇" in out


async def test_slash_commands_work_from_a_pipe(gateway: FakeGateway) -> None:
    code, out, _ = await chat(gateway, "one\n/new [/b]:x:\ntwo\n/switch s1\nthree\n/sessions\n")
    assert code == 0
    assert [(turn.session_id, turn.text) for turn in gateway.turns] == [
        ("s1", "one"),
        ("s2", "two"),
        ("s1", "three"),
    ]
    listing = out[out.index("> /sessions") :].splitlines()
    assert listing[1].split() == ["session", "title", "turns", "last", "used"]
    assert listing[2].split() == ["s2", "[/b]:x:", "1", "2026-11-20", "11:00:02", "CET"]
    assert listing[3].split() == ["*", "s1", "2", "2026-11-20", "11:00:01", "CET"]


async def test_notes_are_found_from_the_chat(gateway: FakeGateway) -> None:
    gateway.holds("note-1", "my boat [/b] \x1b[2J", score=0.5)
    gateway.warnings = ["by words only"]
    code, out, err = await chat(gateway, "/memory my boat\n/memory car\n/memory\n")
    assert code == 1
    assert out.splitlines()[2].split() == ["note-1", "0.50", *["my", "boat", "[/b]", "␛[2J"]]
    assert "> /memory car\nnothing found\n" in out
    assert "✗ /memory needs words to look for\n" in out
    assert "warning: by words only\n" in err
    assert gateway.turns == []
    for number in range(30):
        gateway.holds(f"note-{number}", "cat it", score=0.5)
    _, _, err = await chat(gateway, "/memory cat it\n")
    assert "there is more: runner memory search cat it --cursor=" in err


async def test_the_tools_of_the_model_are_listed(gateway: FakeGateway) -> None:
    description = "Run a command. It sees /shared and /tmp.\x1b[2J"
    gateway.tools = [
        gateway_pb2.ToolDescription(
            name="shell_exec", safety="side_effecting", description=description
        )
    ]
    code, out, _ = await chat(gateway, "/tools\n")
    assert code == 0
    assert out.splitlines()[1].split() == ["tool", "safety", "what", "it", "does"]
    assert out.splitlines()[2].split(maxsplit=3)[3] == "Run a command."
    gateway.tools = []
    assert "the model is offered no tools" in (await chat(gateway, "/tools\n"))[1]


async def test_the_calls_of_the_last_turn_are_shown_in_full(gateway: FakeGateway) -> None:
    gateway.script = says(*tool("file_read", "lines 1 to 9"), completed("read"))
    code, out, _ = await chat(gateway, "/details\ngo\n/details\n")
    assert code == 0
    assert "> /details\nno tool was called in the last turn\n" in out
    assert "> /details\n● file_read\n  → lines 1 to 9\n  took 0.0 s\n" in out


async def test_nothing_is_edited_through_a_pipe(gateway: FakeGateway) -> None:
    code, out, _ = await chat(gateway, "/edit\none\n/edit\n")
    assert code == 1
    assert "✗ there is no message to edit yet\n" in out
    assert "✗ /edit needs a terminal\n  fix: send the message again, changed\n" in out
    assert [turn.text for turn in gateway.turns] == ["one"]


async def test_a_file_goes_with_the_next_message_alone(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    file = tmp_path / "my bill.pdf"
    file.write_bytes(b"%PDF-1.7")
    typed = f"/attach\n/attach {tmp_path}/none\n/attach '{file}'\nwhat is due?\nthanks\n"
    _, out, _ = await chat(gateway, typed)
    assert "✗ /attach needs a file\n  fix: /attach FILE\n" in out
    assert f"none: No such file or directory\n  fix: ls -lL {tmp_path}/none; name a" in out
    assert "-my_bill.pdf goes with your next message\n" in out
    (attached,) = gateway.turns[0].attachments
    assert gateway.files == {attached: b"%PDF-1.7"}
    assert [*gateway.turns[1].attachments] == []


async def test_half_an_answer_is_said_to_be_one_and_gone_on_with(gateway: FakeGateway) -> None:
    async def half(_: FakeGateway, request: gateway_pb2.StartTurnRequest) -> AsyncIterator[Event]:
        yield text("Tea is at")
        if not request.retry:
            so_far = gateway_pb2.TurnCompleted(text="Tea is at")
            ended = gateway_pb2.TurnIncomplete(
                message="the answer is incomplete", resolution="ask it to go on", so_far=so_far
            )
            yield Event(incomplete=ended)
        yield completed(" five")

    gateway.script = half
    code, out, _ = await chat(gateway, "/retry\nwhen is tea?\n/retry\n")
    assert code == 1
    assert "✗ there is no turn to try again yet" in out
    assert "Tea is at\n✗ the answer is incomplete\n  fix: /retry goes on with it\n" in out
    assert [(turn.text, turn.retry) for turn in gateway.turns] == [
        ("when is tea?", False),
        ("", True),
    ]


async def test_a_chosen_model_answers_the_turns_after_it(gateway: FakeGateway) -> None:
    lines = "one\n/model anthropic:c\ntwo\n/model\n/model nobody:knows\nthree\n"
    code, out, _ = await chat(gateway, lines)
    assert code == 1
    assert [turn.model for turn in gateway.turns] == ["", "anthropic:c", "anthropic:c"]
    assert "anthropic:c answers; configured is offline" in out
    assert "not set up: openai\n" in out
    assert "\n  /model anthropic:MODEL\n" in out
    assert "✗ bad model: accepted: offline" in out


async def test_help_and_status(gateway: FakeGateway) -> None:
    code, out, _ = await chat(gateway, "/help\n/status\n/cancel\n/quit\nnever\n")
    assert code == 0
    for command in COMMANDS.values():
        assert f"\n{command.usage} " in out
    assert "/w/alice" in out
    assert "ready, pid 4242, 2 restarts" in out
    assert "no turn is running" in out
    assert gateway.turns == []


@pytest.mark.parametrize(
    ("typed", "nearest"), [("/sesions", "/sessions"), ("/swich x", "/switch"), ("/hlep", "/help")]
)
async def test_an_unknown_command_names_the_nearest(
    gateway: FakeGateway, typed: str, nearest: str
) -> None:
    code, out, _ = await chat(gateway, typed + "\nstill here\n")
    assert code == 1
    assert f"✗ unknown command {typed.split()[0]}\n  fix: did you mean {nearest}?" in out
    assert "you said: still here" in out


async def test_a_command_that_is_like_none_is_only_told_where_all_are(
    gateway: FakeGateway,
) -> None:
    _, out, _ = await chat(gateway, "/xyzzy\n")
    assert "✗ unknown command /xyzzy\n  fix: /help lists all commands\n" in out


async def test_a_path_is_no_command(gateway: FakeGateway) -> None:
    assert (await chat(gateway, "/shared/a.txt please\n"))[0] == 0
    assert gateway.turns[0].text == "/shared/a.txt please"


async def test_a_session_is_named_by_the_beginning_of_its_id(gateway: FakeGateway) -> None:
    whole = "session-6aea1df3-0000-4000-8000-000000000000"
    gateway.sessions[whole] = gateway_pb2.Session(session_id=whole)
    assert "\nsession 6aea1df3\n" in (await chat(gateway, "/switch 6aea1df3\n"))[1]


async def test_switching_to_an_unknown_session_keeps_the_current_one(gateway: FakeGateway) -> None:
    code, out, _ = await chat(gateway, "one\n/switch nowhere\n/switch\ntwo\n")
    assert code == 1
    assert "✗ session not found: nowhere" in out
    assert "✗ /switch needs a session id" in out
    assert [turn.session_id for turn in gateway.turns] == ["s1", "s1"]


async def test_resuming_shows_how_the_session_ended(gateway: FakeGateway) -> None:
    gateway.sessions["old"] = gateway_pb2.Session(session_id="old", turns=7)
    long = "\n".join(f"line {number}" for number in range(300))
    said = [
        *((f"t{number}", "user", f"question {number}") for number in range(6)),
        ("t6", "user", long),
        ("t6", "assistant", "- hi\n- there " + "x" * 1000),
    ]
    gateway.history["old"] = [
        gateway_pb2.HistoryEvent(turn_id=turn, role=role, text=text) for turn, role, text in said
    ]
    code, out, err = await chat(gateway, "more\n", session="old")
    assert code == 0
    assert out == "> more\nyou said: more\n○ memory unchanged\n\n"
    shown = err.splitlines()[1:]
    assert shown[:3] == ["… 2 earlier turns", "> question 2", ""]
    last = shown.index("> line 0")
    assert shown[last + 11 : last + 14] == ["  line 11", "  … 288 more lines", "- hi"]
    assert shown[last + 14] == "- there " + "x" * 1000
    assert shown[last + 15 :] == ["", "session old goes on"]


async def test_an_unknown_session_id_is_created(gateway: FakeGateway) -> None:
    assert (await chat(gateway, "one\n", session="mine"))[0] == 0
    assert gateway.turns[0].session_id == "mine"


async def test_approvals_are_denied_where_there_is_nobody_to_ask(gateway: FakeGateway) -> None:
    async def script(fake: FakeGateway, _: TurnRequest) -> AsyncIterator[Event]:
        yield fake.approval_event("shell_exec", '{"command":"rm -r /shared"}')
        approved = await fake.approval("shell_exec", '{"command":"rm -r /shared"}')
        yield completed(f"approved: {approved}")

    gateway.script = script
    _, out, _ = await chat(gateway, "go\ny\n")
    assert out.startswith(
        "> go\nallow shell_exec?\n  command\n  │ rm -r /shared\n"
        "[y/N] no: standard input is not a terminal\napproved: False\n○ memory unchanged\n\n> y\n"
    )


async def test_a_guest_that_dies_in_mid_turn_is_reported_and_the_chat_goes_on(
    gateway: FakeGateway,
) -> None:
    async def script(
        fake: FakeGateway, request: gateway_pb2.StartTurnRequest
    ) -> AsyncIterator[Event]:
        if request.text == "die":
            yield text("half an ans")
            restarts.append(asyncio.create_task(restart(fake)))
            await asyncio.sleep(60)
        yield completed("alive")

    async def restart(fake: FakeGateway) -> None:
        await fake.stop()
        await asyncio.sleep(0.3)
        await fake.start()

    restarts: list[asyncio.Task[None]] = []
    gateway.script = script
    code, out, err = await chat(gateway, "die\nagain\n")
    assert code == 1
    assert out == (
        "> die\nhalf an ans\n"
        "✗ the agent stopped in the middle of this turn, which has no answer\n"
        "  fix: what it had saved by then is kept; send it again if you still want it\n"
        "? no change of memory is stored for this turn\n\n"
        "> again\nalive\n○ memory unchanged\n\n"
    )
    assert "connected again" in err
    assert [turn.text for turn in gateway.turns] == ["die", "again"]


async def test_a_restart_between_two_turns_costs_no_turn(gateway: FakeGateway) -> None:
    async def script(
        fake: FakeGateway, request: gateway_pb2.StartTurnRequest
    ) -> AsyncIterator[Event]:
        yield completed(request.text)
        if request.text == "one":
            restarts.append(asyncio.create_task(restart(fake)))

    async def restart(fake: FakeGateway) -> None:
        await fake.stop()
        await fake.start()

    restarts: list[asyncio.Task[None]] = []
    gateway.script = script
    code, out, _ = await chat(gateway, "one\ntwo\n/sessions\n")
    assert code == 0
    assert out.startswith("> one\none\n○ memory unchanged\n\n> two\ntwo\n○ memory unchanged\n\n")


async def test_an_agent_that_stays_away_ends_the_chat(gateway: FakeGateway) -> None:
    async def script(fake: FakeGateway, _: TurnRequest) -> AsyncIterator[Event]:
        stops.append(asyncio.create_task(fake.stop()))
        await asyncio.sleep(60)
        yield completed("never")

    stops: list[asyncio.Task[None]] = []
    gateway.script = script
    code, out, _ = await chat(gateway, "one\ntwo\n", reconnect_within_s=0.3)
    assert code == 1
    assert "never" not in out
    assert out.endswith("✗ the agent did not come back: the agent went away\n  fix: runner logs\n")
    assert [turn.text for turn in gateway.turns] == ["one"]


async def test_a_stream_without_an_end_is_no_answer(gateway: FakeGateway) -> None:
    gateway.script = says(text("Saved"))
    code, out, _ = await chat(gateway, "one\n")
    assert code == 1
    assert "which has no answer" in out


async def test_a_wrong_connector_raises_before_anything_is_said(gateway: FakeGateway) -> None:
    async def connect() -> GatewayClient:
        raise WireError(Code.FAILED_PRECONDITION, "no host")

    with open(os.devnull) as stdin:
        streams = Streams(stdin, sys.stdout, sys.stderr)
        with pytest.raises(WireError, match="no host"):
            await talk(connect, host_status, streams, session=None)


async def lines_of(fd: int) -> list[str]:
    return [line async for line in read_lines(fd)]


async def test_lines_come_from_files_too(tmp_path: Path) -> None:
    (tmp_path / "turns").write_bytes("é\r\ntwo\n\nlast".encode())
    with (tmp_path / "turns").open() as file:
        assert await lines_of(file.fileno()) == ["é\r", "two", "", "last"]
    with open(os.devnull) as nothing:
        assert await lines_of(nothing.fileno()) == []


async def test_a_character_cut_between_two_reads_stays_whole() -> None:
    given, give = os.pipe()
    reading = asyncio.create_task(lines_of(given))
    for byte in "日本\n".encode():
        os.write(give, bytes([byte]))
        await asyncio.sleep(0)
    os.close(give)
    assert await reading == ["日本"]
    os.close(given)


async def test_an_endless_line_takes_no_endless_memory() -> None:
    producer = subprocess.Popen(["head", "-c", "20000000", "/dev/zero"], stdout=subprocess.PIPE)
    assert producer.stdout is not None
    (line,) = await lines_of(producer.stdout.fileno())
    assert TURN_TEXT_MAX_CHARS < len(line) < 2 * TURN_TEXT_MAX_CHARS
    producer.stdout.close()
    producer.wait()


async def test_what_is_told_within_an_answer_begins_on_a_line_of_its_own() -> None:
    both = StringIO()
    screen = Screen(both, both)
    await screen.stream("half")
    await screen.status("told")
    await screen.stream("more")
    assert both.getvalue() == "half\ntold\nmore"


async def test_status_lists_what_runs_in_the_background(gateway: FakeGateway) -> None:
    gateway.notices = ["a notice", "background command 1 `sleep 9` has run for 3 s"]
    _, out, _ = await chat(gateway, "/status")
    assert out.endswith("\nbackground command 1 `sleep 9` has run for 3 s\n\n")
