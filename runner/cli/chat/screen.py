"""Where a conversation is shown: the interface, and plain text for pipes."""

from enum import Enum
from io import StringIO
from typing import Protocol, TextIO

from rich.console import RenderableType

from runner.cli.output import discard, neutralise, plain_console, without_padding

_PLAIN_WIDTH = 200
"""No terminal, no width: wide enough that ids and messages stay whole."""


class Style(Enum):
    """What a line is; a terminal colours it by that."""

    PLAIN = ""
    PROMPT = "bold"
    TOOL = "cyan"
    FAILURE = "red"
    NOTICE = "dim"
    RECEIPT = "green"


class Screen(Protocol):
    """Shows one conversation. Text must come in already harmless, except for `stream`."""

    @property
    def width(self) -> int:
        """How many cells a line has."""
        ...

    async def stream(self, text: str) -> None:
        """Part of an answer, shown as it comes; neutralised here."""
        ...

    async def line(self, text: str, style: Style = Style.PLAIN) -> None:
        """Whole lines; they begin on a line of their own."""
        ...

    async def activity(self, text: str) -> None:
        """What goes on right now, until the next text or line; a transcript leaves it out."""
        ...

    async def table(self, table: RenderableType) -> None:
        """A rich renderable, on lines of its own."""
        ...

    async def status(self, text: str) -> None:
        """What happens around the conversation; not part of its transcript."""
        ...

    async def ask(self, question: str) -> bool:
        """A yes or no; no where there is nobody to ask."""
        ...


def say(stderr: TextIO, text: str) -> None:
    """A status line; nobody has to listen."""
    try:
        stderr.write(f"{text}\n")
        stderr.flush()
    except BrokenPipeError:
        discard(stderr)


class PlainScreen:
    """The transcript on standard output, status lines on standard error, no colours.

    Every write is flushed, so a reader sees each line when it is said. Raises
    `BrokenPipeError` once the reader of the transcript is gone.
    """

    width = _PLAIN_WIDTH

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._at_line_start = True

    async def stream(self, text: str) -> None:
        self._write(neutralise(text))

    async def line(self, text: str, style: Style = Style.PLAIN) -> None:  # noqa: ARG002 - no colours
        self._write(f"{'' if self._at_line_start else chr(10)}{text}\n")

    async def activity(self, text: str) -> None:  # noqa: ARG002 - not for a transcript
        return

    async def table(self, table: RenderableType) -> None:
        console = plain_console(file=StringIO(), width=self.width, color_system=None)
        await self.line(without_padding(console, table))

    async def status(self, text: str) -> None:
        say(self._stderr, text)

    async def ask(self, question: str) -> bool:
        await self.line(f"{question} [y/N] no: standard input is no terminal")
        return False

    def _write(self, text: str) -> None:
        if not text:
            return
        self._stdout.write(text)
        self._stdout.flush()
        self._at_line_start = text.endswith("\n")
