"""The line format of an export: what lines contain, and what is accepted.

`docs/guide/moving.md` describes it for people. The order of fields is their order in the file, so
that the same memory always gives the same bytes.
"""

import re
from collections.abc import Sequence
from dataclasses import Field as DataclassField
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.functional_validators import AfterValidator
from wire.limits import NOTE_MAX_CHARS, SEQUENCE_MAX, TAG_MAX_CHARS, TAGS_MAX, USER_ID_PATTERN
from wire.text import visible_name

from guest.memory.models import Change, Details
from guest.memory.notes.columns import DETAILS
from guest.memory.validation import REASON_MAX_CHARS

FORMAT_VERSION: Final = 1

_COUNT_MAX: Final = 2**52
"""Imported counters continue to grow here, so they may use half of the range."""

_SHOWN_CHARS: Final = 200
_KINDS: Final = "header, note, history, session, event, end"


class BadLine(Exception):  # noqa: N818 - a condition that callers expect and report
    """A rejected line; the message names the field and what is accepted."""


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold NUL characters")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _one_line(text: str) -> str:
    if len(text.splitlines()) > 1:
        raise ValueError("must be one line")
    return text


def _id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError("must be 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen")
    return text


def _time(text: str) -> str:
    try:
        if not re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z", text):
            raise ValueError
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a time in UTC such as 2026-11-21T09:30:00.000000Z") from None
    return text


def _user_id(text: str) -> str:
    if not re.fullmatch(USER_ID_PATTERN, text):
        raise ValueError(f"must match {USER_ID_PATTERN}")
    return text


_STORABLE: Final = AfterValidator(_storable)
_ONE_LINE: Final = AfterValidator(_one_line)
_NOT_BLANK: Final = AfterValidator(_not_blank)

Text = Annotated[str, _STORABLE]
Id = Annotated[str, AfterValidator(_id)]
Time = Annotated[str, AfterValidator(_time)]
Label = Annotated[str, Field(max_length=200), _STORABLE, _ONE_LINE]
Count = Annotated[int, Field(ge=0, le=_COUNT_MAX)]
Number = Annotated[int, Field(ge=1, le=SEQUENCE_MAX)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Link = Annotated[str, Field(max_length=2000), _STORABLE, _ONE_LINE]
Reason = Annotated[str, Field(max_length=REASON_MAX_CHARS), _STORABLE]
Content = Annotated[str, Field(max_length=NOTE_MAX_CHARS), _STORABLE, _NOT_BLANK]
Tag = Annotated[str, Field(max_length=TAG_MAX_CHARS), _STORABLE, _NOT_BLANK]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Counts(_Part):
    """The number of rows of each kind."""

    notes: Count = 0
    note_versions: Count = 0
    sessions: Count = 0
    events: Count = 0


class Header(_Part):
    """The first line. It has the counts at the beginning of the export."""

    kind: Literal["header"] = "header"
    format: Literal["oxydra-memory"] = "oxydra-memory"
    version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    user_id: Annotated[str, AfterValidator(_user_id)]
    exported_at: Time
    counts: Counts


class Origin(_Part):
    """The origin of a text: `link` is where it was read; nobody vouched for `material`."""

    actor: Literal["user", "agent", "automatic", "import"]
    channel: Label
    session_id: Label
    turn_id: Label
    link: Link
    material: bool


def _accepted(detail: "DataclassField[Any]") -> Any:
    """What a line may hold for a field of `Details`."""
    if "max_chars" in detail.metadata:
        return Annotated[str, Field(max_length=detail.metadata["max_chars"]), _STORABLE]
    if detail.name == "due_at":
        return Time | Literal[""]
    return Fraction if detail.type is float else detail.type


class _Begun(_Part):
    version: Annotated[Count, Field(ge=1)]
    content: Content
    tags: Annotated[list[Tag], Field(max_length=TAGS_MAX)]


if TYPE_CHECKING:
    _Detailed = _Begun
else:
    _Detailed = create_model(
        "_Detailed",
        __base__=_Begun,
        **{
            name: (_accepted(Details.__dataclass_fields__[name]), "" if name == "due_at" else ...)
            for name in DETAILS
        },
    )


class NoteContent(_Detailed):
    """What a note says in one of its versions, and how that version was made."""

    source: Label
    origin: Origin
    change: Change
    restores: Count


class Version(NoteContent):
    """An earlier version of a note. `superseded_by` as in the note's line: whether the note was
    superseded, in this version, until the next one made it current again."""

    written_at: Time
    replaced_at: Time
    superseded_by: Id | Literal[""] | None = None
    superseded_reason: Reason = ""
    superseded_at: Time | None = None


_S = TypeVar("_S", bound=NoteContent)


class NoteLine(_Part):
    """A note: its current version, and the last of its earlier versions, oldest first.

    `superseded_by` is null for a current note, and empty if it is superseded without a replacement.
    `repeats_text` means that another note without a key, in the same scope, has exactly this text.
    """

    kind: Literal["note"] = "note"
    note_id: Id
    key: Label | None
    scope_session: Id | None
    created_at: Time
    updated_at: Time
    access_count: Count
    accessed_at: Time | None
    superseded_by: Id | Literal[""] | None
    superseded_reason: Reason
    superseded_at: Time | None
    repeats_text: bool
    current: NoteContent
    history: list[Version]


class HistoryLine(_Part):
    """Still earlier versions of a note on a previous line."""

    kind: Literal["history"] = "history"
    note_id: Id
    history: Annotated[list[Version], Field(min_length=1)]


class State(_Part):
    """One named value of a session."""

    name: Label
    value: Text
    epoch: Count
    updated_at: Time


class SessionLine(_Part):
    """A session; its events follow."""

    kind: Literal["session"] = "session"
    session_id: Id
    title: Text
    channel: Label
    created_at: Time
    updated_at: Time
    turns: Count
    archived_at: Time | None
    parent_id: Id | None
    state: list[State]


class EventLine(_Part):
    kind: Literal["event"] = "event"
    session_id: Id
    sequence: Number
    turn_id: Label
    role: Literal["user", "assistant", "tool"]
    text: Text
    payload: Text
    created_at: Time


class End(_Part):
    """The last line. `sha256` covers all bytes between the header and this line."""

    kind: Literal["end"] = "end"
    lines: Count
    counts: Counts
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


Entity = NoteLine | HistoryLine | SessionLine | EventLine
Line = Header | Entity | End


def written(line: Line) -> bytes:
    """Encode a line for a file, with its line break."""
    return line.model_dump_json().encode() + b"\n"


def read(line: bytes) -> Line:
    """Decode a line, given without its line break. Raises `BadLine` if it is not one."""
    try:
        return _adapter().validate_json(line)
    except ValidationError as error:
        raise BadLine(_explained(error.errors(include_url=False, include_input=False))) from None


def of_another(line: Entity) -> Entity:
    """A line from another user's memory: what that user said was not said by this one."""
    if isinstance(line, NoteLine | HistoryLine):
        line = line.model_copy(update={"history": list(map(imported, line.history))})
    if isinstance(line, NoteLine):
        line = line.model_copy(update={"current": imported(line.current)})
    return line


def imported(said: _S) -> _S:
    """The same text with "import" as the actor if its actor was a user."""
    if said.origin.actor != "user":
        return said
    origin = said.origin.model_copy(update={"actor": "import"})
    return said.model_copy(update={"origin": origin, "source": "import"})


@cache
def _adapter() -> TypeAdapter[Line]:
    return TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def _explained(errors: Sequence[Any]) -> str:
    first = errors[0]
    match first["type"]:
        case "json_invalid":
            return f"not a line of JSON: {first['ctx']['error']}"
        case "union_tag_not_found":
            return f"kind: is missing; accepted are {_KINDS}"
        case "union_tag_invalid":
            return f"kind: is unknown; accepted are {_KINDS}"
    field = visible_name(".".join(str(part) for part in first["loc"][1:]))[:_SHOWN_CHARS]
    if not field:
        return "not a JSON object"
    if first["type"] == "extra_forbidden":
        return f"{field}: is not a field of this line in version {FORMAT_VERSION} of the format"
    message = first["msg"].removeprefix("Value error, ")
    return f"{field}: {message[:1].lower()}{message[1:]}"
