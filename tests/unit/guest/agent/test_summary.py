"""Rolling summaries: when, of what, by whom, and that no two undo each other."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.settings import AgentSettings

from guest.agent import history
from guest.agent.models.offline import OfflineModel
from guest.agent.prompt.summary import HEADINGS, Rolled, Summaries, Summary
from guest.errors import StorageError
from guest.memory.models import Event
from guest.memory.search.tokens import tokens_of
from tests.support.agent.prompt_fakes import FakeState

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


def summaries(
    state: FakeState, model: Model | None = None, timeout_s: float = 30.0, **settings: Any
) -> Summaries:
    agent = AgentSettings.model_construct(**settings)
    return Summaries(state, lambda: model or OfflineModel(), agent, timeout_s)


def stored(state: FakeState) -> Summary:
    return Summary.model_validate_json(state.values["s1", "summary"][0])


async def roll(made: Summaries, events: Sequence[Event]) -> Rolled:
    return await made.roll("s1", await made.latest("s1"), events)


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


async def test_an_answer_beside_a_marked_note_marks_the_summary_too() -> None:
    state = FakeState()
    events = talk(30)
    answer = ModelResponse([TextPart("planted")], metadata={"material": ["/shared/page.md"]})
    events[1] = replace(events[1], payload=history.to_payload(answer))
    await roll(summaries(state), events)
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
    assert state.values["s1", "summary"][1] == 1


async def test_a_summary_never_goes_back() -> None:
    state = FakeState()
    late = summaries(state, speaking("- of few"))
    before = await late.latest("s1")
    await roll(summaries(state, speaking("- of many")), talk(40))
    after = await late.roll("s1", before, talk(25))
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
    latest = await made.latest("s1")
    state.fail = AWAY
    rolled = await made.roll("s1", latest, talk(40))
    assert rolled.summary is not None
    assert (rolled.summary.text, rolled.epoch) == ("- made", 0)


async def test_an_unreadable_summary_is_made_anew() -> None:
    state = FakeState()
    state.values["s1", "summary"] = "{broken", 7
    rolled = await roll(summaries(state), talk(40))
    assert (rolled.epoch, rolled.through) == (8, 58)


# By whom


async def test_the_model_is_given_all_that_is_new_and_what_it_takes_counts() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append((messages, info))
        yield "<think>\nSo.\n</think>\nThe user said:\n- ships on Friday (note-1)"

    state = FakeState()
    earlier = Summary(text="The user said:\n- likes tea", through=0, made_by="scripted")
    state.values["s1", "summary"] = earlier.model_dump_json(), 3
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
    [
        RuntimeError("down"),
        "   ",
        {0: DeltaToolCall("memory_save", "{}")},
        "I'm sorry, but I cannot help with that.",
    ],
    ids=["fails", "says nothing", "calls a tool", "refuses"],
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
    state = FakeState()
    await roll(summaries(state, model, timeout_s=0.01), talk(30))
    assert stored(state).made_by == "extract"


async def test_a_summary_is_bounded_whatever_the_model_says() -> None:
    state = FakeState()
    await roll(summaries(state, speaking("- " + "word " * 9000)), talk(30))
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
