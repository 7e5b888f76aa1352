"""One user's notes behind the gateway."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wire.errors import Code
from wire.limits import TOP_K_MAX
from wire.v1 import gateway_pb2

from guest.agent.turn import Pipeline
from guest.errors import GuestError, StorageError
from guest.gateway import convert, validation
from guest.gateway.validation import fitting
from guest.memory.memory import Memory
from guest.memory.models import MemoryFull, NoteNotFound, StaleVersion
from guest.tools.base import ToolContext

_CHANNEL: Final = "gateway"


class Refused(GuestError):  # noqa: N818 - a condition that callers expect and handle
    """A memory tool has refused a call."""


def channel_of(given: str) -> str:
    """Where the origin of a note says that a person has written it. Raises `GuestError`."""
    return validation.identifier("channel", given, optional=True) or _CHANNEL


class Person:
    """Calls tools for one user, who has decided on every call and vouches for its text."""

    def __init__(self, user_id: str, pipeline: Pipeline) -> None:
        self._user_id = user_id
        self._pipeline = pipeline

    async def call(
        self, tool: str, arguments: Mapping[str, object], *, link: str = "", channel: str = ""
    ) -> tuple[Any, list[str]]:
        """What the tool has answered, and what is to be known of it besides.

        Raises `MemoryFull`, and `Refused` with the code of any other refusal.
        """
        caller = ToolContext(self._user_id, "", "", channel_of(channel), actor="user", link=link)
        result = await self._pipeline.call(caller, tool, arguments)
        if result.code is Code.RESOURCE_EXHAUSTED:
            raise MemoryFull(result.text)
        if result.is_error:
            raise Refused(result.code or Code.INTERNAL, result.text)
        data, end = json.JSONDecoder().raw_decode(result.text)
        return data, result.text[end:].split("\nNote: ")[1:]


_CHANGES_DEFAULT = 50
_REVIEW_DEFAULT = 50
_STALE_DAYS_DEFAULT = 180
_TOO_LONG = (
    "only the first {most} of each are shown: all of these notes are too long for one answer"
)


class History:
    """One user's changes behind the gateway."""

    def __init__(self, user_id: str, memory: Memory) -> None:
        self._user_id = user_id
        self._memory = memory

    async def changes(
        self, request: gateway_pb2.ListChangesRequest
    ) -> gateway_pb2.ListChangesReply:
        note_id = validation.identifier("note_id", request.note_id, optional=True)
        cursor, actor = validation.cursor(request.cursor), validation.actor(request.actor)
        session_id = validation.identifier("session_id", request.session_id, optional=True)

        async def page(limit: int) -> gateway_pb2.ListChangesReply:
            changes, following = await self._memory.history.changes(
                self._user_id,
                note_id=note_id,
                limit=limit,
                cursor=cursor,
                actor=actor,
                material_only=request.material_only,
                session_id=session_id,
            )
            return gateway_pb2.ListChangesReply(
                changes=map(convert.change, changes), next_cursor=following
            )

        limit = validation.limit(request.limit, default=_CHANGES_DEFAULT)
        with convert.checked():
            if note_id:
                await self._memory.get(self._user_id, note_id)
            return await fitting(limit, page)

    async def undo(self, request: gateway_pb2.UndoChangeRequest) -> gateway_pb2.UndoChangeReply:
        note_id = validation.identifier("note_id", request.note_id)
        expected = validation.version("expected_version", request.expected_version)
        channel = channel_of(request.channel)
        with convert.checked():
            undone = await self._memory.history.undo(
                self._user_id,
                note_id,
                expected_version=expected,
                may_forget=request.may_forget,
                channel=channel,
            )
        return gateway_pb2.UndoChangeReply(
            done=undone.done, note=convert.note(undone.note) if undone.note else None
        )

    async def review(
        self, request: gateway_pb2.ReviewMemoryRequest
    ) -> gateway_pb2.ReviewMemoryReply:
        stale_days = validation.limit(
            request.stale_days,
            default=_STALE_DAYS_DEFAULT,
            maximum=validation.STALE_DAYS_MAX,
            field="stale_days",
        )
        limit = validation.limit(request.limit, default=_REVIEW_DEFAULT)
        with convert.checked():
            reviewed = await self._memory.review(self._user_id, stale_days=stale_days, limit=limit)
        found = max(len(reviewed.near), len(reviewed.stale))

        async def first(most: int) -> gateway_pb2.ReviewMemoryReply:
            cut = (_TOO_LONG.format(most=most),) if most < found else ()
            return gateway_pb2.ReviewMemoryReply(
                near=map(convert.near, reviewed.near[:most]),
                stale=map(convert.note, reviewed.stale[:most]),
                warnings=(*reviewed.warnings, *cut),
            )

        return await fitting(found, first)


_LIST_DEFAULT = 50
_TOP_K_DEFAULT = 5


class Notes:
    """One user's notes behind the gateway."""

    def __init__(self, user_id: str, memory: Memory, administration: Pipeline) -> None:
        self._user_id = user_id
        self._memory = memory
        self._person = Person(user_id, administration)

    async def save(self, request: gateway_pb2.SaveNoteRequest) -> gateway_pb2.SaveNoteReply:
        arguments = {
            "content": validation.note_text(request.text),
            "tags": validation.tags(request.tags),
        }
        link = validation.link(request.link)
        with convert.checked():
            saved, warnings = await self._person.call(
                "memory_save", arguments, link=link, channel=request.channel
            )
        return gateway_pb2.SaveNoteReply(
            note_id=saved["note_id"],
            message="\n".join([saved["message"], *warnings]),
            searchable=saved["searchable"],
            similar=[
                gateway_pb2.Note(note_id=near["id"], text=near["text"], score=near["score"])
                for near in saved["similar"]
            ],
        )

    async def list(self, request: gateway_pb2.ListNotesRequest) -> gateway_pb2.ListNotesReply:
        cursor, tag = validation.cursor(request.cursor), validation.tag(request.tag)
        kind, actor = validation.note_type(request.type), validation.actor(request.actor)

        async def page(limit: int) -> gateway_pb2.ListNotesReply:
            notes, following = await self._memory.list(
                self._user_id,
                limit,
                cursor,
                include_superseded=request.include_superseded,
                type=kind,
                actor=actor,
                material_only=request.material_only,
                tag=tag,
            )
            return gateway_pb2.ListNotesReply(notes=map(convert.note, notes), next_cursor=following)

        with convert.checked():
            return await fitting(validation.limit(request.limit, default=_LIST_DEFAULT), page)

    async def search(self, request: gateway_pb2.SearchNotesRequest) -> gateway_pb2.SearchNotesReply:
        arguments = {
            "query": validation.query(request.query),
            "top_k": validation.limit(
                request.top_k, default=_TOP_K_DEFAULT, maximum=TOP_K_MAX, field="top_k"
            ),
            "tags": validation.tags(request.tags),
            "include_conversation": request.include_conversation,
        }
        with convert.checked():
            found, warnings = await self._person.call("memory_search", arguments)
        return gateway_pb2.SearchNotesReply(
            notes=await self._explained([gateway_pb2.Note(**hit) for hit in found]),
            warnings=warnings,
        )

    async def get(self, request: gateway_pb2.GetNoteRequest) -> gateway_pb2.Note:
        note_id = validation.identifier("note_id", request.note_id)
        with convert.checked():
            return convert.note(await self._memory.get(self._user_id, note_id))

    async def edit(self, request: gateway_pb2.EditNoteRequest) -> gateway_pb2.Note:
        note_id = validation.identifier("note_id", request.note_id)
        arguments: dict[str, object] = {
            "note_id": note_id,
            "content": validation.note_text(request.text),
        }
        if request.replace_tags:
            arguments["tags"] = validation.tags(request.tags)
        if version := validation.version("expected_version", request.expected_version):
            arguments["version"] = version
        await self._change("memory_update", arguments, note_id, request.channel)
        with convert.checked():
            return convert.note(await self._memory.get(self._user_id, note_id))

    async def delete(self, request: gateway_pb2.DeleteNoteRequest) -> gateway_pb2.DeleteNoteReply:
        note_id = validation.identifier("note_id", request.note_id)
        await self._change("memory_delete", {"note_id": note_id}, note_id)
        return gateway_pb2.DeleteNoteReply()

    async def statistics(self) -> gateway_pb2.MemoryStatisticsReply:
        counts = await self._memory.statistics(self._user_id)
        return gateway_pb2.MemoryStatisticsReply(
            notes=counts.notes,
            note_versions=counts.note_versions,
            passages=counts.passages,
            passages_embedded=counts.passages_embedded,
            sessions=counts.sessions,
            conversation_events=counts.conversation_events,
            database_bytes=counts.database_bytes,
            embedding_model=counts.embedding_model,
            embedder=await self._memory.embedder_state(),
            schema_version=counts.schema_version,
            store=counts.store,
            state=counts.state,
            replica_synced_at=counts.replica_synced_at,
            encrypted=self._memory.encrypted,
            archived_sessions=counts.archived_sessions,
            vectors=[
                gateway_pb2.ModelVectors(model=model, vectors=vectors)
                for model, vectors in counts.vectors.items()
                if counts.vectors.keys() != {counts.embedding_model}
            ],
        )

    async def reembed(self) -> gateway_pb2.ReembedMemoryReply:
        return gateway_pb2.ReembedMemoryReply(passages=await self._memory.reembed(self._user_id))

    async def _explained(self, hits: Sequence[gateway_pb2.Note]) -> Sequence[gateway_pb2.Note]:
        """The hits of a search, each with what a list says of its note besides: its origin,
        type and key. Without them where the store cannot be asked."""
        note_ids = [hit.note_id for hit in hits if hit.note_id]
        try:
            found = await self._memory.get_many(self._user_id, note_ids)
        except StorageError:
            return hits
        known = {note.note_id: convert.note(note) for note in found}
        for hit in hits:
            if (note := known.get(hit.note_id)) is not None:
                hit.origin.CopyFrom(note.origin)
                hit.type, hit.key = note.type, note.key
        return hits

    async def _change(
        self, tool: str, arguments: Mapping[str, object], note_id: str, channel: str = ""
    ) -> None:
        """Have a note changed; a refusal is told in the words of every other call on notes."""
        with convert.checked():
            try:
                await self._person.call(tool, arguments, channel=channel)
            except Refused as refused:
                if refused.code is Code.NOT_FOUND:
                    raise NoteNotFound(note_id) from None
                if refused.code is Code.CONFLICT:
                    raise StaleVersion(await self._memory.get(self._user_id, note_id)) from None
                raise
