"""One chat from greeting to farewell, on whatever standard input and output are."""

from typing import TextIO

from prompt_toolkit.output.defaults import create_output

from runner.cli.conversation import Connect, Conversation
from runner.cli.piped import run_piped
from runner.cli.render import model_name, one_line, plain_console
from runner.cli.screen import PlainScreen, Screen, discard
from runner.cli.slash import HostStatus, SlashCommands
from runner.cli.terminal import TerminalChat, TerminalScreen, TypedAhead


async def talk(
    connect: Connect,
    host_status: HostStatus,
    *,
    session: str | None,
    stdin: TextIO,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    """Converse until the input ends or the user leaves; the exit code.

    0: every turn completed. 1: a turn or a command failed, or the agent did not
    come back. A reader that closes our output early (`| head`) ends the chat
    quietly. Raises `WireError` where there is no agent to begin with.
    """
    if stdin.isatty() and stdout.isatty():
        return await _in_terminal(connect, host_status, session, stdin, stdout)
    plain = PlainScreen(stdout, stderr)
    try:
        return await _piped(connect, host_status, session, stdin.fileno(), plain)
    except BrokenPipeError:
        discard(stdout)
        return 0


async def _in_terminal(
    connect: Connect,
    host_status: HostStatus,
    session: str | None,
    stdin: TextIO,
    stdout: TextIO,
) -> int:
    screen = TerminalScreen(plain_console(file=stdout))
    async with Conversation(connect, screen) as conversation:
        await _begin(conversation, screen, session)
        await screen.status("/help lists the commands, Ctrl-D ends the chat")
        commands = SlashCommands(conversation, screen, host_status)
        chat = TerminalChat(
            conversation, commands, screen, TypedAhead(stdin), create_output(stdout)
        )
        code = await chat.run()
        if conversation.session_id:
            shown = one_line(conversation.session_id)
            await screen.status(f"to go on later: --session {shown}")
        return code


async def _piped(
    connect: Connect, host_status: HostStatus, session: str | None, fd: int, screen: PlainScreen
) -> int:
    async with Conversation(connect, screen) as conversation:
        await _begin(conversation, screen, session)
        commands = SlashCommands(conversation, screen, host_status)
        return await run_piped(fd, conversation, commands, screen)


async def _begin(conversation: Conversation, screen: Screen, session: str | None) -> None:
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
