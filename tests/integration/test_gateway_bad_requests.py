"""Requests to a gateway that are bad, name what is not there, or come from somebody else."""

from collections.abc import Callable
from typing import Any

import pytest
from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS, QUERY_MAX_CHARS, TURN_TEXT_MAX_CHARS
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from tests.integration.gateway_house import Client, House, refusal


def too_long(limit: int) -> str:
    return "x" * (limit + 1)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("session_id", lambda s: s.CreateSession(pb.CreateSessionRequest(session_id="../x"))),
        ("session_id", lambda s: s.CreateSession(pb.CreateSessionRequest(session_id="x" * 65))),
        ("title", lambda s: s.CreateSession(pb.CreateSessionRequest(title="x" * 201))),
        ("channel", lambda s: s.CreateSession(pb.CreateSessionRequest(channel="a b"))),
        ("limit", lambda s: s.ListSessions(pb.ListSessionsRequest(limit=1001))),
        ("session_id", lambda s: s.GetSession(pb.GetSessionRequest())),
        ("limit", lambda s: s.GetSession(pb.GetSessionRequest(session_id="s", limit=2**32 - 1))),
        ("text", lambda s: s.RunTurn(pb.RunTurnRequest(session_id="s", text=" "))),
        (
            "text",
            lambda s: s.RunTurn(
                pb.RunTurnRequest(session_id="s", text=too_long(TURN_TEXT_MAX_CHARS))
            ),
        ),
        ("text", lambda s: s.RunTurn(pb.RunTurnRequest(session_id="s", text="a\0b"))),
        ("session_id", lambda s: s.RunTurn(pb.RunTurnRequest(text="hi"))),
        ("turn_id", lambda s: s.RunTurn(pb.RunTurnRequest(session_id="s", text="x", turn_id="/"))),
        ("turn_id", lambda s: s.CancelTurn(pb.CancelTurnRequest())),
        ("approval_id", lambda s: s.AnswerApproval(pb.AnswerApprovalRequest())),
        ("name", lambda s: s.CallTool(pb.CallToolRequest())),
        ("session_id", lambda s: s.CallTool(pb.CallToolRequest(name="file_read", session_id="/"))),
        ("limit", lambda s: s.ListNotes(pb.ListNotesRequest(limit=5000))),
        ("cursor", lambda s: s.ListNotes(pb.ListNotesRequest(cursor="made up"))),
        ("query", lambda s: s.SearchNotes(pb.SearchNotesRequest(query=" "))),
        (
            "query",
            lambda s: s.SearchNotes(pb.SearchNotesRequest(query=too_long(QUERY_MAX_CHARS))),
        ),
        ("top_k", lambda s: s.SearchNotes(pb.SearchNotesRequest(query="x", top_k=21))),
        ("tags", lambda s: s.SearchNotes(pb.SearchNotesRequest(query="x", tags=["x"] * 17))),
        ("note_id", lambda s: s.GetNote(pb.GetNoteRequest(note_id="' OR 1=1"))),
        ("note_id", lambda s: s.EditNote(pb.EditNoteRequest(text="x"))),
        (
            "text",
            lambda s: s.EditNote(pb.EditNoteRequest(note_id="n", text=too_long(NOTE_MAX_CHARS))),
        ),
        ("text", lambda s: s.EditNote(pb.EditNoteRequest(note_id="n", text=""))),
        ("note_id", lambda s: s.DeleteNote(pb.DeleteNoteRequest())),
    ],
)
async def test_bad_input_is_refused_naming_the_field(
    alice: Client, field: str, call: Callable[[Any], Any]
) -> None:
    error = await refusal(call(alice.stub))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.brief.startswith(f"bad {field}")


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.GetSession(pb.GetSessionRequest(session_id="nobodys")),
        lambda s: s.RunTurn(pb.RunTurnRequest(session_id="nobodys", text="hi")),
        lambda s: s.CallTool(pb.CallToolRequest(name="file_list", session_id="nobodys")),
        lambda s: s.GetNote(pb.GetNoteRequest(note_id="note-nobodys")),
        lambda s: s.EditNote(pb.EditNoteRequest(note_id="note-nobodys", text="x")),
    ],
)
async def test_what_is_not_there_is_not_found(alice: Client, call: Callable[[Any], Any]) -> None:
    error = await refusal(call(alice.stub))
    assert error.code is Code.NOT_FOUND
    assert "nobodys" in error.brief


async def test_what_belongs_to_another_user_is_not_there(house: House, alice: Client) -> None:
    bob = await house.serve("bob")
    session = await bob.session("bobs")
    await bob.answer(session, "remember that my safe word is heron")
    note_id = (await bob.stub.ListNotes(pb.ListNotesRequest())).notes[0].note_id
    for call in (
        alice.stub.CreateSession(pb.CreateSessionRequest(session_id="bobs")),
        alice.stub.GetSession(pb.GetSessionRequest(session_id="bobs")),
        alice.stub.RunTurn(pb.RunTurnRequest(session_id="bobs", text="hi")),
        alice.stub.GetNote(pb.GetNoteRequest(note_id=note_id)),
        alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text="x")),
        alice.stub.DeleteNote(pb.DeleteNoteRequest(note_id=note_id)),
    ):
        assert (await refusal(call)).code is Code.NOT_FOUND
    assert not (await alice.stub.ListNotes(pb.ListNotesRequest())).notes
    assert (await bob.stub.GetNote(pb.GetNoteRequest(note_id=note_id))).version == 1


async def test_another_users_token_opens_nothing(house: House, alice: Client) -> None:
    bob = await house.serve("bob")
    async with open_channel(alice.address, bob.token) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        for call in (
            stub.Hello(pb.HelloRequest()),
            stub.RunTurn(pb.RunTurnRequest(session_id="s", text="hi")),
            stub.ListNotes(pb.ListNotesRequest()),
        ):
            assert (await refusal(call)).code is Code.UNAUTHENTICATED
