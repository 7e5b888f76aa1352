"""How a conversation is shown: the interface, and plain text for pipes."""

from enum import Enum
from io import StringIO
from typing import Final, TextIO

from rich.console import RenderableType

from runner.cli.chat.answer import ModelText
from runner.cli.output import discard, neutralise, plain_console, without_padding

_PLAIN_WIDTH = 200
"""The width without a terminal, enough for whole ids and messages."""


UNCHANGED: Final = "○ memory unchanged"


class Style(Enum):
    """The kind of a line, from which a terminal chooses its colour."""

    PLAIN = ""
    PROMPT = "bold"
    TOOL = "cyan"
    FAILURE = "red"
    NOTICE = "dim"
    RECEIPT = "green"


def say(stderr: TextIO, text: str) -> None:
    """Write a status line. Does nothing if nobody reads it."""
    try:
        stderr.write(f"{text}\n")
        stderr.flush()
    except BrokenPipeError:
        discard(stderr)


class Screen:
    """Shows one conversation: as a transcript on standard output and status lines on standard
    error, without colours. On a terminal another class does; see `TerminalScreen`.

    Callers neutralise their text, except for `stream` and `offer`. Every write is flushed, so a
    reader sees each line at once. Raises `BrokenPipeError` once the reader of the transcript is
    gone.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._at_line_start = True
        self._marks = ModelText()

    @property
    def width(self) -> int:
        return _PLAIN_WIDTH

    @property
    def answers(self) -> bool:
        """Whether somebody is there who can answer a question."""
        return False

    async def stream(self, text: str) -> None:
        """Show a part of an answer, neutralised, and marked where it looks like the runtime's."""
        self._write(self._marks.marked(neutralise(text)))

    async def line(self, text: str, style: Style = Style.PLAIN) -> None:  # noqa: ARG002 - no colours
        """Show whole lines, which begin on a new line."""
        self._marks = ModelText()
        self._end_line()
        self._write(f"{text}\n")

    def receipted(self, note_id: str) -> None:
        """A receipt of the running turn names this note."""

    async def unchanged(self) -> None:
        """Show that memory is as it was; on a terminal only until the next line."""
        await self.line(UNCHANGED)

    @property
    def past(self) -> "Screen":
        """Where what was said earlier is shown."""
        return Screen(self._stderr, self._stderr)

    async def activity(self, text: str) -> None:
        """Show what happens now, until the next call; nothing if empty. No part of a transcript."""

    async def aside(self, text: str) -> None:
        """Show whole lines that are not part of a transcript."""

    async def diff(self, text: str) -> None:
        await self.line(text)

    async def table(self, table: RenderableType) -> None:
        """Show a rich renderable on its own lines."""
        console = plain_console(file=StringIO(), width=self.width, color_system=None)
        await self.line(without_padding(console, table))

    async def status(self, text: str) -> None:
        """Show something about the conversation that is not part of its transcript."""
        self._end_line()
        say(self._stderr, text)

    async def ask(self, question: str, offers: int = 0) -> int:  # noqa: ARG002 - nobody answers
        """Ask a yes-or-no question, to which an offer may be taken; the answer is as `answered` of
        `runner.cli.chat.calls` has it. No if nobody can answer."""
        await self.line(f"{question}\n[y/N] no: standard input is not a terminal")
        return 0

    async def offer(self, text: str) -> bool:  # noqa: ARG002 - nobody can edit it
        """Put `text` before the user, to change and send. False if nobody can."""
        return False

    def _end_line(self) -> None:
        self._write("" if self._at_line_start else "\n")

    def _write(self, text: str) -> None:
        if not text:
            return
        self._stdout.write(text)
        self._stdout.flush()
        self._at_line_start = text.endswith("\n")
