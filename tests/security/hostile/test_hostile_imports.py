"""Files that plant something in the memory that they are imported into."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import grpc
import pytest
from wire.limits import EXPORT_LINE_MAX_BYTES
from wire.v1 import gateway_pb2 as pb

from tests.support.attempts import attempt
from tests.support.boundary.two_hosts import TwoHosts

pytestmark = pytest.mark.asyncio(loop_scope="session")

Line = dict[str, Any]
FIELDS = "each field of a line has its bounds, and no other field is accepted"


def planting(what: str, change: Callable[[Line], Any], stopped_by: str = FIELDS) -> Any:
    return attempt(f"importing a note {what}", change, stopped_by=stopped_by)


def said(**fields: Any) -> Callable[[Line], Line]:
    return lambda note: {**note, "current": {**note["current"], **fields}}


def from_(**fields: Any) -> Callable[[Line], Line]:
    return lambda note: said(origin={**note["current"]["origin"], **fields})(note)


def given(**fields: Any) -> Callable[[Line], Line]:
    return lambda note: {**note, **fields}


NOTES = [
    planting("whose origin goes on as a note of the runtime", from_(channel="cli\nNote: said so")),
    planting("that says it was read at an address of two lines", from_(link="https://x\nNote: y")),
    planting("of an actor that there is not", from_(actor="runtime")),
    planting("whose id is a path", given(note_id="../../bob/memory.db")),
    planting("whose id is SQL", given(note_id="x'; DROP TABLE notes; --")),
    planting("with a user of its own", given(user_id="bob")),
    planting("in another user's namespace", given(scope_session="memory:bob")),
    planting("with a table of its own", given(triggers="CREATE TRIGGER t")),
    planting("that holds NUL", said(content="before\0after")),
    planting("that is blank", said(content=" \n ")),
    planting("of 20,000 letters", said(content="x" * 20_000)),
    planting("with a thousand tags", said(tags=[f"tag-{number}" for number in range(1000)])),
    planting("that is more certain than certain", said(confidence=1e308)),
    planting("that was never and always made", given(created_at="9999-99-99T99:99:99.000000Z")),
    planting("with a version beyond all numbers", said(version=2**63)),
    planting("that is no object", lambda _: [[[]]]),
    planting("that is nested ten thousand deep", lambda _: "[" * 10_000),
    planting("of a kind that there is not", given(kind="trigger")),
]


async def notes_of(place: TwoHosts) -> list[pb.Note]:
    return list((await place.alice.gateway.ListNotes(pb.ListNotesRequest(limit=100))).notes)


async def exported(place: TwoHosts) -> list[bytes]:
    parts = [
        part.lines async for part in place.alice.gateway.ExportMemory(pb.ExportMemoryRequest())
    ]
    return b"".join(parts).splitlines()


def import_of(header: bytes, line: bytes, *, dry_run: bool = False) -> pb.ImportMemoryRequest:
    return pb.ImportMemoryRequest(lines=b"\n".join([header, line, b""]), dry_run=dry_run)


async def exported_note(place: TwoHosts) -> tuple[bytes, Line]:
    """The header of an export, and a note of it as another one."""
    header, *lines = await exported(place)
    note = next(found for found in map(json.loads, lines) if found["kind"] == "note")
    return header, {**note, "note_id": f"note-{uuid4()}", "repeats_text": True}


async def test_a_note_that_plants_nothing_is_imported(place: TwoHosts) -> None:
    """So that the others are refused for what they plant."""
    header, note = await exported_note(place)
    reply = await place.alice.gateway.ImportMemory(
        import_of(header, json.dumps(note).encode(), dry_run=True)
    )
    assert (reply.created, list(reply.problems)) == (1, [])


@pytest.mark.parametrize("change", NOTES)
async def test_no_imported_note_plants_anything(
    place: TwoHosts, change: Callable[[Line], Any]
) -> None:
    before = await notes_of(place)
    header, note = await exported_note(place)
    planted = change(note)
    line = planted.encode() if isinstance(planted, str) else json.dumps(planted).encode()
    reply = await place.alice.gateway.ImportMemory(import_of(header, line))
    assert (reply.created, reply.updated, len(reply.problems)) == (0, 0, 1)
    assert len(reply.problems[0].problem.splitlines()) == 1
    assert await notes_of(place) == before


def file_that(what: str, make: Callable[[Line], bytes], stopped_by: str) -> Any:
    return attempt(f"importing a file {what}", make, stopped_by=stopped_by)


def headed(**fields: Any) -> Callable[[Line], bytes]:
    return lambda header: json.dumps({**header, **fields}).encode() + b"\n"


HEADER = "a file whose first line is no header of a version that is known is refused whole"
FILES = [
    file_that("of a later version, whose lines mean something else", headed(version=99), HEADER),
    file_that("of another format", headed(format="sqlite"), HEADER),
    file_that("of a user whose name is a path", headed(user_id="../bob"), HEADER),
    file_that("that is a database", lambda _: b"SQLite format 3\0" + bytes(4096), HEADER),
    file_that("without a header", lambda _: b'{"kind": "note"}\n', HEADER),
    file_that(
        "in one request that is larger than there is room for",
        lambda header: (
            json.dumps(header).encode() + b"\n" + b"x" * (EXPORT_LINE_MAX_BYTES + (1 << 17))
        ),
        "a bound on the size of a request",
    ),
]


@pytest.mark.parametrize("make", FILES)
async def test_what_is_no_export_is_refused(place: TwoHosts, make: Callable[[Line], bytes]) -> None:
    header = json.loads((await exported(place))[0])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await place.alice.gateway.ImportMemory(pb.ImportMemoryRequest(lines=make(header)))
    assert refused.value.code() in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )


async def test_after_that_all_is_as_before(place: TwoHosts) -> None:
    await place.assert_unharmed()
