"""Converts memory's types and errors to those of the wire contract."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from google.protobuf.message import Message
from wire.errors import Code
from wire.v1 import gateway_pb2

from guest.errors import GuestError
from guest.memory.models import (
    Event,
    MemoryFull,
    Note,
    NoteNotFound,
    Origin,
    Session,
    SessionBusy,
    SessionNotFound,
    StaleVersion,
)
from guest.memory.notes.history import ChangeEntry, UndoRefused
from guest.memory.notes.review import Near

_SHOWN_CHARS: Final = 1000
_PROSE: Final = frozenset(
    "text title tags rationale link key superseded_reason reason message warnings".split()  # noqa: SIM905
)
"""The fields of replies with free text; the others are ids, names and numbers."""

_M = TypeVar("_M", bound=Message)


def hidden(reply: _M, hide: Callable[[str], str]) -> _M:
    """Apply `hide` to all free text in `reply`, in place, and return it."""
    for field, value in reply.ListFields():
        if field.message_type is not None:
            for message in [value] if isinstance(value, Message) else value:
                hidden(message, hide)
        elif field.name in _PROSE and isinstance(value, str):
            setattr(reply, field.name, hide(value))
        elif field.name in _PROSE:
            value[:] = map(hide, value)
    return reply


@contextmanager
def checked(hide: Callable[[str], str] = str) -> Iterator[None]:
    """Turn memory's exceptions into errors of the contract.

    `hide` redacts a note's text that an error quotes.
    """
    try:
        yield
    except ValueError as error:
        raise GuestError(Code.INVALID_ARGUMENT, f"bad {error}") from None
    except NoteNotFound as error:
        raise GuestError(
            Code.NOT_FOUND,
            f"note not found: {error.note_id}",
            resolution="list or search the notes to find the right one",
        ) from None
    except StaleVersion as error:
        raise GuestError(
            Code.CONFLICT,
            f"the note {error.current.note_id} has version {error.current.version} by now",
            details=f"nothing was changed; it says: {hide(error.current.text)[:_SHOWN_CHARS]}",
            resolution="read it again, and decide anew",
        ) from None
    except UndoRefused as error:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            str(error),
            details="nothing was changed",
            resolution="to forget the note with its history: runner memory forget <note id>",
        ) from None
    except MemoryFull as error:
        raise GuestError(
            Code.RESOURCE_EXHAUSTED,
            str(error),
            details="nothing was changed",
            resolution="forget notes that nobody needs (runner memory review shows some), or raise "
            "memory.max_notes or memory.max_text_mb in runner.toml, then: runner restart",
        ) from None
    except SessionNotFound as error:
        raise GuestError(
            Code.NOT_FOUND,
            f"session not found: {error.session_id}",
            resolution="list the sessions, or create one",
        ) from None
    except SessionBusy as error:
        raise GuestError(
            Code.CONFLICT,
            f"session {error.session_id!r} is busy with {error.holder}",
            resolution="wait for it to end, or cancel it",
        ) from None


def session(value: Session) -> gateway_pb2.Session:
    return gateway_pb2.Session(
        session_id=value.session_id,
        title=value.title,
        channel=value.channel,
        created_at=value.created_at,
        updated_at=value.updated_at,
        turns=value.turns,
        archived_at=value.archived_at,
        parent_session_id=value.parent_id,
    )


def event(value: Event) -> gateway_pb2.HistoryEvent:
    return gateway_pb2.HistoryEvent(
        sequence=value.sequence,
        turn_id=value.turn_id,
        role=value.role,
        text=value.text,
        created_at=value.created_at,
    )


def note(value: Note) -> gateway_pb2.Note:
    return gateway_pb2.Note(
        note_id=value.note_id,
        text=value.text,
        tags=value.tags,
        version=value.version,
        created_at=value.created_at,
        updated_at=value.updated_at,
        source=value.source,
        origin=origin(value.origin),
        embedded=value.embedded,
        type=value.details.type,
        confidence=value.details.confidence,
        rationale=value.details.rationale,
        importance=value.details.importance,
        key=value.key,
        access_count=value.access_count,
        accessed_at=value.accessed_at,
        superseded=value.superseded is not None,
        superseded_by=value.superseded.by if value.superseded else "",
        superseded_reason=value.superseded.reason if value.superseded else "",
        superseded_at=value.superseded.at if value.superseded else "",
        scope_session=value.details.scope_session,
    )


def origin(value: Origin) -> gateway_pb2.NoteOrigin:
    return gateway_pb2.NoteOrigin(
        actor=value.actor,
        channel=value.channel,
        session_id=value.session_id,
        turn_id=value.turn_id,
        link=value.link,
        material=value.material,
    )


def change(value: ChangeEntry) -> gateway_pb2.Change:
    return gateway_pb2.Change(
        note_id=value.note_id,
        version=value.version,
        change=value.change,
        text=value.text,
        origin=origin(value.origin),
        at=value.at,
        key=value.key,
        type=value.type,
        current=value.current,
        superseded_by=value.superseded_by,
        tags=value.tags,
    )


def pair(value: Near) -> gateway_pb2.NearPair:
    return gateway_pb2.NearPair(
        older=note(value.older),
        newer=note(value.newer),
        similarity=value.similarity,
        may_contradict=value.may_contradict,
    )
