"""One user's notes behind the gateway: changes by the memory tools, everything else by asking."""

from collections.abc import Mapping, Sequence

from wire.errors import Code
from wire.limits import TOP_K_MAX
from wire.v1 import gateway_pb2

from guest.agent.turn import Pipeline
from guest.errors import StorageError
from guest.gateway import bounds, convert
from guest.gateway.paging import fitting
from guest.gateway.person import Person, Refused
from guest.memory.store import Memory
from guest.memory.types import NoteNotFound, StaleVersion

_LIST_DEFAULT = 50
_TOP_K_DEFAULT = 5


class Notes:
    """One user's notes behind the gateway."""

    def __init__(self, user_id: str, memory: Memory, administration: Pipeline) -> None:
        self._user_id = user_id
        self._memory = memory
        self._person = Person(user_id, administration)

    async def save(self, request: gateway_pb2.SaveNoteRequest) -> gateway_pb2.SaveNoteReply:
        arguments = {"content": bounds.note_text(request.text), "tags": bounds.tags(request.tags)}
        link = bounds.link(request.link)
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
        cursor, tag = bounds.cursor(request.cursor), bounds.tag(request.tag)
        kind, actor = bounds.note_type(request.type), bounds.actor(request.actor)

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
            return await fitting(bounds.limit(request.limit, default=_LIST_DEFAULT), page)

    async def search(self, request: gateway_pb2.SearchNotesRequest) -> gateway_pb2.SearchNotesReply:
        arguments = {
            "query": bounds.query(request.query),
            "top_k": bounds.limit(
                request.top_k, default=_TOP_K_DEFAULT, maximum=TOP_K_MAX, field="top_k"
            ),
            "tags": bounds.tags(request.tags),
            "include_conversation": request.include_conversation,
        }
        with convert.checked():
            found, warnings = await self._person.call("memory_search", arguments)
        return gateway_pb2.SearchNotesReply(
            notes=await self._explained([gateway_pb2.Note(**hit) for hit in found]),
            warnings=warnings,
        )

    async def get(self, request: gateway_pb2.GetNoteRequest) -> gateway_pb2.Note:
        note_id = bounds.identifier("note_id", request.note_id)
        with convert.checked():
            return convert.note(await self._memory.get(self._user_id, note_id))

    async def edit(self, request: gateway_pb2.EditNoteRequest) -> gateway_pb2.Note:
        note_id = bounds.identifier("note_id", request.note_id)
        arguments: dict[str, object] = {
            "note_id": note_id,
            "content": bounds.note_text(request.text),
        }
        if request.replace_tags:
            arguments["tags"] = bounds.tags(request.tags)
        if version := bounds.version("expected_version", request.expected_version):
            arguments["version"] = version
        await self._change("memory_update", arguments, note_id, request.channel)
        with convert.checked():
            return convert.note(await self._memory.get(self._user_id, note_id))

    async def delete(self, request: gateway_pb2.DeleteNoteRequest) -> gateway_pb2.DeleteNoteReply:
        note_id = bounds.identifier("note_id", request.note_id)
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
