"""The chat on a terminal: streaming above a prompt that can be typed at."""

import asyncio
import io
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from wire.v1 import control_pb2, gateway_pb2

from runner.cli.chat.commands import SlashCommands
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.terminal import TerminalChat, TerminalScreen
from runner.client.gateway import GatewayClient
from tests.support.commands import chat_program
from tests.support.commands.terminal import Terminal
from tests.support.gateway.fake_gateway import Event, FakeGateway, completed, says, text, tool


def chat_with(gateway: FakeGateway) -> list[str]:
    peer = gateway.peer
    program = [sys.executable, chat_program.__file__]
    return [*program, peer.endpoint, peer.token, peer.identity.to_pem()]


_COLOURS = re.compile(rb"\x1b\[([0-9;]*)m")
TurnRequest = gateway_pb2.StartTurnRequest


def on_a_terminal(gateway: FakeGateway, *session: str) -> Terminal:
    command = [*chat_with(gateway), *session]
    return Terminal(command, os.environ)


async def until_cancelled(fake: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
    yield text("thinking about it")
    yield await fake.until_cancelled(request.turn_id)


async def test_a_conversation_on_a_terminal(gateway: FakeGateway) -> None:
    async def script(_: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        started, finished = tool("memory_save", "Stored: [id: note-7] " + "long " * 40)
        yield started
        yield finished
        for part in ("Sav", "ed.\nAnd", " more"):
            yield text(part)
        yield completed()

    gateway.script = script
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("Oxydra 0.1.0 · user alice · process tier · offline")
        await terminal.expect("· /help")
        terminal.type("remember me\r")
        position = await terminal.expect("● memory_save → Stored long")
        position = await terminal.expect("Saved.\n", after=position)
        await terminal.expect("And more\n", after=position)
        tool_rows = [row for row in terminal.text.split("\n") if "● memory_save →" in row]
        assert [len(row[row.index("●") :]) for row in tool_rows] == [100]
        assert tool_rows[0].endswith("…")
        terminal.type("\x04")
        await terminal.expect("to go on later: runner chat --session s1")
        assert await terminal.ended() == 0
    assert [turn.text for turn in gateway.turns] == ["remember me"]


async def test_notices_are_told_at_the_beginning_once_and_then_between_turns(
    gateway: FakeGateway,
) -> None:
    def happens(number: int) -> None:
        told = gateway_pb2.StoredNotice(number=number, kind="guest", text=f"number {number}\x1b[1m")
        gateway.stored.append(told)

    gateway.script = until_cancelled
    for number in range(1, 6):
        happens(number)
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("✉ guest: number 3")
        position = await terminal.expect("2 more unread: /notices")
        assert "number 2" not in terminal.text
        terminal.type("think\r")
        await terminal.expect("thinking about it", after=position)
        happens(6)
        await asyncio.sleep(0.3)
        assert "number 6" not in terminal.text
        terminal.type("/cancel\r")
        position = await terminal.expect("✗ cancelled", after=position)
        position = await terminal.expect("✉ guest: number 6", after=position)
        terminal.type("/notices\r")
        await terminal.expect("number 1", after=position)
        terminal.type("/notices\r")
        await terminal.expect("nothing is unread", after=position)
        terminal.type("\x04")
        assert await terminal.ended() == 0
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("/quit\r")
        assert await terminal.ended() == 0
        assert "✉" not in terminal.text


async def test_cancel_can_be_typed_while_a_turn_streams(gateway: FakeGateway) -> None:
    gateway.script = until_cancelled
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("think\r")
        await terminal.expect("thinking about it")
        terminal.type("/cancel\r")
        await terminal.expect("✗ cancelled")
        terminal.type("/quit\r")
        assert await terminal.ended() == 0
    assert gateway.cancelled == [gateway.turns[0].turn_id]


async def test_ctrl_c_cancels_a_turn_and_twice_at_the_prompt_ends(gateway: FakeGateway) -> None:
    gateway.script = until_cancelled
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("think\r")
        await terminal.expect("thinking about it")
        terminal.type("\x03")
        await terminal.expect("✗ cancelled")
        terminal.type("\x03")
        await terminal.expect("Ctrl-C again or Ctrl-D ends the chat")
        terminal.type("\x03")
        assert await terminal.ended() == 0
    assert gateway.cancelled == [gateway.turns[0].turn_id]


async def test_a_second_ctrl_c_leaves_a_turn_that_does_not_stop(gateway: FakeGateway) -> None:
    async def stubborn(fake: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        yield text("working")
        await asyncio.sleep(60)

    gateway.script = stubborn
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("work\r")
        await terminal.expect("working")
        terminal.type("\x03")
        while not gateway.cancelled:
            await asyncio.sleep(0.01)
        terminal.type("\x03")
        await terminal.expect("the turn goes on without this chat")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert list(gateway.running) == [gateway.turns[0].turn_id]


@pytest.mark.parametrize(("typed", "approved"), [("y", True), ("", False), ("n", False)])
async def test_approvals_are_asked_and_answered(
    gateway: FakeGateway, typed: str, approved: bool
) -> None:
    async def script(fake: FakeGateway, _: TurnRequest) -> AsyncIterator[Event]:
        yield fake.approval_event("shell_exec", '{"command":"ls"}')
        answer = await fake.approval("shell_exec", '{"command":"ls"}')
        yield completed(f"approved={answer}")

    gateway.script = script
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("go\r")
        position = await terminal.expect("allow shell_exec?\n  command\n  │ ls\n")
        await terminal.expect("[y/N]", after=position)
        terminal.type(typed + "\r")
        await terminal.expect(f"approved={approved}")
        terminal.type("\x04")
        assert await terminal.ended() == 0


async def test_what_is_typed_ahead_waits_its_turn(gateway: FakeGateway) -> None:
    async def script(fake: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        yield text(f"begin {request.text}\n")
        if request.text == "one":
            yield await fake.until_cancelled(request.turn_id)
        else:
            yield completed()

    gateway.script = script
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("one\r")
        await terminal.expect("begin one")
        terminal.type("two\r")
        await terminal.expect("waiting: two")
        assert [turn.text for turn in gateway.turns] == ["one"]
        terminal.type("/cancel\r")
        await terminal.expect("begin two")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert [turn.text for turn in gateway.turns] == ["one", "two"]


async def test_leaving_in_mid_turn_leaves_the_turn_running(gateway: FakeGateway) -> None:
    gateway.script = until_cancelled
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("think\r")
        await terminal.expect("thinking about it")
        terminal.type("\x04")
        await terminal.expect("the turn goes on without this chat; what comes of it: runner chat")
        assert await terminal.ended() == 0
    assert list(gateway.running) == [gateway.turns[0].turn_id]


async def test_a_session_in_which_a_turn_runs_is_attached_to(gateway: FakeGateway) -> None:
    """Another client has begun it, and decides on one of its approvals."""

    async def script(fake: FakeGateway, _: TurnRequest) -> AsyncIterator[Event]:
        yield text("so far. ")
        for command in ("ls", "rm"):
            arguments = f'{{"command":"{command}"}}'
            yield fake.approval_event("shell_exec", arguments)
            answer = await fake.approval("shell_exec", arguments)
            yield Event(
                decided=gateway_pb2.ApprovalDecided(
                    approval_id=f"shell_exec{arguments}",
                    approved=answer,
                    by="person",
                    channel="web",
                )
            )
        yield text("All.")
        yield completed("so far. All.")

    gateway.script = script
    gateway.sessions["s1"] = gateway_pb2.Session(session_id="s1")
    gateway.runs(TurnRequest(session_id="s1", text="go", turn_id="t1"))
    async with on_a_terminal(gateway, "s1") as terminal:
        await terminal.expect("a turn runs in this session")
        position = await terminal.expect("allow shell_exec?\n  command\n  │ ls\n")
        gateway.approvals['shell_exec{"command":"ls"}'].set_result(True)
        position = await terminal.expect("allowed elsewhere (web)", after=position)
        position = await terminal.expect("│ rm\n", after=position)
        terminal.type("n\r")
        await terminal.expect("All.", after=position)
        terminal.type("/turns\r")
        await terminal.expect("completed")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert not gateway.approvals['shell_exec{"command":"rm"}'].result()
    assert "nobody waits" not in terminal.text


async def test_nothing_an_answer_says_reaches_the_terminal_as_a_command(
    gateway: FakeGateway,
) -> None:
    gateway.script = says(
        text("\x1b]52;c;ZXZpbA==\x07 \x1b]0;owned"),
        *tool("evil\x1b]0;owned", "\x1b]0;owned\x07"),
        completed(),
    )
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("go\r")
        await terminal.expect("● evil␛]0;owned → ␛]0;owned␇")
        terminal.type("\x04")
        assert await terminal.ended() == 0
        assert b"\x1b]" not in terminal.raw
        assert b"\x07" not in terminal.raw


async def test_the_history_is_offered_again_and_in_no_file(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    command = chat_with(gateway)
    async with Terminal(command, {**os.environ, "HOME": str(tmp_path)}) as terminal:
        await terminal.expect("· /help")
        terminal.type("first words\r")
        await terminal.expect("you said: first words\n")
        terminal.type("\x1b[A\r")
        while len(gateway.turns) < 2:
            await asyncio.sleep(0.01)
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert [turn.text for turn in gateway.turns] == ["first words", "first words"]
    assert list(tmp_path.rglob("*")) == []


async def test_the_last_message_is_edited_and_sent_again(gateway: FakeGateway) -> None:
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("· /help")
        terminal.type("first words\r")
        position = await terminal.expect("you said: first words\n")
        terminal.type("/edit\r")
        await terminal.expect("> first words", after=await terminal.expect("/edit", after=position))
        terminal.type(" and more\r")
        await terminal.expect("you said: first words and more\n")
        terminal.type("\x04")
        assert await terminal.ended() == 0


async def test_an_agent_that_stays_away_ends_the_chat(gateway: FakeGateway) -> None:
    """With the terminal's own input, so that the wait can be shortened."""

    async def connect() -> GatewayClient:
        return await GatewayClient.open(gateway.peer, channel_name="cli")

    async def host_status() -> control_pb2.StatusReply:
        return control_pb2.StatusReply()

    shown = io.StringIO()
    screen = TerminalScreen(Console(file=shown, width=60))
    with create_pipe_input() as typed:
        async with Conversation(connect, screen, reconnect_within_s=0.2) as conversation:
            commands = SlashCommands(conversation, screen, host_status)
            chat = TerminalChat(conversation, commands, screen, typed, DummyOutput())
            await gateway.stop()
            typed.send_text("hello?\n")
            assert await asyncio.wait_for(chat.run(), 60) == 1
    assert "the agent did not come back" in shown.getvalue()


async def test_the_unfinished_line_is_shown_wrapped_and_within_the_screen() -> None:
    screen = TerminalScreen(Console(file=io.StringIO(), width=10, height=6))
    await screen.stream("0123456789" * 5 + "end")
    assert "".join(fragment[1] for fragment in screen.message()) == "0123456789\nend\n> "


async def test_what_happens_now_is_shown_with_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    screen = TerminalScreen(Console(file=io.StringIO(), width=24))
    await screen.activity("shell_exec make everything")
    screen.waiting = ["one", "two"]
    now = 112.4
    shown = "".join(fragment[1] for fragment in screen.message())
    assert shown[1:] == " shell_exec make… 12 s\nwaiting: one · two\n> "
    await screen.activity("")
    assert not screen.busy
    assert "".join(fragment[1] for fragment in screen.message()) == "> "


async def test_a_message_of_several_lines_is_typed_and_edited_elsewhere(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho third >> $1\n")
    editor.chmod(0o700)
    command = chat_with(gateway)
    async with Terminal(command, {**os.environ, "VISUAL": str(editor)}) as terminal:
        await terminal.expect("\n>", after=await terminal.expect("· /help"))
        terminal.type("first\x1b\rsecond")
        await terminal.expect("second")
        terminal.type("\x18\x05")
        await terminal.expect("third")
        terminal.type("\r")
        await terminal.expect("you said: first\nsecondthird\n")
        terminal.type("/temporary\r")
        await terminal.expect("temporary >")
        terminal.type("in no file\x18\x05\r")
        await terminal.expect("you said: in no file\n")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert [turn.text for turn in gateway.turns] == ["first\nsecondthird", "in no file"]


async def test_no_colour_where_none_is_wanted(gateway: FakeGateway) -> None:
    gateway.script = says(*tool("file_read", "done"), text("# A *title*\n\n`code`\n"), completed())
    async with Terminal(chat_with(gateway), {**os.environ, "NO_COLOR": "1"}) as terminal:
        await terminal.expect("· /help")
        terminal.type("go\r")
        await terminal.expect("○ memory unchanged")
        terminal.type("\x04")
        assert await terminal.ended() == 0
        used = {code for found in _COLOURS.findall(terminal.raw) for code in found.split(b";")}
    assert b"1" in used, "bold is no colour"
    assert not {code for code in used if len(code) > 1 and code[:1] in b"3491"}
