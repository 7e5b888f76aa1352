"""Summaries in whole turns: a conversation goes on, within what it may cost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.agent.turn import TIME, TurnRequest
from guest.tools.base import ToolContext
from tests.support.agent.prompt_fakes import FakeMemory, loop_on
from tests.support.agent.turn_fakes import FakePipeline, FakeStore, Watcher
from tests.unit.guest.agent.test_summary import AWAY


class House:
    """A loop whose model tells a summary from an answer, on a memory of its own."""

    def __init__(self, **settings: Any) -> None:
        self.answers: list[tuple[str, list[ModelMessage]]] = []
        self.summarised: list[str] = []

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            told = info.instructions or ""
            if told.startswith("You summarise"):
                self.summarised.append(str(messages[-1].parts[-1].content))  # type: ignore[union-attr]
                yield f"The user said:\n- summary {len(self.summarised)}"
            else:
                self.answers.append((told, list(messages)))
                yield "ok"

        model = FunctionModel(stream_function=stream)
        agent = AgentSettings.model_construct(**settings)
        self.memory = FakeMemory()
        self.store = FakeStore()
        self.loop = loop_on(model, FakePipeline([]), self.store, agent, self.memory)

    async def say(self, text: str, turn_id: str, session_id: str = "s1") -> Any:
        context = ToolContext("alice", session_id, turn_id, "test")
        return await self.loop.run(TurnRequest(context, text), Watcher())


def questions(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        str(part.content)  # type: ignore[union-attr]
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if not str(part.content).startswith((TIME, FROM_THE_RUNTIME))  # type: ignore[union-attr]
    ]


async def test_a_long_conversation_is_summarised_and_goes_on() -> None:
    house = House(history_turns=6, summary_min_turns=2)
    for number in range(20):
        outcome = await house.say(f"say {number}", f"t{number}")
        assert isinstance(outcome, gateway_pb2.TurnCompleted)
        assert outcome.steps == 1
        told, messages = house.answers[-1]
        shown = questions(messages)
        assert shown[-1] == f"say {number}"
        assert len(shown) <= 7
        if house.summarised:
            assert "> - summary" not in told
            (earlier, *_) = (str(part.content) for part in messages[0].parts)  # type: ignore[union-attr]
            assert f"> - summary {len(house.summarised)}" in earlier
            oldest = int(shown[0].split()[1])
            assert f"say {oldest - 1}" in house.summarised[-1]
            assert f"say {oldest}" not in house.summarised[-1].split("\n- ")
    assert len(house.summarised) == 4
    assert "summary 3" in house.summarised[3]
    assert len(house.store.roles()) == 40


async def test_the_tokens_of_a_summary_count_in_the_turn_it_was_made_in() -> None:
    house = House(history_turns=1)
    plain = await house.say("say 0", "t0")
    await house.say("say 1", "t1")
    dear = await house.say("say 2", "t2")
    assert house.summarised
    assert dear.input_tokens > 1.3 * plain.input_tokens


async def test_sessions_have_summaries_of_their_own() -> None:
    house = House(history_turns=3, summary_min_turns=1)

    async def chat(session_id: str) -> None:
        for number in range(8):
            await house.say(f"{session_id} says {number}", f"{session_id}-{number}", session_id)

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
