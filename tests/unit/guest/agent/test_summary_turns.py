"""Summaries in whole turns: a conversation goes on, and what leaves it stands in a summary."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent.prompt.window import text_of
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.agent.turn import TIME, TurnRequest
from guest.tools.base import ToolContext
from tests.support.agent.prompt_fakes import FakeMemory, loop_on
from tests.support.agent.turn_fakes import FakePipeline, FakeStore, Watcher, tool
from tests.unit.guest.agent.test_summary import AWAY

MARK = re.compile(r"\bm\d+\b")
WAITS = (
    "the conversation fills the model's window: its oldest turns are summarised before the answer"
)


class House:
    """A loop whose model tells a summary from an answer, on a memory of its own.

    A summary lists the marks (m1, m2, …) of all that it is of, once `free` is set. `replies` come
    before "ok"; the tool `look` gives `output`.
    """

    def __init__(self, *replies: Any, output: str = "", rules: int = 0, **settings: Any) -> None:
        self.answers: list[tuple[str, list[ModelMessage]]] = []
        self.summarised: list[str] = []
        self.free = asyncio.Event()
        self.free.set()
        self.begun = asyncio.Event()
        self.fails: Exception | None = None
        waiting = list(replies)

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            told = info.instructions or ""
            if told.startswith("You summarise"):
                given = str(messages[-1].parts[-1].content)  # type: ignore[union-attr]
                self.summarised.append(given)
                self.begun.set()
                await self.free.wait()
                if self.fails is not None:
                    raise self.fails
                marks = " ".join(dict.fromkeys(MARK.findall(given)))
                yield f"The user said:\n- summary {len(self.summarised)}: {marks}"
            else:
                self.answers.append((told, list(messages)))
                yield waiting.pop(0) if waiting else "ok"

        async def look(*_: object) -> str:
            return output

        model = FunctionModel(stream_function=stream)
        agent = AgentSettings.model_construct(instructions="Be kind. " * rules, **settings)
        self.memory = FakeMemory()
        self.store = FakeStore()
        pipeline = FakePipeline([tool("look", look)])
        self.loop = loop_on(model, pipeline, self.store, agent, self.memory)
        self.watcher = Watcher()

    async def say(self, text: str, turn_id: str, session_id: str = "s1") -> Any:
        self.watcher = Watcher()
        context = ToolContext("alice", session_id, turn_id, "test")
        return await self.loop.run(TurnRequest(context, text), self.watcher)

    async def settled(self, text: str, turn_id: str) -> Any:
        """A turn, and the summary that it begins."""
        outcome = await self.say(text, turn_id)
        await self.loop.summarised("s1")
        return outcome

    @property
    def notices(self) -> list[str]:
        seen = self.watcher.seen
        return [each.text for each in seen if isinstance(each, gateway_pb2.Notice)]

    def known(self) -> set[str]:
        """The marks that the model was shown in the last request, in whatever way."""
        return set(MARK.findall(self.shown()))

    def shown(self) -> str:
        """All that the model was shown in the last request."""
        told, messages = self.answers[-1]
        return "\n".join((told, *(text_of(part) for each in messages for part in each.parts)))


def questions(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        str(part.content)  # type: ignore[union-attr]
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if not str(part.content).startswith((TIME, FROM_THE_RUNTIME))  # type: ignore[union-attr]
    ]


def marks(last: int) -> set[str]:
    return {f"m{number}" for number in range(last + 1)}


LONG = "word " * 330


async def test_a_long_conversation_is_summarised_after_its_answers_and_goes_on() -> None:
    house = House(history_turns=6, summary_min_turns=2)
    for number in range(20):
        outcome = await house.settled(f"m{number}", f"t{number}")
        assert isinstance(outcome, gateway_pb2.TurnCompleted)
        assert (outcome.steps, house.notices) == (1, [])
        assert house.known() == marks(number)
        assert len(questions(house.answers[-1][1])) <= 7
    assert len(house.summarised) == 4
    assert "summary 3" in house.summarised[3]
    assert len(house.store.roles()) == 40


@pytest.mark.parametrize("settles", [True, False])
async def test_nothing_leaves_a_small_window_before_it_stands_in_a_summary(settles: bool) -> None:
    """Rules of 3,900 tokens in a window of 8,000, and 12 messages of 330 words: with time to
    summarise after each answer, and with none."""
    house = House(rules=1200, context_window=8000, summary_min_turns=1)
    for number in range(12):
        say = house.settled if settles else house.say
        assert isinstance(await say(f"m{number} {LONG}", f"t{number}"), gateway_pb2.TurnCompleted)
        assert house.known() == marks(number)
        assert text_of(house.answers[-1][1][-1].parts[0]).startswith(TIME)
        assert not settles or house.notices == []
    assert house.summarised
    assert len(house.summarised) <= 5, "each summary makes way for several turns"


async def test_a_message_that_fits_does_not_wait_for_a_summary() -> None:
    house = House(history_turns=3, summary_min_turns=1)
    house.free.clear()
    for number in range(6):
        await house.say(f"m{number}", f"t{number}")
        assert house.known() == marks(number)
        assert house.notices == []
    assert len(house.summarised) == 1
    house.free.set()
    await house.loop.summarised("s1")
    await house.settled("m6", "t6")
    assert house.known() == marks(6)
    assert "> - summary 1" in house.shown()


async def test_one_that_does_not_fit_waits_for_it_and_says_so() -> None:
    house = House(context_window=8000, history_turns=3, summary_min_turns=1)
    for number in range(3):
        await house.settled(f"m{number} {LONG}", f"t{number}")
    house.free.clear()
    await house.say(f"m3 {LONG}", "t3")
    asking = asyncio.ensure_future(house.say("m4 " + "word " * 5000, "t4"))
    await house.begun.wait()
    while WAITS not in house.notices:
        await asyncio.sleep(0)
    assert (len(house.answers), asking.done()) == (4, False)
    house.free.set()
    outcome = await asking
    assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert house.notices == [WAITS]
    assert house.known() == marks(4)
    assert outcome.input_tokens > 0


async def test_a_cancelled_turn_leaves_the_summary_to_be_made() -> None:
    house = House(context_window=8000)
    for number in range(4):
        await house.say(f"m{number} {LONG}", f"t{number}")
    house.free.clear()
    asking = asyncio.ensure_future(house.say("m4 " + "word " * 4500, "t4"))
    await house.begun.wait()
    asking.cancel()
    assert (await asking).code == "cancelled"
    house.free.set()
    await house.loop.summarised("s1")
    assert house.memory.state_of.values["s1", "summary"][1] == 1


async def test_a_summary_that_is_stopped_is_made_again() -> None:
    house = House(history_turns=3, summary_min_turns=1)
    house.free.clear()
    for number in range(4):
        await house.say(f"m{number}", f"t{number}")
    await house.begun.wait()
    await house.loop.stop_summaries("another")
    await house.loop.stop_summaries()
    assert house.memory.state_of.values == {}
    house.free.set()
    await house.settled("m4", "t4")
    assert len(house.summarised) == 2
    assert house.memory.state_of.values["s1", "summary"][1] == 1


async def test_what_tools_give_makes_way_by_a_summary_too() -> None:
    house = House(
        *("ok" for _ in range(4)),
        {0: DeltaToolCall("look", "{}")},
        output="long result " * 3000,
        context_window=8000,
    )
    for number in range(4):
        await house.settled(f"m{number} {LONG}", f"t{number}")
    assert not house.summarised
    assert isinstance(await house.say("m4", "t4"), gateway_pb2.TurnCompleted)
    assert house.notices == [WAITS]
    assert house.known() == marks(4)


async def test_where_the_model_makes_no_summary_sentences_stay_and_the_person_reads_why() -> None:
    house = House(history_turns=3, summary_min_turns=1)
    house.fails = RuntimeError("out of order")
    for number in range(4):
        await house.settled(f"m{number}", f"t{number}")
    await house.say("m4", "t4")
    (notice,) = house.notices
    assert notice == (
        "single sentences stand in the place of the oldest turns, without a summary: the model did "
        "not make one: RuntimeError"
    )
    assert house.known() == marks(4)
    await house.say("m5", "t5")
    assert house.notices == []


async def test_turns_that_no_summary_can_hold_leave_with_a_word() -> None:
    house = House(context_window=5000)
    house.memory.state_of.fail = AWAY
    for number in range(12):
        outcome = await house.settled(f"m{number} {LONG}", f"t{number}")
        assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert house.notices == [
        "the oldest turns do not fit into the model's window, and are left out of this request"
    ]
    assert "m0" not in house.known()


async def test_sessions_have_summaries_of_their_own() -> None:
    house = House(history_turns=3, summary_min_turns=1)

    async def chat(session_id: str) -> None:
        for number in range(8):
            await house.say(f"{session_id} says {number}", f"{session_id}-{number}", session_id)
            await house.loop.summarised(session_id)

    await asyncio.gather(*(chat(f"s{n}") for n in range(4)))
    assert len(house.memory.state_of.values) == 4
    for text in house.summarised:
        assert len({word for word in text.split() if word in ("s0", "s1", "s2", "s3")}) == 1


async def test_while_the_server_is_away_a_turn_goes_on_with_a_plain_cut() -> None:
    house = House(history_turns=3)
    for number in range(5):
        await house.say(f"say {number}", f"t{number}")
    house.memory.state_of.fail = AWAY
    outcome = await house.say("say 5", "t5")
    assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert questions(house.answers[-1][1]) == ["say 2", "say 3", "say 4", "say 5"]
