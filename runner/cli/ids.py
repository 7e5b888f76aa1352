"""Finding the session or note whose id, or its beginning, was typed."""

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
    """The beginning of an id, as tables show it. Nearly always unique; refused if it is not."""
    return one_line(note_id[:_SHORT_CHARS] if note_id.startswith("note-") else note_id)


async def find_session(
    agent: GatewayClient, given: str, *, listed_max: int = SESSIONS_LISTED_MAX
) -> str:
    """The id of the session that `given` names in full or by its beginning.

    `session-` may be left out. If there are `listed_max` sessions or more, only a whole id works.
    Raises `WireError` if no session matches, or several do.
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
    """The note, also a superseded one, whose id `given` names in full or by its beginning.

    `note-` may be left out. If there are more than `listed_max` notes, only a whole id works.
    Raises `WireError` if no note matches, or several do.
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
            details="no id begins like this",
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
