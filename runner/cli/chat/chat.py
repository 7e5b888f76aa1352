"""`runner chat`: talk to the agent of one user."""

import asyncio
import codecs
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from prompt_toolkit.output.defaults import create_output
from wire.errors import Code, WireError
from wire.limits import TURN_TEXT_MAX_CHARS
from wire.providers import PROVIDERS
from wire.v1 import control_pb2

from runner.cli.agent import connect_host, connecting, session_to_use
from runner.cli.chat.commands import EndOfChat, HostStatus, SlashCommands
from runner.cli.chat.conversation import AgentGoneError, Conversation
from runner.cli.chat.hosting import (
    Streams,
    standard_streams,
    until_signalled,
    with_host,
)
from runner.cli.chat.screen import Screen, Style, say
from runner.cli.chat.terminal import TerminalChat, TerminalScreen, TypedAhead
from runner.cli.notices import greeting_of
from runner.cli.operation.status import when_due
from runner.cli.options import Options
from runner.cli.output import (
    brief_session,
    clip,
    discard,
    failure_lines,
    model_name,
    neutralise,
    one_line,
    plain_console,
)
from runner.cli.projects import Folders, opened_first
from runner.client.following import RECONNECT_WITHIN_S, Connect
from runner.config.models import Config
from runner.errors import HostError
from runner.host.runtime import is_running

_AGAIN: Final = "start the chat again"


async def talk(
    connect: Connect,
    host_status: HostStatus,
    streams: Streams,
    *,
    session: str | None,
    last: bool = False,
    model: str = "",
    reconnect_within_s: float = RECONNECT_WITHIN_S,
    mended: Callable[[str], str] = str,
    agent_stays: bool = True,
    project: str = "",
    again: Callable[[str], str] = "runner chat --session {}".format,
) -> int:
    """Converse until the input ends or the user leaves. Returns the exit code.

    0: every turn completed. 1: a turn or a command failed, or the agent did not come back. If the
    reader of the output is gone (`| head`), the chat ends quietly. Raises `WireError` if there is
    no agent at the start. `again` is the command that goes on with a session; see `Conversation`.
    """
    stdin, stdout, stderr = streams
    on_a_terminal = stdin.isatty() and stdout.isatty()
    screen = TerminalScreen(plain_console(file=stdout)) if on_a_terminal else Screen(stdout, stderr)
    try:
        async with Conversation(
            connect, screen, reconnect_within_s, mended=mended, agent_stays=agent_stays
        ) as conversation:
            hello = conversation.client.hello
            greeting = (
                f"Oxydra {one_line(hello.version)} · user {one_line(hello.user_id)} · "
                f"{one_line(hello.tier)} tier · {model_name(hello)}"
            )
            await screen.status(f"{greeting} · /help" if on_a_terminal else greeting)
            if model:
                conversation.model = (await conversation.client.resolve_model(model)).model
            elif hello.provider in PROVIDERS and not PROVIDERS[hello.provider].needs_key:
                with suppress(WireError):  # the first turn says it
                    await conversation.client.resolve_model()  # asks the server for the window
                    hello = await conversation.client.refresh_hello()
            for notice in hello.notices:
                await screen.status(one_line(mended(notice)))
            with suppress(WireError):  # an older agent has none
                for line in await greeting_of(conversation.client):
                    await screen.status(line)
            conversation.project = project
            if session or last:
                found = await session_to_use(conversation.client, session, last=last)
                if project:
                    await conversation.client.create_session(found, project=project)
                await conversation.switch(found)
                await screen.status(f"session {brief_session(conversation.session_id)} goes on")
            commands = SlashCommands(conversation, screen, host_status)
            if not isinstance(screen, TerminalScreen):
                return await run_piped(stdin.fileno(), conversation, commands, screen)
            keys, output = TypedAhead(stdin), create_output(stdout)
            code = await TerminalChat(conversation, commands, screen, keys, output).run()
            await conversation.end_temporary()
            if conversation.session_id:
                shown = brief_session(conversation.session_id)
                await screen.status(f"to go on later: {again(shown)}")
            return code
    except BrokenPipeError:
        if on_a_terminal:
            raise
        discard(stdout)
        return 0


async def chat(
    options: Options,
    config: Config | None,
    *,
    session: str | None = None,
    last: bool = False,
    model: str = "",
    streams: Streams | None = None,
    folders: Folders = (),
) -> int:
    """Chat with the agent of `config`, or without one with the agent that the access file opens.

    Returns and raises as `talk` does; 128 plus its number: a signal ended the chat.
    """
    streams = streams or standard_streams()

    reach = connecting(options, config, resolution=_AGAIN)

    async def host_status() -> control_pb2.StatusReply:
        if config is None:
            raise HostError(
                Code.PERMISSION_DENIED,
                "the state of the host is for the account that runs it",
                resolution="ask the person who runs it",
            )
        async with await connect_host(config, options.user_id, resolution=_AGAIN) as control:
            return await control.status()

    async def talking(agent_stays: bool) -> int:
        if config is None:
            await (await reach()).close()  # who cannot be reached at the start is not waited for
        told = partial(say, streams.stderr)
        wait = streams.stdin.isatty()
        project = await opened_first(folders, config, options.user_id, told, wait=wait)
        return await talk(
            reach,
            host_status,
            streams,
            session=session,
            last=last,
            model=model,
            mended=options.mended_in_chat,
            agent_stays=agent_stays,
            project=project,
            again=partial(_again, options),
        )

    code = await until_signalled(with_host(config, options, talking, streams.stderr, folders))
    if config is None or is_running(config, options.user_id):
        return code
    if due := when_due(options, config):
        say(streams.stderr, one_line(due))
    return code


def _again(options: Options, session_id: str) -> str:
    """The command that goes on with a session, as this chat was started."""
    if how := os.environ.get("RUNNER_STARTED_BY"):  # `make run`
        return f'{how} ARGS="--session {session_id}"'
    return options.command("chat", "--session", session_id, insecure=options.insecure)


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
    fd: int, conversation: Conversation, commands: SlashCommands, screen: Screen
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
