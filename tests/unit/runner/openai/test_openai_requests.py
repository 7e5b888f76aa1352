"""What requests of OpenAI's API are read as, and what a conversation is recognised by."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.types import Message
from wire.errors import Code, WireError

from runner.access.exchange import kept_alive, while_there
from runner.openai.conversations import Conversations, Known, as_context, key_of, plain
from runner.openai.requests import (
    Asked,
    BadRequest,
    CallRef,
    Exchange,
    chat_request,
    responses_request,
)

TURN = "turn-12345678-1234-1234-1234-123456789abc"


def test_a_call_is_found_again_by_its_id() -> None:
    call = CallRef(TURN, 12)
    assert CallRef.read("x", call.call_id) == call
    for other in ("", "call_1", call.call_id.upper(), f"{call.call_id}x", "call_" + "a" * 500):
        with pytest.raises(BadRequest):
            CallRef.read("x", other)


@pytest.mark.parametrize("kind", ["file", "input_file"])
def test_files_come_with_a_message(kind: str) -> None:
    def asked(*files: dict[str, str]) -> Asked:
        text: dict[str, Any] = {"type": "text", "text": "what is due?"}
        parts = [{"type": kind, **({"file": each} if kind == "file" else each)} for each in files]
        talk = [{"role": "user", "content": [text, *parts]}]
        if kind == "file":
            return chat_request({"messages": talk})
        return responses_request({"input": talk})

    data = f"data:application/pdf;base64,{base64.b64encode(b'%PDF-1.7').decode()}"
    sent = asked({"filename": "../a bill.pdf", "file_data": data}, {"file_id": "file-1"})
    ((path, content),) = sent.pictures.items()
    assert path.startswith("/shared/attachments/")
    assert path.endswith("-.._a_bill.pdf")
    assert path.count("/") == 3
    assert content == b"%PDF-1.7"
    assert sent.unshown == ("a file that is not sent as data",)
    with pytest.raises(BadRequest, match="not base64"):
        asked({"filename": "a", "file_data": "*"})


def test_a_conversation_is_read_with_tools_and_system_messages_in_it() -> None:
    asked = chat_request(
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "how is it?"}]},
                {"role": "assistant", "content": "Let me see.", "tool_calls": []},
                {"role": "tool", "tool_call_id": CallRef(TURN, 3).call_id, "content": "rain"},
                {"role": "assistant", "content": " It rains."},
                {"role": "developer", "content": "In English."},
                {"role": "user", "content": "thanks"},
            ]
        }
    )
    assert asked.talk == (Exchange("how is it?", "Let me see. It rains."), Exchange("thanks"))
    assert (asked.instructions, asked.question, asked.call) == (
        "Be brief.\n\nIn English.",
        "thanks",
        None,
    )
    last = responses_request(
        {
            "input": [
                {"role": "user", "content": "how is it?"},
                {"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"},
                {"type": "reasoning", "summary": []},
                {
                    "type": "function_call_output",
                    "call_id": CallRef(TURN, 3).call_id,
                    "output": [{"type": "input_text", "text": "rain"}],
                },
            ]
        }
    )
    assert (last.call, last.answer) == (CallRef(TURN, 3), "rain")


TALK = [Exchange("a", "b"), Exchange("c", "d"), Exchange("e")]


def known(session_id: str, talk: list[Exchange], said: str, user_id: str = "alice") -> Known:
    return Known(key_of(talk), user_id, session_id, f"turn of {session_id}", plain(said))


def test_a_session_goes_on_from_its_last_question_only() -> None:
    conversations = Conversations()
    first = known("s", TALK[:1], "b")
    conversations.add(first)
    assert conversations.before("alice", TALK[:2]) is first
    second = known("s", TALK[:2], "d and more")
    conversations.add(second)
    assert conversations.before("alice", TALK[:2]) is None
    assert conversations.before("alice", TALK) is second
    assert conversations.before("bob", TALK) is None
    edited = [TALK[0], Exchange("c", "other"), TALK[2]]
    assert conversations.before("alice", edited) is None
    assert conversations.before("alice", TALK[:1]) is None


@pytest.mark.parametrize(
    ("most", "chars"), [(2, 10_000), (100, 10)], ids=["sessions", "characters"]
)
def test_what_is_remembered_of_conversations_is_bounded(most: int, chars: int) -> None:
    conversations = Conversations(most, chars)
    for number in range(5):
        conversations.add(known(f"s{number}", TALK[:1], "12345"))
    assert conversations.last("alice", "s4") is not None
    assert conversations.last("alice", "s3") is not None
    assert conversations.last("alice", "s2") is None


def test_pieces_of_two_messages_make_no_third() -> None:
    assert key_of([Exchange("ab", "c"), Exchange("d")]) != key_of(
        [Exchange("a", "bc"), Exchange("d")]
    )
    assert key_of([Exchange("a\n b")]) == key_of([Exchange("a b ")])


def test_what_was_said_elsewhere_is_told_within_bounds() -> None:
    assert as_context(TALK[:2]) == "User: a\nAnswer: b\nUser: c\nAnswer: d"
    long = as_context([Exchange("x" * 30_000, "the end")])
    assert len(long) < 25_000
    assert long.startswith("[what came before is left out]")
    assert long.endswith("the end")


async def test_work_ends_when_its_client_has_left() -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def work() -> str:
        left.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    with pytest.raises(WireError) as raised:
        await while_there(receive, work())
    assert raised.value.code is Code.CANCELLED
    assert ended.is_set()


async def test_a_stream_without_news_is_kept_alive() -> None:
    go_on = asyncio.Event()

    async def lines() -> AsyncGenerator[str, None]:
        yield "one"
        await go_on.wait()
        yield "two"

    seen: list[str] = []
    async for line in kept_alive(lines(), ": the agent is at work\n\n", 0.01):
        seen.append(line)
        if line.startswith(":"):
            go_on.set()
    assert (seen[0], seen[-1]) == ("one", "two")
    assert set(seen[1:-1]) == {": the agent is at work\n\n"}
