"""Requests to a gateway that are bad, name what is not there, or come from somebody else."""

from typing import Any

import pytest
from google.protobuf.message import Message
from wire.errors import Code
from wire.limits import TURN_TEXT_MAX_CHARS
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from tests.support import parties
from tests.support.gateway.gateways import Client, Gateways, refusal


def call(client: Client, request: Message) -> Any:
    """The call that `request` is made for."""
    return getattr(client.stub, type(request).__name__.removesuffix("Request"))(request)


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("session_id", pb.CreateSessionRequest(session_id="../x")),
        ("parent_session_id", pb.CreateSessionRequest(session_id="me", parent_session_id="me")),
        ("text", pb.StartTurnRequest(session_id="s", text="x" * (TURN_TEXT_MAX_CHARS + 1))),
        ("session_id", pb.StartTurnRequest(text="hi")),
        ("turn_id", pb.FollowTurnRequest()),
        ("approval_id", pb.DecideRequest()),
        ("tags", pb.EditNoteRequest(note_id="n", text="x", tags=[""], replace_tags=True)),
        ("cursor", pb.ListNotesRequest(cursor="made up")),
        ("cursor", pb.ListChangesRequest(cursor="made up")),
    ],
)
async def test_bad_input_is_refused_naming_the_field(
    alice: Client, field: str, request_: Message
) -> None:
    error = await refusal(call(alice, request_))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.brief.startswith(f"bad {field}")


def about(note_id: str, session_id: str) -> list[Message]:
    """Requests that need a note or a session."""
    return [
        pb.GetNoteRequest(note_id=note_id),
        pb.EditNoteRequest(note_id=note_id, text="x"),
        pb.EditNoteRequest(note_id=note_id, text="x", expected_version=1),
        pb.DeleteNoteRequest(note_id=note_id),
        pb.DeleteNoteRequest(note_id=note_id, dry_run=True),
        pb.UndoChangeRequest(note_id=note_id, may_forget=True),
        pb.ListChangesRequest(note_id=note_id),
        pb.GetSessionRequest(session_id=session_id),
        pb.RenameSessionRequest(session_id=session_id, title="x"),
        pb.ArchiveSessionRequest(session_id=session_id, archived=True),
        pb.ForgetSessionRequest(session_id=session_id),
        pb.CreateSessionRequest(parent_session_id=session_id),
        pb.StartTurnRequest(session_id=session_id, text="hi"),
        pb.CallToolRequest(name="file_list", session_id=session_id),
    ]


@pytest.mark.parametrize("request_", about("note-nobodys", "nobodys"))
async def test_what_is_not_there_is_not_found(alice: Client, request_: Message) -> None:
    error = await refusal(call(alice, request_))
    assert error.code is Code.NOT_FOUND
    assert "not found: " in error.brief
    assert error.brief.endswith("nobodys")
    assert "memory_search" not in str(error)


async def test_two_users_services_over_one_memory_never_meet(
    gateways: Gateways, alice: Client
) -> None:
    bob = await gateways.serve("bob")
    secret = await bob.save("my safe word is heron", "safe")
    await bob.stub.EditNote(pb.EditNoteRequest(note_id=secret, text="my safe word is stork"))
    await bob.session("bobs")
    await bob.answer("bobs", "help")
    with gateways.memory.in_use.held("bobs", "turn 't'"):
        for request in [*about(secret, "bobs"), pb.CreateSessionRequest(session_id="bobs")]:
            assert (await refusal(call(alice, request))).code is Code.NOT_FOUND
    same = await alice.save("my safe word is stork")
    assert same != secret
    assert await alice.changes(session_id="bobs") == []
    assert [change.note_id for change in await alice.changes()] == [same]
    assert not (await alice.stub.ReviewMemory(pb.ReviewMemoryRequest())).near
    assert await alice.texts(tag="safe") == []
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="safe word"))
    assert [note.note_id for note in found.notes] == [same]
    assert (await bob.note(secret)).version == 2
    history = await bob.stub.GetSession(pb.GetSessionRequest(session_id="bobs"))
    assert (history.session.title, history.session.archived_at) == ("help", "")
    assert len(history.events) == 2


async def test_another_users_token_opens_nothing(gateways: Gateways, alice: Client) -> None:
    bob = await gateways.serve("bob")
    async with open_channel(parties.gateway(alice.address, bob.token)) as channel:
        thief = Client(gateway_pb2_grpc.GatewayStub(channel), alice.address, bob.token)
        for request in (
            pb.HelloRequest(),
            pb.StartTurnRequest(session_id="s", text="hi"),
            pb.ListNotesRequest(),
        ):
            assert (await refusal(call(thief, request))).code is Code.UNAUTHENTICATED
