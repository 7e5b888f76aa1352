"""The Gateway service for one user. RPCs check their arguments and delegate; no logic here."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import nullcontext
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message
from wire.identity import Party
from wire.network_probe import try_all
from wire.providers import NAMES
from wire.settings import ToolsSettings
from wire.tools import TOOLS
from wire.transport import require
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from guest.agent.budget import Limits
from guest.agent.models.models import Models
from guest.agent.turn import Answer, TurnRequest
from guest.egress_client import NO_KEY
from guest.gateway import convert, validation
from guest.gateway.calls import ToolCalls
from guest.gateway.delegation import Delegation
from guest.gateway.file_receipts import FileReceipts
from guest.gateway.files import Files, Transfer
from guest.gateway.notes import Notes
from guest.gateway.notices import Notices
from guest.gateway.schedules import ScheduledTurns, SchedulesOfUser
from guest.gateway.sessions import Sessions, Temporary, TemporarySessions
from guest.gateway.turns.approvals import Approvals
from guest.gateway.turns.records import TurnRecords
from guest.gateway.turns.registry import Turn, Turns
from guest.gateway.usage import UsageReport
from guest.memory.memory import Memory
from guest.memory.models import is_temporary
from guest.memory.storage.files.backup import Backups
from guest.notices.outbox import Outbox
from guest.notices.reminders import ReminderLoop
from guest.peers import PeerAddresses
from guest.schedules.book import ScheduleBook
from guest.schedules.timing import stored
from guest.tools.base import ToolContext
from guest.tools.files.restore import Restorer
from guest.tools.grants import session
from guest.tools.pipeline import ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.background import BackgroundCommands
from guest.watch import CallReporter

if TYPE_CHECKING:
    from guest.agent.turn_loop import TurnLoop

# ruff: noqa: N802, ARG001, ARG002 - names and arguments are the contract's

_R = TypeVar("_R", bound=Message)
_M = TypeVar("_M", bound=Message)

Context = grpc.aio.ServicerContext[Any, Any]


def _rpc(
    answer: Callable[[Any, _R], Awaitable[_M]],
) -> "Callable[[GatewayService, _R, Context], Coroutine[Any, Any, _M]]":
    """An RPC with one request and one reply. The request passes the checks of the contract first;
    secrets in the reply are hidden."""

    async def rpc(self: "GatewayService", request: _R, context: Context) -> _M:
        validation.check(request)
        reply = self._shown(await answer(self, request))
        return self._for_model(reply) if getattr(request, "for_model", False) else reply

    return rpc


def _answered_by(
    handler: "Callable[[GatewayService], Callable[[Any], Awaitable[Message]]]",
    *,
    of_memory: bool = True,
) -> Any:
    """As `_rpc`; what memory refuses a handler `of_memory` becomes an error of the contract."""

    @_rpc
    async def rpc(self: "GatewayService", request: Any) -> Message:
        with convert.checked(self.scrubber.scrub_known) if of_memory else nullcontext():
            if getattr(request, "note_id", ""):
                request.note_id = await self.memory.notes.full_id(request.note_id)
            return await handler(self)(request)

    return rpc


_LATELY_S = 120.0
"""So long after a call by somebody else than the host the agent counts as used."""
_LOOPS_MAX = 4
"""For so many windows what runs turns is kept."""


async def _stop_summaries(
    made: "Iterable[asyncio.Future[tuple[TurnLoop, TurnLoop]]]", session_id: str = ""
) -> None:
    for loops in list(made):
        if loops.done() and not loops.cancelled() and not loops.exception():
            for loop in loops.result():
                await loop.stop_summaries(session_id)


@dataclass(repr=False, eq=False)
class GatewayService(gateway_pb2_grpc.GatewayServicer):
    """Serves the user of `memory` only: no request names a user.

    `pipeline` runs the tool calls of the model and of callers by name. A person's notes and
    sessions do not go through it: they are read and written directly, whatever tools are enabled.
    Only the secrets of this launch, which `scrubber` knows, are redacted for people as for models;
    exports and backups are exact copies. `close` cancels the running turns and waits until they are
    recorded. `info` is what Hello says of this guest: in `shell` and `embedder`, why there is none.
    `temporary` is for conversations that nothing is kept of. `make_loops` imports what models and
    turns need, and returns what runs turns: those of sessions, and those of temporary
    conversations. It is called once, in a thread, when the first session is opened. Turns wait for
    it; the event loop does not. What it fails with, every turn fails with.
    """

    _: KW_ONLY
    info: pb.HelloReply
    memory: Memory
    pipeline: ToolPipeline
    models: Models
    make_loops: "Callable[[str], tuple[TurnLoop, TurnLoop]]"
    backups: Backups
    files: Files
    scrubber: Scrubber
    limits: Limits
    witness: InitVar[CallReporter | None] = None
    shell_state: Callable[[], Awaitable[str]] | None = None
    background: BackgroundCommands | None = None
    approval_wait_s: float = ToolsSettings().approval_wait_s
    notices: Callable[[], list[str]] = list
    reply_max_bytes: int = validation.REPLY_MAX_BYTES
    peers: PeerAddresses | None = None
    temporary: Temporary
    restorer: Restorer
    outbox: Outbox
    delegation: Delegation
    book: ScheduleBook

    def __post_init__(self, witness: CallReporter | None) -> None:
        memory = self.memory
        self._user_id = memory.user_id
        self._called_at = -_LATELY_S
        self._loops: dict[int, asyncio.Future[tuple[TurnLoop, TurnLoop]]] = {}
        self._peers = self.peers or PeerAddresses({}, self.scrubber.learn)
        self._witness = witness or CallReporter(required=False)
        self._notes = Notes(memory, self.scrubber.scrub_known, self.reply_max_bytes)
        self._transfer = Transfer(memory, self.backups)
        self._changes = self.restorer.changes
        memory.sessions.on_forgotten = self._changes.forget
        self._changed = FileReceipts(self.restorer, self._require)
        self._usage = UsageReport(memory.usage, self.limits)
        self._approvals = Approvals(self.approval_wait_s, self.pipeline.grants)
        records = TurnRecords(
            *(memory.conversations, memory.receipts, memory.state_of, self._changes)
        )
        passing = self.temporary.conversations
        passing_records = TurnRecords(passing.conversations, passing.receipts, passing.state_of)
        self._turns = Turns(
            *(memory.in_use, records, self._approvals, self._witness.spans),
            temporary=passing_records,
            spent=memory.usage.of_turns,
        )
        self._told = Notices(self.outbox, self._turns.is_followed)
        self._approvals.on_ask = self._told.waits
        memory.usage.on_reached = self._told.budget_reached
        self.delegation.serve(self._turns, self.outbox, self.start_inside)
        self.reminders = ReminderLoop(memory, self.outbox)
        self._sessions = Sessions(
            *(memory.conversations, memory.receipts, memory.sessions, records, self._turns.knows),
            *(memory.state_of, self.pipeline.paths.by_name, self._changes),
        )
        self.temporary_sessions = TemporarySessions(
            *(passing, passing_records, self._turns.knows, self._end_session),
            self.pipeline.paths.by_name,
        )
        self._schedules = SchedulesOfUser(self.book, self.pipeline.grants)
        self.scheduler = self.book.scheduler
        self.book.agent = self.scheduler.run = runs = ScheduledTurns(
            *(self.pipeline, self.start_inside, self._sessions.create, self._resolved),
            *(self.restorer.roots, self.reminders.reminders, self._user_id),
            now=lambda: self.scheduler.now,
            witness=self._witness,
        )
        self.scheduler.look = runs.look
        self._calls = ToolCalls(memory.user_id, self.pipeline, self._approvals, self._sessions)

    def _expect_turns(self, label: str = "") -> "asyncio.Future[tuple[TurnLoop, TurnLoop]]":
        """Begin to get ready for turns of a model; everything else is served meanwhile. Models with
        one window share what runs them."""
        label = label or self.models.configured
        window = self.models.windows.of(label)
        if window not in self._loops:
            if len(self._loops) >= _LOOPS_MAX:
                oldest = self._loops.pop(next(iter(self._loops)))
                self._ending = asyncio.ensure_future(_stop_summaries([oldest]))
            made = asyncio.ensure_future(asyncio.to_thread(self.make_loops, label))
            made.add_done_callback(lambda made: made.cancelled() or made.exception())
            self._loops[window] = made
        return self._loops[window]

    async def _resolved(self, asked: str) -> str:
        """The label of the model that `asked` names; its server has been asked for its window."""
        await asyncio.shield(self._expect_turns())
        choice = self.models.choose(asked)
        await self.models.windows.ask(choice.label, choice.model)
        return choice.label

    def called_by(self, party: Party) -> None:
        """Somebody calls; see `wire.transport.Server`."""
        if party is not Party.RUNNER:
            self._called_at = time.monotonic()

    async def close(self) -> None:
        await self.scheduler.stop()
        await self._turns.close()
        await self.delegation.close()
        await self.reminders.stop()
        await self.scheduler.finish()
        if self.background is not None:
            await self.background.close()
        await self._told.close()
        await _stop_summaries(self._loops.values())
        await self.temporary_sessions.close()
        await self.temporary.conversations.close()
        self.files.close()
        await asyncio.to_thread(self._changes.close)
        self._witness.close()

    async def _forget_session(self, request: pb.ForgetSessionRequest) -> pb.ForgetSessionReply:
        return await self._end_session(request.session_id)

    async def _end_session(self, session_id: str) -> pb.ForgetSessionReply:
        request = pb.ForgetSessionRequest(session_id=session_id)
        if is_temporary(session_id):
            await self._turns.stop(session_id)
        else:
            for working in await self.memory.conversations.working_for(session_id):
                await self._turns.stop(working)
                await self._end_session(working)
        await _stop_summaries(self._loops.values(), session_id)
        reply = await self._sessions_with(session_id).forget(request)
        self._turns.forget(session_id)
        self.pipeline.grants.drop(session(session_id))
        if self.background is not None:
            await self.background.forget(session_id)
        for pipeline in (self.pipeline, self.temporary.pipeline):
            pipeline.forget(self._user_id, session_id)
        return reply

    def _sessions_with(self, session_id: str) -> Sessions:
        """The sessions among which the one with this id is, if there is one."""
        return self.temporary_sessions if is_temporary(session_id) else self._sessions

    def _shown(self, reply: _M) -> _M:
        return convert.hidden(reply, self.scrubber.scrub_known)

    def _for_model(self, reply: _M) -> _M:
        return convert.hidden(reply, partial(self.pipeline.shown, self._user_id, ""))

    async def _create_session(self, request: pb.CreateSessionRequest) -> pb.Session:
        self._expect_turns()
        if request.temporary:
            return await self.temporary_sessions.create(request)
        if is_temporary(request.session_id):
            get = pb.GetSessionRequest(session_id=request.session_id, limit=1)
            return (await self.temporary_sessions.history(get)).session
        return await self._sessions.create(request)

    async def _get_session(self, request: pb.GetSessionRequest) -> pb.SessionHistory:
        self._expect_turns()
        return await self._sessions_with(request.session_id).history(request)

    async def _turn_context(self, request: pb.GetTurnContextRequest) -> pb.TurnContext:
        return await self._sessions_with(request.session_id).turn_context(request)

    CreateSession = _answered_by(lambda service: service._create_session)
    ListSessions = _answered_by(lambda service: service._sessions.list, of_memory=False)
    GetSession = _answered_by(lambda service: service._get_session)
    RenameSession = _answered_by(lambda service: service._sessions.rename)
    ArchiveSession = _answered_by(lambda service: service._sessions.archive)
    ForgetSession = _answered_by(lambda service: service._forget_session)
    GetTurnContext = _answered_by(lambda service: service._turn_context)
    GetUsage = _answered_by(lambda service: service._usage.get, of_memory=False)
    ListFiles = _answered_by(lambda service: service.files.list, of_memory=False)
    WriteFile = _answered_by(lambda service: service.files.write, of_memory=False)
    DeleteFile = _answered_by(lambda service: service.files.delete, of_memory=False)
    TurnDiff = _answered_by(lambda service: service._changed.diff, of_memory=False)
    UndoFiles = _answered_by(lambda service: service._changed.undo, of_memory=False)
    SaveNote = _answered_by(lambda service: service._notes.save)
    ListNotes = _answered_by(lambda service: service._notes.list)
    SearchNotes = _answered_by(lambda service: service._notes.search)
    GetNote = _answered_by(lambda service: service._notes.get)
    EditNote = _answered_by(lambda service: service._notes.edit)
    DeleteNote = _answered_by(lambda service: service._notes.delete)
    ListChanges = _answered_by(lambda service: service._notes.changes)
    UndoChange = _answered_by(lambda service: service._notes.undo)
    ReviewMemory = _answered_by(lambda service: service._notes.review)
    MemoryStatistics = _answered_by(lambda service: service._notes.statistics, of_memory=False)
    ReembedMemory = _answered_by(lambda service: service._notes.reembed, of_memory=False)
    BackupMemory = _answered_by(lambda service: service._transfer.back_up, of_memory=False)
    RemoveBackup = _answered_by(lambda service: service._transfer.remove_backup, of_memory=False)
    ImportMemory = _answered_by(lambda service: service._transfer.import_)
    ListNotices = _answered_by(lambda service: service._told.list, of_memory=False)
    SetReminder = _answered_by(lambda service: service._notes.remind)
    MarkNotices = _answered_by(lambda service: service._told.mark, of_memory=False)
    ListSchedules = _answered_by(lambda service: service._schedules.list, of_memory=False)
    CreateSchedule = _answered_by(lambda service: service._schedules.create, of_memory=False)
    ChangeSchedule = _answered_by(lambda service: service._schedules.change, of_memory=False)
    DeleteSchedule = _answered_by(lambda service: service._schedules.delete, of_memory=False)
    RunSchedule = _answered_by(lambda service: service._schedules.run, of_memory=False)
    ListScheduleRuns = _answered_by(lambda service: service._schedules.runs, of_memory=False)
    ListTools = _answered_by(lambda service: service._calls.offered, of_memory=False)

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloReply:
        embedder, shell = await asyncio.gather(self.memory.store.vectorizer.state(), self._shell())
        notices = [*self.info.notices, *self.notices(), *self.models.notices()]
        running = [] if self.background is None else await self.background.running()
        notices += running
        if embedder not in ("ready", "loading", "disabled"):
            notices.append(f"memory searches by keyword only for now; the embedder: {embedder}")
        if (memory := self.memory.store.state) != "ready":
            notices.append(
                f"nothing can be saved right now, and searches answer from a copy: {memory}"
            )
        if self.scheduler.problem:
            notices.append(f"schedules wait: {self.scheduler.problem}")
        reply = pb.HelloReply(
            user_id=self._user_id, shell=shell, embedder=embedder, notices=notices, memory=memory
        )
        due = (stored(self.scheduler.next_due), self.reminders.next_due)
        reply.next_due = min(filter(None, due), default="")
        reply.knows_due = self.scheduler.knows_due and self.reminders.next_due is not None
        called = time.monotonic() - self._called_at < _LATELY_S
        reply.in_use = (
            bool(running) or called or self._turns.any_runs or self.scheduler.is_running()
        )
        for name in ("tier", "provider", "model", "version", "passing"):
            setattr(reply, name, getattr(self.info, name))
        return reply

    async def _shell(self) -> str:
        return self.info.shell if self.shell_state is None else await self.shell_state()

    @_rpc
    async def StartTurn(self, request: pb.StartTurnRequest) -> pb.Turn:
        text = validation.asked(request)
        model = await self._resolved(request.model)
        loop, temporary_loop = await asyncio.shield(self._expect_turns(model))
        if request.untraced:
            validation.untraced(request)
            session_id = ""
        else:
            session_id = await self._require(request.session_id)
        context = ToolContext(
            *(self._user_id, session_id, request.turn_id, request.channel),
            asked=text,
            time_zone=validation.time_zone(request.time_zone),
        )
        turn = TurnRequest(
            await self._sessions_with(session_id).within(context),
            text,
            model,
            request.retry,
            request.untraced,
            validation.from_client(
                request, {*TOOLS, *(tool.name for tool in self.pipeline.tools())}
            ),
            await self.files.attached(request.attachments),
        )
        loop = temporary_loop if is_temporary(session_id) else loop
        return (await self._turns.start(turn, loop)).to_message()

    async def start_inside(self, request: TurnRequest) -> Turn:
        """Start a turn that the agent begins itself. It is followed, listed, cancelled and recorded
        as any other; its task ends with it, and its `outcome` is there then.

        The user, the model and the project are filled in. Raises `WireError`, as `StartTurn` does.
        """
        context = request.context
        model = await self._resolved(request.model)
        loop, _ = await asyncio.shield(self._expect_turns(model))
        session_id = await self._require(context.session_id)
        context = replace(
            context,
            user_id=self._user_id,
            project=context.project or await self._sessions.project_of(session_id),
            schedule=request.origin.schedule_id if request.origin else "",
        )
        return await self._turns.start(replace(request, context=context, model=model), loop)

    async def _require(self, session_id: str) -> str:
        return await self._sessions_with(session_id).require(session_id)

    async def FollowTurn(
        self, request: pb.FollowTurnRequest, context: Context
    ) -> AsyncIterator[pb.TurnEvent]:
        validation.check(request)
        async for event in self._turns.follow(request.turn_id, request.after):
            yield self._shown(event)

    @_rpc
    async def ListTurns(self, request: pb.ListTurnsRequest) -> pb.ListTurnsReply:
        session_id = request.session_id and await self._require(request.session_id)
        turns = await self._turns.list(session_id, running_only=request.running_only)
        return pb.ListTurnsReply(turns=turns)

    @_rpc
    async def ListApprovals(self, request: pb.ListApprovalsRequest) -> pb.ListApprovalsReply:
        return pb.ListApprovalsReply(approvals=self._approvals.list())

    @_rpc
    async def Decide(self, request: pb.DecideRequest) -> pb.DecideReply:
        request.channel = request.channel or validation.CHANNEL
        accepted = await self._approvals.decide(request)
        return pb.DecideReply(accepted=accepted)

    @_rpc
    async def ListGrants(self, request: pb.ListGrantsRequest) -> pb.ListGrantsReply:
        found = self.pipeline.grants.list(request.session_id and session(request.session_id))
        return pb.ListGrantsReply(grants=[convert.message(pb.Grant, each) for each in found])

    @_rpc
    async def WithdrawGrant(self, request: pb.WithdrawGrantRequest) -> pb.WithdrawGrantReply:
        channel = request.channel or validation.CHANNEL
        withdrawn = await self.pipeline.grants.withdraw(request.grant_id, channel)
        return pb.WithdrawGrantReply(withdrawn=withdrawn)

    @_rpc
    async def CancelTurn(self, request: pb.CancelTurnRequest) -> pb.CancelTurnReply:
        return pb.CancelTurnReply(cancelled=self._turns.cancel(request.turn_id))

    @_rpc
    async def AnswerCall(self, request: pb.AnswerCallRequest) -> pb.AnswerCallReply:
        answer = Answer(request.output, request.is_error, validation.form(request.form))
        accepted = self._turns.answer_call(request.turn_id, request.call_id, answer)
        return pb.AnswerCallReply(accepted=accepted)

    @_rpc
    async def ResolveModel(self, request: pb.ResolveModelRequest) -> pb.ResolveModelReply:
        return pb.ResolveModelReply(
            model=await self._resolved(request.model),
            configured=self.models.configured,
            providers=[
                convert.message(
                    pb.ModelProvider,
                    self.models.uses[each],
                    name=each,
                    unusable=self.models.unusable(each),
                )
                for each in NAMES
            ],
        )

    @_rpc
    async def CallTool(self, request: pb.CallToolRequest) -> pb.CallToolReply:
        return await self._calls.call(request)

    @_rpc
    async def SetMemoryToken(self, request: pb.SetMemoryTokenRequest) -> pb.SetMemoryTokenReply:
        await self.memory.store.set_token(request.auth_token)
        return pb.SetMemoryTokenReply()

    @_rpc
    async def SetProviderKey(self, request: pb.SetProviderKeyRequest) -> pb.SetProviderKeyReply:
        if self._loops:  # no model is being built with the old key
            await asyncio.wait(self._loops.values())
        self.models.set_key(request.provider, "" if request.missing else NO_KEY)
        return pb.SetProviderKeyReply()

    async def ReportCalls(
        self, request_iterator: AsyncIterator[pb.CallReportReply], context: Context
    ) -> AsyncIterator[pb.CallReport]:
        require(context, Party.RUNNER)
        async for event in self._witness.stream(request_iterator):
            yield event

    async def ProbeNetwork(
        self, request: pb.ProbeNetworkRequest, context: Context
    ) -> pb.ProbeNetworkReply:
        require(context, Party.RUNNER)
        ways = await asyncio.to_thread(try_all, validation.network_spec(request.spec))
        return pb.ProbeNetworkReply(ways=[pb.ProbedRoute(**way._asdict()) for way in ways])

    async def SetPeers(self, request: pb.SetPeersRequest, context: Context) -> pb.SetPeersReply:
        require(context, Party.RUNNER)
        self._peers.set(request)
        return pb.SetPeersReply()

    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskReply:
        require(context, Party.RUNNER)
        validation.check(request)
        if not request.turn_id:
            await self._require(request.session_id)
        how = await self._turns.ask(request)
        by, granted = {"by": how.by, "channel": how.channel}, how.granted
        return pb.AskReply(approved=how.approved, granted=granted, **by)

    async def FollowNotices(
        self, request: pb.FollowNoticesRequest, context: Context
    ) -> AsyncIterator[pb.StoredNotice]:
        validation.check(request)
        async for notice in self._told.follow(request):
            yield self._shown(notice)

    async def AddNotice(self, request: pb.AddNoticeRequest, context: Context) -> pb.AddNoticeReply:
        require(context, Party.RUNNER)
        validation.check(request)
        return await self._told.add(request)

    async def ReadFile(
        self, request: pb.ReadFileRequest, context: Context
    ) -> AsyncIterator[pb.FilePart]:
        async for part in self.files.read(request):
            yield part

    async def ReadBackup(
        self, request: pb.ReadBackupRequest, context: Context
    ) -> AsyncIterator[pb.BackupPart]:
        async for part in self._transfer.read_backup(request):
            yield part

    async def ExportMemory(
        self, request: pb.ExportMemoryRequest, context: Context
    ) -> AsyncIterator[pb.ExportMemoryReply]:
        async for part in self._transfer.export():
            yield part
