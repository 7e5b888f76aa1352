"""The arguments of the memory family's tools, and the field types that all families share."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field
from wire.limits import (
    NOTE_MAX_CHARS,
    QUERY_MAX_CHARS,
    SEQUENCE_MAX,
    TAG_MAX_CHARS,
    TAGS_MAX,
    TOP_K_MAX,
)

from guest.tools.base import Arguments

NOTE_ID_MAX_CHARS = 64
CONTEXT_MAX_TOKENS = 8000


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


NotBlank = AfterValidator(_not_blank)

Tag = Annotated[str, Field(min_length=1, max_length=TAG_MAX_CHARS), NotBlank]
Content = Annotated[
    str,
    Field(min_length=1, max_length=NOTE_MAX_CHARS, description="One fact or topic, in full words."),
    NotBlank,
]
NoteId = Annotated[
    str, Field(max_length=NOTE_ID_MAX_CHARS, description="A note_id from memory_search.")
]


class SearchArguments(Arguments):
    query: str = Field(
        min_length=1, max_length=QUERY_MAX_CHARS, description="What to look for, in plain words."
    )
    top_k: int = Field(default=5, ge=1, le=TOP_K_MAX, description="How many results at most.")
    include_conversation: bool = Field(
        default=False, description="Also search what was said in earlier conversations."
    )
    tags: list[Tag] = Field(
        default_factory=list,
        max_length=TAGS_MAX,
        description="Only notes with all of these tags; conversations have none.",
    )
    this_conversation: bool = Field(
        default=False, description="Only what was said in this conversation, and no notes."
    )


class SaveArguments(Arguments):
    content: Content
    tags: list[Tag] = Field(
        default_factory=list, max_length=TAGS_MAX, description="Labels to filter by later."
    )


class UpdateArguments(Arguments):
    telling: ClassVar[str] = "content"
    first: ClassVar[Mapping[str, str]] = {"note_id": "call memory_search first"}

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
    first: ClassVar[Mapping[str, str]] = {"note_id": "call memory_search first"}

    note_id: NoteId


class ContextArguments(Arguments):
    query: str = Field(
        min_length=1, max_length=QUERY_MAX_CHARS, description="What the notes should be about."
    )
    max_tokens: int = Field(
        default=1000,
        ge=100,
        le=CONTEXT_MAX_TOKENS,
        description="How long the text may be, in tokens.",
    )
