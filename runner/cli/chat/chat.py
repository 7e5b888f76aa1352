"""`runner chat`: talk to the agent of one user."""

from collections.abc import Callable
from typing import Final, TextIO

from prompt_toolkit.output.defaults import create_output
from wire.errors import Code
from wire.v1 import control_pb2

from runner.cli.agent import connect_host
from runner.cli.chat.commands import HostStatus, SlashCommands
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.hosting import (
    Streams,
    connection,
    standard_streams,
    until_signalled,
    with_host,
)
from runner.cli.chat.piped import run_piped
from runner.cli.chat.screen import PlainScreen
from runner.cli.chat.terminal import TerminalChat, TerminalScreen, TypedAhead
from runner.cli.options import Options
from runner.cli.output import discard, model_name, one_line, plain_console
from runner.client.following import RECONNECT_WITHIN_S, Connect
from runner.config.models import Config
from runner.errors import HostError

_AGAIN: Final = "start the chat again"


async def talk(
    connect: Connect,
    host_status: HostStatus,
    *,
    session: str | None,
    last: bool = False,
    model: str = "",
    stdin: TextIO,
    stdout: TextIO,
    stderr: TextIO,
    reconnect_within_s: float = RECONNECT_WITHIN_S,
    mended: Callable[[str], str] = str,
    agent_stays: bool = True,
) -> int:
    """Converse until the input ends or the user leaves. Returns the exit code.

    0: every turn completed. 1: a turn or a command failed, or the agent did not come back. If the
    reader of the output is gone (`| head`), the chat ends quietly. Raises `WireError` if there is
    no agent at the start. `mended` makes fixes name whose agent they are for; `agent_stays` says
    whether the agent outlives the chat.
    """
    on_a_terminal = stdin.isatty() and stdout.isatty()
    screen = (
        TerminalScreen(plain_console(file=stdout)) if on_a_terminal else PlainScreen(stdout, stderr)
    )
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
            for notice in hello.notices:
                await screen.status(one_line(notice))
            if model:
                conversation.model = (await conversation.client.resolve_model(model)).model
            if session or last:
                await conversation.resume_or_create(session, last=last)
                await screen.status(f"session {one_line(conversation.session_id)}")
            commands = SlashCommands(conversation, screen, host_status)
            if isinstance(screen, PlainScreen):
                return await run_piped(stdin.fileno(), conversation, commands, screen)
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
    options: Options,
    config: Config | None,
    *,
    session: str | None = None,
    last: bool = False,
    model: str = "",
    streams: Streams | None = None,
) -> int:
    """Chat until the input ends or the user leaves: with the agent of `config`, or without one with
    the agent that the access file opens. Returns the exit code.

    0: every turn completed. 1: a turn or a command failed. 128 plus its number: a signal ended the
    chat. Raises `WireError` if no agent can be reached.
    """
    streams = streams or standard_streams()

    async def converse(
        connect: Connect, host_status: HostStatus, *, agent_stays: bool = True
    ) -> int:
        return await talk(
            connect,
            host_status,
            session=session,
            last=last,
            model=model,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            mended=options.mended,
            agent_stays=agent_stays,
        )

    if config is None:
        connect = connection(options, None)
        await (await connect()).close()  # who cannot be reached at the start is not waited for
        return await until_signalled(converse(connect, _status_of_others))

    async def host_status() -> control_pb2.StatusReply:
        async with await connect_host(config, options.user_id, resolution=_AGAIN) as control:
            return await control.status()

    async def talking(agent_stays: bool) -> int:
        connect = connection(options, config, resolution=_AGAIN)
        return await converse(connect, host_status, agent_stays=agent_stays)

    return await until_signalled(with_host(config, options.user_id, talking, streams.stderr))


async def _status_of_others() -> control_pb2.StatusReply:
    raise HostError(
        Code.PERMISSION_DENIED,
        "the state of the host is for the account that runs it",
        resolution="ask the person who runs it",
    )
