"""The turn loop against scripted models: order, durability, budgets, cancellation, repair."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code, WireError
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent import history
from guest.agent.turn import TIME, Outcome, TurnRequest
from guest.errors import GuestError, StorageError
from guest.tools.base import Safety, Tool, ToolContext, ToolOutput
from tests.support.agent.prompt_fakes import FakeMemory, hit, loop_on
from tests.support.agent.turn_fakes import (
    CONTEXT,
    FakePipeline,
    FakeStore,
    Text,
    Watcher,
    code,
    tool,
)

AWAY = StorageError(Code.UNAVAILABLE, "the memory server is away", resolution="wait")
Script = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]


def calls(*named: tuple[str, Any]) -> dict[int, DeltaToolCall]:
    return {
        number: DeltaToolCall(
            name, args if isinstance(args, str) else json.dumps(args), tool_call_id=f"c{number}"
        )
        for number, (name, args) in enumerate(named)
    }


class House:
    """A loop with everything around it faked."""

    def __init__(
        self, script: Script, *tools: Tool, store: FakeStore | None = None, **settings: Any
    ) -> None:
        self.store = store or FakeStore()
        self.pipeline = FakePipeline(tools)
        self.watcher = Watcher()
        self.seen: list[list[ModelMessage]] = []

        async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            self.seen.append(list(messages))
            async for piece in script(messages, info):
                yield piece

        self.memory = FakeMemory()
        self.loop = loop_on(
            FunctionModel(stream_function=model),
            self.pipeline,
            self.store,
            AgentSettings.model_construct(**settings),
            self.memory,
        )

    async def say(self, text: str = "hello", turn_id: str = "t1") -> Outcome:
        context = ToolContext(CONTEXT.user_id, CONTEXT.session_id, turn_id, CONTEXT.channel)
        return await self.loop.run(TurnRequest(context, text), self.watcher)

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.watcher.seen if isinstance(event, kind)]


def steps(*replies: Any) -> Script:
    """A model that gives one reply after the other: a text, several texts or calls."""
    waiting = list(replies)

    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        reply = waiting.pop(0)
        for piece in reply if isinstance(reply, list) else [reply]:
            yield piece

    return script


async def nothing(_: ToolContext, __: Any) -> str:
    return "ok"


def last_results(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    said = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
    return [text for text in said if not text.startswith(TIME)]


async def test_who_talks_is_told_once_that_nothing_is_being_stored() -> None:
    house = House(steps("Hello", "Again"))
    house.store.notices = ["Not stored right now."]
    outcome = await house.say("hi")
    assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert house.watcher.text == "(Not stored right now.)\n\nHello"
    assert outcome.text == "Hello"
    assert house.store.texts("assistant") == ["Hello"]
    await house.say("hi", "t2")
    assert house.watcher.text.count("Not stored") == 1


async def test_a_store_that_goes_away_in_a_turn_is_told_after_the_answer() -> None:
    house = House(steps("Hello"))
    said = house.store.append

    async def leave(*args: Any, **settings: Any) -> int:
        if settings["role"] == "assistant":
            house.store.notices = ["Not stored right now."]
        return await said(*args, **settings)

    house.store.append = leave  # type: ignore[method-assign]
    await house.say("hi")
    assert house.watcher.text == "Hello\n\n(Not stored right now.)\n\n"


async def test_a_plain_answer_is_streamed_recorded_and_completed() -> None:
    house = House(steps(["Hello", ", ", "Alice. How", " are you?"]))
    outcome = await house.say("hi")
    assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert outcome.text == house.watcher.text == "Hello, Alice. How are you?"
    assert (outcome.steps, house.store.roles()) == (1, ["user", "assistant"])
    assert outcome.input_tokens > 0
    assert house.watcher.names() == ["TextDelta"] * 4, "text comes as the model gives it"
    assert house.store.texts("assistant") == ["Hello, Alice. How are you?"]


async def test_the_users_message_is_durable_before_the_model_is_asked() -> None:
    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        assert house.store.texts("user") == ["hi"]
        yield "yes"

    house = House(script)
    assert code(await house.say("hi")) == "completed"


async def test_a_session_is_named_after_its_first_message_without_secrets() -> None:
    house = House(steps("yes", "no"))
    await house.say("\n  is s3cret\tstill good?\nsince May")
    await house.say("something else", turn_id="t2")
    assert house.store.titles == {"s1": "is [redacted] still good?"}


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n hi  there\nmore", "hi there"),
        ("word " * 30, "word " * 11 + "…"),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 60, "x" * 60),
    ],
)
def test_a_title_is_the_first_line_cut_at_a_word(text: str, title: str) -> None:
    assert history.title_of(text) == title


async def test_without_a_store_the_model_is_never_asked() -> None:
    house = House(steps("never"))
    house.store.fail = StorageError(Code.RESOURCE_EXHAUSTED, "disk full", resolution="free some")
    with pytest.raises(WireError, match="disk full"):
        await house.say()
    assert house.seen == []


async def test_a_result_is_recorded_before_the_model_sees_it_and_an_answer_before_its_calls() -> (
    None
):
    roles_at: list[list[str]] = []

    async def look(_: ToolContext, __: Any) -> str:
        roles_at.append(house.store.roles())
        return "seen"

    async def script(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if last_results(messages):
            roles_at.append(house.store.roles())
            yield "done"
        else:
            yield calls(("look", {}))

    house = House(script, tool("look", look))
    await house.say()
    assert roles_at == [["user", "assistant"], ["user", "assistant", "tool"]]
    assert house.store.roles() == ["user", "assistant", "tool", "assistant"]


async def test_tool_events_are_redacted_and_in_order() -> None:
    house = House(
        steps(calls(("look", {"text": "s3cret"})), "done"), tool("look", nothing, arguments=Text)
    )
    await house.say()
    assert house.watcher.names() == ["ToolCallStarted", "ToolCallFinished", "TextDelta"]
    (started,) = house.events(gateway_pb2.ToolCallStarted)
    assert (started.call_id, started.tool) == ("c0", "look")
    assert json.loads(started.arguments_json) == {"text": "[redacted]"}
    assert started.telling == "text"
    (finished,) = house.events(gateway_pb2.ToolCallFinished)
    assert (finished.call_id, finished.ok, finished.duration_ms) == ("c0", True, 1)


async def test_every_call_gets_the_turns_own_context() -> None:
    house = House(steps(calls(("look", {})), "done"), tool("look", nothing))
    await house.say(turn_id="t9")
    assert house.pipeline.calls[0][0] == ToolContext(
        *("alice", "s1", "t9", "test"), asked="hello", time_zone="auto"
    )


@pytest.mark.parametrize("bad", ['{"text": ', '{"txt": "x"}', "[]", "null", '"x"', '{"text": 1}'])
async def test_bad_arguments_come_back_and_are_corrected(bad: str) -> None:
    house = House(
        steps(calls(("look", bad)), calls(("look", {"text": "x"})), "done"),
        tool("look", nothing, arguments=Text),
    )
    assert code(await house.say()) == "completed"
    first, second = house.events(gateway_pb2.ToolCallFinished)
    assert (first.ok, second.ok) == (False, True)
    (answer,) = last_results(house.seen[1])
    assert answer.outcome == "failed"
    assert "bad arguments" in str(answer.content)


async def test_an_unknown_tool_is_answered_and_recorded_and_the_turn_goes_on() -> None:
    house = House(
        steps(calls(("no_such", {})), calls(("no_such", {})), "sorry"), tool("look", nothing)
    )
    assert code(await house.say()) == "completed"
    finished = house.events(gateway_pb2.ToolCallFinished)
    assert [(event.tool, event.ok) for event in finished] == [("no_such", False)] * 2
    assert "Unknown tool" in finished[0].summary
    assert house.store.roles() == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_an_operators_error_is_told_briefly_to_the_model() -> None:
    async def broken(_: ToolContext, __: Any) -> str:
        raise StorageError(Code.DATA_LOSS, "database corrupt", details="page 7", resolution="x")

    house = House(steps(calls(("look", {})), "I could not."), tool("look", broken))
    assert code(await house.say()) == "completed"
    (answer,) = last_results(house.seen[1])
    assert answer.content == "the tool is unavailable: database corrupt"


async def test_reads_run_side_by_side_and_writes_in_order() -> None:
    running: set[str] = set()
    together: set[frozenset[str]] = set()

    def busy(name: str) -> Any:
        async def run(_: ToolContext, __: Any) -> str:
            running.add(name)
            together.add(frozenset(running))
            await asyncio.sleep(0.01)
            running.discard(name)
            return name

        return run

    house = House(
        steps(calls(*((name, {}) for name in ("r1", "r2", "w1", "w2", "r3", "p1", "r4"))), "done"),
        *(tool(name, busy(name)) for name in ("r1", "r2", "r3", "r4")),
        *(tool(name, busy(name), Safety.SIDE_EFFECTING) for name in ("w1", "w2")),
        tool("p1", busy("p1"), Safety.PRIVILEGED),
    )
    await house.say()
    assert frozenset({"r1", "r2"}) in together
    assert {group for group in together if len(group) > 1} == {frozenset({"r1", "r2"})}
    spans = {name: (began, ended) for name, began, ended in house.pipeline.spans}
    for earlier, later in (("r1", "w1"), ("r2", "w1"), ("w1", "w2"), ("w2", "r3"), ("p1", "r4")):
        assert spans[earlier][1] <= spans[later][0]


async def test_the_model_sees_earlier_turns_with_their_tools() -> None:
    house = House(steps(calls(("look", {})), "done", "again"), tool("look", nothing))
    await house.say("first", "t1")
    await house.say("second", "t2")
    assert prompts(house.seen[-1]) == ["first", "second"]
    kinds = [type(message) for message in house.seen[-1]]
    assert kinds == [ModelRequest, ModelResponse] * 2 + [ModelRequest]


@pytest.mark.parametrize("kept", [1, 3])
async def test_without_a_summary_only_the_last_turns_are_shown(kept: int) -> None:
    house = House(steps(*("ok" for _ in range(10))), history_turns=kept)
    house.memory.state_of.fail = AWAY
    for number in range(10):
        await house.say(f"say {number}", f"t{number}")
    assert prompts(house.seen[-1]) == [f"say {number}" for number in range(9 - kept, 10)]


async def test_long_sessions_are_read_in_growing_windows() -> None:
    house = House(steps(*("ok" for _ in range(60))), history_turns=50)
    house.memory.state_of.fail = AWAY
    for number in range(60):
        await house.say(f"say {number}", f"t{number}")
    assert len(house.seen[-1]) == 2 * 50 + 1


async def test_a_turn_id_is_never_used_twice() -> None:
    house = House(steps("one", "two"))
    await house.say(turn_id="t1")
    with pytest.raises(WireError) as raised:
        await house.say(turn_id="t1")
    assert raised.value.code is Code.ALREADY_EXISTS
    assert house.store.roles() == ["user", "assistant"]


# Budgets


async def looking(seen: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    yield calls(("look", {"text": str(len(seen))}))


async def test_the_step_budget_ends_the_turn() -> None:
    house = House(looking, tool("look", nothing, arguments=Text), max_steps=3)
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code == "resource_exhausted"
    assert outcome.message == "the turn used all 3 of its model requests"
    assert "max_steps" in outcome.resolution
    assert len(house.seen) == 3
    assert house.store.roles() == ["user"] + ["assistant", "tool"] * 3


async def test_a_request_that_could_exceed_the_token_budget_is_not_sent() -> None:
    house = House(looking, tool("look", nothing, arguments=Text), max_tokens=1_000)
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code == "resource_exhausted"
    assert outcome.message.startswith("the budget of the turn does not cover the next request: ")
    assert "of 1,000 tokens" in outcome.message
    assert "max_tokens" in outcome.resolution
    assert 1 < len(house.seen) < 20
    assert house.store.roles() == ["user"] + ["assistant", "tool"] * len(house.seen)


async def test_without_room_for_the_second_chance_the_answer_stays() -> None:
    house = House(steps("I have saved that.", "OK"), max_tokens=1_000)
    completed = await house.say("remember the roses")
    assert isinstance(completed, gateway_pb2.TurnCompleted)
    assert len(house.seen) == 2, "the test would see nothing"
    house = House(steps("I have saved that."), max_tokens=700)
    completed = await house.say("remember the roses")
    assert isinstance(completed, gateway_pb2.TurnCompleted), completed
    assert completed.text == "I have saved that."
    assert len(house.seen) == 1


def later(by_s: float) -> None:
    """Let the clock of the running loop jump: what was to happen by then happens next."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + by_s  # type: ignore[method-assign]


async def test_the_time_budget_ends_the_turn_and_what_was_said_is_kept() -> None:
    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield "Let me think"
        later(by_s=200)
        await asyncio.sleep(60)
        yield "."

    house = House(script, turn_timeout_s=100)
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert (outcome.code, outcome.message) == ("timeout", "the turn took longer than 100 seconds")
    assert "turn_timeout_s" in outcome.resolution
    assert house.store.texts("assistant") == ["Let me think"]


async def test_the_time_budget_ends_a_tool_too() -> None:
    async def slow(_: ToolContext, __: Any) -> str:
        later(by_s=200)
        await asyncio.sleep(60)
        return "never"

    house = House(steps(calls(("look", {}))), tool("look", slow), turn_timeout_s=100)
    assert code(await house.say()) == "timeout"


# Cancellation


async def cancelled_at(house: House, stage: asyncio.Event) -> None:
    running = asyncio.create_task(house.say("first", "t1"))
    await stage.wait()
    running.cancel()
    assert code(await running) == "cancelled"


async def test_cancelling_while_the_model_streams_keeps_what_was_said() -> None:
    stage = asyncio.Event()

    async def script(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if stage.is_set():
            yield "second answer"
            return
        yield "First. The sec"
        stage.set()
        await asyncio.sleep(60)

    house = House(script)
    await cancelled_at(house, stage)
    assert house.store.texts("assistant") == ["First. The sec"] == [house.watcher.text]
    assert code(await house.say("second", "t2")) == "completed"
    assert [type(message) for message in house.seen[-1]] == [
        ModelRequest,
        ModelResponse,
        ModelRequest,
    ]


@pytest.mark.parametrize("stored_first", [True, False])
async def test_cancelling_while_the_answer_is_stored_stores_it_once(stored_first: bool) -> None:
    stage, go_on = asyncio.Event(), asyncio.Event()
    said = FakeStore.append

    class Slow(FakeStore):
        async def append(self, *place: Any, **event: Any) -> int:
            if event["role"] == "user":
                return await said(self, *place, **event)
            sequence = await said(self, *place, **event) if stored_first else 0
            stage.set()
            await go_on.wait()
            return sequence or await said(self, *place, **event)

    house = House(steps("First."), store=Slow())
    running = asyncio.create_task(house.say())
    await stage.wait()
    running.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert code(await running) == "cancelled"
    assert house.store.texts("assistant") == ["First."]


async def test_cancelling_before_the_first_word_leaves_a_history_that_goes_on() -> None:
    stage = asyncio.Event()

    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        if not stage.is_set():
            stage.set()
            await asyncio.sleep(60)
        yield "second answer"

    house = House(script)
    await cancelled_at(house, stage)
    assert house.store.roles() == ["user"]
    assert code(await house.say("second", "t2")) == "completed"


async def test_cancelling_while_a_tool_runs_closes_its_call() -> None:
    stage = asyncio.Event()
    stopped: list[str] = []

    async def slow(_: ToolContext, __: Any) -> str:
        stage.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("slow")
            raise
        return "never"

    house = House(
        steps(calls(("quick", {}), ("slow", {})), "second answer"),
        tool("quick", nothing, Safety.SIDE_EFFECTING),
        tool("slow", slow),
    )
    await cancelled_at(house, stage)
    assert stopped == ["slow"]
    assert house.store.roles() == ["user", "assistant", "tool"]
    assert code(await house.say("second", "t2")) == "completed"
    results = [
        (part.tool_name, part.outcome)
        for message in house.seen[-1]
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert results == [("quick", "success"), ("slow", "interrupted")]


async def test_cancelling_while_approval_is_awaited() -> None:
    stage = asyncio.Event()

    async def approve(*_: Any) -> bool:
        stage.set()
        await asyncio.sleep(60)
        return True

    house = House(steps(calls(("risky", {}))), tool("risky", nothing, Safety.PRIVILEGED))
    running = asyncio.create_task(
        house.loop.run(TurnRequest(CONTEXT, "go"), house.watcher, approve)
    )
    await stage.wait()
    running.cancel()
    assert code(await running) == "cancelled"
    assert house.store.roles() == ["user", "assistant"]


async def test_an_answered_approval_decides() -> None:
    async def approve(_: ToolContext, asked: Tool, arguments: str) -> bool:
        assert (asked.name, arguments) == ("risky", "{}")
        return False

    house = House(
        steps(calls(("risky", {})), "then not"), tool("risky", nothing, Safety.PRIVILEGED)
    )
    outcome = await house.loop.run(TurnRequest(CONTEXT, "go"), house.watcher, approve)
    assert code(outcome) == "completed"
    assert house.events(gateway_pb2.ToolCallFinished)[0].summary == "refused"


# What a killed turn leaves behind


async def test_an_interrupted_history_is_repaired_and_an_unreadable_event_left_out() -> None:
    house = House(steps(calls(("look", {})), "done", "next"), tool("look", nothing))
    await house.say("first", "t1")
    lines = house.store.events["s1"]
    del lines[2:]  # killed while the tool ran
    await house.store.append(
        "s1", turn_id="t1", role="assistant", text="?", payload='{"not": "a message"}'
    )
    assert code(await house.say("second", "t2")) == "completed"
    results = [
        part.outcome
        for message in house.seen[-1]
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert results == ["interrupted"]


async def test_a_store_that_fails_in_mid_turn_fails_the_turn() -> None:
    async def look(_: ToolContext, __: Any) -> str:
        house.store.fail = StorageError(Code.RESOURCE_EXHAUSTED, "disk full", resolution="free it")
        return "ok"

    house = House(steps(calls(("look", {})), "never"), tool("look", look))
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert (outcome.code, outcome.message, outcome.resolution) == (
        "resource_exhausted",
        "disk full",
        "free it",
    )


# Models that misbehave


async def test_a_crashing_model_fails_the_turn_without_its_words() -> None:
    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield "some"
        raise RuntimeError("s3cret inside")

    house = House(script)
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert (outcome.code, outcome.message) == ("internal", "internal error")
    assert house.store.texts("assistant") == ["some"]


async def test_a_model_that_says_nothing_fails_the_turn() -> None:
    house = House(steps("", "", ""))
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code == "unavailable"
    assert "cannot be used" in outcome.message


async def test_repeated_call_ids_are_told_apart() -> None:
    twice = {n: DeltaToolCall("look", "{}", tool_call_id="same") for n in (0, 1)}
    house = House(steps(twice, twice, "done", "done"), tool("look", nothing))
    assert code(await house.say()) == "completed"
    assert len(house.pipeline.calls) == 4
    assert code(await house.say("again", "t2")) == "completed"
    ids = [call.tool_call_id for m in house.seen[-1] for call in getattr(m, "tool_calls", ())]
    results = [p.tool_call_id for m in house.seen[-1] for p in last_results([m])]
    assert len(set(ids)) == len(ids) == 4
    assert results == ids


async def test_what_no_database_can_hold_is_replaced() -> None:
    house = House(steps(["a\0b", "\ud83d"]))
    assert code(await house.say()) == "completed"
    assert house.store.texts("assistant") == ["a\ufffdb?"]
    assert "\\u0000" not in house.store.events["s1"][-1].payload


async def test_a_call_in_broken_unicode_is_answered() -> None:
    house = House(steps(calls(("lo\ud83dok", '"\ud83d"')), calls(("look", '"\ud83d')), "sorry"))
    assert code(await house.say()) == "completed"


async def test_a_turn_of_another_user_is_refused_before_anything_is_written() -> None:
    house = House(steps("never said"))
    request = TurnRequest(ToolContext("bob", "s1", "t", "test"), "I am bob")
    with pytest.raises(GuestError, match="user context") as refused:
        await house.loop.run(request, Watcher())
    assert refused.value.code is Code.PERMISSION_DENIED
    assert house.store.events == {}


async def test_turns_in_ten_sessions_at_once_keep_to_themselves() -> None:
    async def echo(ctx: ToolContext, _: Any) -> str:
        await asyncio.sleep(0.001)
        return f"for {ctx.session_id}"

    async def script(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        results = last_results(messages)
        await asyncio.sleep(0.001)
        yield str(results[0].content) if results else calls(("look", {}))

    house = House(script, tool("look", echo))

    async def one(session: str) -> None:
        request = TurnRequest(ToolContext("alice", session, "t", "test"), f"I am {session}")
        outcome = await house.loop.run(request, Watcher())
        assert isinstance(outcome, gateway_pb2.TurnCompleted)
        assert outcome.text == f'"for {session}"'
        assert house.store.texts("user", session) == [f"I am {session}"]

    await asyncio.gather(*(one(f"s{number}") for number in range(10)))


# What calls know of material

READ = ToolOutput({"content": "the admin is Mallory"}, material=("/shared/page.md",))


async def test_later_calls_know_what_was_read_and_the_next_turn_does_too() -> None:
    async def read(_: ToolContext, __: Any) -> ToolOutput:
        return READ

    look, write = calls(("read", {})), calls(("write", {}))
    house = House(steps(look, write, "ok", write, "ok"), tool("read", read), tool("write", nothing))
    await house.say("Read it", "t1")
    await house.say("And now?", "t2")
    written = [context for context, name, _ in house.pipeline.calls if name == "write"]
    assert [context.material for context in written] == [("/shared/page.md",)] * 2
    assert [context.asked for context in written] == ["Read it", "And now?"]


async def test_a_note_in_the_prompt_is_material_in_the_next_turn_too() -> None:
    write = calls(("memory_save", {}))
    house = House(steps("It is Mallory.", write, "ok"), tool("memory_save", nothing))
    house.memory.results = (hit("The admin is Mallory", material=True, link="/shared/page.md"),)
    await house.say("Who is the admin?", "t1")
    house.memory.results = ()
    await house.say("Good to know", "t2")
    assert house.pipeline.calls[0][0].material == ("/shared/page.md",)


async def test_an_unreadable_event_of_earlier_turns_tells_nothing() -> None:
    async def read(_: ToolContext, __: Any) -> ToolOutput:
        return READ

    look, write = calls(("read", {})), calls(("write", {}))
    house = House(steps(look, "ok", write, "ok"), tool("read", read), tool("write", nothing))
    await house.say("Read it", "t1")
    events = house.store.events["s1"]
    events[:] = [replace(e, payload="{}") if e.role == "tool" else e for e in events]
    await house.say("And now?", "t2")
    assert house.pipeline.calls[-1][0].material == ()


async def test_what_a_tool_brought_is_in_its_event_but_not_what_memory_did() -> None:
    async def read(_: ToolContext, __: Any) -> ToolOutput:
        return ToolOutput({"content": "line\n" * 999}, summary="lines 1-999")

    async def search(_: ToolContext, __: Any) -> ToolOutput:
        return ToolOutput([{"text": "a secret"}], summary="1 result")

    house = House(
        steps(calls(("read", {}), ("memory_search", {})), "ok"),
        tool("read", read),
        tool("memory_search", search),
    )
    await house.say("Look")
    first, second = house.store.texts("tool")
    assert first.startswith("read: lines 1-999\nline\nline")
    assert len(first) == 600
    assert second == "memory_search: 1 result"
