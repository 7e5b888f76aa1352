"""What the gateway refuses to do with notes, and what it keeps from other users."""

from collections.abc import Callable
from typing import Any

import pytest
from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS, SEQUENCE_MAX
from wire.v1 import gateway_pb2 as pb

from tests.integration.gateway_house import Client, House, refusal

NO_SUCH = "note-nobodys"


@pytest.mark.parametrize(
    ("field", "ask"),
    [
        ("text", lambda s: s.SaveNote(pb.SaveNoteRequest(text=" "))),
        ("text", lambda s: s.SaveNote(pb.SaveNoteRequest(text="x" * (NOTE_MAX_CHARS + 1)))),
        ("text", lambda s: s.SaveNote(pb.SaveNoteRequest(text="a\0b"))),
        ("tags", lambda s: s.SaveNote(pb.SaveNoteRequest(text="x", tags=["t"] * 17))),
        ("tags", lambda s: s.SaveNote(pb.SaveNoteRequest(text="x", tags=[""]))),
        ("link", lambda s: s.SaveNote(pb.SaveNoteRequest(text="x", link="x" * 1001))),
        ("link", lambda s: s.SaveNote(pb.SaveNoteRequest(text="x", link="a\nb"))),
        ("channel", lambda s: s.SaveNote(pb.SaveNoteRequest(text="x", channel="a b"))),
        ("channel", lambda s: s.EditNote(pb.EditNoteRequest(note_id="n", text="x", channel="/"))),
        ("channel", lambda s: s.UndoChange(pb.UndoChangeRequest(note_id="n", channel="/"))),
        (
            "expected_version",
            lambda s: s.EditNote(
                pb.EditNoteRequest(note_id="n", text="x", expected_version=SEQUENCE_MAX + 1)
            ),
        ),
        ("type", lambda s: s.ListNotes(pb.ListNotesRequest(type="opinion"))),
        ("actor", lambda s: s.ListNotes(pb.ListNotesRequest(actor="robot"))),
        ("tag", lambda s: s.ListNotes(pb.ListNotesRequest(tag="x" * 65))),
        ("note_id", lambda s: s.ListChanges(pb.ListChangesRequest(note_id="/"))),
        ("limit", lambda s: s.ListChanges(pb.ListChangesRequest(limit=1001))),
        ("cursor", lambda s: s.ListChanges(pb.ListChangesRequest(cursor="made up"))),
        ("actor", lambda s: s.ListChanges(pb.ListChangesRequest(actor="robot"))),
        ("session_id", lambda s: s.ListChanges(pb.ListChangesRequest(session_id="../x"))),
        ("note_id", lambda s: s.UndoChange(pb.UndoChangeRequest())),
        (
            "expected_version",
            lambda s: s.UndoChange(
                pb.UndoChangeRequest(note_id="n", expected_version=SEQUENCE_MAX + 1)
            ),
        ),
        ("stale_days", lambda s: s.ReviewMemory(pb.ReviewMemoryRequest(stale_days=36_501))),
        ("limit", lambda s: s.ReviewMemory(pb.ReviewMemoryRequest(limit=1001))),
        (
            "parent_session_id",
            lambda s: s.CreateSession(pb.CreateSessionRequest(parent_session_id="../x")),
        ),
        (
            "parent_session_id",
            lambda s: s.CreateSession(
                pb.CreateSessionRequest(session_id="me", parent_session_id="me")
            ),
        ),
    ],
)
async def test_bad_input_is_refused_naming_the_field(
    alice: Client, field: str, ask: Callable[[Any], Any]
) -> None:
    error = await refusal(ask(alice.stub))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.brief.startswith(f"bad {field}")


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.EditNote(pb.EditNoteRequest(note_id=NO_SUCH, text="x")),
        lambda s: s.EditNote(pb.EditNoteRequest(note_id=NO_SUCH, text="x", expected_version=1)),
        lambda s: s.DeleteNote(pb.DeleteNoteRequest(note_id=NO_SUCH)),
        lambda s: s.UndoChange(pb.UndoChangeRequest(note_id=NO_SUCH, may_forget=True)),
        lambda s: s.ListChanges(pb.ListChangesRequest(note_id=NO_SUCH)),
    ],
)
async def test_what_is_not_there_is_not_found(alice: Client, ask: Callable[[Any], Any]) -> None:
    error = await refusal(ask(alice.stub))
    assert error.code is Code.NOT_FOUND
    assert error.brief == f"note not found: {NO_SUCH}"
    assert "memory_search" not in str(error)


async def test_two_users_services_over_one_memory_never_meet(house: House, alice: Client) -> None:
    bob = await house.serve("bob")
    secret = await bob.save("my safe word is heron", "safe")
    await bob.stub.EditNote(pb.EditNoteRequest(note_id=secret, text="my safe word is stork"))
    await bob.session("bobs")
    for ask in (
        alice.stub.GetNote(pb.GetNoteRequest(note_id=secret)),
        alice.stub.EditNote(pb.EditNoteRequest(note_id=secret, text="x")),
        alice.stub.DeleteNote(pb.DeleteNoteRequest(note_id=secret)),
        alice.stub.UndoChange(pb.UndoChangeRequest(note_id=secret, may_forget=True)),
        alice.stub.ListChanges(pb.ListChangesRequest(note_id=secret)),
        alice.stub.CreateSession(pb.CreateSessionRequest(parent_session_id="bobs")),
    ):
        assert (await refusal(ask)).code is Code.NOT_FOUND
    same = await alice.save("my safe word is stork")
    assert same != secret
    assert await alice.changes(session_id="bobs") == []
    assert [change.note_id for change in await alice.changes()] == [same]
    assert not (await alice.stub.ReviewMemory(pb.ReviewMemoryRequest())).near
    assert await alice.texts(tag="safe") == []
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="safe word"))
    assert [note.note_id for note in found.notes] == [same]
    assert (await bob.note(secret)).version == 2
