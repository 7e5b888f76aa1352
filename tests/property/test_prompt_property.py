"""The assembled prompt, for any history, notes and window: it fits, it holds what the user
has just said, and nothing stands in it twice."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from wire.settings import AgentSettings

from guest.agent import history
from guest.agent.models.offline import OfflineModel
from guest.agent.prompt.builder import Prepared
from guest.agent.prompt.fitting import Request, fit
from guest.agent.prompt.window import of_messages, text_of
from guest.agent.turn import TurnRequest
from guest.errors import GuestError
from guest.memory.models import Event, Hit
from guest.memory.search.tokens import tokens_of
from guest.tools.base import ToolContext
from tests.support.agent.prompt_fakes import FakeMemory, builder, hit, note
from tests.support.agent.turn_fakes import FakePipeline, tool
from tests.support.examples import examples

OFFERED = ("memory_search", "memory_save", "scratch_note", "write_session_handoff")
LARGEST_CALL = 160
"""Tokens of a call in the running turn once its output is shortened as far as it goes."""

ASKED = "m0asked what shall we do"
_MARKER = re.compile(r"m\d+[a-z]+")
FILLER = st.sampled_from(["tea and coffee", "слова и числа", "言葉と数", "🦀🦀", ""])


@dataclass(frozen=True)
class Drawn:
    """A conversation, what memory finds, and the bounds of a prompt."""

    events: list[Event]
    results: list[Hit]
    notes: dict[str, str]
    running: list[ModelMessage]
    settings: AgentSettings
    context_tokens: int
    tools: int


async def nothing(*_: object) -> str:
    return ""


@st.composite
def conversations(draw: st.DrawFn) -> list[Event]:
    """Turns in which everything said has a mark of its own; some are never answered."""
    events: list[Event] = []

    def add(role: Any, turn: int, text: str, message: ModelMessage) -> None:
        payload = history.to_payload(message)
        events.append(Event(len(events) + 1, f"t{turn}", role, text, payload, "now"))

    for turn in range(1, draw(st.integers(0, 14)) + 1):
        said = f"m{turn}user {draw(FILLER)} " * draw(st.sampled_from([1, 1, 1, 60]))
        add("user", turn, said, history.user_message(said))
        if draw(st.booleans()):
            call = ModelResponse(parts=[ToolCallPart("look", "{}", f"call-{turn}")])
            add("assistant", turn, "", call)
            if draw(st.booleans()):
                result = f"m{turn}result " + draw(FILLER) * draw(st.integers(0, 200))
                message = history.tool_message(f"call-{turn}", "look", result, is_error=False)
                add("tool", turn, f"look: m{turn}tool", message)
        if draw(st.booleans()):
            answer = f"m{turn}answer {draw(FILLER)}"
            add("assistant", turn, answer, history.assistant_text(answer))
    return events


@st.composite
def prompts(draw: st.DrawFn) -> Drawn:
    events = draw(conversations())
    hits = [
        hit(f"m{n}note {draw(FILLER)}", f"note-{n}", score=draw(st.sampled_from([0.2, 0.5, 0.9])))
        for n in range(draw(st.integers(0, 6)))
    ]
    for event in draw(st.lists(st.sampled_from(events), max_size=6)) if events else ():
        if 0 < len(event.text) < 200:
            hits.append(hit(event.text, f"note-of-{event.sequence}"))
            said = f"{event.role} (2026-11-20, Friday 20 November): {event.text}"
            hits.append(hit(said, "", session_id="s1", sequence=event.sequence))
            hits.append(hit(said, "", session_id="s0", sequence=event.sequence))
    texts = {"session-handoff": "m1handoff\nline", "scratchpad": "m1scratch\n" + draw(FILLER) * 900}
    notes = {key: text for key, text in texts.items() if draw(st.booleans())}
    hits += [hit(text, f"note-{key}", key=key) for key, text in texts.items()]
    running: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(ASKED)])]
    for n in range(draw(st.integers(0, 5))):
        output = f"m{n}output " + draw(FILLER) * draw(st.integers(0, 900))
        running += [
            ModelResponse(parts=[TextPart(f"m{n}says"), ToolCallPart("look", "{}", f"now-{n}")]),
            ModelRequest(parts=[ToolReturnPart("look", output, f"now-{n}")]),
        ]
    return Drawn(
        events,
        draw(st.permutations(hits)),
        notes,
        running,
        AgentSettings.model_construct(
            context_window=draw(st.integers(400, 12_000)),
            history_turns=draw(st.integers(1, 14)),
            summary_min_turns=draw(st.integers(1, 5)),
        ),
        draw(st.sampled_from([0, 60, 1000])),
        draw(st.integers(0, 600)),
    )


async def _build(drawn: Drawn) -> list[Prepared]:
    """The prompt of a turn, and of one after it, on the summary that was made after the first."""
    memory = FakeMemory(drawn.results)
    memory.keyed.notes = {key: note(key, text) for key, text in drawn.notes.items()}
    pipeline = FakePipeline([tool(name, nothing) for name in OFFERED])
    made = builder(pipeline, OfflineModel(), drawn.settings, memory, drawn.context_tokens)
    request = TurnRequest(ToolContext("alice", "s1", "now", "test"), ASKED)
    built = []
    for _ in range(2):
        built.append(await made.build(request, drawn.events, await made.summary_of("s1")))
        memory.conversations.events["s1"] = list(drawn.events)
        made.summarise(request.context, 0, 0, ())
        await made.summarised("s1")
    return built


def _marks(texts: Sequence[str]) -> Counter[str]:
    """How often each mark stands in `texts`; several in one text are one."""
    return Counter(mark for text in texts for mark in set(_MARKER.findall(text)))


def _texts(request: Request) -> list[str]:
    messages = [text_of(part) for message in request.messages for part in message.parts]
    return [*request.sections.text.splitlines(), *messages]


@given(prompts())
@examples(50)
def test_a_prompt_fits_holds_the_newest_message_and_says_nothing_twice(drawn: Drawn) -> None:
    turns = len({event.turn_id for event in drawn.events})
    first, second = asyncio.run(_build(drawn))
    _check(drawn, first, turns)
    _check(drawn, second, min(turns, drawn.settings.history_turns))


def _check(drawn: Drawn, prepared: Prepared, turns: int) -> None:
    window = drawn.settings.context_window
    whole = Request(prepared.sections, repair_messages([*prepared.messages, *drawn.running]))
    assert max(_marks(_texts(whole)).values()) == 1
    assert tokens_of(prepared.sections.relevant) <= drawn.context_tokens
    *earlier, _ = prepared.messages  # the last one is the time
    answered = sum(isinstance(message, ModelRequest) for message in earlier)
    assert answered <= 2 * turns
    try:
        fitted = fit(whole, ASKED, window, drawn.tools)
    except GuestError:
        least = tokens_of(prepared.sections.rules) + of_messages(drawn.running[:1]) + drawn.tools
        assert least + LARGEST_CALL * (len(drawn.running) // 2) > window
        return
    assert tokens_of(fitted.sections.text) + of_messages(fitted.messages) + drawn.tools <= window
    assert fitted.sections.rules == prepared.sections.rules
    spoken = [p for m in fitted.messages for p in m.parts if isinstance(p, UserPromptPart)]
    assert spoken[-1].content == ASKED
    assert max(_marks(_texts(fitted)).values()) == 1
    assert repair_messages(fitted.messages) == fitted.messages
    calls = [
        p.tool_call_id for m in fitted.messages for p in m.parts if isinstance(p, ToolCallPart)
    ]
    results = [
        p.tool_call_id for m in fitted.messages for p in m.parts if isinstance(p, ToolReturnPart)
    ]
    assert calls == results
    assert [call for call in calls if call.startswith("now-")] == [
        f"now-{n}" for n in range(len(drawn.running) // 2)
    ]
