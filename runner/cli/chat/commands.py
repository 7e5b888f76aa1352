"""The commands of the chat, such as `/new` and `/sessions`, typed or piped."""

import difflib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wire.errors import Code, WireError
from wire.v1 import control_pb2, gateway_pb2

from runner.cli.agent import find_session
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.screen import Screen, Style
from runner.cli.memory.output import note_rows
from runner.cli.output import one_line, session_table, status_table

HostStatus = Callable[[], Awaitable[control_pb2.StatusReply]]
"""Returns the state of the host and its guests."""

_LISTED_SESSIONS = 50
_FOUND_NOTES = 10
_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True)
class _Command:
    usage: str
    help: str
    run: Callable[[str], Awaitable[None]]


class SlashCommands:
    """Runs one command line. The reader of the input handles `/cancel` and `/quit`."""

    def __init__(self, conversation: Conversation, screen: Screen, host_status: HostStatus) -> None:
        self._conversation = conversation
        self._screen = screen
        self._host_status = host_status
        self._commands = {
            "new": _Command("/new [title]", "begin a new session", self._new),
            "sessions": _Command("/sessions", "list your sessions", self._sessions),
            "switch": _Command("/switch ID", "go on in another session", self._switch),
            "memory": _Command("/memory WORDS", "find notes", self._memory),
            "cancel": _Command("/cancel", "cancel the running turn (also Ctrl-C)", self._cancel),
            "status": _Command("/status", "what this chat runs on", self._status),
            "help": _Command("/help", "this list", self._help),
            "quit": _Command("/quit", "end the chat (also Ctrl-D)", self._quit),
        }

    @property
    def names(self) -> list[str]:
        """Every command as typed, for completion."""
        return [f"/{name}" for name in self._commands]

    @staticmethod
    def recognises(line: str) -> bool:
        """Whether `line` is a command. A path such as `/shared/a.txt` is not."""
        return _COMMAND.fullmatch(line) is not None

    async def run(self, line: str) -> None:
        """Run a line that `recognises` accepts. Raises `WireError` if it fails."""
        matched = _COMMAND.fullmatch(line)
        assert matched is not None
        name, argument = matched[1].lower(), (matched[2] or "").strip()
        command = self._commands.get(name)
        if command is None:
            near = difflib.get_close_matches(name, self._commands, n=1)
            meant = f"did you mean /{near[0]}? " if near else ""
            raise WireError(
                Code.INVALID_ARGUMENT,
                f"unknown command /{name}",
                resolution=f"{meant}/help lists all commands",
            )
        await command.run(argument)

    async def _new(self, title: str) -> None:
        await self._conversation.ensure_connected()
        session = await self._conversation.new_session(title)
        shown = f"session {one_line(session.session_id)}"
        await self._screen.line(f"{shown}: {one_line(title)}" if title else shown, Style.NOTICE)

    async def _sessions(self, _: str) -> None:
        await self._conversation.ensure_connected()
        sessions = await self._conversation.client.list_sessions(_LISTED_SESSIONS)
        if sessions:
            await self._screen.table(session_table(sessions, self._conversation.session_id))
        else:
            await self._screen.line("no sessions yet", Style.NOTICE)

    async def _switch(self, session_id: str) -> None:
        if not session_id:
            raise WireError(
                Code.INVALID_ARGUMENT, "/switch needs a session id", resolution="/sessions"
            )
        await self._conversation.ensure_connected()
        session_id = await find_session(self._conversation.client, session_id)
        await self._conversation.switch(session_id)
        await self._screen.line(f"session {one_line(session_id)}", Style.NOTICE)

    async def _memory(self, query: str) -> None:
        if not query:
            raise WireError(
                Code.INVALID_ARGUMENT,
                "/memory needs words to look for",
                resolution="/memory WORDS; `runner memory list` lists all notes",
            )
        await self._conversation.ensure_connected()
        reply = await self._conversation.client.search_notes(
            gateway_pb2.SearchNotesRequest(query=query, top_k=_FOUND_NOTES)
        )
        for warning in reply.warnings:
            await self._screen.status(f"warning: {one_line(warning)}")
        if reply.notes:
            await self._screen.table(note_rows(reply.notes, scores=True))
        else:
            await self._screen.line("nothing found", Style.NOTICE)

    async def _cancel(self, _: str) -> None:
        if not await self._conversation.cancel():
            await self._screen.line("no turn is running", Style.NOTICE)

    async def _status(self, _: str) -> None:
        await self._conversation.ensure_connected()
        table = status_table(
            self._conversation.client.hello,
            await self._host_status(),
            self._conversation.session_id,
        )
        await self._screen.table(table)

    async def _help(self, _: str) -> None:
        width = max(len(command.usage) for command in self._commands.values())
        lines = (f"{command.usage:<{width}}  {command.help}" for command in self._commands.values())
        await self._screen.line("\n".join(lines))

    async def _quit(self, _: str) -> None:
        raise EndOfChat


class EndOfChat(Exception):  # noqa: N818 - not an error
    """The user wants to leave."""
