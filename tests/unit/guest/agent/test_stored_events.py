"""What stored events say, read without the model library."""

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from guest.agent import events, history
from guest.memory.models import Event, Role


def event(role: Role, payload: str, text: str = "") -> Event:
    return Event(1, "t", role, text, payload, "2026-01-01T00:00:00Z")


def answer(*parts: TextPart | ToolCallPart, **known: object) -> Event:
    message = ModelResponse(parts=list(parts), **known)  # type: ignore[arg-type]
    return event("assistant", history.to_payload(message), "so far")


def test_an_answer_that_was_cut_says_why_and_who_gave_it() -> None:
    cut = answer(TextPart("so"), model_name="m-1", metadata={events.INCOMPLETE: "length"})
    assert (events.incomplete_in(cut), events.model_in(cut)) == ("length", "m-1")
    whole = answer(TextPart("so"))
    assert (events.incomplete_in(whole), events.model_in(whole)) == ("", "")


def test_what_is_said_beside_calls_is_not_the_answer() -> None:
    calling = answer(TextPart("I look"), ToolCallPart("memory_search", {"query": "x"}))
    answered = answer(TextPart("so far"))
    assert (events.calls_in(calling), events.calls_in(answered)) == (True, False)
    assert events.answer_in([calling, answered]) == "so far"


def test_the_files_that_a_message_points_to() -> None:
    message = history.user_message("look", attachments=["/shared/a.png"])
    assert events.attachments_in(event("user", history.to_payload(message))) == ["/shared/a.png"]
    assert events.attachments_in(event("user", history.to_payload(history.user_message("x")))) == []


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "no JSON",
        "7",
        '{"kind": "response"}',
        "[1, null]",
        '[{"kind": "response", "parts": 1, "metadata": [], "model_name": 7}]',
        '[{"kind": "request", "metadata": {"attachments": 1}}]',
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_says_nothing(payload: str) -> None:
    asked, answered = event("user", payload), event("assistant", payload)
    assert events.attachments_in(asked) == []
    assert (events.incomplete_in(answered), events.model_in(answered)) == ("", "")
    assert not events.calls_in(answered)
