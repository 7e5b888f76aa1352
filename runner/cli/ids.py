"""Which session or note a person means who types only how its id begins."""

from contextlib import aclosing
from typing import Final

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.output import clip, one_line
from runner.client.gateway import GatewayClient

LISTED_MAX: Final = 1000
_SESSION_PREFIX: Final = "session-"


async def resolve(gateway: GatewayClient, given: str) -> str:
    """The id that `given` is or begins; `session-` in front may be left out.

    With more sessions than can be listed, only a whole id is known to be unique.
    Raises `WireError` where `given` begins none or several.
    """
    listed = await gateway.list_sessions(LISTED_MAX, include_archived=True)
    ids = [session.session_id for session in listed]
    if given in ids or len(ids) == LISTED_MAX:
        return given
    found = (
        [each for each in ids if each.startswith((given, _SESSION_PREFIX + given))] if given else []
    )
    if len(found) == 1:
        return found[0]
    if not found:
        raise WireError(
            Code.NOT_FOUND,
            f"session not found: {given}",
            details="no id begins so",
            resolution="runner sessions list --all",
        )
    raise WireError(
        Code.INVALID_ARGUMENT,
        f"{len(found)} sessions begin with {given}",
        details=", ".join(map(one_line, found[:5])),
        resolution="give more of the id",
    )


LOOKED_THROUGH_MAX: Final = 10_000
SHORT_CHARS: Final = 13
_PREFIX: Final = "note-"
_LISTED: Final = 5
_TEXT_CELLS: Final = 40


def short_id(note_id: str) -> str:
    """The beginning of an id that tables show: nearly always unique, and refused where not."""
    return one_line(note_id[:SHORT_CHARS] if note_id.startswith(_PREFIX) else note_id)


async def find_note(gateway: GatewayClient, given: str) -> gateway_pb2.Note:
    """The note whose id `given` is or begins; `note-` in front may be left out.

    Superseded notes count, too. In a memory of more than `LOOKED_THROUGH_MAX` notes only
    whole ids are found. Raises `WireError` where `given` begins none or several.
    """
    try:
        return await gateway.get_note(given)
    except WireError as error:
        if error.code not in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
            raise
    found = []
    async with aclosing(
        gateway.notes(gateway_pb2.ListNotesRequest(include_superseded=True))
    ) as notes:
        count = 0
        async for note in notes:
            count += 1
            if count > LOOKED_THROUGH_MAX:
                raise _too_many(given)
            if given and note.note_id.startswith((given, _PREFIX + given)):
                found.append(note)
    if not found:
        raise WireError(
            Code.NOT_FOUND,
            f"note not found: {given}",
            details="no id begins so",
            resolution="runner memory list --all --superseded",
        )
    if len(found) > 1:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"{len(found)} notes begin with {given}",
            details=_named(found),
            resolution="give more of the id",
        )
    return found[0]


def _named(notes: list[gateway_pb2.Note]) -> str:
    named = [
        f"{one_line(note.note_id)} ({clip(one_line(note.text), _TEXT_CELLS)})"
        for note in notes[:_LISTED]
    ]
    more = len(notes) - len(named)
    return ", ".join([*named, f"and {more:,} more"] if more else named)


def _too_many(given: str) -> WireError:
    return WireError(
        Code.INVALID_ARGUMENT,
        f"note not found: {given}",
        details=f"there are more than {LOOKED_THROUGH_MAX:,} notes, so only a whole id is found",
        resolution="runner memory search WORDS --json shows whole ids",
    )
