"""One user's gateway for the tests of surfaces: real gRPC, scripted turns, notes in memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from wire.errors import Code, WireError
from wire.identity import Party, Peer
from wire.transport import Server, new_token
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from guest.agent import failures
from guest.gateway.turns.events import EventLog
from guest.gateway.turns.records import state_of
from guest.tools.arguments import asked_text
from tests.support import parties

OUTCOMES = (gateway_pb2.TurnCompleted, gateway_pb2.TurnIncomplete, gateway_pb2.TurnFailed)
Change = gateway_pb2.Change
Event = gateway_pb2.TurnEvent
Note = gateway_pb2.Note
Origin = gateway_pb2.NoteOrigin
Script = Callable[["FakeGateway", gateway_pb2.StartTurnRequest], AsyncIterator[Event]]


def text(delta: str) -> Event:
    return Event(text=gateway_pb2.TextDelta(text=delta))


def completed(
    whole: str = "",
    *receipts: gateway_pb2.MemoryReceipt,
    files: gateway_pb2.FileChanges | None = None,
) -> Event:
    return Event(completed=gateway_pb2.TurnCompleted(text=whole, receipts=receipts, files=files))


def failed(message: str, resolution: str = "", code: str = "internal", details: str = "") -> Event:
    ended = gateway_pb2.TurnFailed(
        code=code, message=message, resolution=resolution, details=details
    )
    return Event(failed=ended)


def tool(name: str, summary: str, ok: bool = True) -> tuple[Event, Event]:
    return (
        Event(tool_started=gateway_pb2.ToolCallStarted(call_id="c", tool=name)),
        Event(
            tool_finished=gateway_pb2.ToolCallFinished(
                call_id="c", tool=name, ok=ok, summary=summary
            )
        ),
    )


LIVE = "live"
"""The id of a turn of which nothing is kept: whoever follows it plays the script, and ends it by
leaving."""


def says(*events: Event) -> "Script":
    """A script of every turn."""

    async def script(_: "FakeGateway", __: gateway_pb2.StartTurnRequest) -> AsyncIterator[Event]:
        for event in events:
            yield event

    return script


async def echo(
    gateway: "FakeGateway", request: gateway_pb2.StartTurnRequest
) -> AsyncIterator[Event]:
    """Answers in two deltas."""
    yield text("you said: ")
    yield text(request.text)
    yield completed(f"you said: {request.text}")


class FakeGateway(gateway_pb2_grpc.GatewayServicer):
    """Sessions, notes and changes, the newest first; lists come in pages of at most `page`.

    `script` decides what a turn does. A change of notes is refused with `refusal`, once
    `accepted` were done; `unreadable` is what a note is refused with. `seen` are requests. With
    `temporary_is_over` a temporary conversation has ended once it has begun.
    """

    def __init__(self, endpoint: str, script: Script = echo) -> None:
        self.endpoint = endpoint
        self.script = script
        self.token = ""
        self.sessions: dict[str, gateway_pb2.Session] = {}
        self.history: dict[str, list[gateway_pb2.HistoryEvent]] = {}
        self.turns: list[gateway_pb2.StartTurnRequest] = []
        self.cancelled: list[str] = []
        self.files: dict[str, bytes] = {}
        self.left: list[str] = []
        self.approvals: dict[str, asyncio.Future[bool]] = {}
        self.decisions: list[gateway_pb2.DecideRequest] = []
        self.open_approvals: list[gateway_pb2.ApprovalRequested] = []
        self.running: dict[str, gateway_pb2.Turn] = {}
        self.ended: list[gateway_pb2.Turn] = []
        self._events: dict[str, EventLog] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.notices: list[str] = []
        self.stored: list[gateway_pb2.StoredNotice] = []
        self.following: list[str] = []
        self.told: Counter[str] = Counter()
        self.tools: list[gateway_pb2.ToolDescription] = []
        self.receipts: list[gateway_pb2.MemoryReceipt] = []
        self.usage = gateway_pb2.GetUsageReply()
        self.seen_usage: list[gateway_pb2.GetUsageRequest] = []
        self.page = 100
        self.notes: dict[str, Note] = {}
        self.log: list[Change] = []
        self.seen: list[Any] = []
        self.warnings: list[str] = []
        self.reads_time = False
        self.refusal: WireError | None = None
        self.accepted = 0
        self.unreadable: WireError | None = None
        self.saved = gateway_pb2.SaveNoteReply()
        self.context: gateway_pb2.TurnContext | None = None
        self.temporary_is_over = False
        self.changed_files: dict[str, gateway_pb2.TurnDiffReply] = {}
        self.reviewed = gateway_pb2.ReviewMemoryReply()
        self._server: Server | None = None

    @property
    def peer(self) -> Peer:
        """This launch, for a command."""
        return parties.gateway(self.endpoint, self.token)

    async def start(self) -> None:
        """Serve as a new launch, with a token of its own."""
        self.token = new_token()
        self._server = parties.server(self.endpoint, self.token, Party.AGENT)
        gateway_pb2_grpc.add_GatewayServicer_to_server(self, self._server.grpc)
        await self._server.start()
        await self._server.set_serving(True)

    async def stop(self) -> None:
        """End at once, as a killed guest does."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)

    def holds(self, note_id: str, text: str = "a note", **fields: Any) -> Note:
        """Put a note in front, with the change that made it."""
        fields = {"version": 1, "type": "fact", "confidence": 1.0, **fields}
        note = Note(note_id=note_id, text=text, **fields)
        self.notes = {note_id: note, **self.notes}
        self.changed(note_id, note.version, text, origin=note.origin)
        return note

    def changed(self, note_id: str, version: int, text: str, what: str = "", **fields: Any) -> None:
        """Put a change in front."""
        what = what or ("save" if version == 1 else "update")
        at = f"2026-11-21T10:00:{len(self.log):02}.000000Z"
        change = Change(note_id=note_id, version=version, text=text, change=what, at=at, **fields)
        self.log.insert(0, change)

    async def ListNotices(self, request: Any, context: Any) -> gateway_pb2.ListNoticesReply:
        told = self.told[request.surface] if request.surface else 0
        found = [each for each in self.stored if each.number > told and not each.read_at][::-1]
        return gateway_pb2.ListNoticesReply(notices=found[: request.limit], unread=len(found))

    async def FollowNotices(
        self, request: Any, context: Any
    ) -> AsyncIterator[gateway_pb2.StoredNotice]:
        after = self.told[request.surface]
        self.following.append(request.surface)
        try:
            while True:
                for notice in [each for each in self.stored if each.number > after]:
                    after = notice.number
                    yield notice
                await asyncio.sleep(0.02)
        finally:
            self.following.remove(request.surface)

    async def MarkNotices(self, request: Any, context: Any) -> gateway_pb2.MarkNoticesReply:
        self.told[request.surface] = max(self.told[request.surface], request.told)
        for notice in self.stored:
            if notice.number <= request.read_up_to:
                notice.read_at = "now"
        return gateway_pb2.MarkNoticesReply()

    async def Hello(self, request: Any, context: Any) -> gateway_pb2.HelloReply:
        return gateway_pb2.HelloReply(
            user_id="alice",
            tier="process",
            provider="offline",
            model="offline",
            embedder="ready",
            shell="no shell guest runs in this tier",
            version="0.1.0",
            notices=self.notices,
        )

    async def ResolveModel(self, request: Any, context: Any) -> gateway_pb2.ResolveModelReply:
        if request.model == "nobody:knows":
            raise WireError(Code.INVALID_ARGUMENT, "bad model: accepted: offline")
        return gateway_pb2.ResolveModelReply(
            model=request.model or "offline",
            configured="offline",
            providers=[
                gateway_pb2.ModelProvider(name="offline"),
                gateway_pb2.ModelProvider(name="openai", unusable="there is no API key"),
                gateway_pb2.ModelProvider(name="anthropic"),
            ],
        )

    async def CreateSession(self, request: Any, context: Any) -> gateway_pb2.Session:
        if request.session_id in self.sessions:
            return self.sessions[request.session_id]
        number = len(self.sessions) + 1
        name = f"temporary-{number}" if request.temporary else f"s{number}"
        session = gateway_pb2.Session(
            session_id=request.session_id or name,
            temporary=request.temporary,
            title=request.title,
            channel=request.channel,
            updated_at=f"2026-11-20T10:00:{number:02}.000000Z",
        )
        if not (request.temporary and self.temporary_is_over):
            self.sessions[session.session_id] = session
        return session

    async def ListSessions(self, request: Any, context: Any) -> gateway_pb2.ListSessionsReply:
        newest_first = list(self.sessions.values())[::-1]
        return gateway_pb2.ListSessionsReply(sessions=newest_first[: request.limit])

    async def GetSession(self, request: Any, context: Any) -> gateway_pb2.SessionHistory:
        if request.session_id not in self.sessions:
            raise WireError(Code.NOT_FOUND, f"session not found: {request.session_id}")
        events = self.history.get(request.session_id, [])[-request.limit :]
        return gateway_pb2.SessionHistory(
            session=self.sessions[request.session_id],
            events=events,
            receipts=self.receipts,
            files=[
                gateway_pb2.TurnFiles(turn_id=turn_id, files=each.files)
                for turn_id, each in self.changed_files.items()
            ],
        )

    async def ForgetSession(self, request: Any, context: Any) -> gateway_pb2.ForgetSessionReply:
        del self.sessions[request.session_id]
        return gateway_pb2.ForgetSessionReply()

    async def GetTurnContext(self, request: Any, context: Any) -> gateway_pb2.TurnContext:
        if self.context is None:
            raise WireError(Code.NOT_FOUND, "it is not recorded", resolution="ask something")
        return self.context

    async def GetUsage(self, request: Any, context: Any) -> gateway_pb2.GetUsageReply:
        self.seen_usage.append(request)
        return self.usage

    async def ListTools(self, request: Any, context: Any) -> gateway_pb2.ListToolsReply:
        return gateway_pb2.ListToolsReply(tools=self.tools)

    async def ListNotes(self, request: Any, context: Any) -> gateway_pb2.ListNotesReply:
        self.seen.append(request)
        chosen = [
            note
            for note in self.notes.values()
            if (request.include_superseded or not note.superseded)
            and request.type in ("", note.type)
            and request.actor in ("", note.origin.actor)
            and (note.origin.material or not request.material_only)
            and (not request.tag or request.tag in note.tags)
        ]
        page, following = self._page(chosen, request)
        return gateway_pb2.ListNotesReply(notes=page, next_cursor=following)

    async def SearchNotes(self, request: Any, context: Any) -> gateway_pb2.SearchNotesReply:
        self.seen.append(request)
        found = [note for note in self.notes.values() if request.query in note.text]
        shown = int(request.cursor or 0)
        following = shown + request.top_k
        return gateway_pb2.SearchNotesReply(
            notes=found[shown:following],
            next_cursor=str(following) if following < len(found) else "",
            warnings=self.warnings,
            period="on 26 November 2026" if request.read_time and self.reads_time else "",
        )

    async def GetNote(self, request: Any, context: Any) -> Note:
        return self._note(request)

    async def SaveNote(self, request: Any, context: Any) -> gateway_pb2.SaveNoteReply:
        self._change(request)
        return self.saved

    async def EditNote(self, request: Any, context: Any) -> Note:
        self._change(request)
        note = self._note(request)
        note.text = request.text
        note.version += 1
        if request.replace_tags:
            note.tags[:] = request.tags
        return note

    async def DeleteNote(self, request: Any, context: Any) -> gateway_pb2.DeleteNoteReply:
        self._note(request)
        self._change(request)
        del self.notes[request.note_id]
        return gateway_pb2.DeleteNoteReply()

    async def ListChanges(self, request: Any, context: Any) -> gateway_pb2.ListChangesReply:
        self.seen.append(request)
        chosen = [
            each
            for each in self.log
            if request.note_id in ("", each.note_id)
            and request.actor in ("", each.origin.actor)
            and (each.origin.material or not request.material_only)
            and request.session_id in ("", each.origin.session_id)
        ]
        page, following = self._page(chosen, request)
        return gateway_pb2.ListChangesReply(changes=page, next_cursor=following)

    async def UndoChange(self, request: Any, context: Any) -> gateway_pb2.UndoChangeReply:
        self._change(request)
        note = self._note(request)
        if note.superseded:
            note.superseded = False
            return gateway_pb2.UndoChangeReply(done="current_again", note=note)
        if note.version == 1:
            assert request.may_forget
            del self.notes[request.note_id]
            return gateway_pb2.UndoChangeReply(done="forgotten")
        note.version += 1
        note.text = "as it was"
        return gateway_pb2.UndoChangeReply(done="restored", note=note)

    async def TurnDiff(self, request: Any, context: Any) -> gateway_pb2.TurnDiffReply:
        """Of one path, the lines of the diff that name it."""
        self.seen.append(request)
        if not self.changed_files:
            raise WireError(Code.NOT_FOUND, "no turn of this session has changed files")
        turn_id = request.turn_id or [*self.changed_files][-1]
        found = gateway_pb2.TurnDiffReply()
        found.CopyFrom(self.changed_files.get(turn_id) or [*self.changed_files.values()][-1])
        found.turn_id = turn_id
        if request.path:
            lines = found.diff.splitlines(keepends=True)
            found.diff = "".join(line for line in lines if request.path in line)
        return found

    async def UndoFiles(self, request: Any, context: Any) -> gateway_pb2.UndoFilesReply:
        """Puts back what tools did and, when told to, the rest."""
        self.seen.append(request)
        reply = gateway_pb2.UndoFilesReply(turn_id="undo-1")
        for each in self.changed_files[request.turn_id].files.changes:
            if request.paths and each.path not in request.paths:
                continue
            if each.by_tool or request.not_only_tools:
                kind = {"added": "deleted", "deleted": "added"}.get(each.kind, each.kind)
                reply.restored.add(path=each.path, kind=kind)
            else:
                reply.asks.append(each)
                reply.reasons.append("it changed during this turn, and by no file tool")
        return reply

    async def ReviewMemory(self, request: Any, context: Any) -> gateway_pb2.ReviewMemoryReply:
        self.seen.append(request)
        return self.reviewed

    def _page(self, chosen: list[Any], request: Any) -> tuple[list[Any], str]:
        begin = int(request.cursor or 0)
        end = begin + min(request.limit, self.page)
        return chosen[begin:end], str(end) if end < len(chosen) else ""

    def _note(self, request: Any) -> Note:
        if self.unreadable is not None:
            raise self.unreadable
        if request.note_id not in self.notes:
            raise WireError(Code.NOT_FOUND, f"note not found: {request.note_id}")
        return self.notes[request.note_id]

    def _change(self, request: Any) -> None:
        self.seen.append(request)
        if self.refusal is not None and self.accepted == 0:
            raise self.refusal
        self.accepted -= 1

    async def WriteFile(self, request: Any, context: Any) -> gateway_pb2.WriteFileReply:
        upload = request.upload_id or request.path
        self.files[upload] = self.files.get(upload, b"") * bool(request.offset) + request.data
        return gateway_pb2.WriteFileReply(upload_id=upload)

    async def StartTurn(self, request: Any, context: Any) -> gateway_pb2.Turn:
        if request.turn_id in self._events:
            raise WireError(Code.ALREADY_EXISTS, "it exists already")
        self.turns.append(request)
        self.sessions[request.session_id].turns += 1
        return self.runs(request)

    def runs(self, request: gateway_pb2.StartTurnRequest) -> gateway_pb2.Turn:
        """Let a turn run, as if any client had begun it."""
        turn = gateway_pb2.Turn(
            turn_id=request.turn_id,
            session_id=request.session_id,
            state="running",
            text=request.text,
            started_at="2026-11-20T10:00:00.000000Z",
        )
        self.running[request.turn_id] = turn
        self._events[request.turn_id] = EventLog(request.turn_id)
        task = asyncio.create_task(self._drive(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return turn

    async def _drive(self, request: gateway_pb2.StartTurnRequest) -> None:
        log = self._events[request.turn_id]
        outcome: Any = failures.interrupted()
        try:
            async for event in self.script(self, request):
                told = getattr(event, event.WhichOneof("event") or "")
                if isinstance(told, OUTCOMES):
                    outcome = told
                    break
                log.add(told)
        except WireError as error:
            outcome = failures.from_wire_error(error)
        finally:
            if outcome.DESCRIPTOR.name == "TurnFailed":
                stored = (each for each in self.receipts if each.turn_id == request.turn_id)
                outcome.receipts.extend(stored)
            turn = self.running.pop(request.turn_id)
            turn.state = state_of(outcome)
            self.ended.insert(0, turn)
            log.finish(outcome)

    async def FollowTurn(self, request: Any, context: Any) -> AsyncIterator[Event]:
        if request.turn_id == LIVE:
            try:
                async for event in self.script(self, gateway_pb2.StartTurnRequest()):
                    yield event
            except (asyncio.CancelledError, GeneratorExit):
                self.left.append(request.turn_id)
                raise
            return
        if request.turn_id not in self._events:
            raise WireError(Code.NOT_FOUND, f"turn not found: {request.turn_id}")
        async for event in self._events[request.turn_id].follow(request.after):
            yield event

    async def ListTurns(self, request: Any, context: Any) -> gateway_pb2.ListTurnsReply:
        turns = [*self.running.values(), *(() if request.running_only else self.ended)]
        chosen = [turn for turn in turns if request.session_id in ("", turn.session_id)]
        return gateway_pb2.ListTurnsReply(turns=chosen)

    async def ListApprovals(self, request: Any, context: Any) -> gateway_pb2.ListApprovalsReply:
        waiting = [
            each for each in self.open_approvals if not self.approvals[each.approval_id].done()
        ]
        return gateway_pb2.ListApprovalsReply(approvals=waiting)

    async def Decide(self, request: Any, context: Any) -> gateway_pb2.DecideReply:
        self.decisions.append(request)
        waiting = self.approvals.get(request.approval_id)
        if waiting is None or waiting.done():
            return gateway_pb2.DecideReply(accepted=False)
        waiting.set_result(request.approved)
        return gateway_pb2.DecideReply(accepted=True)

    async def CancelTurn(self, request: Any, context: Any) -> gateway_pb2.CancelTurnReply:
        self.cancelled.append(request.turn_id)
        return gateway_pb2.CancelTurnReply(cancelled=True)

    async def until_cancelled(self, turn_id: str) -> Event:
        """What a turn that waits for its cancellation ends with."""
        while turn_id not in self.cancelled:
            await asyncio.sleep(0.005)
        return failed("cancelled", code="cancelled")

    async def approval(self, name: str, arguments: str) -> bool:
        """Whether the surface approved; a script yields `approval_event` first."""
        return await asyncio.wait_for(self.approvals[f"{name}{arguments}"], 60)

    def approval_event(self, name: str, arguments: str) -> Event:
        self.approvals[f"{name}{arguments}"] = asyncio.get_running_loop().create_future()
        asked = gateway_pb2.ApprovalRequested(
            approval_id=f"{name}{arguments}",
            tool=name,
            arguments_json=arguments,
            text=asked_text(name, arguments),
        )
        self.open_approvals.append(asked)
        return Event(approval=asked)
