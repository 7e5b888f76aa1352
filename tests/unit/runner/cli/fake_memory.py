"""One user's notes behind a real gRPC server, on threads so that commands keep their own loop."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from wire.errors import Code, WireError
from wire.limits import ERROR_METADATA_KEY
from wire.status import STATUS_OF
from wire.v1 import common_pb2, gateway_pb2, gateway_pb2_grpc

Change = gateway_pb2.Change
Note = gateway_pb2.Note
Origin = gateway_pb2.NoteOrigin


class FakeMemory(gateway_pb2_grpc.GatewayServicer):
    """Notes in their order, the changes of each, newest first; pages of at most `page`.

    `refusal` is what a change of a note is refused with, once `accepted` were done.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.page = 100
        self.sessions: list[gateway_pb2.Session] = []
        self.notes: dict[str, Note] = {}
        self.log: list[Change] = []
        self.seen: list[Any] = []
        self.events: list[gateway_pb2.HistoryEvent] = []
        self.warnings: list[str] = []
        self.refusal: WireError | None = None
        self.accepted = 0
        self.saved = gateway_pb2.SaveNoteReply()
        self.reviewed = gateway_pb2.ReviewMemoryReply()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        gateway_pb2_grpc.add_GatewayServicer_to_server(self, self._server)
        self._server.add_insecure_port(endpoint)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

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

    def Hello(self, request: Any, context: Any) -> gateway_pb2.HelloReply:
        return gateway_pb2.HelloReply(user_id="default")

    def ListSessions(self, request: Any, context: Any) -> gateway_pb2.ListSessionsReply:
        return gateway_pb2.ListSessionsReply(sessions=self.sessions)

    def GetSession(
        self, request: gateway_pb2.GetSessionRequest, context: Any
    ) -> gateway_pb2.SessionHistory:
        (session,) = (each for each in self.sessions if each.session_id == request.session_id)
        return gateway_pb2.SessionHistory(session=session, events=self.events)

    def ForgetSession(
        self, request: gateway_pb2.ForgetSessionRequest, context: Any
    ) -> gateway_pb2.ForgetSessionReply:
        self.sessions = [each for each in self.sessions if each.session_id != request.session_id]
        return gateway_pb2.ForgetSessionReply()

    def ListNotes(
        self, request: gateway_pb2.ListNotesRequest, context: Any
    ) -> gateway_pb2.ListNotesReply:
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
        begin = int(request.cursor or 0)
        end = begin + min(request.limit, self.page)
        return gateway_pb2.ListNotesReply(
            notes=chosen[begin:end], next_cursor=str(end) if end < len(chosen) else ""
        )

    def SearchNotes(
        self, request: gateway_pb2.SearchNotesRequest, context: Any
    ) -> gateway_pb2.SearchNotesReply:
        self.seen.append(request)
        found = [note for note in self.notes.values() if request.query in note.text]
        return gateway_pb2.SearchNotesReply(notes=found[: request.top_k], warnings=self.warnings)

    def GetNote(self, request: gateway_pb2.GetNoteRequest, context: Any) -> Note:
        return self._note(request.note_id, context)

    def SaveNote(
        self, request: gateway_pb2.SaveNoteRequest, context: Any
    ) -> gateway_pb2.SaveNoteReply:
        self._change(request, context)
        return self.saved

    def EditNote(self, request: gateway_pb2.EditNoteRequest, context: Any) -> Note:
        self._change(request, context)
        note = self._note(request.note_id, context)
        note.text = request.text
        note.version += 1
        if request.replace_tags:
            note.tags[:] = request.tags
        return note

    def DeleteNote(
        self, request: gateway_pb2.DeleteNoteRequest, context: Any
    ) -> gateway_pb2.DeleteNoteReply:
        self._note(request.note_id, context)
        self._change(request, context)
        del self.notes[request.note_id]
        return gateway_pb2.DeleteNoteReply()

    def ListChanges(
        self, request: gateway_pb2.ListChangesRequest, context: Any
    ) -> gateway_pb2.ListChangesReply:
        self.seen.append(request)
        chosen = [
            each
            for each in self.log
            if request.note_id in ("", each.note_id)
            and request.actor in ("", each.origin.actor)
            and (each.origin.material or not request.material_only)
            and request.session_id in ("", each.origin.session_id)
        ]
        begin = int(request.cursor or 0)
        end = begin + min(request.limit, self.page)
        return gateway_pb2.ListChangesReply(
            changes=chosen[begin:end], next_cursor=str(end) if end < len(chosen) else ""
        )

    def UndoChange(
        self, request: gateway_pb2.UndoChangeRequest, context: Any
    ) -> gateway_pb2.UndoChangeReply:
        self._change(request, context)
        note = self._note(request.note_id, context)
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

    def ReviewMemory(
        self, request: gateway_pb2.ReviewMemoryRequest, context: Any
    ) -> gateway_pb2.ReviewMemoryReply:
        self.seen.append(request)
        return self.reviewed

    def _note(self, note_id: str, context: Any) -> Note:
        if note_id not in self.notes:
            refuse(context, WireError(Code.NOT_FOUND, f"note not found: {note_id}"))
        return self.notes[note_id]

    def _change(self, request: Any, context: Any) -> None:
        self.seen.append(request)
        if self.refusal is not None and self.accepted == 0:
            refuse(context, self.refusal)
        self.accepted -= 1


def refuse(context: Any, error: WireError) -> None:
    """End a call the way the guest does; does not return."""
    detail = common_pb2.ErrorDetail(
        code=error.code.value,
        brief=error.brief,
        details=error.details,
        resolution=error.resolution,
    )
    context.set_trailing_metadata(((ERROR_METADATA_KEY, detail.SerializeToString()),))
    context.abort(STATUS_OF[error.code], error.brief)
