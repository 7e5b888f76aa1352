"""Answers and calls that repeat themselves, or are nothing, end at once."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from wire.v1 import gateway_pb2

from guest.agent.receipts.saving import Call
from guest.agent.repetition import AGAIN, Repetition, SameCalls
from guest.errors import BudgetError
from guest.tools.base import ToolContext, ToolResult
from tests.support.agent.turn_fakes import Text, tool
from tests.unit.guest.agent.test_loop import House, calls, nothing, steps


def ended_after(text: str, asked: str = "", size: int = 5) -> int:
    """After how many characters an answer is ended; 0 if it is not."""
    repetition = Repetition(asked)
    for at in range(0, len(text), size):
        if repetition.add(text[at : at + size]):
            return at + size
    return 0


LOOPS = [
    "The cat is on the mat. " * 40,
    "I am sorry! " * 40,
    "The cat is on the mat. The dog is not. " * 40,
    "and then the dog goes home and then eats, " * 40,
    "- call the doctor about the results of the test\n" * 40,
    " 我喜歡喝茶和咖啡，你呢。" * 40,
    "the dog is the best " * 200,
    "na" * 10_000,
    "\n" * 10_000,
]
HONEST = [
    "0 0 0 0 0 0 0 0 0 0\n" * 100,
    "| yes | no | n/a | not available |\n" * 40,
    "| --- | --- | --- |\n" + "| closed | closed | closed |\n" * 30,
    "".join(f"{n}. The cat is on mat {n}.\n" for n in range(200)),
    "".join(f"INSERT INTO cats VALUES ({n}, 'unnamed cat');\n" for n in range(200)),
    "```rust\n" + "    assert_eq!(first_value, second_value);\n" * 30 + "```",
    "Sleep now.\n\n" + "\n\n".join(f"Verse {n}.\nAnd the sea goes on.\n" * 2 for n in range(30)),
    "Row, row, row your boat.\n" * 4,
    "=" * 200 + "\n" + "-" * 500,
]


@pytest.mark.parametrize("text", LOOPS)
def test_what_repeats_itself_is_seen(text: str) -> None:
    after = ended_after(text)
    assert 0 < after < len(text)
    assert {bool(ended_after(text, size=size)) for size in (1, 7, 100, 10_000)} == {True}


@pytest.mark.parametrize("text", HONEST)
def test_tables_lists_code_and_refrains_do_not(text: str) -> None:
    assert [ended_after(text, size=size) for size in (1, 7, 100)] == [0, 0, 0]


def test_a_block_of_lines_is_seen_sooner_than_a_line() -> None:
    block = (
        "The meeting with the team about the budget is on Monday.\n"
        "The review of the plan for the summer is on Wednesday.\n"
        "The dinner with the guests from the other office is on Friday.\n"
    )
    assert len(block) * 4 < ended_after(block * 20) < len(block) * 6
    assert ended_after(f"```\n{block * 20}```") == 0


def test_the_user_may_ask_for_a_sentence_many_times() -> None:
    asked = "write 'I will not talk in class.' 50 times"
    assert ended_after("I will not talk in class.\n" * 50, asked) == 0
    assert ended_after("I will not talk in class.\n" * 500, asked)


async def test_a_looping_answer_is_ended_kept_once_and_its_stream_closed() -> None:
    closed = False

    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        nonlocal closed
        yield "Well. "
        try:
            while True:
                yield "The cat is on the mat. "
        finally:
            closed = True

    house = House(script)
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnIncomplete)
    assert outcome.reason == "repeated"
    assert "the same again and again" in outcome.message
    assert closed
    (kept,) = house.store.texts("assistant")
    assert kept.startswith("Well. The cat is on the mat.")
    assert kept.count("The cat is on the mat.") == 1
    assert house.watcher.text.count("The cat") < 20


async def fails(_: ToolContext, __: Any) -> Any:
    return ValueError("no such file")


async def test_the_same_failing_call_ends_a_turn_the_third_time() -> None:
    call = calls(("look", {"text": "a"}))
    house = House(steps(*[call] * 20), tool("look", fails, arguments=Text))
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.message == "the model made the same failing call of look 3 times"
    assert len(house.seen) == 3
    assert house.store.roles() == ["user"] + ["assistant", "tool"] * 3


async def test_the_same_call_with_the_same_result_ends_a_turn_but_for_one_that_waits() -> None:
    call, other = calls(("look", {"text": "a"})), calls(("look", {"text": "b"}))
    house = House(steps(*[call] * 20), tool("look", nothing, arguments=Text))
    failed: Any = await house.say()
    assert failed.message == "the model made the same call of look 3 times, with the same result"
    house = House(steps(call, call, other, call, "Done."), tool("look", nothing, arguments=Text))
    outcome: Any = await house.say()
    assert outcome.text == "Done."
    house = House(steps(*[call, other] * 20), tool("look", nothing, arguments=Text))
    failed = await house.say()
    assert failed.message == "the model made the same call of look 3 times, with the same result"
    assert len(house.seen) == 6
    same = SameCalls()
    for _ in range(9):
        same.add(Call("poll", {}, ToolResult("nothing new", False, "", duration_ms=2_000)))
        same.end_answer()


async def test_a_model_that_makes_a_call_again_is_told_to_answer_in_words() -> None:
    call, other = calls(("look", {"text": "a"})), calls(("look", {"text": "b"}))
    house = House(steps(call, other, call, call, "Done."), tool("look", nothing, arguments=Text))
    outcome: Any = await house.say()
    assert outcome.text == "Done."
    told = [AGAIN in str(messages[-1]) for messages in house.seen[1:]]
    assert told == [False, False, False, True]


async def test_so_is_one_that_writes_its_calls_as_text() -> None:
    call = json.dumps({"name": "look", "arguments": {"text": "zebra"}})
    house = House(steps(call, call, "Done."), tool("look", nothing, arguments=Text))
    outcome: Any = await house.say()
    assert outcome.text == "Done."
    first, second = (str(messages[-1]) for messages in house.seen[1:])
    assert ("next tool" in first, AGAIN in first) == (True, False)
    assert ("next tool" in second, second.count(AGAIN), "Note: " in second) == (False, 1, False)


def test_a_command_is_the_same_however_long_it_took_and_news_lets_one_look_again() -> None:
    same = SameCalls()

    def run(command: str, stdout: str, took: int) -> None:
        text = json.dumps({"stdout": stdout, "duration_ms": took})
        brought = ToolResult(text, False, "", duration_ms=took)
        same.add(Call("shell_exec", {"command": command}, brought))
        same.end_answer()

    for edit in range(9):
        run("pytest", "1 failed", edit)
        run("git diff", f"edit {edit}", 1)
    run("pytest", "1 failed", 10)
    run("pytest", "1 failed", 11)
    with pytest.raises(BudgetError, match="same call of shell_exec 3 times"):
        run("pytest", "1 failed", 12)


async def test_other_calls_other_failures_and_calls_of_one_answer_do_not() -> None:
    one, other = ("look", {"text": "a"}), ("look", {"text": "b"})
    script = steps(
        calls(one, one, one), calls(one, other), calls(other), calls(("see", {})), "Done."
    )
    house = House(script, tool("look", fails, arguments=Text), tool("see", nothing))
    outcome: Any = await house.say()
    assert outcome.text == "Done."
    spelt = [calls(("look", '{"text": "a"}')), calls(("look", '{ "text":"a" }'))]
    house = House(steps(*spelt, *spelt), tool("look", fails, arguments=Text))
    assert isinstance(await house.say(), gateway_pb2.TurnFailed)


@pytest.mark.parametrize("blank", ["", " ", "\n\n", [" ", "\n"]])
async def test_white_space_is_no_answer(blank: Any) -> None:
    house = House(steps(blank, "Hello."))
    outcome: Any = await house.say()
    assert outcome.text == "Hello."
    house = House(steps(blank, blank))
    failed = await house.say()
    assert isinstance(failed, gateway_pb2.TurnFailed)
    assert "there was nothing in it, twice" in failed.message
    assert json.dumps(house.store.texts("assistant")) in ("[]", '["", ""]', '[""]')
