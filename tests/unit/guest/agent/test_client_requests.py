"""What a client's program adds to a turn: its tools, its instructions, material, and requests
that leave no trace."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

from guest.agent import history
from guest.agent.incomplete import TEXT_MAX_CHARS
from guest.agent.turn import TIME, Answer, ClientTool, FromClient, Outcome, TurnRequest
from guest.tools.base import ToolContext
from tests.support.agent.prompt_fakes import loop_on
from tests.support.agent.turn_fakes import CONTEXT, FakePipeline, FakeStore, Watcher

WEATHER = ClientTool("weather", "The weather.", {"type": "object", "properties": {}})


class Talk:
    """Turns of one session against a scripted model."""

    def __init__(self, *replies: Any) -> None:
        self.store, self.watcher = FakeStore(), Watcher()
        self.seen: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []
        self.asked: list[tuple[str, str, str]] = []
        self.answer: Answer | None = Answer("sunny")
        waiting = list(replies)

        async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            self.seen.append(list(messages))
            self.infos.append(info)
            yield waiting.pop(0)

        scripted = FunctionModel(stream_function=model)
        self.loop = loop_on(scripted, FakePipeline(()), self.store, AgentSettings())

    async def ask(self, call: pb.ClientCall) -> Answer | None:
        self.asked.append((call.call_id, call.tool, call.arguments_json))
        return self.answer

    async def say(self, text: str, turn_id: str = "t1", **fields: Any) -> Outcome:
        context = ToolContext(CONTEXT.user_id, CONTEXT.session_id, turn_id, CONTEXT.channel)
        request = TurnRequest(context, text, client=FromClient(**fields))
        return await self.loop.run(request, self.watcher, ask_client=self.ask)

    def results(self) -> list[ToolReturnPart[Any]]:
        parts = [part for message in self.seen[-1] for part in message.parts]
        return [part for part in parts if isinstance(part, ToolReturnPart)]


def call(arguments: Any = None) -> dict[int, DeltaToolCall]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {0: DeltaToolCall("weather", written, tool_call_id="c1")}


async def test_the_client_runs_its_own_tool_and_its_result_is_material() -> None:
    talk = Talk(call({"city": "Ulm"}), "It is sunny.")
    outcome = await talk.say("how is it?", tools=(WEATHER,))
    assert isinstance(outcome, pb.TurnCompleted)
    assert outcome.text == "It is sunny."
    assert talk.asked == [("c1", "weather", '{"city": "Ulm"}')]
    assert [tool.name for tool in talk.infos[0].function_tools] == ["weather"]
    kept = talk.store.events["s1"]
    assert [event.role for event in kept] == ["user", "assistant", "tool", "assistant"]
    assert history.material_in(kept) == ("weather, a tool of the client",)
    assert talk.watcher.names()[:1] == ["ToolCallFinished"]


async def test_an_unanswered_call_and_bad_arguments_are_told_to_the_model() -> None:
    talk = Talk(call("[1]"), call(), "I do not know.")
    talk.answer = None
    assert isinstance(await talk.say("how is it?", tools=(WEATHER,)), pb.TurnCompleted)
    bad, late = [part.model_response_str() for part in talk.results()]
    assert "must be a JSON object" in bad
    assert "has not answered this call in time" in late
    assert len(talk.asked) == 1


async def test_instructions_of_the_client_stand_below_the_rules_for_one_request() -> None:
    talk = Talk("Arr.", "Hello.")
    await talk.say("hi", instructions="Speak like a pirate.\nAlways.")
    told = str(talk.infos[0].instructions)
    assert told.index("You are Oxydra") < told.index("\n> Speak like a pirate.\n> Always.")
    await talk.say("hi", "t2")
    assert "pirate" not in str(talk.infos[1].instructions)


async def test_material_of_the_client_stays_before_its_message_and_nobody_vouches_for_it() -> None:
    talk = Talk("Paris.", "Three.")
    await talk.say("and its capital?", material="User: tell me of France\nAssistant: It is big.")
    await talk.say("how many?", "t2")
    for seen in talk.seen:
        parts = [part for each in seen for part in each.parts]
        shown = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        assert any("> User: tell me of France\n> Assistant: It is big." in text for text in shown)
        assert shown.index("and its capital?") == 2
        assert shown[1].startswith(TIME)
    kept = talk.store.events["s1"]
    assert kept[0].text == "and its capital?"
    assert history.asked_in(kept[0]) == "and its capital?"
    assert history.material_in(kept) == ("the client's program",)


async def test_an_untraced_request_is_one_request_of_which_nothing_is_kept() -> None:
    talk = Talk("<think>hm</think>\n\nA title")
    context = ToolContext(CONTEXT.user_id, "", "t1", CONTEXT.channel)
    outcome = await talk.loop.answer_untraced(TurnRequest(context, "make a title"), talk.watcher)
    assert isinstance(outcome, pb.TurnCompleted)
    assert (outcome.text, outcome.steps) == ("A title", 1)
    assert outcome.input_tokens > 0
    assert talk.store.events == {}
    assert talk.watcher.text == "A title"
    (asked,) = talk.seen
    assert [type(each) for each in asked] == [ModelRequest]
    assert not talk.infos[0].function_tools


@pytest.mark.timeout(60)
async def test_an_untraced_answer_without_end_is_cut() -> None:
    async def babble(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        while True:
            yield "x" * 4096
            await asyncio.sleep(0)

    babbling = FunctionModel(stream_function=babble)
    loop = loop_on(babbling, FakePipeline(()), FakeStore(), AgentSettings())
    context = ToolContext(CONTEXT.user_id, "", "t1", CONTEXT.channel)
    outcome = await loop.answer_untraced(TurnRequest(context, "make a title"), Watcher())
    assert isinstance(outcome, pb.TurnIncomplete)
    assert outcome.reason == "length"
    assert TEXT_MAX_CHARS < len(outcome.so_far.text) <= TEXT_MAX_CHARS + 4096


async def test_an_untraced_request_that_fails_says_why() -> None:
    talk = Talk()
    context = ToolContext(CONTEXT.user_id, "", "t1", CONTEXT.channel)
    outcome = await talk.loop.answer_untraced(TurnRequest(context, "title"), talk.watcher)
    assert isinstance(outcome, pb.TurnFailed)
