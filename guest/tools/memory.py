"""The four memory tools: notes in plain language, per user, across sessions and channels."""

import logging
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, Field
from wire.errors import Code
from wire.limits import (
    NOTE_MAX_CHARS,
    QUERY_MAX_CHARS,
    SEQUENCE_MAX,
    TAG_MAX_CHARS,
    TAGS_MAX,
    TOP_K_MAX,
)

from guest.errors import ToolError
from guest.memory.types import (
    Hit,
    Note,
    NoteNotFound,
    Origin,
    SaveOutcome,
    SearchOutcome,
    StaleVersion,
)
from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput

_SEARCH_TIMEOUT_S = 15.0
_WRITE_TIMEOUT_S = 10.0
_SCORE_DIGITS = 4
_NOTE_ID_MAX_CHARS = 64


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


Tag = Annotated[str, Field(min_length=1, max_length=TAG_MAX_CHARS), AfterValidator(_not_blank)]
Content = Annotated[
    str,
    Field(min_length=1, max_length=NOTE_MAX_CHARS, description="One fact or topic, in full words."),
    AfterValidator(_not_blank),
]
NoteId = Annotated[
    str, Field(max_length=_NOTE_ID_MAX_CHARS, description="A note_id from memory_search.")
]


class NoteStore(Protocol):
    """The part of `guest.memory.store.Memory` that these tools need."""

    async def save(
        self, user_id: str, text: str, tags: list[str], origin: Origin
    ) -> SaveOutcome: ...

    async def update(
        self,
        user_id: str,
        note_id: str,
        text: str,
        tags: list[str] | None,
        origin: Origin,
        *,
        expected_version: int | None = None,
    ) -> Note: ...

    async def delete(self, user_id: str, note_id: str) -> None: ...

    async def search(
        self,
        user_id: str,
        query: str,
        *,
        top_k: int,
        tags: list[str],
        include_conversation: bool,
    ) -> SearchOutcome: ...


class SearchArguments(Arguments):
    query: str = Field(
        min_length=1, max_length=QUERY_MAX_CHARS, description="What to look for, in plain words."
    )
    top_k: int = Field(default=5, ge=1, le=TOP_K_MAX, description="How many results at most.")
    include_conversation: bool = Field(
        default=False, description="Also search what was said in earlier conversations."
    )
    tags: list[Tag] = Field(
        default_factory=list, max_length=TAGS_MAX, description="Only notes with all of these tags."
    )


class SaveArguments(Arguments):
    content: Content
    tags: list[Tag] = Field(
        default_factory=list, max_length=TAGS_MAX, description="Labels to filter by later."
    )


class UpdateArguments(Arguments):
    note_id: NoteId
    content: Content
    tags: list[Tag] | None = Field(
        default=None, max_length=TAGS_MAX, description="The new tags; absent: kept as they are."
    )
    version: int | None = Field(
        default=None,
        ge=1,
        le=SEQUENCE_MAX,
        description="The version you have read; refused if the note has changed since.",
    )


class DeleteArguments(Arguments):
    note_id: NoteId


def memory_tools(memory: NoteStore) -> list[Tool]:
    """The memory family over one store."""
    tools = _MemoryTools(memory)
    return [
        Tool(
            name="memory_search",
            description=(
                "Search what you remember about the user, in plain words. Call it before you say "
                "that you do not know something about the user, and before you update or delete. "
                "Returns the best notes with note_id, text and score. Results whose source is "
                "conversation have an empty note_id: they are quotes from earlier talk and cannot "
                "be updated or deleted. A low score may mean that nothing fits: do not present it "
                "as a fact."
            ),
            arguments=SearchArguments,
            safety=Safety.READ_ONLY,
            timeout=_SEARCH_TIMEOUT_S,
            run=tools.search,
            log_level=logging.DEBUG,
        ),
        Tool(
            name="memory_save",
            description=(
                "Remember something about the user or their work across all sessions: preferences, "
                "facts, decisions. Write it so that it is understood without this conversation. "
                "Say that it is saved only after this tool answered with a note_id. Look at "
                "`similar`: where one of these notes says the same in an older form, update that "
                "note instead of keeping both."
            ),
            arguments=SaveArguments,
            safety=Safety.SIDE_EFFECTING,
            timeout=_WRITE_TIMEOUT_S,
            run=tools.save,
        ),
        Tool(
            name="memory_update",
            description=(
                "Replace the text of a note that is no longer right, under the same note_id. Find "
                "the note with memory_search first, and pass its version so that nobody's newer "
                "change is overwritten. The old text is kept in its history and is no longer found."
            ),
            arguments=UpdateArguments,
            safety=Safety.SIDE_EFFECTING,
            timeout=_WRITE_TIMEOUT_S,
            run=tools.update,
        ),
        Tool(
            name="memory_delete",
            description=(
                "Forget a note for good, with its history. Use it only when the user asks for it; "
                "find the note with memory_search first."
            ),
            arguments=DeleteArguments,
            safety=Safety.SIDE_EFFECTING,
            timeout=_WRITE_TIMEOUT_S,
            run=tools.delete,
        ),
    ]


class _MemoryTools:
    def __init__(self, memory: NoteStore) -> None:
        self._memory = memory

    async def search(self, context: ToolContext, arguments: SearchArguments) -> ToolOutput:
        found = await self._memory.search(
            context.user_id,
            arguments.query,
            top_k=arguments.top_k,
            tags=arguments.tags,
            include_conversation=arguments.include_conversation,
        )
        count = len(found.hits)
        return ToolOutput(
            data=[_result(hit) for hit in found.hits],
            notes=found.warnings,
            summary=f"{count} result{'' if count == 1 else 's'}",
            count=count,
        )

    async def save(self, context: ToolContext, arguments: SaveArguments) -> ToolOutput:
        saved = await self._memory.save(
            context.user_id, arguments.content, arguments.tags, _origin(context)
        )
        message = f"Stored: [id: {saved.note.note_id}]"
        if not saved.created:
            message += " (a note with exactly this text was there already)"
        return ToolOutput(
            data={
                "note_id": saved.note.note_id,
                "message": message,
                "searchable": saved.searchable,
                "similar": [
                    {"id": hit.note_id, "text": hit.text, "score": round(hit.score, _SCORE_DIGITS)}
                    for hit in saved.similar
                ],
            },
            summary=message,
        )

    async def update(self, context: ToolContext, arguments: UpdateArguments) -> ToolOutput:
        note_id = _changeable(arguments.note_id)
        try:
            note = await self._memory.update(
                context.user_id,
                note_id,
                arguments.content,
                arguments.tags,
                _origin(context),
                expected_version=arguments.version,
            )
        except NoteNotFound:
            raise _not_found(note_id) from None
        except StaleVersion as stale:
            raise _stale(stale.current, arguments.version) from None
        message = f"Updated: [id: {note.note_id}]"
        return ToolOutput(
            data={"note_id": note.note_id, "version": note.version, "message": message},
            summary=message,
        )

    async def delete(self, context: ToolContext, arguments: DeleteArguments) -> ToolOutput:
        note_id = _changeable(arguments.note_id)
        try:
            await self._memory.delete(context.user_id, note_id)
        except NoteNotFound:
            raise _not_found(note_id) from None
        message = f"Deleted: [id: {note_id}]"
        return ToolOutput(data={"note_id": note_id, "message": message}, summary=message)


def _result(hit: Hit) -> dict[str, Any]:
    return {
        "note_id": hit.note_id,
        "text": hit.text,
        "score": round(hit.score, _SCORE_DIGITS),
        "source": hit.source,
        "matched_by": hit.matched_by,
        "tags": list(hit.tags),
        "created_at": hit.created_at,
        "updated_at": hit.updated_at,
        "version": hit.version,
    }


def _origin(context: ToolContext) -> Origin:
    return Origin(
        actor="agent",
        channel=context.channel,
        session_id=context.session_id,
        turn_id=context.turn_id,
    )


def _changeable(note_id: str) -> str:
    if not note_id:
        raise ToolError("conversation results cannot be changed; use a note_id from memory_search")
    return note_id


def _not_found(note_id: str) -> ToolError:
    return ToolError(
        f"note not found: {note_id}; call memory_search to find the right one", Code.NOT_FOUND
    )


def _stale(current: Note, seen: int | None) -> ToolError:
    return ToolError(
        f"the note has changed: it has version {current.version}, not {seen}, and says now: "
        f"{current.text}\nNothing was changed. Decide again on this text; to replace it, call "
        f"memory_update with version {current.version}",
        Code.CONFLICT,
    )
