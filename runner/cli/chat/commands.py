"""The commands of the chat, such as `/new` and `/sessions`, typed or piped."""

import difflib
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from wire.errors import Code, WireError
from wire.v1 import control_pb2, gateway_pb2

from runner.cli.agent import find_session
from runner.cli.approvals import NONE as NOTHING
from runner.cli.approvals import withdrawn
from runner.cli.chat.calls import files_line, in_full, show_receipts
from runner.cli.chat.context import context, why
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.screen import Screen, Style
from runner.cli.memory.output import HITS
from runner.cli.notices import NOTICES, NOTICES_MAX
from runner.cli.output import (
    Rows,
    brief_session,
    clip,
    lately,
    neutralise,
    one_line,
    session_shape,
    status_table,
    table_of,
)
from runner.cli.projects import NONE, PROJECTS
from runner.cli.skills import NONE as NO_SKILLS
from runner.cli.turns import TURNS, tree
from runner.cli.usage import overview
from runner.client.attachments import attach
from runner.client.changes import names, take_back

HostStatus = Callable[[], Awaitable[control_pb2.StatusReply]]

_LISTED_SESSIONS = 50
_FOUND_NOTES = 10
_LISTED_TURNS = 20
_EVENTS = 200
_SAID_CELLS = 60
_DIFF_LINES = 400
_NO_CHANGE = "nothing that was saved or changed in this session can be undone"
_TEMPORARY = (
    "temporary: it reads what is remembered, changes nothing, and is erased at its end; /temporary "
    "again ends it"
)
_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)


_ALONE: Final = frozenset({"temporary", "edit", "details", "cancel", "help", "quit"})
"""Commands that do not wait for an agent which went away."""


class EndOfChat(Exception):  # noqa: N818 - not an error
    """The user wants to leave."""


@dataclass(frozen=True)
class Chat:
    conversation: Conversation
    screen: Screen
    host_status: HostStatus


Run = Callable[[Chat, str], Awaitable[bool | None]]
"""Runs a command with what was typed after its name. False: it ran a turn, which failed and was
shown. Raises `WireError` for any other failure."""


@dataclass(frozen=True)
class Command:
    usage: str
    help: str
    run: Run


async def _new(chat: Chat, title: str) -> None:
    session = await chat.conversation.new_session(title)
    shown = f"session {brief_session(session.session_id)}"
    await chat.screen.line(f"{shown}: {one_line(title)}" if title else shown, Style.NOTICE)


async def _sessions(chat: Chat, _: str) -> None:
    sessions = await chat.conversation.client.list_sessions(_LISTED_SESSIONS)
    if sessions:
        shape = session_shape(chat.conversation.session_id, brief=True)
        await chat.screen.table(shape.table(sessions))
    else:
        await chat.screen.line("no sessions yet", Style.NOTICE)


async def _switch(chat: Chat, session_id: str) -> bool:
    if not session_id:
        raise WireError(Code.INVALID_ARGUMENT, "/switch needs a session id", resolution="/sessions")
    try:
        session_id = await find_session(chat.conversation.client, session_id)
    except WireError as error:
        error.resolution = error.resolution.replace("runner sessions list --all", "/sessions")
        raise
    await chat.conversation.switch(session_id)
    await chat.screen.line(f"session {brief_session(session_id)}", Style.NOTICE)
    return await chat.conversation.attach()


async def _turns(chat: Chat, _: str) -> None:
    conversation = chat.conversation
    turns = await conversation.client.list_turns()
    if not turns:
        await chat.screen.line("no turns yet", Style.NOTICE)
        return
    rows = [
        ("*" if turn.session_id == conversation.session_id else "", *TURNS.row(turn))
        for turn in tree(turns)[:_LISTED_TURNS]
    ]
    table = table_of(" ", *TURNS.columns, rows=rows)
    for column, cells in zip(table.columns, zip(*rows, strict=True), strict=True):
        column.no_wrap, column.overflow = True, "ellipsis"
        column.min_width = max(cell_len(str(each)) for each in (column.header, *cells))
    table.columns[-1].min_width = None
    await chat.screen.table(table)


async def _why(chat: Chat, argument: str) -> None:
    await why(chat.conversation, chat.screen, argument)


async def _context(chat: Chat, _: str) -> None:
    await context(chat.conversation, chat.screen)


async def _temporary(chat: Chat, _: str) -> None:
    conversation = chat.conversation
    if conversation.temporary:
        await conversation.end_temporary()
        if conversation.session_id:
            goes_on = f"session {brief_session(conversation.session_id)} goes on"
            await chat.screen.line(goes_on, Style.NOTICE)
        return
    await conversation.begin_temporary()
    await chat.screen.line(_TEMPORARY, Style.NOTICE)


async def _attach(chat: Chat, file: str) -> None:
    if not file:
        raise WireError(Code.INVALID_ARGUMENT, "/attach needs a file", resolution="/attach FILE")
    path = await attach(chat.conversation.client, Path(file.strip("'\"")))
    chat.conversation.attachments.append(path)
    await chat.screen.line(f"{one_line(path)} goes with your next message", Style.NOTICE)


async def _retry(chat: Chat, _: str) -> bool:
    if not chat.conversation.session_id:
        raise WireError(Code.FAILED_PRECONDITION, "there is no turn to try again yet")
    return await chat.conversation.turn("", retry=True)


async def _diff(chat: Chat, path: str) -> None:
    """Show what the last turn that changed files did there, of one file where `path` names it."""
    client, session_id = chat.conversation.client, _begun(chat)
    found = await client.turn_diff(session_id)
    await _of_turn(chat, found.turn_id)
    if path:
        paths = [each.path for each in found.files.changes if f"/{each.path}".endswith(f"/{path}")]
        if len(paths) != 1:
            which = names(paths or [each.path for each in found.files.changes], 0)
            raise WireError(
                Code.INVALID_ARGUMENT,
                f"{'several have that name' if paths else 'no such file changed, but'}: {which}",
                resolution="/diff PATH, as the receipt names it",
            )
        found = await client.turn_diff(session_id, found.turn_id, paths[0])
    lines = neutralise(found.diff.rstrip("\n")).split("\n")
    await chat.screen.diff("\n".join(lines[:_DIFF_LINES]))
    more = len(lines) - _DIFF_LINES
    if more > 0 or found.cut:
        told = f"… {more:,} more lines" if more > 0 and not found.cut else "… more lines"
        await chat.screen.line(f"{told}: /diff PATH shows one file", Style.NOTICE)
    if line := files_line(found.files):
        await chat.screen.line(f"{line}; /undo files takes it back", Style.RECEIPT)
    if found.files.ignored:
        told = "what git ignores is counted only where a file tool changed it"
        await chat.screen.line(told, Style.NOTICE)


async def _undo_files(chat: Chat) -> None:
    restored = await take_back(chat.conversation.client, _begun(chat), chat.screen.ask)
    for line in restored:
        await chat.screen.line(f"✓ {line}", Style.RECEIPT)
    told = "/undo files once more takes that back" if restored else "○ no file was put back"
    await chat.screen.line(told, Style.NOTICE)


def _begun(chat: Chat) -> str:
    if not (session_id := chat.conversation.session_id):
        raise WireError(Code.FAILED_PRECONDITION, "there is no turn in this session yet")
    return session_id


async def _of_turn(chat: Chat, turn_id: str) -> None:
    """Say of which turn something is shown."""
    past = await chat.conversation.client.get_session(chat.conversation.session_id, _EVENTS)
    said = [one_line(e.text) for e in past.events if (e.turn_id, e.role) == (turn_id, "user")]
    turn = f"the turn {clip('> ' + ''.join(said), _SAID_CELLS)}" if said else "what /undo files did"
    await chat.screen.status(f"of {turn}")


async def _undo(chat: Chat, what: str) -> None:
    """Undo each change of the last turn that made one, the last one first. A note that the turn
    saved is forgotten; one that somebody has changed since stays as it is."""
    if what:
        if what != "files":
            raise WireError(
                Code.INVALID_ARGUMENT, f"/undo {what[:20]} is not known", resolution="/undo files"
            )
        await _undo_files(chat)
        return
    conversation, client = chat.conversation, chat.conversation.client
    session_id, undone = conversation.session_id, conversation.undone
    past = await client.get_session(session_id, _EVENTS) if session_id else None
    receipts = past.receipts if past else ()
    done = [each for each in receipts if each.outcome == "done" and each.turn_id not in undone]
    changed = past is not None and any(each.files.files for each in past.files)
    if past is None or not done:
        fix = "/undo files takes back changes to files" if changed else "runner memory history"
        raise WireError(Code.FAILED_PRECONDITION, _NO_CHANGE, resolution=fix)
    turn_id = done[-1].turn_id
    await _of_turn(chat, turn_id)
    versions: dict[str, int] = {}  # of the notes that were undone already
    shown = []
    for change in reversed([each for each in done if each.turn_id == turn_id]):
        told = gateway_pb2.MemoryReceipt(action="undone", outcome="failed", note_id=change.note_id)
        try:
            note = await client.get_note(change.note_id) if change.action != "deleted" else None
            told.reason = _refusal(note, change, versions.get(change.note_id, 0))
            if note is not None and not told.reason:
                reply = await client.undo_change(change.note_id, note.version, may_forget=True)
                versions[change.note_id] = told.version = reply.note.version
                told.action = "deleted" if reply.done == "forgotten" else "restored"
                told.outcome, told.words[:] = "done", [reply.note.text or note.text]
                undone.add(change.turn_id)
        except WireError as error:
            told.reason = error.brief
        shown.append(told)
    await show_receipts(chat.screen, shown)
    if changed:
        await chat.screen.line("/undo files takes back changes to files", Style.NOTICE)


def _refusal(note: gateway_pb2.Note | None, change: gateway_pb2.MemoryReceipt, undone: int) -> str:
    """Why a change is not undone; empty where its turn has left the note as it is."""
    if note is None:
        return "a deletion is final"
    if note.superseded != (change.action == "superseded"):
        return "it was changed since"
    if note.superseded or note.version == undone:
        return ""
    if note.version != change.version:
        return f"it was changed since, and has version {note.version} now"
    return "" if note.origin.turn_id == change.turn_id else "the note was there before that turn"


async def _tools(chat: Chat, _: str) -> None:
    offered = await chat.conversation.client.list_tools()
    if not offered:
        await chat.screen.line("the model is offered no tools", Style.NOTICE)
        return
    rows = [
        (one_line(tool.name), tool.safety.replace("_", " "), _first_sentence(tool.description))
        for tool in offered
    ]
    await chat.screen.table(table_of("tool", "safety", "what it does", rows=rows))
    for notice in (await chat.conversation.client.refresh_hello()).notices:
        if notice.startswith("small profile"):
            await chat.screen.line(one_line(notice), Style.NOTICE)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", one_line(text), maxsplit=1)[0]


async def _details(chat: Chat, _: str) -> None:
    shown = [in_full(call, chat.screen.width) for call in chat.conversation.last_turn.calls]
    await chat.screen.line("\n".join(shown) or "no tool was called in the last turn")


async def _memory(chat: Chat, query: str) -> None:
    if not query:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "/memory needs words to look for",
            resolution="/memory WORDS; `runner memory list` lists all notes",
        )
    reply = await chat.conversation.client.search_notes(
        gateway_pb2.SearchNotesRequest(query=query, top_k=_FOUND_NOTES, read_time=True)
    )
    if reply.period:
        await chat.screen.status(f"{reply.period}; words in quotation marks are no time")
    for warning in reply.warnings:
        await chat.screen.status(f"warning: {one_line(warning)}")
    if reply.notes:
        await chat.screen.table(Rows(HITS, reply.notes))
        if reply.next_cursor:
            following = shlex.join((*query.split(), f"--cursor={reply.next_cursor}"))
            hint = f"there is more: runner memory search {following}"
            await chat.screen.status(chat.conversation.mended(hint))
    else:
        await chat.screen.line("nothing found", Style.NOTICE)


async def _edit(chat: Chat, _: str) -> None:
    if not (last := chat.conversation.last_message):
        raise WireError(Code.FAILED_PRECONDITION, "there is no message to edit yet")
    if not await chat.screen.offer(last):
        raise WireError(
            Code.FAILED_PRECONDITION,
            "/edit needs a terminal",
            resolution="send the message again, changed",
        )


async def _model(chat: Chat, name: str) -> None:
    conversation = chat.conversation
    found = await conversation.client.resolve_model(name or conversation.model)
    if name:
        conversation.model = found.model
        await chat.screen.line(f"{one_line(found.model)} answers from now on", Style.NOTICE)
        return
    lines = [f"{one_line(found.model)} answers; configured is {one_line(found.configured)}"]
    for provider in found.providers:
        if not provider.unusable:
            choice = "offline" if provider.name == "offline" else f"{provider.name}:MODEL"
            lines.append(f"  /model {one_line(choice)}")
    if absent := [one_line(each.name) for each in found.providers if each.unusable]:
        lines.append(f"not set up: {', '.join(absent)}")
    await chat.screen.line("\n".join(lines))


async def _projects(chat: Chat, _: str) -> None:
    found = (await chat.host_status()).projects
    if not found:
        await chat.screen.line(chat.conversation.mended(NONE), Style.NOTICE)
        return
    await chat.screen.table(PROJECTS.table(found))
    taken_away = chat.conversation.mended("to take one away: runner projects close NAME")
    await chat.screen.line(taken_away, Style.NOTICE)


async def _skills(chat: Chat, _: str) -> None:
    if found := (await chat.host_status()).skills:
        rows = [(one_line(each.name), _first_sentence(each.description)) for each in found]
        await chat.screen.table(table_of("skill", "what it is for", rows=rows))
    else:
        await chat.screen.line(chat.conversation.mended(NO_SKILLS), Style.NOTICE)


async def _notices(chat: Chat, _: str) -> None:
    found = (await chat.conversation.client.notices(NOTICES_MAX)).notices
    if not found:
        await chat.screen.line("nothing is unread", Style.NOTICE)
        return
    await chat.screen.table(NOTICES.table(found))
    await chat.conversation.client.mark_notices(read_up_to=found[0].number)


async def _approvals(chat: Chat, grant: str) -> None:
    conversation = chat.conversation
    if grant:
        done = await withdrawn(conversation.client, grant)
        await chat.screen.line(f"withdrawn: {one_line(done.text)}", Style.NOTICE)
    elif conversation.session_id and (
        found := await conversation.client.list_grants(conversation.session_id)
    ):
        for each in found:
            given = f"{one_line(each.grant_id)}  {lately(each.given_at)}  {one_line(each.text)}"
            await chat.screen.line(given)
        await chat.screen.line("to withdraw one: /approvals ID", Style.NOTICE)
    else:
        await chat.screen.line(f"{NOTHING} in this session", Style.NOTICE)


async def _usage(chat: Chat, _: str) -> None:
    table, notes = await overview(chat.conversation.client, chat.conversation.session_id)
    await chat.screen.table(table)
    for note in notes:
        await chat.screen.line(note, Style.NOTICE)


async def _cancel(chat: Chat, _: str) -> None:
    if not await chat.conversation.cancel():
        await chat.screen.line("no turn is running", Style.NOTICE)


async def _status(chat: Chat, _: str) -> None:
    conversation = chat.conversation
    host = await chat.host_status()
    with suppress(WireError):  # what it said last is shown
        await conversation.client.refresh_hello()
    hello = conversation.client.hello
    await chat.screen.table(status_table(hello, host, conversation.session_id))
    for notice in hello.notices:
        if notice.startswith("background command"):
            await chat.screen.line(one_line(notice), Style.NOTICE)


async def _help(chat: Chat, _: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = (f"{command.usage:<{width}}  {command.help}" for command in COMMANDS.values())
    await chat.screen.line("\n".join(lines))


async def _quit(_: Chat, __: str) -> None:
    raise EndOfChat


COMMANDS: Final[Mapping[str, Command]] = {
    "new": Command("/new [title]", "begin a new session", _new),
    "sessions": Command("/sessions", "list your sessions", _sessions),
    "switch": Command("/switch ID", "go on in another session", _switch),
    "turns": Command("/turns", "list what runs, and what has run lately", _turns),
    "why": Command("/why", "which notes the last answer had; corrects one that is wrong", _why),
    "context": Command("/context", "what the last request took of the model's window", _context),
    "temporary": Command("/temporary", "begin a chat that is erased, or end it", _temporary),
    "attach": Command("/attach FILE", "send a file with your next message", _attach),
    "edit": Command("/edit", "change your last message and send it again", _edit),
    "retry": Command("/retry", "go on with a cut answer, or ask the last message again", _retry),
    "diff": Command("/diff [PATH]", "show what the last turn that changed your files did", _diff),
    "undo": Command(
        "/undo [files]", "take back what the last turn did to memory, or to your files", _undo
    ),
    "details": Command("/details", "show the last turn's tool calls in full", _details),
    "tools": Command("/tools", "list the model's tools", _tools),
    "memory": Command("/memory WORDS", "find notes", _memory),
    "projects": Command("/projects", "list the directories of yours that it sees", _projects),
    "skills": Command("/skills", "list the skills that it has", _skills),
    "approvals": Command("/approvals [ID]", "what you allowed here, or withdraw it", _approvals),
    "model": Command("/model [NAME]", "show which model answers, or choose another", _model),
    "notices": Command("/notices", "what is to be told, and is read now", _notices),
    "usage": Command("/usage", "what your requests took, and budgets", _usage),
    "cancel": Command("/cancel", "cancel the running turn (also Ctrl-C)", _cancel),
    "status": Command("/status", "what this chat runs on", _status),
    "help": Command("/help", "this list", _help),
    "quit": Command("/quit", "end the chat (also Ctrl-D)", _quit),
}
"""Every command by its name, in the order of `/help`."""


class SlashCommands:
    """Runs one command line. The reader of the input handles `/cancel` and `/quit`."""

    def __init__(self, conversation: Conversation, screen: Screen, host_status: HostStatus) -> None:
        self._chat = Chat(conversation, screen, host_status)

    @property
    def names(self) -> list[str]:
        """Every command as typed, for completion."""
        return [*(f"/{name}" for name in COMMANDS), "/undo files"]

    @staticmethod
    def recognises(line: str) -> bool:
        """Whether `line` is a command. A path such as `/shared/a.txt` is not."""
        return _COMMAND.fullmatch(line) is not None

    async def run(self, line: str) -> bool:
        """Run a line that `recognises` accepts. False if it ran a turn that failed.

        Raises `WireError` if it fails otherwise.
        """
        matched = _COMMAND.fullmatch(line)
        assert matched is not None
        name, argument = matched[1].lower(), (matched[2] or "").strip()
        if (command := COMMANDS.get(name)) is None:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            meant = f"did you mean /{near[0]}? " if near else ""
            raise WireError(
                Code.INVALID_ARGUMENT,
                f"unknown command /{name}",
                resolution=f"{meant}/help lists all commands",
            )
        if name not in _ALONE:
            await self._chat.conversation.ensure_connected()
        return await command.run(self._chat, argument) is not False
