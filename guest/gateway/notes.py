"""Memory administration by a person: straight on memory, with the user as actor."""

from wire.limits import TOP_K_MAX
from wire.v1 import gateway_pb2

from guest.gateway import bounds, convert
from guest.memory.store import Memory
from guest.memory.types import Origin

_LIST_DEFAULT = 50
_TOP_K_DEFAULT = 5


class Notes:
    """One user's notes behind the gateway."""

    def __init__(self, user_id: str, memory: Memory) -> None:
        self._user_id = user_id
        self._memory = memory

    async def list(self, request: gateway_pb2.ListNotesRequest) -> gateway_pb2.ListNotesReply:
        limit = bounds.limit(request.limit, default=_LIST_DEFAULT)
        cursor = bounds.at_most("cursor", request.cursor, bounds.CURSOR_MAX_CHARS)
        with convert.checked():
            notes, following = await self._memory.list(self._user_id, limit, cursor)
        return gateway_pb2.ListNotesReply(notes=map(convert.note, notes), next_cursor=following)

    async def search(self, request: gateway_pb2.SearchNotesRequest) -> gateway_pb2.SearchNotesReply:
        outcome = await self._memory.search(
            self._user_id,
            bounds.query(request.query),
            top_k=bounds.limit(
                request.top_k, default=_TOP_K_DEFAULT, maximum=TOP_K_MAX, field="top_k"
            ),
            tags=bounds.tags(request.tags),
            include_conversation=request.include_conversation,
        )
        return gateway_pb2.SearchNotesReply(
            notes=map(convert.hit, outcome.hits), warnings=outcome.warnings
        )

    async def get(self, request: gateway_pb2.GetNoteRequest) -> gateway_pb2.Note:
        note_id = bounds.identifier("note_id", request.note_id)
        with convert.checked():
            return convert.note(await self._memory.get(self._user_id, note_id))

    async def edit(self, request: gateway_pb2.EditNoteRequest) -> gateway_pb2.Note:
        note_id = bounds.identifier("note_id", request.note_id)
        text, tags = bounds.note_text(request.text), bounds.tags(request.tags)
        with convert.checked():
            edited = await self._memory.update(
                self._user_id,
                note_id,
                text,
                tags if request.replace_tags else None,
                Origin(actor="user"),
                expected_version=request.expected_version or None,
            )
        return convert.note(edited)

    async def delete(self, request: gateway_pb2.DeleteNoteRequest) -> gateway_pb2.DeleteNoteReply:
        note_id = bounds.identifier("note_id", request.note_id)
        with convert.checked():
            await self._memory.delete(self._user_id, note_id)
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
