"""One scripted conversation on terminals of several widths, as text and as a picture."""

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Final

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text
from wire.v1 import gateway_pb2

from guest.tools.arguments import arguments_text, told
from tests.support.commands import chat_program
from tests.support.commands.terminal import Terminal
from tests.support.gateway.fake_gateway import Event, FakeGateway, completed, text

WIDTHS: Final = (40, 80, 200)
_ROWS: Final = 90
_NOTE: Final = "note-2ce87c40-8311-4af9-96dd-6bf2fbb68c13"
_SESSIONS: Final = (
    ("session-5be0c0de-8311-4af9-96dd-6bf2fbb68c13", "the boat: what is left to do before May"),
    ("session-77aa01b2-8311-4af9-96dd-6bf2fbb68c13", "why does the build fail on Mondays"),
)
_COMMAND: Final = "cd /shared/site\nmake test  # ends with a summary"
_CLEANING: Final = '{"command":"rm -r /shared/site/build\\nmake\\tclean ","timeout_s":60}'
_ANSWER: Final = """\
All **12 tests** pass. What is slow:

| test | seconds |
|---|---:|
| `test_upload` | 14.2 |
| `test_search` | 3.1 |

1. `test_upload` waits for a *real* network; see [its issue](https://example.org/issues/7).
2. Nothing else takes longer than a second.

```
make test ARGS="-k 'not upload'"
```
✓ saved note-00000000
"""


async def _conversation(
    gateway: FakeGateway, request: gateway_pb2.StartTurnRequest
) -> AsyncIterator[Event]:
    gateway.sessions[request.session_id].title = "how does the site build?"
    if request.text.startswith("remember"):
        yield _begun("memory_save", '{"content":"my name is Shantanu"}', "content")
        yield _ended("memory_save", f"Stored: [id: {_NOTE}]")
        yield text("I will remember that your name is Shantanu.")
        receipt = gateway_pb2.MemoryReceipt(
            action="saved",
            outcome="done",
            note_id=_NOTE,
            version=1,
            asked_by="model",
            words=["my name is Shantanu"],
        )
        yield completed("", receipt)
    elif request.text.startswith("clean"):
        yield gateway.approval_event("shell_exec", _CLEANING)
        await gateway.approval("shell_exec", _CLEANING)
        yield _begun("shell_exec", _CLEANING, "command")
        yield _ended("shell_exec", "exit code 0")
        yield completed("Everything is clean.")
    else:
        yield _begun("file_read", '{"path":"/shared/site/Makefile"}', "path")
        yield _ended("file_read", "lines 1 to 21 of 21")
        command = _COMMAND.replace("\n", "\\n")
        yield _begun("shell_exec", f'{{"command":"{command}"}}', "command")
        printed = "\n".join(f"tests/test_{number}.py passed" for number in range(1, 13))
        yield _ended("shell_exec", "exit code 0", output=printed)
        for word in _ANSWER.split(" "):
            yield text(f"{word} ")
        yield completed()


def _begun(tool: str, arguments: str, telling: str) -> Event:
    return Event(
        tool_started=gateway_pb2.ToolCallStarted(
            call_id=tool,
            tool=tool,
            arguments_text=arguments_text(arguments),
            told=told(arguments, telling),
        )
    )


def _ended(tool: str, summary: str, output: str = "") -> Event:
    return Event(
        tool_finished=gateway_pb2.ToolCallFinished(
            call_id=tool, tool=tool, ok=True, summary=summary, output=output, duration_ms=420
        )
    )


async def shown(columns: int) -> pyte.Screen:
    """The screen at the end of a conversation on a terminal that is `columns` wide."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    gateway = FakeGateway(f"unix:{directory}/g.sock", _conversation)  # type: ignore[abstract]
    for session_id, title in _SESSIONS:
        gateway.sessions[session_id] = gateway_pb2.Session(
            session_id=session_id, title=title, turns=4, updated_at="2026-11-20T10:00:00Z"
        )
    await gateway.start()
    try:
        return await _talk(gateway, columns)
    finally:
        await gateway.stop()
        shutil.rmtree(directory)


async def _talk(gateway: FakeGateway, columns: int) -> pyte.Screen:
    peer = gateway.peer
    program = [sys.executable, chat_program.__file__]
    command = [*program, peer.endpoint, peer.token, peer.identity.to_pem()]
    environment = {"PATH": os.environ["PATH"], "TZ": "Europe/Berlin", "LANG": "C.UTF-8"}
    async with Terminal(command, environment, rows=_ROWS, columns=columns) as terminal:
        at = await terminal.expect("\n>", after=await terminal.expect("/help"))
        for typed, ends in (
            ("remember that my name is Shantanu\r", "(note-2ce87c40)"),
            ("how does the site build, and\x1b\rdoes it pass?\r", "○ memory unchanged"),
            ("clean up\r", "[y/N]"),
            ("y\r", "○ memory unchanged"),
            ("/sessions\r", "how does"),
        ):
            terminal.type(typed)
            at = await terminal.expect(ends, after=at)
        terminal.type("\x04")
        await terminal.expect("to go on later", after=at)
        await terminal.ended()
        return terminal.screen()


def as_text(screen: pyte.Screen) -> str:
    """The rows of a screen, without blanks at their ends."""
    return "\n".join(row.rstrip() for row in screen.display).rstrip() + "\n"


def as_picture(screen: pyte.Screen) -> str:
    """A screen as SVG."""
    console = Console(record=True, width=screen.columns, file=StringIO())
    rows = [_row(screen, number) for number in range(len(as_text(screen).splitlines()))]
    console.print(Text("\n").join(rows), soft_wrap=True)
    return console.export_svg(title="runner chat", unique_id="chat")


def _row(screen: pyte.Screen, number: int) -> Text:
    row = Text()
    cells = (screen.buffer[number][column] for column in range(screen.columns))
    for style, alike in groupby(cells, _style):
        row.append("".join(cell.data for cell in alike), style)
    row.rstrip()
    return row


def _style(cell: pyte.screens.Char) -> Style:
    return Style(color=_colour(cell.fg), bold=cell.bold, italic=cell.italics)


def _colour(name: str) -> str | None:
    """A colour of pyte as rich calls it."""
    if name == "default":
        return None
    is_rgb = len(name) == 6 and all(char in "0123456789abcdef" for char in name)
    return f"#{name}" if is_rgb else name.replace("bright", "bright_").replace("brown", "yellow")
