"""Which session or note a person means who types only how its id begins."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.output import clip, one_line
from runner.client.gateway import GatewayClient

SESSIONS_LISTED_MAX: Final = 1000
NOTES_LISTED_MAX: Final = 10_000
_SHORT_CHARS: Final = 13
_NAMED_MAX: Final = 5
_TEXT_CELLS: Final = 40

_T = TypeVar("_T")


def short_id(note_id: str) -> str:
    """The beginning of an id that tables show: nearly always unique, and refused where not."""
    return one_line(note_id[:_SHORT_CHARS] if note_id.startswith("note-") else note_id)


async def find_session(
    agent: GatewayClient, given: str, *, listed_max: int = SESSIONS_LISTED_MAX
) -> str:
    """The id of the session that `given` is or begins; `session-` in front may be left out.

    With `listed_max` sessions and more, only a whole id is known to be unique.
    Raises `WireError` where `given` begins none or several.
    """
    listed = await agent.list_sessions(listed_max, include_archived=True)
    ids = [session.session_id for session in listed]
    if given in ids or len(ids) == listed_max:
        return given
    found = [each for each in ids if _begins(each, "session-", given)]
    return _only(found, given, "session", one_line, "runner sessions list --all")


async def find_note(
    agent: GatewayClient, given: str, *, listed_max: int = NOTES_LISTED_MAX
) -> gateway_pb2.Note:
    """The note whose id `given` is or begins; `note-` in front may be left out.

    Superseded notes count, too. In a memory of more than `listed_max` notes only whole ids
    are found. Raises `WireError` where `given` begins none or several.
    """
    try:
        return await agent.get_note(given)
    except WireError as error:
        if error.code not in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
            raise
    found, count = [], 0
    request = gateway_pb2.ListNotesRequest(include_superseded=True)
    async with aclosing(agent.notes(request)) as notes:
        async for note in notes:
            count += 1
            if count > listed_max:
                raise WireError(
                    Code.INVALID_ARGUMENT,
                    f"note not found: {given}",
                    details=f"of more than {listed_max:,} notes only a whole id is found",
                    resolution="runner memory search WORDS --json shows whole ids",
                )
            if _begins(note.note_id, "note-", given):
                found.append(note)
    return _only(found, given, "note", _described, "runner memory list --all --superseded")


def _begins(identifier: str, prefix: str, given: str) -> bool:
    return bool(given) and identifier.startswith((given, prefix + given))


def _only(
    found: Sequence[_T], given: str, noun: str, describe: Callable[[_T], str], list_command: str
) -> _T:
    if len(found) == 1:
        return found[0]
    if not found:
        raise WireError(
            Code.NOT_FOUND,
            f"{noun} not found: {given}",
            details="no id begins so",
            resolution=list_command,
        )
    described = [describe(each) for each in found[:_NAMED_MAX]]
    if more := len(found) - len(described):
        described.append(f"and {more:,} more")
    raise WireError(
        Code.INVALID_ARGUMENT,
        f"{len(found)} {noun}s begin with {given}",
        details=", ".join(described),
        resolution="give more of the id",
    )


def _described(note: gateway_pb2.Note) -> str:
    return f"{one_line(note.note_id)} ({clip(one_line(note.text), _TEXT_CELLS)})"
