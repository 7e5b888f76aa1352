"""Calls that models write as text: which text is one, and that it is run like any other."""

import json
from typing import Any

import pytest
from pydantic_ai.messages import TextPart
from wire.v1 import gateway_pb2

from guest.agent.text_calls import TextCall, may_be_calls, parse
from guest.agent.turn import FromClient, TurnRequest
from guest.tools.base import Safety, ToolContext, ToolOutput
from tests.support.agent.turn_fakes import CONTEXT, Text, tool
from tests.unit.guest.agent.test_loop import House, calls, nothing, steps

OFFERED = {"look", "keep"}
CALL = '{"name": "look", "arguments": {"text": "a"}}'
OTHER = '{"name": "keep", "arguments": {"text": "b"}}'
FORMS = [
    '{{"function": "look", "arguments": {"text": "a"}}}',
    '```json\n{{"name": "look", "arguments": {"text": "a"}}}\n```',
    CALL,
    f"```json\n{CALL}\n```",
    f"```\n{CALL}```",
    f"```tool_call\n{CALL}\n```",
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"<tools>{CALL}</tools>",
    f"<function_call>{CALL}</function_call>",
    f"[TOOL_CALLS][{CALL}]",
    f"[TOOL_CALLS] {CALL}",
    '{"function": {"name": "look", "parameters": {"text": "a"}}}',
    '{"function": "look", "arguments": "{\\"text\\": \\"a\\"}"}',
    '{"type": "function", "id": "1", "function": {"name": "look", "arguments": {"text": "a"}}}',
    '{"parameters": {"text": "a"}, "name": "look"}',
    '{"n\\u0061me": "look", "arguments": {"t\\u0065xt": "a"}}',
    '<function=look>{"text": "a"}</function>',
    "<tool_call>\n<function=look>\n<parameter=text>\na\n</parameter>\n</function>\n</tool_call>",
]
SEVERAL = [
    f"{CALL}\n{OTHER}",
    f"[{CALL}, {OTHER}]",
    f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>",
    f"```json\n{CALL}\n```\n```json\n{OTHER}\n```",
]
NO_CALLS = [
    "",
    "Hello",
    "{}",
    "[]",
    "[[]]",
    "5",
    '"look"',
    '{"name": "Alice", "arguments": {}}',
    '{"name": "look", "description": "It looks."}',
    '{"name": "look", "arguments": [1]}',
    '{"name": "look", "function": "keep"}',
    f"Here it is:\n```json\n{CALL}\n```",
    f"{CALL}\nThat is how it is called.",
    f'[{CALL}, {{"name": "other", "arguments": {{}}}}]',
    CALL[:-1],
    "```python\nlook(a)\n```",
    "[TOOLS] are fine, <tools> too",
    "<function=other>{}</function>",
    "<function=look>a</function>",
    '{"a":' * 5000,
]


@pytest.mark.parametrize("text", FORMS)
def test_a_text_that_is_one_call_is_read(text: str) -> None:
    assert parse(text, OFFERED) == [TextCall("look", {"text": "a"})]
    assert all(may_be_calls(text[:end], OFFERED) for end in range(len(text) + 1))


@pytest.mark.parametrize("text", SEVERAL)
def test_several_calls_are_read_in_order(text: str) -> None:
    assert [name for name, _ in parse(text, OFFERED)] == ["look", "keep"]
    assert all(may_be_calls(text[:end], OFFERED) for end in range(len(text) + 1))


@pytest.mark.parametrize("text", NO_CALLS)
def test_any_other_text_is_none(text: str) -> None:
    assert parse(text, OFFERED) == []


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("Hello, how are you?", "H"),
        ('{"title": "Tea", "name": "look"}', '{"ti'),
        ('{"name": "Alice"}', '{"name": "A'),
        ("[1, 2, 3]", "[1"),
        ("```python\nprint(1)\n```", "```python\np"),
        ("<b>bold</b>", "<b"),
    ],
)
def test_what_cannot_be_a_call_any_more_is_held_no_longer(text: str, after: str) -> None:
    ends = [end for end in range(len(text) + 1) if not may_be_calls(text[:end], OFFERED)]
    assert text[: ends[0]] == after


class Kept(House):
    """A loop with a tool that looks and one that changes something."""

    def __init__(self, *replies: Any) -> None:
        async def read(_: ToolContext, __: Any) -> ToolOutput:
            return ToolOutput("a page", material=("/shared/page.txt",))

        super().__init__(
            steps(*replies),
            tool("look", nothing, arguments=Text),
            tool("keep", nothing, Safety.SIDE_EFFECTING, Text),
            tool("read", read),
            tool("look_up", nothing),
        )

    @property
    def made(self) -> list[str]:
        return [name for _, name, _ in self.pipeline.calls]

    def sent(self) -> str:
        """What the model was sent in its last request."""
        parts = [part for each in self.seen[-1] for part in each.parts]
        return json.dumps([str(getattr(part, "content", "")) for part in parts])


@pytest.mark.parametrize("text", FORMS)
async def test_a_call_in_text_is_run_and_neither_shown_nor_kept_as_text(text: str) -> None:
    house = Kept([text[at : at + 4] for at in range(0, len(text), 4)], "Done.")
    outcome: Any = await house.say("please look")
    assert outcome.text == house.watcher.text == "Done."
    assert house.made == ["look"]
    told = [p.content for each in house.seen[-1] for p in each.parts if isinstance(p, TextPart)]
    assert told == [CALL]
    assert house.store.roles() == ["user", "assistant", "tool", "assistant"]
    assert house.store.texts("assistant") == ["", "Done."]


@pytest.mark.parametrize("text", SEVERAL)
async def test_several_calls_are_run_in_order(text: str) -> None:
    house = Kept(text, "Done.")
    await house.say("please look, and keep b")
    assert house.made == ["look", "keep"]


async def test_calls_in_text_are_run_again_in_the_same_session() -> None:
    house = Kept(CALL, OTHER, "Done.", OTHER, "Again.")
    await house.say()
    await house.say("and again", "t2")
    assert house.made == ["look", "keep", "keep"]


async def test_thinking_before_a_call_in_text_is_put_aside() -> None:
    house = Kept(f"<think>\nI look.\n</think>\n\n{CALL}", "Done.")
    outcome: Any = await house.say()
    assert (outcome.text, house.made) == ("Done.", ["look"])


async def test_a_model_that_makes_calls_properly_is_not_taken_at_its_text() -> None:
    house = Kept(calls(("look", {"text": "a"})), "Done.", OTHER)
    await house.say()
    outcome: Any = await house.say("and then?", "t2")
    assert house.made == ["look"]
    assert outcome.text == (
        "(The model wrote a call of keep as text. It was not run: this model makes its calls "
        "properly otherwise; ask again.)"
    )


@pytest.mark.parametrize(
    "asked", ["what is a call of look_up?", "answer in JSON", "as json, please"]
)
async def test_json_that_was_asked_for_is_an_answer(asked: str) -> None:
    house = Kept([CALL[:9], CALL[9:]])
    outcome: Any = await house.say(asked)
    assert outcome.text == house.watcher.text == CALL
    assert house.made == []
    assert house.watcher.names() == ["TextDelta"] * 2, "it comes as the model gives it"


async def test_a_long_json_answer_comes_as_it_is_made() -> None:
    lines = ['{"title": "Tea",', *(f' "n{n}": {n},' for n in range(50)), ' "end": 1}']
    house = Kept(lines)
    outcome: Any = await house.say("list the numbers")
    assert outcome.text == "".join(lines)
    assert len(house.watcher.seen) >= 50


async def test_after_reading_a_change_is_not_made_where_nobody_is_asked() -> None:
    house = Kept('{"name": "read", "arguments": {}}', OTHER)
    outcome: Any = await house.say("read the page")
    assert house.made == ["read"]
    assert "nobody is here to allow it" in outcome.text
    assert "arguments" not in house.watcher.text
    assert "arguments" not in "".join(house.store.texts("assistant"))


async def test_what_was_not_run_is_not_shown_to_the_model_again() -> None:
    """It would answer with the same sentence from then on."""
    house = Kept('{"name": "read", "arguments": {}}', OTHER, "Hello")
    await house.say("read the page")
    await house.say("hello", "t2")
    assert "It was not run" in "".join(house.store.texts("assistant"))
    assert "It was not run" not in house.sent()


@pytest.mark.parametrize("allowed", [True, False])
async def test_after_reading_a_person_is_asked_and_once(allowed: bool) -> None:
    house, asked = Kept('{"name": "read", "arguments": {}}', OTHER, "Done."), list[Any]()

    async def approve(_: ToolContext, tool: Any, arguments: str) -> bool:
        asked.append((tool.name, json.loads(arguments)))
        return allowed

    request = TurnRequest(CONTEXT, "read the page")
    outcome: Any = await house.loop.run(request, house.watcher, approve)
    assert asked == [("keep", {"text": "b"})]
    assert house.made == ["read", "keep"][: 1 + allowed]
    notices = [e.text for e in house.events(gateway_pb2.Notice)]
    assert any("runs only if you allow it" in text for text in notices)
    assert outcome.text == "Done." or "it was not allowed" in outcome.text


async def test_what_only_looks_is_run_after_reading_too() -> None:
    house = Kept('{"name": "read", "arguments": {}}', CALL, "Done.")
    await house.say("read the page")
    assert house.made == ["read", "look"]


async def test_what_the_clients_program_adds_is_read_too() -> None:
    house = Kept(OTHER)
    client = FromClient(material="a page of the client")
    outcome: Any = await house.loop.run(TurnRequest(CONTEXT, "hello", client=client), house.watcher)
    assert house.made == []
    assert "It was not run" in outcome.text


@pytest.mark.parametrize("broken", [CALL[:-1], CALL[:20]])
async def test_what_is_no_whole_call_is_shown_in_the_end(broken: str) -> None:
    house = Kept(broken)
    outcome: Any = await house.say()
    assert outcome.text == house.watcher.text == broken
