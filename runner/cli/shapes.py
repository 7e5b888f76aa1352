"""The JSON that `--json` writes: one shape for each message of the contract.

Shapes may get new keys and never lose one; docs/guide/memory-for-integrators.md lists them.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from wire.v1 import control_pb2, gateway_pb2

_NOTE_TEXT: Final = "note_id? text tags version created_at updated_at source? type? key? origin?"
HIT: Final = f"{_NOTE_TEXT} score matched_by?"
"""A search result; `note_id` is null for a passage of a conversation."""
SIMILAR: Final = "note_id text score"

_SHAPES: Final[Mapping[type[Message], str]] = {
    gateway_pb2.Note: (
        f"{_NOTE_TEXT} confidence rationale? importance access_count accessed_at? scope_session? "
        "embedded"
    ),
    gateway_pb2.NoteOrigin: "actor? channel? session_id? turn_id? link? material",
    gateway_pb2.Change: (
        "note_id version change text tags at key? type? current superseded_by? origin"
    ),
    gateway_pb2.NearPair: "older newer similarity? may_contradict",
    gateway_pb2.ReviewMemoryReply: "near stale warnings",
    gateway_pb2.Session: "session_id title channel created_at updated_at turns archived_at?",
    gateway_pb2.HistoryEvent: "sequence turn_id role text created_at",
    gateway_pb2.MemoryReceipt: (
        "turn_id action outcome note_id version searchable durable asked_by at=created_at"
    ),
    control_pb2.StatusReply: (
        "workspace tier pid started_at version provider notices guests boundary? memory?"
    ),
    control_pb2.GuestStatus: "role state pid restarts reason since details resident_bytes",
    control_pb2.BoundaryReport: "passed checked_at checks",
    control_pb2.BoundaryCheck: "name passed details",
}
"""The keys of each message, in order. `?` marks keys that are null if empty; `key=field` is for a
field with another name."""


def as_json(message: Message, shape: str = "") -> dict[str, Any]:
    """`message` as JSON, in `shape` or in the shape of its type."""
    if isinstance(message, gateway_pb2.MemoryStatisticsReply):
        return _statistics(message)
    values: dict[str, Any] = {}
    for name in (shape or _SHAPES[type(message)]).split():
        key, _, field = name.removesuffix("?").partition("=")
        optional = name.endswith("?")
        value = getattr(message, field or key)
        if isinstance(value, Message):
            values[key] = as_json(value) if message.HasField(key) or not optional else None
        elif isinstance(value, str | int | float):
            values[key] = None if optional and not value else value
        else:
            values[key] = [as_json(each) if isinstance(each, Message) else each for each in value]
    if isinstance(message, gateway_pb2.Note) and not shape:
        values["superseded"] = _superseded(message)
    return values


def _superseded(note: gateway_pb2.Note) -> dict[str, Any] | None:
    """Null unless the note is superseded."""
    if not note.superseded:
        return None
    return {
        "by": note.superseded_by or None,
        "reason": note.superseded_reason or None,
        "at": note.superseded_at or None,
    }


def _statistics(found: gateway_pb2.MemoryStatisticsReply) -> dict[str, Any]:
    """Every field under its name in the contract, numbers as numbers; `vectors` by model."""
    values: dict[str, Any] = MessageToDict(
        found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    numbers = {
        field.name: getattr(found, field.name)
        for field in found.DESCRIPTOR.fields
        if isinstance(getattr(found, field.name), int)
    }
    return values | numbers | {"vectors": {each.model: each.vectors for each in found.vectors}}
