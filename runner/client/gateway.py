"""The agent's gateway for everything on the host: plain calls that raise `WireError`.

WireError             the gateway answered with this error
└── GatewayLost       no answer: the connection or the guest is gone
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final, Self, TypeVar

import grpc
from wire.errors import Code, WireError
from wire.identity import Peer
from wire.limits import ERROR_METADATA_KEY
from wire.status import from_rpc_error
from wire.transport import WRONG_TOKEN, open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

_CALL_S: Final = 30.0
_ADMIN_S: Final = 60.0
_REVIEW_S: Final = 300.0
_PART_S: Final = 600.0
"""The limit for one part of an export or import; a slow server needs long to store a mebibyte."""
_BACKUP_S: Final = 3600.0
_PAGE: Final = 100
_PIECE_BYTES: Final = 256 * 1024
_TRANSPORT_FAILURES: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}
)

_T = TypeVar("_T")
_P = TypeVar("_P", pb.ListNotesReply, pb.ListChangesReply)


def wording(approval: pb.ApprovalRequested) -> str:
    """What a person decides on, as every face shows it. An older agent leaves the words to us."""
    return approval.text or f"allow {approval.tool}?\n{approval.arguments_json}"


class GatewayLost(WireError):  # noqa: N818 - a condition, not a bug
    """The gateway is gone, or another launch has taken its place."""

    def __init__(self, details: str) -> None:
        super().__init__(
            Code.UNAVAILABLE, "the agent went away", details=details, resolution="runner logs"
        )


def new_turn_id() -> str:
    """An id for a turn. The caller chooses it, so that it can cancel the turn at once."""
    return f"turn-{uuid.uuid4()}"


class GatewayClient(AbstractAsyncContextManager["GatewayClient"]):
    """One connection to one launch of the agent guest.

    A restarted guest has another token and needs a new client. Conversations and notes record
    `name` as their channel. `time_zone` is where the person is, if that is known better here.

    "NOT_FOUND" below: this user has no such session or note.
    """

    def __init__(self, channel: grpc.aio.Channel, name: str, time_zone: str = "") -> None:
        self._channel = channel
        self.time_zone = time_zone
        self._stub = gateway_pb2_grpc.GatewayStub(channel)
        self._name = name
        self.hello = pb.HelloReply()

    @classmethod
    async def open(cls, agent: Peer, *, channel_name: str) -> Self:
        """Connect and say hello. Raises `GatewayLost` if nobody answers."""
        return await cls.over(open_channel(agent), channel_name=channel_name)

    @classmethod
    async def over(cls, channel: grpc.aio.Channel, *, channel_name: str) -> Self:
        """Say hello over `channel`, which belongs to the client from now on. See `open`."""
        client = cls(channel, channel_name)
        try:
            await client.refresh_hello()
        except BaseException:
            await client.close()
            raise
        return client

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect. Turns go on."""
        await self._channel.close()

    async def refresh_hello(self) -> pb.HelloReply:
        """Say hello again, to learn whether this launch still answers and what is ready now."""
        self.hello = await _call(self._stub.Hello, pb.HelloRequest(client=self._name))
        return self.hello

    async def create_session(
        self, session_id: str = "", title: str = "", *, temporary: bool = False, project: str = ""
    ) -> pb.Session:
        """Create a session, or return the one with this id if the user has it already. Nothing is
        kept of a `temporary` one. It works in `project`, if that names one."""
        request = pb.CreateSessionRequest(
            session_id=session_id,
            title=title,
            channel=self._name,
            temporary=temporary,
            project=project,
        )
        return await _call(self._stub.CreateSession, request)

    async def list_sessions(
        self, limit: int, *, include_archived: bool = False
    ) -> list[pb.Session]:
        """The latest `limit` sessions, newest first."""
        request = pb.ListSessionsRequest(limit=limit, include_archived=include_archived)
        return list((await _call(self._stub.ListSessions, request)).sessions)

    async def get_session(self, session_id: str, limit: int) -> pb.SessionHistory:
        """A session with its last `limit` events, in several calls if need be. Raises NOT_FOUND."""
        request = pb.GetSessionRequest(session_id=session_id, limit=limit)
        history = await _call(self._stub.GetSession, request)
        while history.before and len(history.events) < limit:
            request.limit, request.before = limit - len(history.events), history.before
            earlier = await _call(self._stub.GetSession, request)
            told = {event.turn_id for event in history.events}
            for of_turns in (earlier.receipts, earlier.files):
                for place in reversed(range(len(of_turns))):
                    if of_turns[place].turn_id in told:
                        del of_turns[place]
            earlier.events.extend(history.events)
            earlier.receipts.extend(history.receipts)
            earlier.files.extend(history.files)
            history = earlier
        return history

    async def rename_session(self, session_id: str, title: str) -> pb.Session:
        """Change a session's title. Raises NOT_FOUND."""
        request = pb.RenameSessionRequest(session_id=session_id, title=title)
        return await _call(self._stub.RenameSession, request)

    async def archive_session(self, session_id: str, *, archived: bool) -> pb.Session:
        """Archive a session, or undo that. Raises NOT_FOUND."""
        request = pb.ArchiveSessionRequest(session_id=session_id, archived=archived)
        return await _call(self._stub.ArchiveSession, request)

    async def forget_session(self, session_id: str) -> None:
        """Remove a session and erase what was said in it. Has no time limit.

        Raises NOT_FOUND, and CONFLICT while a turn runs in it.
        """
        await _call(self._stub.ForgetSession, pb.ForgetSessionRequest(session_id=session_id), None)

    async def turn_context(self, session_id: str) -> pb.TurnContext:
        """What the request for the session's last answer was made of. Raises NOT_FOUND."""
        request = pb.GetTurnContextRequest(session_id=session_id)
        return await _call(self._stub.GetTurnContext, request)

    async def start_turn(self, request: pb.StartTurnRequest) -> pb.Turn:
        """Start a turn, which goes on unfollowed, too. Sets the channel of `request`.

        Raises ALREADY_EXISTS for a used turn id, and CONFLICT if another turn runs in the session.
        """
        request.channel = self._name
        request.time_zone = request.time_zone or self.time_zone
        return await _call(self._stub.StartTurn, request)

    async def follow_turn(self, turn_id: str, after: int = 0) -> AsyncGenerator[pb.TurnEvent, None]:
        """Yield the events of a turn from the index `after` on; the last one says how it ended:
        completed, incomplete or failed.

        Leaving leaves the turn alone. Raises NOT_FOUND, and `GatewayLost` if the stream ends early.
        """
        request = pb.FollowTurnRequest(turn_id=turn_id, after=after)
        async with aclosing(_to_outcome(self._stub.FollowTurn(request))) as events:
            async for event in events:
                yield event

    async def run_turn(
        self, session_id: str, text: str, turn_id: str, model: str = ""
    ) -> AsyncGenerator[pb.TurnEvent, None]:
        """Start a turn and follow it, on this connection alone. `model` is "provider:model", or a
        model of the configured provider; empty: the configured one."""
        request = pb.StartTurnRequest(
            session_id=session_id, text=text, turn_id=turn_id or new_turn_id(), model=model
        )
        await self.start_turn(request)
        async with aclosing(self.follow_turn(request.turn_id)) as events:
            async for event in events:
                yield event

    async def list_turns(
        self, session_id: str = "", *, running_only: bool = False
    ) -> list[pb.Turn]:
        """Turns that run or ended lately, newest first, of this session, or (empty) of all."""
        request = pb.ListTurnsRequest(session_id=session_id, running_only=running_only)
        return list((await _call(self._stub.ListTurns, request)).turns)

    async def list_approvals(self) -> list[pb.ApprovalRequested]:
        """The calls that wait for a person, oldest first."""
        return list((await _call(self._stub.ListApprovals, pb.ListApprovalsRequest())).approvals)

    async def decide(self, approval_id: str, answer: int) -> bool:
        """Decide on a call that waits: 0 is a no, 1 a yes; more a yes with an offer for others of
        the session, the first of which is 2. False if nobody waits for it any more."""
        request = pb.DecideRequest(
            approval_id=approval_id,
            approved=answer > 0,
            channel=self._name,
            offer=max(answer - 1, 0),
        )
        return (await _call(self._stub.Decide, request)).accepted

    async def notices(
        self, limit: int, *, unread: bool = True, surface: str = ""
    ) -> pb.ListNoticesReply:
        """The newest notices, newest first; with `surface` those that it has not told yet."""
        request = pb.ListNoticesRequest(limit=limit, unread_only=unread, surface=surface)
        return await _call(self._stub.ListNotices, request)

    async def follow_notices(self, surface: str) -> AsyncGenerator[pb.StoredNotice, None]:
        """Unread notices that `surface` has not told, and then those that come.

        Each counts as told once the next one is asked for. Raises `WireError`.
        """
        call = self._stub.FollowNotices(pb.FollowNoticesRequest(surface=surface))
        try:
            async for notice in call:
                yield notice
                await self.mark_notices(surface, notice.number)
        except grpc.aio.AioRpcError as error:
            raise _translate(error) from None
        finally:
            call.cancel()

    async def mark_notices(self, surface: str = "", told: int = 0, *, read_up_to: int = 0) -> int:
        """Say up to which notice they were told and read. Returns how many are unread."""
        request = pb.MarkNoticesRequest(surface=surface, told=told, read_up_to=read_up_to)
        return (await _call(self._stub.MarkNotices, request)).unread

    async def set_reminder(self, due: str, *, note_id: str = "", text: str = "") -> pb.Note:
        """Set a reminder: a new one with `text`, or for the note with that id; without `due` it is
        done. Raises NOT_FOUND, and INVALID_ARGUMENT for what is no time to come."""
        request = pb.SetReminderRequest(
            note_id=note_id, text=text, due=due, time_zone=self.time_zone, channel=self._name
        )
        return await _call(self._stub.SetReminder, request)

    async def add_notice(self, notice: pb.AddNoticeRequest) -> None:
        """Put what only the host knows into the person's outbox, once for its key."""
        await _call(self._stub.AddNotice, notice)

    async def list_grants(self, session_id: str = "") -> list[pb.Grant]:
        """What was allowed for more than one call, oldest first."""
        request = pb.ListGrantsRequest(session_id=session_id)
        return list((await _call(self._stub.ListGrants, request)).grants)

    async def withdraw_grant(self, grant_id: str) -> bool:
        """Take back what was allowed. False if it did not stand any more."""
        request = pb.WithdrawGrantRequest(grant_id=grant_id, channel=self._name)
        return (await _call(self._stub.WithdrawGrant, request)).withdrawn

    async def schedules(self) -> AsyncGenerator[pb.Schedule, None]:
        """All schedules, fetched page by page."""
        request = pb.ListSchedulesRequest(limit=_PAGE)
        while True:
            page = await _call(self._stub.ListSchedules, request)
            for schedule in page.schedules:
                yield schedule
            if not page.after:
                return
            request.after = page.after

    async def find_schedule(self, named: str) -> pb.Schedule:
        """The schedule with this id or name. Raises NOT_FOUND."""
        request = pb.ListSchedulesRequest(schedule=named)
        return (await _call(self._stub.ListSchedules, request)).schedules[0]

    async def create_schedule(self, request: pb.CreateScheduleRequest) -> pb.Schedule:
        return await _call(self._stub.CreateSchedule, request)

    async def change_schedule(self, request: pb.ChangeScheduleRequest) -> pb.Schedule:
        return await _call(self._stub.ChangeSchedule, request)

    async def delete_schedule(self, schedule: str) -> pb.Schedule:
        """Delete a schedule; returns what it was."""
        request = pb.DeleteScheduleRequest(schedule=schedule)
        return (await _call(self._stub.DeleteSchedule, request)).schedule

    async def run_schedule(self, schedule: str) -> pb.ScheduleRun:
        return await _call(self._stub.RunSchedule, pb.RunScheduleRequest(schedule=schedule))

    async def schedule_runs(self, request: pb.ListScheduleRunsRequest) -> list[pb.ScheduleRun]:
        """What became of its slots, newest first."""
        return list((await _call(self._stub.ListScheduleRuns, request)).runs)

    async def answer_call(self, request: pb.AnswerCallRequest) -> bool:
        """Give a turn what a tool of this client gave back. False if it no longer waits for it."""
        return (await _call(self._stub.AnswerCall, request)).accepted

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file into /shared; one that is there already is replaced."""
        request = pb.WriteFileRequest(path=path, overwrite=True)
        for begin in range(0, max(len(data), 1), _PIECE_BYTES):
            request.offset, request.data = begin, data[begin : begin + _PIECE_BYTES]
            request.last = begin + _PIECE_BYTES >= len(data)
            request.upload_id = (await _call(self._stub.WriteFile, request)).upload_id

    async def cancel_turn(self, turn_id: str) -> bool:
        """Cancel a turn, which then ends as failed. False if it was not running."""
        return (await _call(self._stub.CancelTurn, pb.CancelTurnRequest(turn_id=turn_id))).cancelled

    async def list_tools(self) -> list[pb.ToolDescription]:
        return list((await _call(self._stub.ListTools, pb.ListToolsRequest())).tools)

    async def resolve_model(self, model: str = "") -> pb.ResolveModelReply:
        """Which model `model` means, and which providers can answer.

        Raises INVALID_ARGUMENT or FAILED_PRECONDITION for one that cannot answer.
        """
        return await _call(self._stub.ResolveModel, pb.ResolveModelRequest(model=model))

    async def usage(self, request: pb.GetUsageRequest) -> pb.GetUsageReply:
        return await _call(self._stub.GetUsage, request)

    async def call_tool(
        self,
        name: str,
        arguments_json: str,
        session_id: str = "",
        *,
        may_ask: bool = False,
        approval_id: str = "",
    ) -> pb.CallToolReply:
        """Call one tool without a model. The tool has its own time limit.

        Where a person has to allow the call, the reply has an `approval` if it `may_ask`; with its
        `approval_id` the same call runs once they have.
        """
        request = pb.CallToolRequest(
            name=name,
            arguments_json=arguments_json,
            session_id=session_id,
            channel=self._name,
            may_ask=may_ask,
            approval_id=approval_id,
        )
        return await _call(self._stub.CallTool, request, None)

    async def notes(self, request: pb.ListNotesRequest) -> AsyncGenerator[pb.Note, None]:
        """All notes that match `request`, newest first, fetched page by page.

        Sets the limit and the cursor of `request`.
        """
        async for page in _pages(self._stub.ListNotes, request):
            for note in page.notes:
                yield note

    async def list_notes(self, request: pb.ListNotesRequest) -> pb.ListNotesReply:
        """One page of notes; see `notes`."""
        return await _call(self._stub.ListNotes, request)

    async def search_notes(self, request: pb.SearchNotesRequest) -> pb.SearchNotesReply:
        """The notes that match best, and warnings about the search."""
        return await _call(self._stub.SearchNotes, request)

    async def get_note(self, note_id: str, *, for_model: bool = False) -> pb.Note:
        """A note as it is stored, or as a model is shown it. Raises NOT_FOUND."""
        request = pb.GetNoteRequest(note_id=note_id, for_model=for_model)
        return await _call(self._stub.GetNote, request)

    async def save_note(self, text: str, tags: list[str], link: str) -> pb.SaveNoteReply:
        """Save `text`. It is saved only if the reply has a note id."""
        request = pb.SaveNoteRequest(text=text, tags=tags, link=link, channel=self._name)
        return await _call(self._stub.SaveNote, request)

    async def edit_note(self, request: pb.EditNoteRequest) -> pb.Note:
        """Edit a note and return its new version. Sets the channel of `request`.

        Raises NOT_FOUND, and CONFLICT if the note has another version than expected.
        """
        request.channel = self._name
        return await _call(self._stub.EditNote, request)

    async def delete_note(self, note_id: str, expected_version: int = 0) -> None:
        """Erase a note with all its versions. Raises NOT_FOUND, and CONFLICT if the note has
        another version than expected; 0: any."""
        request = pb.DeleteNoteRequest(note_id=note_id, expected_version=expected_version)
        await _call(self._stub.DeleteNote, request)

    async def changes(self, request: pb.ListChangesRequest) -> AsyncGenerator[pb.Change, None]:
        """All changes that match `request`; see `notes`."""
        async for page in _pages(self._stub.ListChanges, request):
            for change in page.changes:
                yield change

    async def undo_change(
        self, note_id: str, expected_version: int, *, may_forget: bool
    ) -> pb.UndoChangeReply:
        """Undo the last change of a note.

        Raises NOT_FOUND, CONFLICT, and FAILED_PRECONDITION if it must forget the note and may not.
        """
        request = pb.UndoChangeRequest(
            note_id=note_id,
            expected_version=expected_version,
            may_forget=may_forget,
            channel=self._name,
        )
        return await _call(self._stub.UndoChange, request)

    async def turn_diff(
        self, session_id: str, turn_id: str = "", path: str = ""
    ) -> pb.TurnDiffReply:
        """What a turn changed in projects; without `turn_id` the session's last one that did."""
        request = pb.TurnDiffRequest(session_id=session_id, turn_id=turn_id, path=path)
        return await _call(self._stub.TurnDiff, request, _ADMIN_S)

    async def undo_files(
        self, session_id: str, turn_id: str = "", *, asked: bool = False, paths: Iterable[str] = ()
    ) -> pb.UndoFilesReply:
        """Put back what a turn changed in projects; if a person was `asked`, also what others may
        have changed. Raises FAILED_PRECONDITION while a turn runs there."""
        request = pb.UndoFilesRequest(
            session_id=session_id,
            turn_id=turn_id,
            not_only_tools=asked,
            overwrite=asked,
            paths=paths,
        )
        return await _call(self._stub.UndoFiles, request, _ADMIN_S)

    async def review_memory(self, stale_days: int, limit: int) -> pb.ReviewMemoryReply:
        """Up to `limit` pairs of notes that say nearly the same, and up to `limit` stale notes."""
        request = pb.ReviewMemoryRequest(stale_days=stale_days, limit=limit)
        return await _call(self._stub.ReviewMemory, request, _REVIEW_S)

    async def memory_statistics(self) -> pb.MemoryStatisticsReply:
        return await _call(self._stub.MemoryStatistics, pb.MemoryStatisticsRequest(), _ADMIN_S)

    async def reembed_memory(self) -> int:
        """Recompute all vectors in the background. Returns the number of passages."""
        return (await _call(self._stub.ReembedMemory, pb.ReembedMemoryRequest(), _ADMIN_S)).passages

    async def set_memory_token(self) -> None:
        """Let the guest try the token that egress has for the upstream "memory-next"; raises
        `WireError` if the memory server does not accept it."""
        await _call(self._stub.SetMemoryToken, pb.SetMemoryTokenRequest(), _ADMIN_S)

    async def set_provider_key(self, provider: str, missing: str) -> None:
        """Tell the guest whether egress has a key for a model's provider: why not, or nothing."""
        request = pb.SetProviderKeyRequest(provider=provider, missing=missing)
        await _call(self._stub.SetProviderKey, request)

    async def set_peers(self, peers: pb.SetPeersRequest) -> None:
        """Tell the guest where the guests beside it are. Only the runner may."""
        await _call(self._stub.SetPeers, peers)

    async def back_up_memory(self) -> pb.BackupMemoryReply:
        """Write a consistent, checked copy of the memory into the workspace."""
        return await _call(self._stub.BackupMemory, pb.BackupMemoryRequest(), _BACKUP_S)

    async def read_backup(self, name: str) -> AsyncGenerator[bytes, None]:
        """The content of a backup that `back_up_memory` has made, in parts."""
        call = self._stub.ReadBackup(pb.ReadBackupRequest(name=name))
        try:
            while isinstance(part := await _part(call.read()), pb.BackupPart):
                yield part.data
        finally:
            call.cancel()

    async def remove_backup(self, name: str) -> None:
        await _call(self._stub.RemoveBackup, pb.RemoveBackupRequest(name=name))

    async def export_memory(self) -> AsyncGenerator[pb.ExportMemoryReply, None]:
        """Everything in the user's memory, in parts of whole lines."""
        call = self._stub.ExportMemory(pb.ExportMemoryRequest())
        try:
            while isinstance(part := await _part(call.read()), pb.ExportMemoryReply):
                yield part
        finally:
            call.cancel()

    async def import_memory(self, lines: bytes, *, dry_run: bool) -> pb.ImportMemoryReply:
        """Import lines of an export, of which the first is its header."""
        request = pb.ImportMemoryRequest(lines=lines, dry_run=dry_run)
        return await _part(self._stub.ImportMemory(request))


async def _to_outcome(
    call: "grpc.aio.UnaryStreamCall[Any, pb.TurnEvent]",
) -> AsyncGenerator[pb.TurnEvent, None]:
    try:
        async for event in call:
            yield event
            if event.WhichOneof("event") in ("completed", "incomplete", "failed"):
                return
    except grpc.aio.AioRpcError as error:
        raise _translate(error) from None
    finally:
        call.cancel()
    raise GatewayLost("the stream ended in the middle of a turn")


async def _call(
    rpc: Callable[..., Awaitable[_T]], request: object, timeout_s: float | None = _CALL_S
) -> _T:
    return await _answer(rpc(request, timeout=timeout_s))


async def _pages(
    rpc: Callable[..., Awaitable[_P]],
    request: pb.ListNotesRequest | pb.ListChangesRequest,
) -> AsyncGenerator[_P, None]:
    request.limit = _PAGE
    while True:
        page = await _call(rpc, request)
        yield page
        if not page.next_cursor:
            return
        request.cursor = page.next_cursor


async def _part(reply: Awaitable[_T]) -> _T:
    """Wait for one part of a long transfer. Raises TIMEOUT."""
    try:
        return await asyncio.wait_for(_answer(reply), _PART_S)
    except TimeoutError:
        raise WireError(
            Code.TIMEOUT,
            f"the agent has not answered for {_PART_S:.0f} seconds",
            resolution="runner logs",
        ) from None


async def _answer(reply: Awaitable[_T]) -> _T:
    try:
        return await reply
    except grpc.aio.AioRpcError as error:
        raise _translate(error) from None


def _translate(error: grpc.aio.AioRpcError) -> WireError:
    if error.details() == WRONG_TOKEN.brief:
        return GatewayLost("the agent was restarted and has a new launch token")
    said_by_the_gateway = any(key == ERROR_METADATA_KEY for key, _ in error.trailing_metadata())
    if error.code() in _TRANSPORT_FAILURES and not said_by_the_gateway:
        return GatewayLost(error.details() or error.code().name)
    return from_rpc_error(error)
