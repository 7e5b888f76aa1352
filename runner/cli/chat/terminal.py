"""The chat in a terminal: the answer streams above a prompt that stays usable.

Whole blocks of the answer are printed above the prompt; the unfinished one is part of the prompt's
message. So `/cancel` can be typed while a turn runs. Lines typed ahead wait for their turn. The
input history is kept in memory only, not in a file that a guest could read.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from rich.cells import chop_cells
from rich.console import Console, RenderableType
from rich.spinner import Spinner
from rich.text import Text
from wire.errors import WireError

from runner.cli.chat.answer import Blocks, ModelText, rows
from runner.cli.chat.calls import answered, choices
from runner.cli.chat.commands import EndOfChat, SlashCommands
from runner.cli.chat.conversation import AgentGoneError, Conversation
from runner.cli.chat.screen import UNCHANGED, Screen, Style
from runner.cli.notices import CHAT, notice_line
from runner.cli.output import clip, failure_lines, neutralise, one_line

_ROWS_FOR_THE_REST: Final = 4
_RENDERED_CHARS: Final = 8_000
_REDRAW_EVERY_S: Final = 0.1
_SPINNER: Final = Spinner("dots")
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_AGAIN_S: Final = 5.0
_PASTED_LINES: Final = 10
_PASTED_CHARS: Final = 2_000
_IN_DIFF: Final = {"+": "green", "-": "red", "@": "cyan"}


class TypedAhead(Vt100Input):
    """Reads a terminal's keys and loses none while something is printed.

    During every print prompt_toolkit switches to line editing, which would lose a Ctrl-D.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class TerminalScreen(Screen):
    """A `Screen` on a terminal in which the user types at the same time.

    `waiting` are lines typed ahead, which `shown` folds; `prompt` stands before the cursor.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = Blocks()
        self._goes_on = False
        self._preview: tuple[str, int, list[ANSI]] = ("", 0, [])
        self._unchanged = False
        self._receipted: set[str] = set()
        self._activity = ""
        self._active_since = 0.0
        self._answer: asyncio.Future[int] | None = None
        self._offers = 0
        self.waiting: list[str] = []
        self.prompt: Callable[[], str] = lambda: "> "
        self.shown: Callable[[str], str] = lambda text: text
        self.redraw: Callable[[], None] = lambda: None
        self.offered: Callable[[str], None] = lambda _: None

    @property
    def width(self) -> int:
        return self._console.width

    @property
    def answers(self) -> bool:
        return True

    def message(self) -> StyleAndTextTuples:
        """Before the cursor: the unfinished end of the answer, what happens now, the prompt."""
        above: StyleAndTextTuples = []
        room = max(self._console.height - _ROWS_FOR_THE_REST, 1)
        for row in self._unfinished_rows()[-room:]:
            above += [*to_formatted_text(row), ("", "\n")]
        if self._unchanged:
            above.append(("ansibrightblack", f"{UNCHANGED}\n"))
        if self._activity and self._answer is None:
            above.append(("ansibrightblack", self._working() + "\n"))
        if self._activity and self.waiting:
            lines = " · ".join(one_line(self.shown(line)) for line in self.waiting)
            above.append(("ansibrightblack", clip(f"waiting: {lines}", self.width) + "\n"))
        prompt = f"{choices(self._offers)} " if self._answer else self.prompt()
        return [*above, ("bold", prompt)]

    @property
    def busy(self) -> bool:
        return bool(self._activity)

    async def stream(self, text: str) -> None:
        for piece in _LINES.findall(neutralise(text)):
            if finished := self._text.add(piece):
                await self._print_answer(finished)
        self.redraw()

    async def line(self, text: str, style: Style = Style.PLAIN) -> None:
        await self._end_answer()
        self._unchanged = self._unchanged and not text
        if style is Style.PROMPT:
            self._receipted.clear()
        await self._print(Text(text, style.value or ""), whole=style is not Style.FAILURE)

    def receipted(self, note_id: str) -> None:
        self._receipted.add(note_id)

    async def unchanged(self) -> None:
        await self._end_answer()
        self._unchanged = True
        self.redraw()

    @property
    def past(self) -> Screen:
        return self

    async def activity(self, text: str) -> None:
        if text != self._activity:
            self._activity, self._active_since = text, time.monotonic()
        self.redraw()

    async def aside(self, text: str) -> None:
        await self.line(text, Style.NOTICE)

    async def diff(self, text: str) -> None:
        shown = Text()
        for line in text.split("\n"):
            of_head = line.startswith(("+++ ", "--- ", "diff "))
            shown.append(f"{line}\n", "bold" if of_head else _IN_DIFF.get(line[:1], ""))
        await self._print(shown)

    async def table(self, table: RenderableType) -> None:
        await self._print(table)

    status = aside

    async def ask(self, question: str, offers: int = 0) -> int:
        await self.line(question, Style.PROMPT)
        self._offers = offers
        self._answer = asyncio.get_running_loop().create_future()
        self.redraw()
        try:
            answer = await self._answer
        finally:
            self._answer = None
        said = ("no", "yes", *map(str, range(1, offers + 1)))[answer]
        await self.line(f"{choices(offers)} {said}", Style.NOTICE)
        return answer

    async def offer(self, text: str) -> bool:
        self.offered(neutralise(text))
        return True

    def answer(self, typed: str) -> bool:
        """Take `typed` as the answer to an open question. False if there is none."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(answered(typed, self._offers))
        return True

    def _working(self) -> str:
        seconds = time.monotonic() - self._active_since
        frame = _SPINNER.frames[int(seconds * 1000 / _SPINNER.interval) % len(_SPINNER.frames)]
        elapsed = f" {seconds:.0f} s" if seconds >= 1 else ""
        return f"{frame} {clip(self._activity, self.width - len(elapsed) - 2)}{elapsed}"

    def _unfinished_rows(self) -> list[ANSI]:
        """The end of the answer that is still being written, as it would be printed."""
        text, width = self._text.unfinished, self.width
        if self._preview[:2] != (text, width):
            short = len(text) < _RENDERED_CHARS
            shown = self._rows(text) if short else self._end_of(text)
            before = [Text()] if self._goes_on and shown else []
            self._preview = (text, width, [self._ansi(row) for row in (*before, *shown)])
        return self._preview[2]

    def _rows(self, markup: str) -> list[Text]:
        return rows(self._console, markup, self._receipted)

    def _end_of(self, text: str) -> list[Text]:
        """The last rows of a block that is too long to be rendered at every word."""
        end = text[-_RENDERED_CHARS:].expandtabs(4).split("\n")
        marked = (ModelText().marked(row) for row in end)
        return [Text(row) for line in marked for row in chop_cells(line, self.width) or [""]]

    def _ansi(self, row: Text) -> ANSI:
        with self._console.capture() as captured:
            self._console.print(row, soft_wrap=True, end="")
        return ANSI(captured.get())

    async def _end_answer(self) -> None:
        if rest := self._text.rest():
            await self._print_answer(rest)
        self._goes_on = False

    async def _print_answer(self, markup: str) -> None:
        """Print whole blocks, apart from those before them."""
        if shown := self._rows(markup):
            before = [Text()] if self._goes_on else []
            await self._print(Text("\n").join([*before, *shown]))
            self._goes_on = True

    async def _print(self, renderable: RenderableType, *, whole: bool = False) -> None:
        """Print above the prompt; `whole` text is wrapped at words, other text by the terminal."""
        async with in_terminal():
            wraps = isinstance(renderable, Text) and not whole
            self._console.print(renderable, soft_wrap=wraps)


class TerminalChat:
    """Reads lines, and runs the turns in order at the same time."""

    def __init__(
        self,
        conversation: Conversation,
        commands: SlashCommands,
        screen: TerminalScreen,
        terminal_input: Input,
        terminal_output: Output,
    ) -> None:
        self._conversation = conversation
        self._commands = commands
        self._screen = screen
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._job: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._cancel_asked = False
        self._pasted = Pasted()
        self._prompt: PromptSession[str] = PromptSession(
            message=screen.message,
            completer=WordCompleter(commands.names, sentence=True),
            complete_while_typing=False,
            erase_when_done=True,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_keys(self._pasted),
            enable_open_in_editor=Condition(lambda: not conversation.temporary),  # it has a file
            tempfile_suffix=".md",
            input=terminal_input,
            output=terminal_output,
        )
        screen.redraw = self._prompt.app.invalidate
        screen.prompt = lambda: "temporary > " if conversation.temporary else "> "
        screen.shown = self._pasted.folded
        screen.offered = self._put_into_the_prompt

    async def run(self) -> int:
        """Run until the person leaves. Returns 1 if the agent did not come back."""
        with self._prompt.input.raw_mode():
            return await self._run()

    async def _run(self) -> int:
        worker = asyncio.create_task(self._work())
        reader = asyncio.create_task(self._read())
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.wait({worker, reader}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                worker.result()
            else:
                reader.result()
        except EndOfChat:
            return 0
        except AgentGoneError as error:
            shown = self._conversation.failure(error.brief, error.resolution)
            await self._screen.line(shown, Style.FAILURE)
            return 1
        finally:
            for task in (worker, reader, telling):
                task.cancel()
            await asyncio.gather(worker, reader, telling, return_exceptions=True)
        return 0

    def _put_into_the_prompt(self, text: str) -> None:
        self._prompt.default_buffer.document = Document(self._pasted.folded(text))
        self._screen.redraw()

    async def _read(self) -> None:
        leaving = False
        while True:
            try:
                line = self._pasted.whole(await self._prompt.prompt_async()).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                if self._job is not None and not self._job.done():
                    await self._cancel(self._job)
                elif leaving:
                    return
                else:
                    leaving = True
                    await self._screen.line("Ctrl-C again or Ctrl-D ends the chat", Style.NOTICE)
                continue
            leaving = False
            if self._screen.answer(line):
                continue
            if line == "/cancel" and self._job is not None:
                await self._cancel(self._job)
            elif line == "/quit":
                return
            elif line:
                self._waiting.put_nowait(line)
                self._screen.waiting.append(line)

    async def _tell(self) -> None:
        """Show notices as they come, between turns."""
        while True:
            with suppress(WireError):  # the agent is away, or older
                async with aclosing(self._conversation.client.follow_notices(CHAT)) as notices:
                    async for notice in notices:
                        await self._idle.wait()
                        await self._screen.line(notice_line(notice), Style.NOTICE)
            await asyncio.sleep(_AGAIN_S)

    async def _work(self) -> None:
        if self._conversation.session_id:
            await self._finish(self._do(self._conversation.attach()))
        while True:
            line = await self._waiting.get()
            self._screen.waiting.pop(0)
            await self._finish(self._do_line(line))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do one thing that can be cancelled."""
        self._job = asyncio.create_task(work)
        self._idle.clear()
        try:
            while not (await asyncio.wait({self._job}, timeout=_REDRAW_EVERY_S))[0]:
                if self._screen.busy:
                    self._screen.redraw()
            if self._job.cancelled():
                await self._screen.line(failure_lines("no longer waited for", ""), Style.FAILURE)
            else:
                self._job.result()
        finally:
            self._job.cancel()
            self._job, self._cancel_asked = None, False
            self._idle.set()

    async def _do_line(self, line: str) -> None:
        shown = neutralise(self._pasted.folded(line)).replace("\n", "\n  ")
        await self._screen.line(f"> {shown}", Style.PROMPT)
        is_command = self._commands.recognises(line)
        await self._do((self._commands.run if is_command else self._conversation.turn)(line))
        await self._screen.line("")

    async def _do(self, work: Awaitable[bool]) -> None:
        try:
            await work
        except AgentGoneError:
            raise
        except WireError as error:
            shown = self._conversation.failure(error.brief, error.resolution)
            await self._screen.line(shown, Style.FAILURE)

    async def _cancel(self, job: asyncio.Task[None]) -> None:
        """Ask the gateway first; if that has no effect, leave the turn."""
        self._screen.answer("no")
        asked, self._cancel_asked = self._cancel_asked, True
        try:
            stopping = not asked and await self._conversation.cancel()
        except WireError:
            stopping = False
        if not stopping:
            job.cancel()


class Pasted:
    """Long pastes, which a mark such as "[300 lines pasted]" stands for in the prompt."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """What stands in the prompt for a pasted text: itself, if it is short."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.strip("\n").count("\n") + 1
        if lines <= _PASTED_LINES and len(text) <= _PASTED_CHARS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        names = (f"[{size} pasted{f', {n}' if n > 1 else ''}]" for n in itertools.count(1))
        mark = next(name for name in names if self._texts.get(name, text) == text)
        self._texts[mark] = text
        return mark

    def whole(self, typed: str) -> str:
        """What was typed, with the pasted texts in the place of their marks."""
        for mark, text in self._texts.items():
            typed = typed.replace(mark, text)
        return typed

    def folded(self, text: str) -> str:
        """`text` with marks in the place of pasted texts."""
        for mark, pasted in self._texts.items():
            text = text.replace(pasted.strip(), mark)
        return text

    def ending(self, typed: str) -> str:
        """The mark with which `typed` ends; else empty."""
        return next((mark for mark in self._texts if typed.endswith(mark)), "")


def _keys(pasted: Pasted) -> KeyBindings:
    """Enter sends, Alt-Enter begins a new line. A long paste is a mark, which goes as a whole."""
    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pasted.mark(event.data))

    @keys.add("backspace")
    def _(event: KeyPressEvent) -> None:
        before = event.current_buffer.document.text_before_cursor
        event.current_buffer.delete_before_cursor(len(pasted.ending(before)) or event.arg)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
