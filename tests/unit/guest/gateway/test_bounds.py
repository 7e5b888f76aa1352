"""What the gateway accepts, at and beyond every bound of the contract."""

from typing import get_args, get_type_hints

import pytest
from google.protobuf.message import Message
from wire.errors import Code
from wire.limits import (
    CURSOR_MAX_CHARS,
    NOTE_MAX_CHARS,
    QUERY_MAX_CHARS,
    SEQUENCE_MAX,
    TAGS_MAX,
    TURN_TEXT_MAX_CHARS,
)
from wire.v1 import gateway_pb2 as pb

from guest.errors import GuestError
from guest.gateway import validation
from guest.memory.models import NOTE_TYPES, Origin

UNCHECKED = set(
    """
    client time_zone attachments client_tools form path upload_id offset data name lines call_id
    paths after before auth_token provider key missing spec shell egress embedder refused details
    resolution offer budget_usd day_usd told guest""".split()  # noqa: SIM905 - readable as prose
)
"""What is checked where it is used, refers to what may not be there, or comes from the runner."""


def test_every_other_field_of_a_request_names_its_check() -> None:
    unchecked = set[str]()
    for method in pb.DESCRIPTOR.services_by_name["Gateway"].methods:
        checked = {name for name, _, _ in validation.checked_fields(method.input_type)}
        fields = {each.name for each in method.input_type.fields if each.type != each.TYPE_BOOL}
        by_the_handler = {"StartTurn": {"text"}, "EditNote": {"tags"}}.get(method.name, set())
        unchecked |= fields - checked - by_the_handler
    assert unchecked == UNCHECKED


BEYOND: dict[str, list[Message]] = {
    "session_id": [
        *(
            pb.GetSessionRequest(session_id=value)
            for value in ["", "a b", "ä", "../x", "a\n", "x" * 65, "a\0", "x" * 100_000]
        ),
        pb.CreateSessionRequest(session_id="../x"),
        pb.RenameSessionRequest(title="x"),
        pb.ArchiveSessionRequest(),
        pb.ForgetSessionRequest(),
        pb.GetTurnContextRequest(),
        pb.AskRequest(tool="network"),
        pb.CallToolRequest(name="file_read", session_id="/"),
        pb.ListNotesRequest(session_id="../x"),
        pb.ListChangesRequest(session_id="../x"),
    ],
    "parent_session_id": [pb.CreateSessionRequest(parent_session_id="../x")],
    "turn_id": [pb.StartTurnRequest(turn_id="/"), pb.FollowTurnRequest(), pb.CancelTurnRequest()],
    "note_id": [
        *(pb.GetNoteRequest(note_id="' OR 1=1"), pb.EditNoteRequest(text="x")),
        *(pb.DeleteNoteRequest(), pb.UndoChangeRequest(), pb.ListChangesRequest(note_id="/")),
    ],
    "approval_id": [pb.DecideRequest()],
    "name": [pb.CallToolRequest()],
    "tool": [pb.AskRequest(session_id="s")],
    "channel": [
        *(pb.CreateSessionRequest(channel="a b"), pb.StartTurnRequest(channel="/")),
        *(
            pb.SaveNoteRequest(text="x", channel="a b"),
            pb.DecideRequest(approval_id="a", channel="/"),
        ),
        pb.EditNoteRequest(note_id="n", text="x", channel="/"),
        pb.UndoChangeRequest(note_id="n", channel="/"),
    ],
    "origin_channel": [pb.SearchNotesRequest(query="x", origin_channel="/")],
    "text": [
        *(pb.SaveNoteRequest(text=text) for text in [" \n", "x" * (NOTE_MAX_CHARS + 1), "a\0b"]),
        pb.EditNoteRequest(note_id="n"),
    ],
    "query": [pb.SearchNotesRequest(query=text) for text in ["", "x" * (QUERY_MAX_CHARS + 1)]],
    "tags": [
        *(
            pb.SearchNotesRequest(query="x", tags=tags)
            for tags in [["x"] * (TAGS_MAX + 1), ["x" * 65], [" "]]
        ),
        pb.SaveNoteRequest(text="x", tags=["x"] * (TAGS_MAX + 1)),
    ],
    "tag": [pb.ListNotesRequest(tag=tag) for tag in ["x" * 65, " "]],
    "title": [
        *(pb.RenameSessionRequest(session_id="s", title=title) for title in ["", "a\nb", "a\0b"]),
        pb.CreateSessionRequest(title="x" * 201),
    ],
    "link": [
        pb.SaveNoteRequest(text="x", link=link)
        for link in ["x" * (validation.LINK_MAX_CHARS + 1), "a\nb", "a\0b"]
    ],
    "actor": [pb.ListNotesRequest(actor="robot"), pb.ListChangesRequest(actor="robot")],
    "type": [pb.ListNotesRequest(type="Fact")],
    "by": [pb.GetUsageRequest(by="hour")],
    "since": [pb.ListNotesRequest(since="my cat"), pb.GetUsageRequest(since="2026-1-2")],
    "before": [pb.SearchNotesRequest(query="x", before="2026-13-01")],
    "cursor": [pb.ListNotesRequest(cursor="x" * (CURSOR_MAX_CHARS + 1))],
    "limit": [
        *(pb.ListSessionsRequest(limit=1001), pb.GetSessionRequest(session_id="s", limit=2**31)),
        *(pb.ListNotesRequest(limit=1001), pb.ListChangesRequest(limit=1001)),
        pb.ReviewMemoryRequest(limit=1001),
    ],
    "top_k": [pb.SearchNotesRequest(query="x", top_k=21)],
    "stale_days": [pb.ReviewMemoryRequest(stale_days=36_501)],
    "expected_version": [
        pb.EditNoteRequest(note_id="n", text="x", expected_version=SEQUENCE_MAX + 1),
        pb.DeleteNoteRequest(note_id="n", expected_version=SEQUENCE_MAX + 1),
        pb.UndoChangeRequest(note_id="n", expected_version=SEQUENCE_MAX + 1),
    ],
}


@pytest.mark.parametrize("field", BEYOND)
def test_what_is_beyond_a_bound_is_refused_naming_the_field(field: str) -> None:
    for request in BEYOND[field]:
        with pytest.raises(GuestError) as raised:
            validation.check(request)
        assert raised.value.code is Code.INVALID_ARGUMENT
        assert raised.value.brief.startswith(f"bad {field}: ")
        assert len(raised.value.brief) < 200


@pytest.mark.parametrize("text", [" \n", "a\0b", "x" * (TURN_TEXT_MAX_CHARS + 1)])
def test_the_text_of_a_turn_is_bounded_unless_it_is_a_retry(text: str) -> None:
    with pytest.raises(GuestError, match="bad text: "):
        validation.asked(pb.StartTurnRequest(text=text))
    assert validation.asked(pb.StartTurnRequest(text=text, retry=True)) == ""


def test_what_is_at_a_bound_is_accepted() -> None:
    assert validation.asked(pb.StartTurnRequest(text="x" * TURN_TEXT_MAX_CHARS))
    for at_bound in (
        *(pb.GetSessionRequest(session_id=value) for value in ["a", "A-b_c.9", "x" * 64]),
        pb.SaveNoteRequest(
            text="x" * NOTE_MAX_CHARS,
            tags=["x" * 64] * TAGS_MAX,
            link="x" * validation.LINK_MAX_CHARS,
        ),
        pb.EditNoteRequest(note_id="n", text="x", expected_version=SEQUENCE_MAX),
        pb.ListNotesRequest(limit=1000),
        *(pb.ListNotesRequest(type=kind) for kind in NOTE_TYPES),
    ):
        validation.check(at_bound)


def test_what_need_not_be_said_may_be_empty() -> None:
    validation.check(pb.ListNotesRequest())


def test_who_may_have_written_a_note_is_what_an_origin_can_say() -> None:
    assert get_args(get_type_hints(Origin)["actor"]) == validation.ACTORS
