"""Requests as every chat template takes them: no role twice in a row, and one system message."""

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from guest.agent.models.roles import NO_ANSWER, alternating

RESULT = ToolReturnPart("look", "found", "c1")
CALL = ToolCallPart("look", "{}", "c1")


def user(*content: Any) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(each) for each in content])


def said(*parts: Any) -> ModelResponse:
    return ModelResponse(parts=list(parts))


def shown(messages: list[ModelMessage]) -> list[Any]:
    return [
        getattr(part, "content", "call") for each in alternating(messages) for part in each.parts
    ]


def test_what_stands_beside_a_message_is_one_text_with_it() -> None:
    assert shown([user("recalled", "the time:", "hi")]) == ["recalled\n\nthe time:\n\nhi"]
    assert shown([user("recalled"), user("hi")]) == ["recalled\n\nhi"]


def test_a_picture_stays_between_the_texts_around_it() -> None:
    picture = BinaryContent(b"png", media_type="image/png")
    assert shown([user(["files:", picture], "the time:", "hi")]) == [
        ["files:", picture, "the time:\n\nhi"]
    ]


def test_a_message_behind_a_result_stands_behind_an_answer() -> None:
    asked: list[ModelMessage] = [user("hi"), said(CALL)]
    expected = ["hi", "call", "found", NO_ANSWER, "and now?"]
    assert shown([*asked, ModelRequest(parts=[RESULT, UserPromptPart("and now?")])]) == expected
    assert shown([*asked, ModelRequest(parts=[RESULT]), user("and now?")]) == expected


@pytest.mark.parametrize("parts", [(), (TextPart(" "),), (ThinkingPart("hm"), TextPart(""))])
def test_an_empty_answer_has_a_text(parts: tuple[Any, ...]) -> None:
    thoughts = [part.content for part in parts if isinstance(part, ThinkingPart)]
    assert shown([user("hi"), said(*parts), user("go on")]) == [
        *("hi", *thoughts, NO_ANSWER, "go on")
    ]


def test_two_answers_in_a_row_are_one() -> None:
    first, *rest = alternating([user("hi"), said(TextPart("Well.")), said(CALL)])
    assert [len(each.parts) for each in (first, *rest)] == [1, 2]


def test_each_call_stands_before_its_own_result() -> None:
    other, found = ToolCallPart("list", "{}", "c2"), ToolReturnPart("list", "nothing", "c2")
    results = ModelRequest(parts=[RESULT, found])
    _, *messages = alternating([user("hi"), said(TextPart("Well."), CALL, other), results])
    assert [[type(part) for part in each.parts] for each in messages] == [
        *([TextPart, ToolCallPart], [ToolReturnPart]),
        *([ToolCallPart], [ToolReturnPart]),
    ]
    thoughtful = shown([user("hi"), said(ThinkingPart("hm"), CALL, other), results])
    assert thoughtful == ["hi", "hm", "call", "call", "found", "nothing"]


def test_a_late_system_message_is_a_text_of_the_runtime() -> None:
    late = ModelRequest(parts=[SystemPromptPart("Please return text.")])
    assert shown([user("hi"), said(TextPart("")), late])[-1] == (
        "[This is the runtime, not the user.] Please return text."
    )
