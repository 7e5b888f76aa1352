"""The Agent Client Protocol: an editor talks to a user's agent.

What an editor mentions is shown to the agent as text, and what the agent writes lies in the user's
workspace, or in the folder that the editor has open, where that is a project.
"""

import asyncio
import logging
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, Final

import acp
from acp import schema
from acp.helpers import SessionUpdate
from wire.errors import Code, WireError, in_a_line
from wire.v1 import gateway_pb2 as pb

from runner.client.changes import short, take_back, told
from runner.client.following import followed
from runner.client.gateway import GatewayClient, new_turn_id, wording
from runner.client.turn import ToolCall, TurnSoFar, error_of, files_of

log = logging.getLogger(__name__)

_KINDS: Final[dict[str, schema.ToolKind]] = {
    "file_read": "read",
    "file_list": "read",
    "file_search": "search",
    "file_write": "edit",
    "file_edit": "edit",
    "file_delete": "delete",
    "shell_exec": "execute",
    "memory_search": "search",
    "recall": "search",
    "search_memory": "search",
}
_CHANGING: Final = frozenset({"file_write", "file_edit", "file_delete"})
_TITLE_CHARS: Final = 120


class Updates:
    """The updates of one turn. Each call has an id of its own, whatever the model names it."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._turn = TurnSoFar()

    def of(self, event: pb.TurnEvent) -> Iterator[SessionUpdate]:
        """What the editor is told of `event`."""
        kind, call = event.WhichOneof("event"), self._turn.add(event)
        if kind == "text":
            yield acp.update_agent_message_text(event.text.text)
        elif kind == "notice":
            yield acp.update_agent_thought_text(event.notice.text)
        elif call is not None:
            yield self._started(call) if kind == "tool_started" else self._finished(call)
        elif kind == "receipt" and event.receipt.asked_by == "runtime":
            yield _by_itself(f"{self._turn_id}-{event.index}", event.receipt)

    def changed(
        self, change: pb.FileChange, below: str, diff: schema.FileEditToolCallContent
    ) -> SessionUpdate:
        """What the turn did to a file, which is `below` in its project: at the last call of a file
        tool that named it, or by itself."""
        for call in reversed(self._turn.calls if change.by_tool else []):
            named = call.started.tool in _CHANGING and posixpath.normpath(call.started.told)
            if named in (change.path, below):
                told = call.finished.output or call.finished.summary
                said = [acp.tool_content(acp.text_block(told))] if told else []
                return acp.update_tool_call(self._id(call), content=[*said, diff])
        return acp.start_tool_call(
            f"{self._turn_id}-{change.path}",
            f"changed {short(change.path)}"[:_TITLE_CHARS],
            kind="edit",
            status="completed",
            content=[diff],
        )

    def asked(self, approval: pb.ApprovalRequested) -> schema.ToolCallUpdate:
        """The call that a person is asked about: the one that began last, or the question that it
        led to."""
        begun = next(map(self._id, reversed(self._turn.running)), approval.approval_id)
        return schema.ToolCallUpdate(
            tool_call_id=approval.approval_id if approval.question else begun,
            title=" ⏎ ".join(line.strip() for line in wording(approval).split("\n")),
            kind="fetch" if approval.question else _KINDS.get(approval.tool, "other"),
            status="pending",
            content=[acp.tool_content(acp.text_block(_verbatim(wording(approval))))],
        )

    def _id(self, call: ToolCall) -> str:
        return f"{self._turn_id}-{call.index}" if call.index >= 0 else call.finished.call_id

    def _started(self, call: ToolCall) -> SessionUpdate:
        return acp.start_tool_call(
            self._id(call),
            _title(call.started),
            kind=_KINDS.get(call.started.tool, "other"),
            status="in_progress",
            raw_input=call.started.arguments_text,
        )

    def _finished(self, call: ToolCall) -> SessionUpdate:
        finished = call.finished
        told = finished.output or finished.summary
        return acp.update_tool_call(
            self._id(call),
            status="completed" if finished.ok else "failed",
            content=[acp.tool_content(acp.text_block(told))] if told else None,
        )


def of_history(history: pb.SessionHistory) -> Iterator[SessionUpdate]:
    """What was said in a session, as an editor that opens it is told."""
    for event in history.events:
        if event.role == "user":
            yield acp.update_user_message_text(event.text)
        elif event.role == "assistant" and event.text:
            yield acp.update_agent_message_text(event.text)
        elif event.role == "tool":
            line = event.text.split("\n", 1)[0][:_TITLE_CHARS]
            yield acp.start_tool_call(
                f"{event.turn_id}-{event.sequence}", line, kind="other", status="completed"
            )


def _by_itself(call_id: str, receipt: pb.MemoryReceipt) -> SessionUpdate:
    """What the runtime did to memory, without a call of the model."""
    done = receipt.outcome == "done"
    what = " → ".join(f'"{each}"' for each in receipt.words)
    title = f"memory: {receipt.action} {what} {receipt.note_id}".replace("  ", " ").rstrip()
    said = receipt.reason or ("found by meaning" if receipt.searchable == "semantic" else "")
    return acp.start_tool_call(
        call_id,
        title,
        kind="other",
        status="completed" if done else "failed",
        content=[acp.tool_content(acp.text_block(said))] if said else None,
    )


def _title(started: pb.ToolCallStarted) -> str:
    """A call in one line. A command is shown as it is."""
    if started.tool == "shell_exec" and started.told:
        return started.told
    return f"{started.tool} {started.told}".rstrip()[:_TITLE_CHARS]


def _verbatim(text: str) -> str:
    """`text` in Markdown that shows it as it is."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


_ENDS: Final = frozenset({"completed", "incomplete", "failed"})
_HISTORY_EVENTS: Final = 1_000
_DIFFS: Final = 50
_AFTER_ANSWER_S: Final = 0.1
_ALLOW: Final = "allow"
_OPTIONS: Final = [
    schema.PermissionOption(option_id=_ALLOW, name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id="refuse", name="Refuse", kind="reject_once"),
]
_STOP: Final[dict[str, schema.StopReason]] = {"length": "max_tokens", "filtered": "refusal"}
_UNDO: Final = schema.AvailableCommand(
    name="undo",
    description="Put back the files that the last turn changed",
    input=schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint="files")),
)
_NOT_SERVED: Final = "images and sounds reach the agent through its shared directory only"

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


class EditorAgent:
    """Serves one editor with the agent behind `gateway`.

    A session of the editor is a session of the agent. `open_folder` makes the directory that an
    editor names a project, and returns its name; without it the agent's tools see the user's
    workspace only. The editor's MCP servers are not used.
    """

    def __init__(
        self,
        gateway: GatewayClient,
        open_folder: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._gateway = gateway
        self._open_folder = open_folder
        self._running: dict[str, str] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._folders: dict[str, str] = {}
        self._editor: Any = None

    def on_connect(self, conn: acp.Client) -> None:
        self._editor = conn

    async def initialize(
        self,
        protocol_version: int,
        **_: Any,
    ) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_info=schema.Implementation(
                name="oxydra", title="Oxydra", version=version("oxydra")
            ),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(
                    embedded_context=True, image=False, audio=False
                ),
            ),
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, additional_directories: list[str] | None = None, **_: Any
    ) -> schema.NewSessionResponse:
        try:
            project = await self._project(cwd, additional_directories)
            created = await self._gateway.create_session(project=project)
        except WireError as error:
            raise _refused(error) from None
        if project:
            later = asyncio.create_task(self._offer(created.session_id, _AFTER_ANSWER_S))
            self._following[f"offer {created.session_id}"] = later
        return schema.NewSessionResponse(session_id=created.session_id)

    async def _offer(self, session_id: str, after_s: float = 0.0) -> None:
        """Name the commands; of a new session once the editor knows it."""
        await asyncio.sleep(after_s)
        offered = schema.AvailableCommandsUpdate(
            session_update="available_commands_update", available_commands=[_UNDO]
        )
        await self._editor.session_update(session_id, offered)

    async def _project(self, cwd: str, others: list[str] | None) -> str:
        """The name of the session's project; "" where folders are not opened."""
        if self._open_folder is None:
            return ""
        if others:
            raise WireError(
                Code.INVALID_ARGUMENT,
                "additional directories cannot be opened",
                resolution="open one folder in the editor, and further ones by: "
                "runner projects open DIR",
            )
        name = await self._open_folder(cwd)
        self._folders[name] = cwd.rstrip("/")
        return name

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> schema.LoadSessionResponse:
        """Tell what was said in a session. A turn that runs in it is followed from its start."""
        try:
            running = await self._gateway.list_turns(session_id, running_only=True)
            history = await self._gateway.get_session(session_id, _HISTORY_EVENTS)
            if project := await self._project(cwd, additional_directories):
                await self._gateway.create_session(session_id, project=project)
        except WireError as error:
            raise _refused(error) from None
        ids = {turn.turn_id for turn in running}
        shown = pb.SessionHistory(
            events=[e for e in history.events if e.turn_id not in ids or e.role == "user"]
        )
        for update in of_history(shown):
            await self._editor.session_update(session_id, update)
        for turn in running:
            self._running[session_id] = turn.turn_id
            following = asyncio.create_task(self._follow_running(session_id, turn.turn_id))
            self._following[session_id] = following
        if project:
            await self._offer(session_id)
        return schema.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Block], **_: Any) -> schema.PromptResponse:
        text, material = _read(prompt)
        if text.split()[:1] == [f"/{_UNDO.name}"]:
            return await self._undo(session_id)
        turn_id = new_turn_id()
        request = pb.StartTurnRequest(
            session_id=session_id, text=text, turn_id=turn_id, material=material
        )
        try:
            await self._gateway.start_turn(request)
            self._running[session_id] = turn_id
            return _ended(await self._follow(session_id, turn_id))
        except WireError as error:
            raise _refused(error) from None

    async def _undo(self, session_id: str) -> schema.PromptResponse:
        async def ask(question: str) -> bool:
            call = schema.ToolCallUpdate(
                tool_call_id=new_turn_id(),
                title="put back what others may have changed, too?",
                kind="edit",
                status="pending",
                content=[acp.tool_content(acp.text_block(_verbatim(question)))],
            )
            return await self._answer(session_id, call) > 0

        try:
            lines = await take_back(self._gateway, session_id, ask)
        except WireError as error:
            raise _refused(error) from None
        told = acp.update_agent_message_text(_verbatim("\n".join(lines) or "no file was put back"))
        await self._editor.session_update(session_id, told)
        return schema.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (turn_id := self._running.get(session_id)) is not None:
            await self._gateway.cancel_turn(turn_id)

    async def close(self) -> None:
        """The editor has left. Its turns go on."""
        for following in self._following.values():
            following.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def _follow_running(self, session_id: str, turn_id: str) -> None:
        try:
            await self._follow(session_id, turn_id)
        except WireError as error:
            lost = acp.update_agent_thought_text(str(error.brief))
            await self._editor.session_update(session_id, lost)
        finally:
            self._following.pop(session_id, None)

    async def _follow(self, session_id: str, turn_id: str) -> pb.TurnEvent:
        """Tell the editor what happens until the turn ends, and return how it ended."""
        updates = Updates(turn_id)
        questions: dict[str, asyncio.Task[None]] = {}
        try:
            events = followed(self._gateway, turn_id)
            async with aclosing(events):
                async for event in events:
                    for update in updates.of(event):
                        await self._editor.session_update(session_id, update)
                    if event.HasField("approval"):
                        asked = self._ask(session_id, event.approval, updates.asked(event.approval))
                        questions[event.approval.approval_id] = asyncio.create_task(asked)
                    elif event.HasField("decided"):
                        if (question := questions.pop(event.decided.approval_id, None)) is not None:
                            question.cancel()
                    elif event.WhichOneof("event") in _ENDS:
                        await self._show_changes(session_id, turn_id, updates, files_of(event))
                        return event
        finally:
            for question in questions.values():
                question.cancel()
            await asyncio.gather(*questions.values(), return_exceptions=True)
            if self._running.get(session_id) == turn_id:
                del self._running[session_id]
        raise WireError(Code.UNAVAILABLE, "the turn has ended without an outcome")

    async def _show_changes(
        self, session_id: str, turn_id: str, updates: Updates, files: pb.FileChanges | None
    ) -> None:
        """Show what a turn changed in folders of the editor."""
        if files is None:
            return
        if files.uncounted:
            why = acp.update_agent_thought_text(told(files))
            await self._editor.session_update(session_id, why)
        for change in files.changes[:_DIFFS]:
            name, _, below = change.path.removeprefix("/projects/").partition("/")
            if name not in self._folders or ".." in below.split("/"):
                continue
            if change.binary or change.kind == "mode":
                continue
            try:
                found = await self._gateway.turn_diff(session_id, turn_id, change.path)
            except WireError as error:
                log.info("the editor is not shown %s: %s", change.path, error)
                continue
            if found.cut:
                continue
            old = None if change.kind == "added" else found.before
            diff = acp.tool_diff_content(f"{self._folders[name]}/{below}", found.after, old)
            await self._editor.session_update(session_id, updates.changed(change, below, diff))

    async def _answer(
        self, session_id: str, call: schema.ToolCallUpdate, offers: Sequence[str] = ()
    ) -> int:
        """What the person answers, as `GatewayClient.decide` takes it."""
        always = [
            schema.PermissionOption(
                option_id=f"{_ALLOW}-{number}",
                name=f"In this session: {offer}",
                kind="allow_always",
            )
            for number, offer in enumerate(offers, 1)
        ]
        options = [_OPTIONS[0], *always, *_OPTIONS[1:]]
        answer = await self._editor.request_permission(session_id, call, options)
        yes = [_ALLOW, *(each.option_id for each in always)]
        chosen = getattr(answer.outcome, "option_id", None)
        return yes.index(chosen) + 1 if chosen in yes else 0

    async def _ask(
        self, session_id: str, approval: pb.ApprovalRequested, call: schema.ToolCallUpdate
    ) -> None:
        """Ask in the editor; whoever decides elsewhere first has decided."""
        answer = await self._answer(session_id, call, approval.offers)
        await self._gateway.decide(approval.approval_id, answer)


def _read(prompt: list[Block]) -> tuple[str, str]:
    """What the user has written, and what the editor has put to it. Raises `RequestError`."""
    said: list[str] = []
    material: list[str] = []
    for block in prompt:
        if isinstance(block, schema.TextContentBlock):
            said.append(block.text)
        elif isinstance(block, schema.ResourceContentBlock):
            said.append(f"[{block.name}]({block.uri})")
        elif isinstance(block, schema.EmbeddedResourceContentBlock) and isinstance(
            block.resource, schema.TextResourceContents
        ):
            said.append(f"[{block.resource.uri}]")
            material.append(f"{block.resource.uri}:\n{block.resource.text}")
        else:
            raise acp.RequestError(-32602, _NOT_SERVED)
    return "\n".join(said), "\n\n".join(material)


def _ended(event: pb.TurnEvent) -> schema.PromptResponse:
    """How a turn ended. Raises `RequestError` for one that failed."""
    if event.HasField("failed"):
        if event.failed.code == Code.CANCELLED:
            return schema.PromptResponse(stop_reason="cancelled")
        raise acp.RequestError(-32603, in_a_line(error_of(event.failed)))
    incomplete = event.HasField("incomplete")
    done = event.incomplete.so_far if incomplete else event.completed
    return schema.PromptResponse(
        stop_reason=_STOP.get(event.incomplete.reason, "end_turn") if incomplete else "end_turn",
        usage=schema.Usage(
            input_tokens=done.input_tokens,
            output_tokens=done.output_tokens,
            total_tokens=done.input_tokens + done.output_tokens,
            cached_read_tokens=done.cached_tokens,
        ),
    )


def _refused(error: WireError) -> acp.RequestError:
    code = -32002 if error.code is Code.NOT_FOUND else -32603
    return acp.RequestError(code, in_a_line(error))
