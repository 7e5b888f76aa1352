"""The agent's gateway for everything on the host: plain calls that raise `WireError`.

WireError             the gateway answered with this error
└── GatewayLost       there was no answer: the connection or the guest went away
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Self, TypeVar

import grpc
from wire.errors import Code, WireError
from wire.limits import ERROR_METADATA_KEY
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

_CALL_S: Final = 30.0
_ADMIN_S: Final = 60.0
_REVIEW_S: Final = 300.0
_PART_S: Final = 600.0
"""How long one part of an export or import may take: a slow server stores a mebibyte slowly."""
_BACKUP_S: Final = 3600.0
_PAGE: Final = 100
_TRANSPORT_FAILURES: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}
)

_T = TypeVar("_T")
_P = TypeVar("_P", gateway_pb2.ListNotesReply, gateway_pb2.ListChangesReply)


class GatewayLost(WireError):  # noqa: N818 - a condition, not a bug
    """The gateway went away without an answer, or another launch took its place."""

    def __init__(self, details: str) -> None:
        super().__init__(
            Code.UNAVAILABLE, "the agent went away", details=details, resolution="runner logs"
        )


def new_turn_id() -> str:
    """An id for a turn, chosen by the caller so that the turn can be cancelled at once."""
    return f"turn-{uuid.uuid4()}"


class GatewayClient:
    """One connection to one launch of the agent guest.

    A restarted guest has another token: open a new client then. `name` is what
    conversations and notes record as the channel that they came through.
    """

    def __init__(self, channel: grpc.aio.Channel, name: str) -> None:
        self._channel = channel
        self._stub = gateway_pb2_grpc.GatewayStub(channel)
        self._name = name
        self.hello = gateway_pb2.HelloReply()

    @classmethod
    async def open(cls, endpoint: str, token: str, *, channel_name: str) -> Self:
        """Connect and say hello. Raises `GatewayLost` where nobody answers."""
        client = cls(open_channel(endpoint, token), channel_name)
        try:
            await client.refresh_hello()
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave; a turn that still streams is cancelled by that."""
        await self._channel.close()

    async def refresh_hello(self) -> gateway_pb2.HelloReply:
        """Ask again: whether this launch still answers, and what is ready by now."""
        request = gateway_pb2.HelloRequest(client=self._name)
        self.hello = await _call(self._stub.Hello, request)
        return self.hello

    async def create_session(self, session_id: str = "", title: str = "") -> gateway_pb2.Session:
        """A new session, or the user's own one that has this id already."""
        request = gateway_pb2.CreateSessionRequest(
            session_id=session_id, title=title, channel=self._name
        )
        return await _call(self._stub.CreateSession, request)

    async def list_sessions(
        self, limit: int, *, include_archived: bool = False
    ) -> list[gateway_pb2.Session]:
        """The latest `limit` sessions, newest first."""
        request = gateway_pb2.ListSessionsRequest(limit=limit, include_archived=include_archived)
        reply = await _call(self._stub.ListSessions, request)
        return list(reply.sessions)

    async def get_session(self, session_id: str, limit: int) -> gateway_pb2.SessionHistory:
        """A session and its last `limit` events; NOT_FOUND where the user has no such one."""
        request = gateway_pb2.GetSessionRequest(session_id=session_id, limit=limit)
        return await _call(self._stub.GetSession, request)

    async def rename_session(self, session_id: str, title: str) -> gateway_pb2.Session:
        """Give a session another title; NOT_FOUND where the user has no such one."""
        request = gateway_pb2.RenameSessionRequest(session_id=session_id, title=title)
        return await _call(self._stub.RenameSession, request)

    async def archive_session(self, session_id: str, *, archived: bool) -> gateway_pb2.Session:
        """Put a session away, or take it out again; NOT_FOUND as above."""
        request = gateway_pb2.ArchiveSessionRequest(session_id=session_id, archived=archived)
        return await _call(self._stub.ArchiveSession, request)

    async def forget_session(self, session_id: str) -> None:
        """Remove a session and erase what was said in it, which takes as long as it takes.

        NOT_FOUND as above; CONFLICT while a turn runs in it.
        """
        request = gateway_pb2.ForgetSessionRequest(session_id=session_id)
        await _call(self._stub.ForgetSession, request, None)

    async def run_turn(
        self, session_id: str, text: str, turn_id: str
    ) -> AsyncGenerator[gateway_pb2.TurnEvent, None]:
        """Events of one turn; the last one says that it completed or failed.

        Raises `GatewayLost` where the stream ends before that. Leaving the
        iteration cancels the turn.
        """
        call = self._stub.RunTurn(
            gateway_pb2.RunTurnRequest(
                session_id=session_id, text=text, turn_id=turn_id, channel=self._name
            )
        )
        try:
            async for event in call:
                yield event
                if event.WhichOneof("event") in ("completed", "failed"):
                    return
        except grpc.aio.AioRpcError as error:
            raise _translate(error) from None
        finally:
            call.cancel()
        raise GatewayLost("the stream ended in mid-turn")

    async def cancel_turn(self, turn_id: str) -> bool:
        """Whether such a turn was running; its stream then ends with a failed event."""
        request = gateway_pb2.CancelTurnRequest(turn_id=turn_id)
        reply = await _call(self._stub.CancelTurn, request)
        return reply.cancelled

    async def call_tool(
        self, name: str, arguments_json: str, session_id: str = ""
    ) -> gateway_pb2.CallToolReply:
        """Call one tool without a model; as long as the tool takes."""
        request = gateway_pb2.CallToolRequest(
            name=name,
            arguments_json=arguments_json,
            session_id=session_id,
            channel=self._name,
        )
        return await _call(self._stub.CallTool, request, None)

    async def notes(
        self, request: gateway_pb2.ListNotesRequest
    ) -> AsyncGenerator[gateway_pb2.Note, None]:
        """All notes that `request` asks for, the newest first, fetched as they are taken.

        Its limit and its cursor are set here.
        """
        async for page in _pages(self._stub.ListNotes, request):
            for note in page.notes:
                yield note

    async def search_notes(
        self, request: gateway_pb2.SearchNotesRequest
    ) -> gateway_pb2.SearchNotesReply:
        """The notes that fit best, and what went wrong while they were looked for."""
        return await _call(self._stub.SearchNotes, request)

    async def get_note(self, note_id: str) -> gateway_pb2.Note:
        """A note as it is stored; NOT_FOUND where the user has no such one."""
        request = gateway_pb2.GetNoteRequest(note_id=note_id)
        return await _call(self._stub.GetNote, request)

    async def save_note(self, text: str, tags: list[str], link: str) -> gateway_pb2.SaveNoteReply:
        """Keep `text`. It is kept where the reply has a note id."""
        request = gateway_pb2.SaveNoteRequest(text=text, tags=tags, link=link, channel=self._name)
        return await _call(self._stub.SaveNote, request)

    async def edit_note(self, request: gateway_pb2.EditNoteRequest) -> gateway_pb2.Note:
        """A note as it is then; NOT_FOUND as above, CONFLICT where it has another version.

        The request's channel is set here.
        """
        request.channel = self._name
        return await _call(self._stub.EditNote, request)

    async def delete_note(self, note_id: str) -> None:
        """Erase a note with all its versions; NOT_FOUND as above."""
        request = gateway_pb2.DeleteNoteRequest(note_id=note_id)
        await _call(self._stub.DeleteNote, request)

    async def changes(
        self, request: gateway_pb2.ListChangesRequest
    ) -> AsyncGenerator[gateway_pb2.Change, None]:
        """All changes that `request` asks for, in the way of `notes`."""
        async for page in _pages(self._stub.ListChanges, request):
            for change in page.changes:
                yield change

    async def undo_change(
        self, note_id: str, expected_version: int, *, may_forget: bool
    ) -> gateway_pb2.UndoChangeReply:
        """Take the last change of a note back. NOT_FOUND and CONFLICT as above;
        FAILED_PRECONDITION where that means to forget it and `may_forget` is false."""
        request = gateway_pb2.UndoChangeRequest(
            note_id=note_id,
            expected_version=expected_version,
            may_forget=may_forget,
            channel=self._name,
        )
        return await _call(self._stub.UndoChange, request)

    async def review_memory(self, stale_days: int, limit: int) -> gateway_pb2.ReviewMemoryReply:
        """Up to `limit` pairs of notes that say nearly the same, and as many stale notes."""
        request = gateway_pb2.ReviewMemoryRequest(stale_days=stale_days, limit=limit)
        return await _call(self._stub.ReviewMemory, request, _REVIEW_S)

    async def answer_approval(self, approval_id: str, approved: bool) -> bool:
        """Whether the turn still waited for this answer."""
        request = gateway_pb2.AnswerApprovalRequest(approval_id=approval_id, approved=approved)
        reply = await _call(self._stub.AnswerApproval, request)
        return reply.accepted

    async def memory_statistics(self) -> gateway_pb2.MemoryStatisticsReply:
        """What the memory holds, and how it is."""
        request = gateway_pb2.MemoryStatisticsRequest()
        return await _call(self._stub.MemoryStatistics, request, _ADMIN_S)

    async def reembed_memory(self) -> int:
        """Have all vectors made anew, in the background; of how many passages."""
        request = gateway_pb2.ReembedMemoryRequest()
        return (await _call(self._stub.ReembedMemory, request, _ADMIN_S)).passages

    async def set_memory_token(self, token: str) -> None:
        """Have the guest use another token, once the memory server has accepted it."""
        request = gateway_pb2.SetMemoryTokenRequest(auth_token=token)
        await _call(self._stub.SetMemoryToken, request, _ADMIN_S)

    async def back_up_memory(self) -> gateway_pb2.BackupMemoryReply:
        """A consistent, checked copy of the memory, in the workspace."""
        return await _call(self._stub.BackupMemory, gateway_pb2.BackupMemoryRequest(), _BACKUP_S)

    async def export_memory(self) -> AsyncGenerator[gateway_pb2.ExportMemoryReply, None]:
        """Everything of the user, in parts of whole lines."""
        call = self._stub.ExportMemory(gateway_pb2.ExportMemoryRequest())
        try:
            while isinstance(part := await _part(call.read()), gateway_pb2.ExportMemoryReply):
                yield part
        finally:
            call.cancel()

    async def import_memory(self, lines: bytes, *, dry_run: bool) -> gateway_pb2.ImportMemoryReply:
        """Store lines of an export; the first is its header."""
        request = gateway_pb2.ImportMemoryRequest(lines=lines, dry_run=dry_run)
        return await _part(self._stub.ImportMemory(request))


async def _call(
    rpc: Callable[..., Awaitable[_T]], request: object, timeout_s: float | None = _CALL_S
) -> _T:
    return await _answer(rpc(request, timeout=timeout_s))


async def _pages(
    rpc: Callable[..., Awaitable[_P]],
    request: gateway_pb2.ListNotesRequest | gateway_pb2.ListChangesRequest,
) -> AsyncGenerator[_P, None]:
    request.limit = _PAGE
    while True:
        page = await _call(rpc, request)
        yield page
        if not page.next_cursor:
            return
        request.cursor = page.next_cursor


async def _part(reply: Awaitable[_T]) -> _T:
    """One part of a long transfer. Raises TIMEOUT where it does not come."""
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
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return GatewayLost("the agent was restarted and has a new launch token")
    said_by_the_gateway = any(key == ERROR_METADATA_KEY for key, _ in error.trailing_metadata())
    if error.code() in _TRANSPORT_FAILURES and not said_by_the_gateway:
        return GatewayLost(error.details() or error.code().name)
    return from_rpc_error(error)
