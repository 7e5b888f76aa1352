"""Sizes by estimate, and what goes first where a request is too large."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
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
    repair_messages,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent.models.roles import NO_ANSWER
from guest.agent.prompt.beside import with_beside
from guest.agent.prompt.builder import Sections
from guest.agent.prompt.fitting import Request, fit
from guest.agent.prompt.window import Window, of_messages, of_part, of_tools
from guest.agent.toolset import definition
from guest.agent.turn import TurnRequest
from guest.errors import GuestError
from guest.memory.search.tokens import tokens_of
from guest.tools.base import Tool
from guest.tools.memory.working import ScratchArguments
from tests.support.agent.prompt_fakes import FakeMemory, hit, loop_on, note
from tests.support.agent.turn_fakes import (
    CONTEXT,
    FakePipeline,
    FakeStore,
    Watcher,
    tool,
)
from tests.support.images import png

SECTIONS = Sections(
    rules="rules " * 20,
    summary="summary " * 20,
    handoff="handoff " * 20,
    working="working " * 20,
    relevant="memory " * 20,
)
ASKED = "what now?"


def turn(number: int, output: str = "") -> list[ModelMessage]:
    """A turn with a tool call, or without one where it has no `output`."""
    call = f"call-{number}"
    calling: list[ModelMessage] = [
        ModelResponse(parts=[ToolCallPart("look", "{}", call)]),
        ModelRequest(parts=[ToolReturnPart("look", output, call)]),
    ]
    return [
        ModelRequest(parts=[UserPromptPart(f"question {number}")]),
        *(calling if output else []),
        ModelResponse(parts=[TextPart(f"answer {number} " + "so " * 30)]),
    ]


def asked() -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(ASKED)])


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def outputs(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def test_every_part_and_tool_counts_with_all_that_is_sent() -> None:
    call = ToolCallPart("file_write", {"path": "/shared/a", "content": "x" * 300}, "call-1")
    assert of_part(call) > 100
    assert of_part(ToolCallPart("file_write", '{"broken', "call-1")) > tokens_of('{"broken')
    assert of_part(ToolReturnPart("look", "x" * 300, "call-1")) > 100
    assert of_part(ThinkingPart("x" * 300, signature="s" * 300)) > 200
    assert of_part(SystemPromptPart("x" * 300)) > 100
    assert of_messages([ModelRequest(parts=[UserPromptPart("x" * 300)])]) > 100

    async def nothing(*_: object) -> str:
        return ""

    look = definition(tool("look", nothing))
    assert of_tools([look]) > tokens_of(json.dumps(look.parameters_json_schema))


def test_shares_of_the_window() -> None:
    window = Window.of(AgentSettings(context_window=16_000))
    shares = (window.trigger, window.target, window.note, window.summary)
    assert shares == (11_200, 6_400, 2000, 1000)
    assert Window.of(AgentSettings.model_construct(context_window=4000)).summary == 500


def test_what_fits_is_left_alone_and_memory_goes_before_any_turn() -> None:
    request = Request(SECTIONS, [*turn(1, "out"), asked()])
    assert fit(request, ASKED, request.size + 50, 50) is request
    fitted = fit(request, ASKED, request.size + 49, 50)
    assert fitted.sections.relevant == ""
    assert fitted.messages == request.messages


def test_a_shortened_output_still_tells_where_it_comes_from() -> None:
    notes = "\nNote: /shared/a.md was read, nobody vouches for it\nNote: only 3 of 9 fit"
    request = Request(SECTIONS, [*turn(1, "old " * 900 + notes), *running("new")])
    fitted = fit(request, ASKED, request.size - 700, 0)
    assert fitted.size <= request.size - 700
    old, _ = outputs(fitted.messages)
    assert old.startswith("old old")
    assert old.endswith(f"[… shortened to fit the window]{notes}")


def test_a_mark_is_kept_behind_long_notes_and_may_be_long_itself() -> None:
    """A search names every note of a source in one line; what comes before tells of the search."""
    ids = ", ".join(f"note-{number:032}" for number in range(40))
    mark = f"{ids} came from what was read (/shared/a.md), not from the user"
    notes = f"\nNote: {'the embedder is away ' * 50}\nNote: {mark}\nNote: shown in part"
    request = Request(SECTIONS, [*turn(1, "old " * 2_000 + notes), *running("new")])
    fitted = fit(request, ASKED, request.size - 1_500, 0)
    assert fitted.size <= request.size - 1_500
    old, _ = outputs(fitted.messages)
    assert "came from what was read (/shared/a.md), not from the user" in old
    assert old.endswith("\nNote: shown in part")


def test_the_pictures_of_an_output_count_and_go_before_its_text() -> None:
    picture = BinaryContent(png(), media_type="image/png")
    result: list[Any] = ["new", picture]
    messages = [*running("old"), ModelResponse(parts=[ToolCallPart("look", "{}", "now")])]
    messages.append(ModelRequest(parts=[ToolReturnPart("look", result, "now")]))
    request = Request(SECTIONS, messages)
    assert request.size > Request(SECTIONS, messages[:-1]).size + 1_600
    fitted = fit(request, ASKED, request.size - 1_000, 0)
    assert outputs(fitted.messages) == ["old", "new\nNote: its pictures find no room"]


def test_before_a_turn_goes_its_outputs_are_shortened() -> None:
    request = Request(SECTIONS, [*turn(1, "old " * 900), *turn(2, "out"), *running("new " * 300)])
    fitted = fit(request, ASKED, request.size - 700, 0)
    assert fitted.size <= request.size - 700
    assert prompts(fitted.messages) == ["question 1", "question 2", ASKED]
    old, *others = outputs(fitted.messages)
    assert old.startswith("old old")
    assert old.endswith("[… shortened to fit the window]")
    assert others == ["out", "new " * 300]


def test_then_the_oldest_turns_go_whole() -> None:
    request = Request(SECTIONS, [*turn(1, "one"), *turn(2, "two"), *turn(3), asked()])
    without_memory = request.size - tokens_of(SECTIONS.relevant)
    fitted = fit(request, ASKED, without_memory - 10, 0)
    assert prompts(fitted.messages) == ["question 2", "question 3", ASKED]
    assert outputs(fitted.messages) == ["two"]
    assert repair_messages(fitted.messages) == fitted.messages
    assert fitted.sections.summary


def test_turns_that_were_never_answered_go_one_by_one() -> None:
    said, none = turn(2)[0], ModelResponse(parts=[TextPart(NO_ANSWER)])
    messages = [*turn(1, "one" * 50)[:3], none, said, none, asked()]
    request = Request(SECTIONS, messages)
    fitted = fit(request, ASKED, request.size - tokens_of(SECTIONS.relevant) - 20, 0)
    assert prompts(fitted.messages)[-1] == ASKED
    assert outputs(fitted.messages) == []
    fitted = fit(request, ASKED, tokens_of(SECTIONS.text) - tokens_of(SECTIONS.relevant) + 20, 0)
    assert prompts(fitted.messages) == [ASKED]


def test_a_handoff_stands_beside_again_once_the_message_that_showed_it_does_not() -> None:
    sections = Sections(handoff="the handoff")
    request = Request(sections, [with_beside(asked(), sections.beside), *turn(0)[1:], asked()])
    assert request.beside == ""
    assert "the handoff" in fit(request, ASKED, request.size - 1, 0).beside


def running(*results: str) -> list[ModelMessage]:
    """A turn in which the model has called a tool for each of `results`."""
    messages: list[ModelMessage] = [asked()]
    for number, result in enumerate(results):
        messages += [
            ModelResponse(parts=[ToolCallPart("look", "{}", f"now-{number}")]),
            ModelRequest(parts=[ToolReturnPart("look", result, f"now-{number}")]),
        ]
    return messages


def test_then_outputs_of_the_running_turn_are_shortened_oldest_first() -> None:
    old, new = "old output " * 300, "new output " * 300
    request = Request(SECTIONS, [*turn(1), *running(old, new)])
    window = request.size - 700
    fitted = fit(request, ASKED, window, 0)
    assert fitted.size <= window
    assert prompts(fitted.messages) == [ASKED]
    shown_old, shown_new = outputs(fitted.messages)
    assert shown_old.endswith("[… shortened to fit the window]")
    assert shown_old.startswith("old output")
    assert shown_new == new
    fitted = fit(Request(Sections(), running(old, new)), ASKED, 1000, 0)
    assert sum("[… shortened" in text for text in outputs(fitted.messages)) == 2
    fitted = fit(request, ASKED, request.size - 1700, 0)
    assert fitted.size <= request.size - 1700
    assert [text.endswith("the window]") for text in outputs(fitted.messages)] == [True, True]
    assert fitted.sections.summary
    assert fitted.sections.handoff


def test_then_summary_and_working_memory_and_the_handoff_go() -> None:
    request = Request(SECTIONS, [asked()])
    rules = tokens_of(SECTIONS.rules)
    fitted = fit(
        request, ASKED, rules + of_messages([asked()]) + tokens_of(SECTIONS.handoff) + 30, 0
    )
    assert (fitted.sections.summary, fitted.sections.working) == ("", "")
    assert fitted.sections.handoff
    fitted = fit(request, ASKED, rules + of_messages([asked()]), 0)
    assert fitted.sections == Sections(rules=SECTIONS.rules)
    assert prompts(fitted.messages) == [ASKED]


def test_what_may_not_go_is_refused_with_sizes_and_the_fix() -> None:
    request = Request(SECTIONS, [*turn(1), asked()])
    with pytest.raises(GuestError) as raised:
        fit(request, ASKED, tokens_of(SECTIONS.rules) + of_messages([asked()]) + 999, 1000)
    assert raised.value.code == "resource_exhausted"
    rules = tokens_of(SECTIONS.rules)
    assert f"the rules {rules}" in raised.value.brief
    assert "the tools 1,000" in raised.value.brief
    assert f"window of {rules + of_messages([asked()]) + 999:,} tokens" in raised.value.brief
    assert raised.value.resolution.startswith("switch tools off, or raise context_window")


def test_what_is_refused_says_what_to_make_less_of() -> None:
    long = "word " * 999
    fixes = {
        "say less at once": (Request(SECTIONS, [ModelRequest(parts=[UserPromptPart(long)])]), long),
        "shorten instructions": (Request(Sections(rules=long), [asked()]), ASKED),
        "ask for less in one turn": (Request(SECTIONS, running(*["out"] * 99)), ASKED),
    }
    for fix, (request, message) in fixes.items():
        with pytest.raises(GuestError) as raised:
            fit(request, message, 500, 0)
        assert raised.value.resolution.startswith(f"{fix}, or raise context_window")


# Through the loop: the model sees what was fitted, in every request of the turn


class House:
    """A loop on a window of `context_window`, with the requests that its model saw."""

    def __init__(self, context_window: int, replies: Sequence[Any], *outputs: str) -> None:
        self.requests: list[tuple[list[ModelMessage], AgentInfo]] = []
        waiting, given = list(replies), list(outputs)

        async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            self.requests.append((list(messages), info))
            yield waiting.pop(0)

        async def look(*_: object) -> str:
            return given.pop(0)

        self.memory = FakeMemory()
        self.store = FakeStore()
        self.model = FunctionModel(stream_function=speak)
        self.settings = AgentSettings.model_construct(context_window=context_window)
        self.offer(tool("look", look), tool("memory_search", look))

    def offer(self, *tools: Tool) -> None:
        pipeline = FakePipeline(tools)
        self.loop = loop_on(self.model, pipeline, self.store, self.settings, self.memory)

    async def say(self, text: str, turn_id: str = CONTEXT.turn_id) -> Any:
        context = replace(CONTEXT, turn_id=turn_id)
        return await self.loop.run(TurnRequest(context, text), Watcher())

    def sizes(self) -> list[int]:
        return [
            tokens_of(info.instructions or "")
            + of_messages(messages)
            + of_tools(info.function_tools)
            for messages, info in self.requests
        ]


def told(request: tuple[list[ModelMessage], AgentInfo]) -> str:
    """The instructions, and what stands beside the user's message."""
    messages, info = request
    return "\n".join((info.instructions or "", *prompts(messages)))


def look() -> dict[int, Any]:
    return {0: DeltaToolCall("look", "{}")}


async def test_every_request_of_a_turn_fits_also_after_many_results() -> None:
    results = [f"long result {n} " * 250 for n in "123456789"]
    house = House(5000, [*(look() for _ in results), "done"], *results)
    house.memory.results = (hit("the user likes green tea"),)
    outcome = await house.say("look nine times")
    assert isinstance(outcome, gateway_pb2.TurnCompleted), outcome
    assert len(house.requests) == 10
    assert max(house.sizes()) <= 5000
    assert "green tea" in told(house.requests[0])
    assert "green tea" not in told(house.requests[-1])
    last = house.requests[-1][0]
    assert prompts(last) == ["look nine times"]
    assert len(outputs(last)) == 9
    assert outputs(last)[0].endswith("[… shortened to fit the window]")
    assert outputs(last)[-1] == json.dumps(results[-1])
    kept = house.store.events["s1"]
    assert all("shortened to fit" not in event.payload for event in kept)


async def test_a_message_that_can_never_fit_fails_before_the_model_is_asked() -> None:
    house = House(3000, [])
    outcome = await house.say("word " * 3000)
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code == "resource_exhausted"
    assert "the message takes 4,380" in outcome.message
    assert "context_window" in outcome.resolution
    assert house.requests == []
    assert house.store.roles() == ["user"]


async def test_instructions_reach_the_model_in_their_order() -> None:
    house = House(64_000, ["hi"])
    house.memory.results = (hit("the user likes green tea"),)
    await house.say("what do I drink?")
    said = told(house.requests[0])
    assert said.index("You are Oxydra") < said.index("green tea")


async def test_a_note_that_was_deleted_is_no_longer_told_of_by_the_prompt() -> None:
    async def deleted(*_: object) -> dict[str, str]:
        house.memory.deleted.append("note-1")
        return {"note_id": "note-1", "message": "Deleted"}

    house = House(64_000, [{0: DeltaToolCall("memory_delete", "{}")}, "gone", "milk"])
    house.memory.results = (hit("likes tea"), hit("likes milk", "note-2"))
    house.offer(tool("memory_delete", deleted))
    await house.say("I do not drink tea any more")
    house.memory.results = ()
    await house.say("what do I drink?", "t2")
    first, second, later = [told(request) for request in house.requests]
    assert ("- note-1 (" in first, "- note-2 (" in first) == (True, True)
    assert ("- note-1 (" in second, "- note-2 (" in second) == (False, True)
    assert ("- note-1 (" in later, "- note-2 (" in later) == (False, False)


async def test_a_scratchpad_that_is_cleared_is_absent_from_the_next_request() -> None:
    async def clear(*_: object) -> str:
        house.memory.keyed.notes.clear()
        house.memory.deleted.append("note-scratchpad")
        return "cleared"

    house = House(64_000, [{0: DeltaToolCall("scratch_note", '{"mode": "clear"}')}, "done"])
    house.memory.keyed.notes["scratchpad"] = note("scratchpad", "todo: tests")
    house.offer(tool("scratch_note", clear, arguments=ScratchArguments))
    await house.say("we are done")
    first, second = [told(request) for request in house.requests]
    assert ("todo: tests" in first, "todo: tests" in second) == (True, False)
    before, after = [info.instructions for _, info in house.requests]
    assert before == after  # a provider's cache keeps what does not change
