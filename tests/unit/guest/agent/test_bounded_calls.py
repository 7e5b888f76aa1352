"""Calls that a model makes too large, too deep, too many, or under no name: it is told, and what is
stored can be exported and sent again."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent import history
from guest.agent.calls import ARGUMENTS_MAX_BYTES, CALLS_MAX
from guest.agent.incomplete import TEXT_MAX_CHARS
from guest.agent.receipts.second_chance import NOTHING_TO_ADD
from guest.agent.turn import ClientTool, FromClient, Outcome, TurnRequest
from guest.memory.models import Event
from guest.tools.base import ToolContext, ToolResult
from tests.support.agent.prompt_fakes import loop_on
from tests.support.agent.turn_fakes import (
    CONTEXT,
    FakePipeline,
    FakeStore,
    Text,
    Watcher,
    code,
    tool,
)

MEGABYTE = 1024 * 1024


async def note_down(_: ToolContext, __: Any) -> str:
    return "ok"


class Turns:
    """Turns of one session, with a model that gives one answer after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[list[ModelMessage]] = []
        self.store = FakeStore()
        self.pipeline = FakePipeline([tool("keep", note_down, arguments=Text)])
        self.watcher = Watcher()
        settings = AgentSettings(context_window=2_000_000, max_tokens=50_000_000)
        model = FunctionModel(stream_function=self._answer)
        self.loop = loop_on(model, self.pipeline, self.store, settings)

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        self.seen.append(list(messages))
        answer = self.answers.pop(0) if self.answers else NOTHING_TO_ADD
        for piece in [answer] if isinstance(answer, str | dict) else answer:
            yield piece

    async def say(self, text: str, client: FromClient | None = None) -> Outcome:
        context = ToolContext("alice", CONTEXT.session_id, f"t-{text}", "test")
        return await self.loop.run(
            TurnRequest(context, text, client=client or FromClient()), self.watcher
        )

    def results(self) -> list[str]:
        """What the model was told of its calls, in its last request."""
        parts = [part for message in self.seen[-1] for part in message.parts]
        return [str(part.content) for part in parts if part.part_kind == "tool-return"]

    def payloads(self) -> int:
        """The bytes of the longest stored event."""
        return max(len(event.payload) for event in self.store.events[CONTEXT.session_id])


def call(arguments: str, name: str = "keep", number: int = 0) -> dict[int, DeltaToolCall]:
    return {number: DeltaToolCall(name, arguments, tool_call_id=f"c{number}")}


def in_pieces(arguments: str, size: int) -> Iterable[dict[int, DeltaToolCall]]:
    yield call(arguments[:size])
    for start in range(size, len(arguments), size):
        yield {0: DeltaToolCall(json_args=arguments[start : start + size])}


def text(length: int) -> str:
    return json.dumps({"text": "x" * length})


@pytest.mark.parametrize("length", [3 * MEGABYTE, 9 * MEGABYTE])
async def test_a_model_writes_less_after_too_much(length: int) -> None:
    turns = Turns(in_pieces(text(length), 16_384), call(text(10)), "kept", "bye")
    assert code(await turns.say("keep it")) == "completed"
    assert "this call was not run; write less at once" in turns.results()[0]
    assert [arguments for _, _, arguments in turns.pipeline.calls] == [text(10)]
    assert turns.payloads() < MEGABYTE
    assert code(await turns.say("go on")) == "completed"


async def test_the_largest_call_that_is_accepted_is_run() -> None:
    turns = Turns(in_pieces(text(ARGUMENTS_MAX_BYTES - 12), 16_384), "kept")
    assert code(await turns.say("keep it")) == "completed"
    assert turns.results() == ['"ok"']


@pytest.mark.parametrize(("size", "piece"), [(40_000, 8), (400_000, 80)])
async def test_arguments_in_small_pieces_are_put_together(size: int, piece: int) -> None:
    turns = Turns(in_pieces(text(size), piece), "kept")
    assert code(await turns.say("keep it")) == "completed"
    assert [arguments for _, _, arguments in turns.pipeline.calls] == [text(size)]


async def test_nothing_is_made_of_an_answer_at_each_of_its_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Limits on tokens would be checked so, and the whole answer put together each time."""
    made = 0
    get = StreamedResponse.get

    def counted(stream: StreamedResponse) -> ModelResponse:
        nonlocal made
        made += 1
        return get(stream)

    monkeypatch.setattr(StreamedResponse, "get", counted)
    turns = Turns(in_pieces(text(1_000), 2), "kept")
    assert code(await turns.say("keep it")) == "completed"
    assert made < 10


@pytest.mark.parametrize("opening", ["[", '{"text":'])
@pytest.mark.parametrize("depth", [33, 300, 100_000])
async def test_a_model_writes_flatter_after_too_deep(opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    deep = f'{{"text": {opening * depth}1{closing * depth}}}'
    turns = Turns(call(deep), call(text(1)), "kept", "bye")
    assert code(await turns.say("keep it")) == "completed"
    assert turns.results()[0] == "arguments must not be nested deeper than 32 levels"
    assert len(turns.pipeline.calls) == 1
    assert code(await turns.say("go on")) == "completed"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
async def test_a_model_writes_numbers_after_what_is_none(number: str) -> None:
    turns = Turns(call(f'{{"text": [{number}]}}'), call(text(1)), "kept", "bye")
    assert code(await turns.say("keep it")) == "completed"
    assert turns.results()[0] == "arguments must have no NaN and no infinite number"
    assert len(turns.pipeline.calls) == 1
    assert code(await turns.say("go on")) == "completed"
    for message in turns.seen[-1]:
        for each in getattr(message, "tool_calls", ()):
            json.dumps(each.args_as_dict(), allow_nan=False)


async def test_calls_beyond_the_most_are_not_run() -> None:
    many = {n: DeltaToolCall("keep", text(1), tool_call_id=f"c{n}") for n in range(200)}
    turns = Turns(many, "some are kept")
    assert code(await turns.say("keep all")) == "completed"
    assert len(turns.pipeline.calls) == CALLS_MAX - 1
    assert "this had more: this one and those behind it were not run" in turns.results()[-1]


async def test_a_call_under_no_name_does_not_end_the_session() -> None:
    turns = Turns(call("{}", name=""), call("{}", name="keep it/now", number=1), "sorry", "bye")
    assert code(await turns.say("keep it")) == "completed"
    assert code(await turns.say("go on")) == "completed"
    names = [c.tool_name for m in turns.seen[-1] for c in getattr(m, "tool_calls", ())]
    assert names == ["unnamed", "keep_it_now"]


async def test_blank_text_before_a_call_is_not_sent_back() -> None:
    """Anthropic refuses every request that holds such a text."""
    turns = Turns(["\n\n", call(text(1))], "kept")
    assert code(await turns.say("keep it")) == "completed"
    kinds = [part.part_kind for part in turns.seen[1][-2].parts]
    assert kinds == ["tool-call"]


async def test_a_call_for_the_client_that_is_too_large_never_reaches_it() -> None:
    turns = Turns(call(text(3 * MEGABYTE), name="theirs"), "sorry")
    theirs = FromClient(tools=(ClientTool("theirs", "", {"type": "object"}),))
    assert code(await turns.say("ask them", theirs)) == "completed"
    assert "this call was not run" in turns.results()[0]
    assert not [e for e in turns.watcher.seen if isinstance(e, gateway_pb2.ClientCall)]


async def test_an_answer_without_end_is_cut() -> None:
    sheep = ["".join(f"{n} sheep, " for n in range(at, at + 400)) for at in range(0, 60_000, 400)]
    assert sum(map(len, sheep)) > TEXT_MAX_CHARS
    turns = Turns(sheep)
    outcome = await turns.say("babble")
    assert isinstance(outcome, gateway_pb2.TurnIncomplete)
    assert outcome.reason == "length"
    assert turns.payloads() < 2 * TEXT_MAX_CHARS


def test_what_is_stored_too_large_is_left_out_of_requests() -> None:
    """Earlier versions stored whatever a model wrote, and imported files may."""
    large = ModelResponse(
        [
            ToolCallPart("keep", text(3 * MEGABYTE), "c1"),
            ToolCallPart("keep", "[" * 5000, "c2"),
            ToolCallPart("", {"text": "x"}, "c3"),
        ]
    )
    results = [history.tool_message(c, "keep", "ok", is_error=False) for c in ("c1", "c2", "c3")]
    events = [Event(1, "t1", "assistant", "", history.to_payload(large), "now")] + [
        Event(n, "t1", "tool", "", history.to_payload(each), "now")
        for n, each in enumerate(results, 2)
    ]
    messages = history.to_messages(events)
    calls = [c for m in messages for c in getattr(m, "tool_calls", ())]
    assert max(len(str(each.args)) for each in calls) < 100
    assert [each.tool_name for each in calls] == ["keep", "keep", "unnamed"]
    returned = [p for m in messages if isinstance(m, ModelRequest) for p in m.parts]
    assert [getattr(p, "tool_call_id", "") for p in returned] == ["c1", "c2", "c3"]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_result_that_is_nested_deep_is_read_or_kept_as_text(opening: str) -> None:
    for depth in (900, 100_000):
        closing = "]" if opening == "[" else "}"
        result = ToolResult(f'{opening * depth}"found"{closing * depth}', False, "looked", 0)
        assert history.event_text("look", result).startswith("look: looked\n")
