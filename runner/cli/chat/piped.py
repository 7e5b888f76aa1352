"""The chat without a terminal: reads turns from a pipe or a file, writes a transcript."""

import asyncio
import codecs
import os
from collections.abc import AsyncIterator

from wire.errors import WireError
from wire.limits import TURN_TEXT_MAX_CHARS

from runner.cli.chat.commands import EndOfChat, SlashCommands
from runner.cli.chat.conversation import AgentGoneError, Conversation
from runner.cli.chat.screen import PlainScreen, Style
from runner.cli.output import clip, failure_lines, neutralise

_READ_BYTES = 64 * 1024
_SHOWN_CHARS = 200
_TOO_LONG = f"the turn is longer than {TURN_TEXT_MAX_CHARS} characters and was not sent"
_NOT_TEXT = "the turn is not UTF-8 text and was not sent"


async def read_lines(fd: int) -> AsyncIterator[str]:
    """Yield the lines of `fd`, without line breaks; bytes that are not UTF-8 are lone surrogates.

    Reads only when the next line is asked for. A line far longer than the longest turn is cut, to a
    length that is still too long for a turn.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pending = ""
    while chunk := await _read(fd):
        *lines, pending = (pending + decoder.decode(chunk)).split("\n")
        pending = pending[: TURN_TEXT_MAX_CHARS + 1]
        for line in lines:
            yield line
    if rest := pending + decoder.decode(b"", final=True):
        yield rest


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:
        return os.read(fd, _READ_BYTES)  # a regular file: never blocks, cannot be polled
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _READ_BYTES)


async def run_piped(
    fd: int, conversation: Conversation, commands: SlashCommands, screen: PlainScreen
) -> int:
    """Handle every non-empty line in order. Returns 0 if all worked, 1 if anything failed."""
    failed = not await conversation.attach()
    async for line in read_lines(fd):
        text = line.strip()
        if not text:
            continue
        unfit = (_TOO_LONG, "send it in parts") if len(text) > TURN_TEXT_MAX_CHARS else ()
        if any("\ud800" <= each <= "\udfff" for each in text):
            unfit = (_NOT_TEXT, "iconv -t UTF-8")
        if unfit:
            failed = True
            await screen.line(clip(f"> {neutralise(text)}", _SHOWN_CHARS))
            await screen.line(failure_lines(*unfit) + "\n")
            continue
        await screen.line(f"> {neutralise(text)}", Style.PROMPT)
        try:
            run = commands.run if commands.recognises(text) else conversation.turn
            if not await run(text):
                failed = True
        except EndOfChat:
            break
        except WireError as error:
            failed = True
            await screen.line(conversation.failure(error.brief, error.resolution), Style.FAILURE)
            if isinstance(error, AgentGoneError):
                break
        await screen.line("")
    return int(failed)
