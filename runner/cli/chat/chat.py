"""`runner chat`: talk to the agent of one user."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final, TextIO

from prompt_toolkit.output.defaults import create_output
from wire.errors import Code
from wire.v1 import control_pb2

from runner.cli.agent import CHANNEL, connect_agent, connect_host, host_runs
from runner.cli.chat.commands import HostStatus, SlashCommands
from runner.cli.chat.conversation import RECONNECT_WITHIN_S, Connect, Conversation
from runner.cli.chat.piped import run_piped
from runner.cli.chat.screen import PlainScreen, say
from runner.cli.chat.terminal import TerminalChat, TerminalScreen, TypedAhead
from runner.cli.lifecycle import at_first_signal
from runner.cli.output import discard, model_name, one_line, plain_console
from runner.client.access import AccessFile
from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.errors import HostError
from runner.host.host import Host

_AGAIN: Final = "start the chat again"


async def talk(
    connect: Connect,
    host_status: HostStatus,
    *,
    session: str | None,
    stdin: TextIO,
    stdout: TextIO,
    stderr: TextIO,
    reconnect_within_s: float = RECONNECT_WITHIN_S,
) -> int:
    """Converse until the input ends or the user leaves. Returns the exit code.

    0: every turn completed. 1: a turn or a command failed, or the agent did not come back. If the
    reader of the output is gone (`| head`), the chat ends quietly. Raises `WireError` if there is
    no agent at the start.
    """
    on_a_terminal = stdin.isatty() and stdout.isatty()
    screen = (
        TerminalScreen(plain_console(file=stdout)) if on_a_terminal else PlainScreen(stdout, stderr)
    )
    try:
        async with Conversation(connect, screen, reconnect_within_s) as conversation:
            hello = conversation.client.hello
            await screen.status(
                f"Oxydra {one_line(hello.version)} · user {one_line(hello.user_id)} · "
                f"{one_line(hello.tier)} tier · {model_name(hello)}"
            )
            for notice in hello.notices:
                await screen.status(one_line(notice))
            if session:
                await conversation.resume_or_create(session)
                await screen.status(f"session {one_line(conversation.session_id)}")
            commands = SlashCommands(conversation, screen, host_status)
            if isinstance(screen, PlainScreen):
                return await run_piped(stdin.fileno(), conversation, commands, screen)
            await screen.status("/help lists the commands, Ctrl-D ends the chat")
            keys, output = TypedAhead(stdin), create_output(stdout)
            code = await TerminalChat(conversation, commands, screen, keys, output).run()
            if conversation.session_id:
                shown = one_line(conversation.session_id)
                await screen.status(f"to go on later: --session {shown}")
            return code
    except BrokenPipeError:
        if on_a_terminal:
            raise
        discard(stdout)
        return 0


async def chat(
    config: Config,
    user_id: str,
    *,
    session: str | None = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Chat until the input ends or the user leaves. Returns the exit code.

    0: every turn completed. 1: a turn or a command failed. 128 plus its number: a signal ended the
    chat. Raises `WireError` if no agent can be reached.
    """
    stdin, stdout, stderr = _streams(stdin, stdout, stderr)

    async def connect() -> GatewayClient:
        return await connect_agent(config, user_id, resolution=_AGAIN)

    async def host_status() -> control_pb2.StatusReply:
        async with await connect_host(config, user_id, resolution=_AGAIN) as control:
            return await control.status()

    async def run() -> int:
        async with AsyncExitStack() as stack:
            await _ensure_host(config, user_id, stack, stderr)
            return await talk(
                connect, host_status, session=session, stdin=stdin, stdout=stdout, stderr=stderr
            )

    return await _until_signalled(run())


async def chat_by_token(access: AccessFile, *, session: str | None = None) -> int:
    """Chat with the agent that an access file opens, in this terminal. Returns the same codes."""
    stdin, stdout, stderr = _streams()

    async def connect() -> GatewayClient:
        return await access.connect(channel_name=CHANNEL)

    async def host_status() -> control_pb2.StatusReply:
        raise HostError(
            Code.PERMISSION_DENIED,
            "the state of the host is for the account that runs it",
            resolution="ask the person who runs it",
        )

    await (await connect()).close()  # who cannot be reached at the start is not waited for
    return await _until_signalled(
        talk(connect, host_status, session=session, stdin=stdin, stdout=stdout, stderr=stderr)
    )


def _streams(
    stdin: TextIO | None = None, stdout: TextIO | None = None, stderr: TextIO | None = None
) -> tuple[TextIO, TextIO, TextIO]:
    found = stdin or sys.stdin, stdout or sys.stdout, stderr or sys.stderr
    if None in found:
        raise HostError(
            Code.INVALID_ARGUMENT,
            "standard input, output or error is closed",
            details="the chat reads turns from the first and writes to the others",
            resolution="run it in a terminal, or redirect from and to files or /dev/null",
        )
    return found


async def _until_signalled(chatting: Coroutine[Any, Any, int]) -> int:
    task = asyncio.current_task()
    assert task is not None
    # SIGINT belongs to the terminal's prompt or, elsewhere, to `asyncio.run`.
    with at_first_signal(task.cancel, (signal.SIGTERM, signal.SIGHUP)) as ended_by:
        try:
            return await chatting
        except asyncio.CancelledError:
            if ended_by:
                return 128 + ended_by[0]
            raise


async def _ensure_host(config: Config, user_id: str, stack: AsyncExitStack, stderr: TextIO) -> None:
    """Use the running host, or start one that lives as long as `stack`."""
    if await host_runs(config, user_id):
        return
    say(stderr, f"starting the agent of user {user_id} ...")
    try:
        host = await stack.enter_async_context(Host(config, user_id))
    except HostError as error:
        started_meanwhile = error.code is Code.ALREADY_EXISTS and await host_runs(config, user_id)
        if not started_meanwhile:
            raise
        return
    for notice in host.notices:
        say(stderr, one_line(notice))
