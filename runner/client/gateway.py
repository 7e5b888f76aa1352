"""The gateway as a surface sees it: plain calls that raise `WireError`.

WireError             the gateway answered with this error
└── GatewayLost       there was no answer: the connection or the guest went away
"""

import uuid
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

import grpc
from wire.errors import Code, WireError
from wire.limits import ERROR_METADATA_KEY
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

_CALL_TIMEOUT_S = 30.0
_REVIEW_S = 300.0
_PAGE = 100
_TRANSPORT_FAILURES = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}
)

_T = TypeVar("_T")


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

    A restarted guest has another token: open a new client then.
    """

    def __init__(
        self, channel: grpc.aio.Channel, hello: gateway_pb2.HelloReply, channel_name: str
    ) -> None:
        self._channel = channel
        self._stub = gateway_pb2_grpc.GatewayStub(channel)
        self._channel_name = channel_name
        self.hello = hello

    @classmethod
    async def open(cls, endpoint: str, token: str, *, channel_name: str) -> "GatewayClient":
        """Connect and say hello. Raises `GatewayLost` where nobody answers.

        `channel_name` is what conversations and notes record as their origin.
        """
        channel = open_channel(endpoint, token)
        try:
            hello = await _unary(
                gateway_pb2_grpc.GatewayStub(channel).Hello(
                    gateway_pb2.HelloRequest(client=channel_name), timeout=_CALL_TIMEOUT_S
                )
            )
        except BaseException:
            await channel.close()
            raise
        return cls(channel, hello, channel_name)

    async def close(self) -> None:
        """Leave; a turn that still streams is cancelled by that."""
        await self._channel.close()

    async def refresh_hello(self) -> gateway_pb2.HelloReply:
        """Ask again: whether this launch still answers, and what is ready by now."""
        request = gateway_pb2.HelloRequest(client=self._channel_name)
        self.hello = await _unary(self._stub.Hello(request, timeout=_CALL_TIMEOUT_S))
        return self.hello

    async def create_session(self, session_id: str = "", title: str = "") -> gateway_pb2.Session:
        """A new session, or the user's own one that has this id already."""
        request = gateway_pb2.CreateSessionRequest(
            session_id=session_id, title=title, channel=self._channel_name
        )
        return await _unary(self._stub.CreateSession(request, timeout=_CALL_TIMEOUT_S))

    async def list_sessions(
        self, limit: int, *, include_archived: bool = False
    ) -> list[gateway_pb2.Session]:
        """The latest `limit` sessions, newest first."""
        request = gateway_pb2.ListSessionsRequest(limit=limit, include_archived=include_archived)
        reply = await _unary(self._stub.ListSessions(request, timeout=_CALL_TIMEOUT_S))
        return list(reply.sessions)

    async def get_session(self, session_id: str, limit: int) -> gateway_pb2.SessionHistory:
        """A session and its last `limit` events; NOT_FOUND where the user has no such one."""
        request = gateway_pb2.GetSessionRequest(session_id=session_id, limit=limit)
        return await _unary(self._stub.GetSession(request, timeout=_CALL_TIMEOUT_S))

    async def rename_session(self, session_id: str, title: str) -> gateway_pb2.Session:
        """Give a session another title; NOT_FOUND where the user has no such one."""
        request = gateway_pb2.RenameSessionRequest(session_id=session_id, title=title)
        return await _unary(self._stub.RenameSession(request, timeout=_CALL_TIMEOUT_S))

    async def archive_session(self, session_id: str, *, archived: bool) -> gateway_pb2.Session:
        """Put a session away, or take it out again; NOT_FOUND as above."""
        request = gateway_pb2.ArchiveSessionRequest(session_id=session_id, archived=archived)
        return await _unary(self._stub.ArchiveSession(request, timeout=_CALL_TIMEOUT_S))

    async def forget_session(self, session_id: str) -> None:
        """Remove a session and erase what was said in it, which takes as long as it takes.

        NOT_FOUND as above; CONFLICT while a turn runs in it.
        """
        request = gateway_pb2.ForgetSessionRequest(session_id=session_id)
        await _unary(self._stub.ForgetSession(request))

    async def run_turn(
        self, session_id: str, text: str, turn_id: str
    ) -> AsyncGenerator[gateway_pb2.TurnEvent, None]:
        """Events of one turn; the last one says that it completed or failed.

        Raises `GatewayLost` where the stream ends before that. Leaving the
        iteration cancels the turn.
        """
        call = self._stub.RunTurn(
            gateway_pb2.RunTurnRequest(
                session_id=session_id, text=text, turn_id=turn_id, channel=self._channel_name
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
        reply = await _unary(self._stub.CancelTurn(request, timeout=_CALL_TIMEOUT_S))
        return reply.cancelled

    async def call_tool(
        self, name: str, arguments_json: str, session_id: str = ""
    ) -> gateway_pb2.CallToolReply:
        """Call one tool without a model; as long as the tool takes."""
        request = gateway_pb2.CallToolRequest(
            name=name,
            arguments_json=arguments_json,
            session_id=session_id,
            channel=self._channel_name,
        )
        return await _unary(self._stub.CallTool(request))

    async def notes(
        self, request: gateway_pb2.ListNotesRequest
    ) -> AsyncGenerator[gateway_pb2.Note, None]:
        """All notes that `request` asks for, the newest first, fetched as they are taken.

        Its limit and its cursor are set here.
        """
        while True:
            request.limit = _PAGE
            reply = await _unary(self._stub.ListNotes(request, timeout=_CALL_TIMEOUT_S))
            for note in reply.notes:
                yield note
            if not reply.next_cursor:
                return
            request.cursor = reply.next_cursor

    async def search_notes(
        self, request: gateway_pb2.SearchNotesRequest
    ) -> gateway_pb2.SearchNotesReply:
        """The notes that fit best, and what went wrong while they were looked for."""
        return await _unary(self._stub.SearchNotes(request, timeout=_CALL_TIMEOUT_S))

    async def get_note(self, note_id: str) -> gateway_pb2.Note:
        """A note as it is stored; NOT_FOUND where the user has no such one."""
        request = gateway_pb2.GetNoteRequest(note_id=note_id)
        return await _unary(self._stub.GetNote(request, timeout=_CALL_TIMEOUT_S))

    async def save_note(self, text: str, tags: list[str], link: str) -> gateway_pb2.SaveNoteReply:
        """Keep `text`. It is kept where the reply has a note id."""
        request = gateway_pb2.SaveNoteRequest(
            text=text, tags=tags, link=link, channel=self._channel_name
        )
        return await _unary(self._stub.SaveNote(request, timeout=_CALL_TIMEOUT_S))

    async def edit_note(self, request: gateway_pb2.EditNoteRequest) -> gateway_pb2.Note:
        """A note as it is then; NOT_FOUND as above, CONFLICT where it has another version.

        The request's channel is set here.
        """
        request.channel = self._channel_name
        return await _unary(self._stub.EditNote(request, timeout=_CALL_TIMEOUT_S))

    async def delete_note(self, note_id: str) -> None:
        """Erase a note with all its versions; NOT_FOUND as above."""
        request = gateway_pb2.DeleteNoteRequest(note_id=note_id)
        await _unary(self._stub.DeleteNote(request, timeout=_CALL_TIMEOUT_S))

    async def changes(
        self, request: gateway_pb2.ListChangesRequest
    ) -> AsyncGenerator[gateway_pb2.Change, None]:
        """All changes that `request` asks for, in the way of `notes`."""
        while True:
            request.limit = _PAGE
            reply = await _unary(self._stub.ListChanges(request, timeout=_CALL_TIMEOUT_S))
            for change in reply.changes:
                yield change
            if not reply.next_cursor:
                return
            request.cursor = reply.next_cursor

    async def undo_change(
        self, note_id: str, expected_version: int, *, may_forget: bool
    ) -> gateway_pb2.UndoChangeReply:
        """Take the last change of a note back. NOT_FOUND and CONFLICT as above;
        FAILED_PRECONDITION where that means to forget it and `may_forget` is false."""
        request = gateway_pb2.UndoChangeRequest(
            note_id=note_id,
            expected_version=expected_version,
            may_forget=may_forget,
            channel=self._channel_name,
        )
        return await _unary(self._stub.UndoChange(request, timeout=_CALL_TIMEOUT_S))

    async def review_memory(self, stale_days: int, limit: int) -> gateway_pb2.ReviewMemoryReply:
        """Up to `limit` pairs of notes that say nearly the same, and as many stale notes."""
        request = gateway_pb2.ReviewMemoryRequest(stale_days=stale_days, limit=limit)
        return await _unary(self._stub.ReviewMemory(request, timeout=_REVIEW_S))

    async def answer_approval(self, approval_id: str, approved: bool) -> bool:
        """Whether the turn still waited for this answer."""
        request = gateway_pb2.AnswerApprovalRequest(approval_id=approval_id, approved=approved)
        reply = await _unary(self._stub.AnswerApproval(request, timeout=_CALL_TIMEOUT_S))
        return reply.accepted


async def _unary(call: Awaitable[_T]) -> _T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise _translate(error) from None


def _translate(error: grpc.aio.AioRpcError) -> WireError:
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return GatewayLost("the agent was restarted and has a new launch token")
    said_by_the_gateway = any(key == ERROR_METADATA_KEY for key, _ in error.trailing_metadata())
    if error.code() in _TRANSPORT_FAILURES and not said_by_the_gateway:
        return GatewayLost(error.details() or error.code().name)
    return from_rpc_error(error)
