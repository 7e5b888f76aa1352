"""The chat in a terminal: the answer streams above a prompt that stays usable.

Whole lines are printed above the prompt; an unfinished line is part of the prompt's message. So
`/cancel` can be typed while a turn runs. Lines typed ahead wait for their turn. The input history
is kept in memory only, not in a file that a guest could read.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output import Output
from rich.cells import chop_cells
from rich.console import Console, RenderableType
from rich.text import Text
from wire.errors import WireError

from runner.cli.chat.commands import EndOfChat, SlashCommands
from runner.cli.chat.conversation import AgentGoneError, Conversation
from runner.cli.chat.screen import Style
from runner.cli.output import failure_lines, neutralise, one_line

_ROWS_FOR_THE_REST = 4
_YES = frozenset({"y", "yes"})


class TypedAhead(Vt100Input):
    """Reads a terminal's keys and loses none while something is printed.

    prompt_toolkit switches the terminal to line editing during every print; a Ctrl-D typed in that
    moment would be lost.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class TerminalScreen:
    """A `Screen` on a terminal in which the user types at the same time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._unfinished = ""
        self._activity = ""
        self._answer: asyncio.Future[bool] | None = None
        self.redraw: Callable[[], None] = lambda: None
        self.offered: Callable[[str], None] = lambda _: None

    @property
    def width(self) -> int:
        return self._console.width

    def message(self) -> StyleAndTextTuples:
        """What stands before the cursor: the unfinished line, the activity, the prompt."""
        rows = chop_cells(self._unfinished.expandtabs(4), self.width) if self._unfinished else []
        above = [
            ("", row + "\n") for row in rows[-max(self._console.height - _ROWS_FOR_THE_REST, 1) :]
        ]
        if self._activity:
            above.append(("ansibrightblack", self._activity + "\n"))
        prompt = "[y/N] " if self._answer else "> "
        return [*above, ("bold", prompt)]

    async def stream(self, text: str) -> None:
        self._activity = ""
        *lines, self._unfinished = (self._unfinished + neutralise(text)).split("\n")
        if lines:
            await self._print(Text("\n".join(lines)))
        self.redraw()

    async def line(self, text: str, style: Style = Style.PLAIN) -> None:
        unfinished, self._unfinished, self._activity = self._unfinished, "", ""
        whole = Text(f"{unfinished}\n" if unfinished else "")
        await self._print(whole.append(text, style.value or None))

    async def activity(self, text: str) -> None:
        self._activity = text
        self.redraw()

    async def table(self, table: RenderableType) -> None:
        await self._print(table)

    async def status(self, text: str) -> None:
        await self.line(text, Style.NOTICE)

    async def ask(self, question: str) -> bool:
        await self.line(question, Style.PROMPT)
        self._answer = asyncio.get_running_loop().create_future()
        self.redraw()
        try:
            approved = await self._answer
        finally:
            self._answer = None
        await self.line("[y/N] yes" if approved else "[y/N] no", Style.NOTICE)
        return approved

    async def offer(self, text: str) -> bool:
        self.offered(neutralise(text))
        return True

    def answer(self, typed: str) -> bool:
        """Take `typed` as the answer to an open question. False if there is none."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(typed.strip().lower() in _YES)
        return True

    async def _print(self, renderable: RenderableType) -> None:
        async with in_terminal():
            self._console.print(renderable, soft_wrap=isinstance(renderable, Text))


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
        self._cancel_asked = False
        self._prompt: PromptSession[str] = PromptSession(
            message=screen.message,
            completer=WordCompleter(commands.names, sentence=True),
            complete_while_typing=False,
            erase_when_done=True,
            input=terminal_input,
            output=terminal_output,
        )
        screen.redraw = self._prompt.app.invalidate
        screen.offered = self._put_into_the_prompt

    async def run(self) -> int:
        """Run until Ctrl-D, `/quit`, or Ctrl-C twice at the prompt. Returns 1 if the agent did
        not come back."""
        with self._prompt.input.raw_mode():
            return await self._run()

    async def _run(self) -> int:
        worker = asyncio.create_task(self._work())
        reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait({worker, reader}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                worker.result()
            else:
                reader.result()
        except EndOfChat:
            return 0
        except AgentGoneError as error:
            await self._screen.line(failure_lines(error.brief, error.resolution), Style.FAILURE)
            return 1
        finally:
            worker.cancel()
            reader.cancel()
            await asyncio.gather(worker, reader, return_exceptions=True)
        return 0

    def _put_into_the_prompt(self, text: str) -> None:
        self._prompt.default_buffer.document = Document(text)
        self._screen.redraw()

    async def _read(self) -> None:
        leaving = False
        while True:
            try:
                line = (await self._prompt.prompt_async()).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                if self._job is not None:
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
                if self._job is not None:
                    await self._screen.activity(f"waiting: {one_line(line)}")

    async def _work(self) -> None:
        while True:
            line = await self._waiting.get()
            self._job = asyncio.create_task(self._do(line))
            try:
                await asyncio.wait({self._job})
                if self._job.cancelled():
                    await self._screen.line(failure_lines("cancelled", ""), Style.FAILURE)
                else:
                    self._job.result()
            finally:
                self._job.cancel()
                self._job, self._cancel_asked = None, False

    async def _do(self, line: str) -> None:
        await self._screen.line(f"> {neutralise(line)}", Style.PROMPT)
        try:
            if self._commands.recognises(line):
                await self._commands.run(line)
            else:
                await self._conversation.turn(line)
        except AgentGoneError:
            raise
        except WireError as error:
            await self._screen.line(failure_lines(error.brief, error.resolution), Style.FAILURE)
        await self._screen.line("")

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
