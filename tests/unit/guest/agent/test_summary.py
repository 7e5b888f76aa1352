"""Rolling summaries: when, of what, by whom, and that no two undo each other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2

from guest.agent import extract, history
from guest.agent.extract import HEADINGS, Line
from guest.agent.loop import TurnLoop
from guest.agent.offline import OfflineModel
from guest.agent.settings import AgentSettings
from guest.agent.summarizer import Summarizer
from guest.agent.summary import Rolled, Summaries, Summary
from guest.agent.turn import TurnRequest
from guest.agent.window import Window
from guest.errors import StorageError
from guest.memory.prompt_block import tokens_of
from guest.memory.types import Event
from guest.tools.base import ToolContext
from tests.unit.guest.agent.context_fakes import FakeMemory, FakeState, builder
from tests.unit.guest.agent.turn_fakes import FakePipeline, FakeStore, Watcher

AWAY = StorageError(Code.UNAVAILABLE, "the memory server is away", resolution="wait")


def talk(turns: int, words: int = 10, first: int = 1) -> list[Event]:
    """Turns of one question and one answer each; `words` make each longer."""
    events: list[Event] = []
    for number in range(turns):
        for role, text in (("user", "Question"), ("assistant", "Answer")):
            said = f"{text} {number}. " + "Filler " * words
            message = history.user_message(said) if role == "user" else history.assistant_text(said)
            sequence = first + len(events)
            payload = history.to_payload(message)
            events.append(Event(sequence, f"t{number}", role, said, payload, "now"))  # type: ignore[arg-type]
    return events


def speaking(*texts: Any) -> FunctionModel:
    """A model that says one thing after the other; an exception is raised."""
    waiting = list(texts)

    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        text = waiting.pop(0)
        if isinstance(text, Exception):
            raise text
        yield text

    return FunctionModel(stream_function=stream, model_name="scripted")


def summaries(state: FakeState, model: Model | None = None, **settings: Any) -> Summaries:
    agent = AgentSettings(**settings)
    return Summaries(state, Summarizer(model or OfflineModel(), Window.of(agent)), agent)


def stored(state: FakeState) -> Summary:
    return Summary.model_validate_json(state.values["alice", "s1", "summary"][0])


async def roll(made: Summaries, events: Sequence[Event]) -> Rolled:
    return await made.roll("alice", "s1", await made.latest("alice", "s1"), events)


# When, and of what


async def test_few_short_turns_are_left_alone() -> None:
    state = FakeState()
    rolled = await roll(summaries(state), talk(20))
    assert rolled == Rolled(Summary())
    assert state.values == {}


async def test_more_turns_than_are_shown_are_summarised_down_to_the_target() -> None:
    state = FakeState()
    rolled = await roll(summaries(state), talk(21))
    assert rolled.summary == stored(state)
    assert (rolled.summary.through, rolled.epoch) == (2 * (21 - 11), 1)
    assert rolled.summary.made_by == "extract"


async def test_long_turns_are_summarised_down_to_the_target() -> None:
    state = FakeState()
    events = talk(10, words=300)  # of about 1,450 tokens each
    small = summaries(state, context_window=20_000)
    assert (await roll(small, events[:18])).epoch == 0
    rolled = await roll(small, events)
    assert rolled.through == 2 * 5


async def test_the_last_turns_are_never_summarised() -> None:
    state = FakeState()
    rolled = await roll(summaries(state, context_window=4000), talk(6, words=2000))
    assert rolled.through == 2 * 2
    rolled = await roll(summaries(FakeState(), context_window=4000), talk(4, words=2000))
    assert rolled.through == 0


async def test_what_waits_for_the_server_is_not_summarised() -> None:
    events = talk(30)
    waiting = [Event(0, e.turn_id, e.role, e.text, e.payload, "now") for e in events[10:]]
    rolled = await roll(summaries(FakeState()), [*events[:10], *waiting])
    assert rolled.through == 10


async def test_what_tools_gave_marks_the_summary_for_good() -> None:
    state = FakeState()
    events = talk(30)
    events[1] = Event(2, "t0", "tool", "file_read: planted", events[1].payload, "now")
    await roll(summaries(state), events)
    assert stored(state).material
    assert f"{HEADINGS['tool']}\n- file_read: planted" in stored(state).text
    await roll(summaries(state), talk(30, first=100))
    assert stored(state).material


# Of several at once


async def test_of_two_at_once_the_loser_uses_what_the_winner_made() -> None:
    state = FakeState()
    both = asyncio.Barrier(2)

    class Meeting(FakeState):
        async def swap(self, *args: Any) -> bool:
            await both.wait()
            return await state.swap(*args)

        async def read(self, *args: Any) -> tuple[str, int] | None:
            return await state.read(*args)

    first = summaries(Meeting(), speaking("- made by the first"))
    second = summaries(Meeting(), speaking("- made by the second"))
    one, two = await asyncio.gather(roll(first, talk(30)), roll(second, talk(40)))
    assert one.summary == two.summary == stored(state)
    assert one.epoch == two.epoch == 1
    assert state.values["alice", "s1", "summary"][1] == 1


async def test_a_summary_never_goes_back() -> None:
    state = FakeState()
    late = summaries(state, speaking("- of few"))
    before = await late.latest("alice", "s1")
    await roll(summaries(state, speaking("- of many")), talk(40))
    after = await late.roll("alice", "s1", before, talk(25))
    assert after.summary == stored(state)
    assert after.through == 2 * 29


async def test_without_the_session_s_state_nothing_is_summarised() -> None:
    state = FakeState()
    state.fail = AWAY
    made = summaries(state, speaking())
    assert await roll(made, talk(40)) == Rolled(None)


async def test_a_summary_that_cannot_be_stored_serves_its_turn() -> None:
    state = FakeState()
    made = summaries(state, speaking("- made"))
    latest = await made.latest("alice", "s1")
    state.fail = AWAY
    rolled = await made.roll("alice", "s1", latest, talk(40))
    assert rolled.summary is not None
    assert (rolled.summary.text, rolled.epoch) == ("- made", 0)


async def test_an_unreadable_summary_is_made_anew() -> None:
    state = FakeState()
    state.values["alice", "s1", "summary"] = "{broken", 7
    rolled = await roll(summaries(state), talk(40))
    assert (rolled.epoch, rolled.through) == (8, 58)


# By whom


async def test_the_model_is_given_all_that_is_new_and_what_it_takes_counts() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append((messages, info))
        yield "The user said:\n- ships on Friday (note-1)"

    state = FakeState()
    earlier = Summary(text="The user said:\n- likes tea", through=0, made_by="scripted")
    state.values["alice", "s1", "summary"] = earlier.model_dump_json(), 3
    model = FunctionModel(stream_function=stream, model_name="scripted")
    rolled = await roll(summaries(state, model), talk(30))
    assert stored(state).text == "The user said:\n- ships on Friday (note-1)"
    assert (stored(state).made_by, rolled.epoch) == ("scripted", 4)
    assert rolled.usage is not None
    assert rolled.usage.input_tokens >= 50
    assert rolled.usage.output_tokens > 5
    assert rolled.usage.requests == 0
    ((messages, info),) = seen
    asked = str(messages[-1].parts[-1].content)  # type: ignore[union-attr]
    assert "- likes tea" in asked
    assert "- Question 18." in asked
    assert "Question 19." not in asked
    assert info.function_tools == []
    assert info.model_settings is not None
    assert info.model_settings["max_tokens"] == 4000


@pytest.mark.parametrize(
    "reply",
    [RuntimeError("down"), "   ", {0: DeltaToolCall("memory_save", "{}")}],
    ids=["fails", "says nothing", "calls a tool"],
)
async def test_a_model_that_does_not_summarise_is_done_without(reply: Any) -> None:
    state = FakeState()
    rolled = await roll(summaries(state, speaking(reply)), talk(30))
    assert stored(state).made_by == "extract"
    assert "Question" in stored(state).text
    assert rolled.epoch == 1


async def test_a_model_that_takes_too_long_is_done_without() -> None:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    model = FunctionModel(stream_function=stream)
    made = await Summarizer(model, Window.of(AgentSettings()), timeout_s=0.01).summarise(
        "", talk(3)
    )
    assert made.made_by == "extract"


async def test_a_summary_is_bounded_whatever_the_model_says() -> None:
    state = FakeState()
    await roll(summaries(state, speaking("word " * 9000)), talk(30))
    assert tokens_of(stored(state).text) <= 1000


async def test_what_a_model_is_given_is_bounded_too() -> None:
    sizes: list[int] = []

    async def stream(messages: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        sizes.append(tokens_of(str(messages[-1].parts[-1].content)))  # type: ignore[union-attr]
        yield "- short"

    model = FunctionModel(stream_function=stream)
    await roll(summaries(FakeState(), model, context_window=4000), talk(40, words=400))
    assert sizes
    assert max(sizes) <= 2000


# Without a model


def test_statements_of_the_user_decisions_and_ids_stay() -> None:
    chat = [Line("assistant", f"Perhaps something different comes now {n}.") for n in range(40)]
    matter = [
        Line("user", "We decided to ship the release on Friday."),
        Line("tool", "memory_save: Stored: [id: note-12ab] the release"),
        Line("user", "The release needs the new tests first."),
    ]
    picked = extract.pick([*chat[:20], *matter, *chat[20:]], 120)
    assert matter[0] in picked
    assert matter[1] in picked
    assert matter[2] in picked
    assert tokens_of(extract.render(picked)) <= 120


@pytest.mark.parametrize("budget", [0, 30, 60, 200, 1000])
def test_what_is_picked_keeps_the_budget_and_says_nothing_twice(budget: int) -> None:
    lines = extract.spoken(talk(60, words=3))
    picked = extract.pick([*lines, *lines], budget)
    assert tokens_of(extract.render(picked)) <= budget or not picked
    assert len({line.text for line in picked}) == len(picked)


def test_a_summary_is_read_as_it_was_written() -> None:
    lines = [Line("user", "One."), Line("assistant", "Two: three."), Line("tool", "look: four")]
    assert extract.read(extract.render(lines)) == lines
    assert extract.read("- no heading\n\nplain") == [
        Line("assistant", "no heading"),
        Line("assistant", "plain"),
    ]


def test_sentences_are_taken_apart_and_ids_stay_whole() -> None:
    event = Event(1, "t", "user", "Call 3.14 it.  See /shared/a.md!\nSchluss。次の文", "[]", "now")
    texts = [line.text for line in extract.spoken([event])]
    assert texts == ["Call 3.14 it.", "See /shared/a.md!", "Schluss。", "次の文"]


# Through the loop


class House:
    """A loop whose model tells a summary from an answer, on a memory of its own."""

    def __init__(self, answer: Callable[[], Awaitable[str]] | None = None, **settings: Any) -> None:
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
        agent = AgentSettings(**settings)
        self.memory = FakeMemory()
        self.store = FakeStore()
        pipeline = FakePipeline([])
        self.loop = TurnLoop(
            model=model,
            pipeline=pipeline,
            store=self.store,
            context=builder(pipeline, model, agent, self.memory),
            settings=agent,
            redact=str,
        )

    async def say(self, text: str, turn_id: str, session_id: str = "s1") -> Any:
        context = ToolContext("alice", session_id, turn_id, "test")
        return await self.loop.run(TurnRequest(context, text), Watcher())


def questions(messages: Sequence[ModelMessage]) -> list[str]:
    return [
        str(part.content)  # type: ignore[union-attr]
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
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
            assert f"> - summary {len(house.summarised)}" in told
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
