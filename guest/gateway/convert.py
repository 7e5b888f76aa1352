"""Converts memory's types and errors to those of the wire contract."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from wire.errors import Code
from wire.limits import SEQUENCE_MAX
from wire.v1 import gateway_pb2 as pb

from guest.agent.events import attachments_in, call_in, incomplete_in, model_in
from guest.agent.failures import INTERRUPTED
from guest.errors import GuestError
from guest.memory.models import (
    Details,
    Event,
    Hit,
    MemoryFull,
    Note,
    NoteNotFound,
    Origin,
    Session,
    SessionBusy,
    SessionNotFound,
    StaleVersion,
    Superseded,
    is_temporary,
)
from guest.memory.notes.history import ChangeEntry, UndoRefused
from guest.memory.notes.review import SimilarPair

_SHOWN_CHARS: Final = 1000
_PROSE: Final = frozenset(
    (
        *("text", "title", "tags", "link", "key", "superseded_reason"),
        *("reason", "message", "warnings", "told"),
        *(each.name for each in fields(Details) if "max_chars" in each.metadata),
    )
)
"""The fields of replies with free text; the others are ids, names and numbers."""

_M = TypeVar("_M", bound=Message)


def hidden(reply: _M, hide: Callable[[str], str]) -> _M:
    """Apply `hide` to all free text in `reply`, in place, and return it."""
    prose, messages = _free_text(reply.DESCRIPTOR)
    for name in prose:
        value = getattr(reply, name)
        if isinstance(value, str) and value:
            setattr(reply, name, hide(value))
        elif value:
            value[:] = map(hide, value)
    for name in messages:
        value = getattr(reply, name)
        if not isinstance(value, Message):
            for each in value:
                hidden(each, hide)
        elif reply.HasField(name):
            hidden(value, hide)
    return reply


@cache
def _free_text(kind: Descriptor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the fields with free text, and of those with messages that may have some."""
    texts = [field for field in kind.fields if field.message_type is None]
    messages = [field for field in kind.fields if field.message_type is not None]
    return (
        tuple(field.name for field in texts if field.name in _PROSE),
        tuple(field.name for field in messages),
    )


_REFUSED: Final[dict[type[Exception], tuple[Code, str, str]]] = {
    NoteNotFound: (Code.NOT_FOUND, "", "list or search the notes to find the right one"),
    SessionNotFound: (Code.NOT_FOUND, "", "list the sessions, or create one"),
    SessionBusy: (Code.CONFLICT, "", "wait for it to end, or cancel it"),
    UndoRefused: (
        Code.FAILED_PRECONDITION,
        "nothing was changed",
        "to forget the note with its history: runner memory forget <note id>",
    ),
    MemoryFull: (
        Code.RESOURCE_EXHAUSTED,
        "nothing was changed",
        "forget notes that nobody needs (runner memory review shows some), or raise "
        "memory.max_notes or memory.max_text_mb in runner.toml, then: runner restart",
    ),
}
"""Of memory's exceptions, whose words are the error's: its code, details and resolution."""


@contextmanager
def checked(hide: Callable[[str], str] = str) -> Iterator[None]:
    """Turn memory's exceptions into errors of the contract.

    `hide` redacts a note's text that an error quotes.
    """
    try:
        yield
    except ValueError as error:
        raise GuestError(Code.INVALID_ARGUMENT, f"bad {error}") from None
    except StaleVersion as error:
        raise GuestError(
            Code.CONFLICT,
            f"the note {error.current.note_id} has version {error.current.version} by now",
            details=f"nothing was changed; it says: {hide(error.current.text)[:_SHOWN_CHARS]}",
            resolution="read it again, and decide anew",
        ) from None
    except tuple(_REFUSED) as error:
        code, details, resolution = _REFUSED[type(error)]
        raise GuestError(code, str(error), details=details, resolution=resolution) from None


def message(kind: type[_M], value: object, **fields: Any) -> _M:
    """A message with `fields`, and with every attribute of `value` that has a field's name."""
    return kind(**{name: getattr(value, name, None) for name in _names(kind.DESCRIPTOR)} | fields)


@cache
def _names(kind: Descriptor) -> tuple[str, ...]:
    return tuple(field.name for field in kind.fields)


def session(value: Session) -> pb.Session:
    temporary = is_temporary(value.session_id)
    return message(pb.Session, value, parent_session_id=value.parent_id, temporary=temporary)


def event(value: Event, interrupted: Container[int] = ()) -> pb.HistoryEvent:
    """An event of a history; `interrupted` are those with which an interrupted turn ends."""
    mark = INTERRUPTED if value.sequence in interrupted else incomplete_in(value)
    tool, told, failed = call_in(value)
    return message(
        pb.HistoryEvent,
        value,
        incomplete=mark,
        attachments=attachments_in(value),
        tool=tool,
        told=told,
        failed=failed,
    )


def turn_context(turn: Sequence[Event], made_of: Mapping[str, Any]) -> pb.TurnContext:
    """What the request for the answer of a turn was made of. What cannot be read is left out: an
    event may come from an imported file."""
    counts = {
        each.name: min(int(value), SEQUENCE_MAX)
        for each in pb.TurnContext.DESCRIPTOR.fields
        if isinstance(value := made_of.get(each.name), int) and value > 0
    }
    notes = [
        pb.UsedNote(note_id=note_id, matched_by=how, tool=tool)
        for note_id, how, tool in _triples(made_of.get("notes"))
    ]
    asked = next((each.text for each in turn if each.role == "user"), "")
    model = next(filter(None, map(model_in, reversed(turn))), "")
    found = pb.TurnContext(
        turn_id=turn[0].turn_id, text=asked[:_SHOWN_CHARS], model=model, notes=notes
    )
    for name, value in counts.items():
        setattr(found, name, value)
    return found


def _triples(found: object) -> list[tuple[str, str, str]]:
    rows = found if isinstance(found, list) else []
    return [
        (row[0], row[1], row[2])
        for row in rows
        if isinstance(row, list) and len(row) == 3 and all(isinstance(each, str) for each in row)
    ]


def origin(value: Origin) -> pb.NoteOrigin:
    return message(pb.NoteOrigin, value)


def note(value: Note) -> pb.Note:
    details, ended = value.details, value.superseded or Superseded("", "", "")
    return message(
        pb.Note,
        value,
        origin=origin(value.origin),
        **vars(details),
        superseded=value.superseded is not None,
        superseded_by=ended.by,
        superseded_reason=ended.reason,
        superseded_at=ended.at,
    )


def result(value: Hit, came_from: Origin | None = None) -> pb.Note:
    """A search result; what was said has no type, and of an origin its conversation alone."""
    said_in = pb.NoteOrigin(session_id=value.session_id, material=value.material)
    return message(
        pb.Note,
        value,
        type=value.type if value.note_id else "",
        confidence=None,
        superseded=None,
        origin=origin(came_from) if came_from else said_in if value.session_id else None,
    )


def change(value: ChangeEntry) -> pb.Change:
    return message(pb.Change, value, origin=origin(value.origin))


def pair(value: SimilarPair) -> pb.NearPair:
    older, newer = note(value.older), note(value.newer)
    return message(pb.NearPair, value, older=older, newer=newer)
