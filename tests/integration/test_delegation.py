"""Sub-agents: what they may use, who is asked for them, what they spend, and that their answers
stand once in the history of the session that asked, whenever they come."""

import asyncio
import dataclasses
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.settings import BudgetSettings, PriceSettings
from wire.v1 import gateway_pb2 as pb

from guest.agent.turn import FROM_AGENT
from guest.errors import StorageError
from guest.gateway import delegation
from guest.gateway.delegation import AT_ONCE
from guest.memory.conversations.work import HandedOn
from guest.notices.outbox import Notice, Outbox
from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from tests.support.gateway.gateways import Client, open_gateways

Tasks = list[dict[str, Any]]
Child = Callable[[str, list[str]], AsyncIterator[Any]]


def parts(messages: list[ModelMessage]) -> list[Any]:
    return [part for each in messages for part in each.parts]


def calls(*named: tuple[str, dict[str, Any]]) -> dict[int, DeltaToolCall]:
    return {
        n: DeltaToolCall(name, json.dumps(arguments), tool_call_id=f"c{n}")
        for n, (name, arguments) in enumerate(named)
    }


def results(messages: list[ModelMessage]) -> list[str]:
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    return [str(part.content) for part in last.parts if isinstance(part, ToolReturnPart)]


def boss(tasks: Tasks, child: Child, seen: list[str] | None = None) -> FunctionModel:
    """Hands these tasks on when it is told "go", and says what came back; `child` is what a
    sub-agent does with its task and the results of its calls."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        prompts = [str(p.content) for p in parts(messages) if isinstance(p, UserPromptPart)]
        if any(each.startswith(FROM_AGENT) for each in prompts):
            assert "delegate" not in {tool.name for tool in info.function_tools}
            async for piece in child(prompts[-1], results(messages)):
                yield piece
            return
        if seen is not None:
            seen[:] = prompts
        if told := results(messages):
            yield "\n".join(told)
        elif prompts[-1] == "go":
            yield calls(*(("delegate", each) for each in tasks))
        else:
            yield "yes"

    return FunctionModel(stream_function=model)


async def answers(task: str, told: list[str]) -> AsyncIterator[Any]:
    yield f"answer to {task}"


async def history(alice: Client, session_id: str = "s") -> str:
    read = await alice.stub.GetSession(pb.GetSessionRequest(session_id=session_id, limit=500))
    return "\n".join(f"{each.role}: {each.text}" for each in read.events)


async def sub_turns(alice: Client) -> list[pb.Turn]:
    listed = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
    return [turn for turn in listed if turn.parent_turn_id]


async def test_several_work_at_once_and_their_answers_stand_once() -> None:
    working = most = 0
    full = asyncio.Event()

    async def child(task: str, _: list[str]) -> AsyncIterator[Any]:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == AT_ONCE:
            full.set()
        await full.wait()
        working -= 1
        yield f"answer to {task}"

    tasks = [{"task": f"part {n}", "facts": f"the sky is {n}"} for n in range(6)]
    async with open_gateways(with_model=boss(tasks, child)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        last = (await alice.say("s", "go", turn_id="t1"))[-1]
        assert last.WhichOneof("event") == "completed", last
        assert most == AT_ONCE
        whole = await history(alice)
        for n in range(6):
            assert whole.count("tool: delegate: the sub-agent's turn: completed") == 6
            assert f"answer to part {n}" in last.completed.text
            assert f"the sky is {n}" in last.completed.text
        assert "a sub-agent's words and not the user's" in last.completed.text
        turns = await sub_turns(alice)
        assert {turn.parent_session_id for turn in turns} == {"s"}
        assert {turn.parent_turn_id for turn in turns} == {"t1"}
        listed = (await alice.stub.ListSessions(pb.ListSessionsRequest())).sessions
        assert [each.session_id for each in listed] == ["s"]
        wanted = pb.ListSessionsRequest(include_delegated=True)
        assert len((await alice.stub.ListSessions(wanted)).sessions) == 7
        assert await alice.answer("s", "and now?") == "yes"
        assert (await history(alice)).count("answer to part 3") == whole.count("answer to part 3")
        await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s"))
        assert not (await alice.stub.ListSessions(wanted)).sessions


async def test_it_has_at_most_the_tools_of_its_parent_and_reads_memory() -> None:
    save = ("memory_save", {"content": "The user likes tea."})

    async def child(task: str, told: list[str]) -> AsyncIterator[Any]:
        yield " | ".join(told) if told else calls(save)

    tasks: Tasks = [
        {"task": "save"},
        {"task": "save", "tools": ["memory_save"]},
        {"task": "save", "tools": ["memory_save", "delegate"]},
        {"task": "save", "tools": ["shell_exec"]},
    ]
    async with open_gateways(with_model=boss(tasks, child)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        told = await alice.answer("s", "go")
        assert told.count("Unknown tool name: 'memory_save'") == 1
        assert told.count("tools: a sub-agent cannot have delegate;") == 1
        assert told.count("tools: a sub-agent cannot have shell_exec;") == 1
        (note,) = await alice.notes()
        assert (note.origin.actor, note.origin.material) == ("agent", True)


class Nothing(Arguments):
    text: str = ""


async def _pressed(_: ToolContext, __: Nothing) -> ToolOutput:
    return ToolOutput({"pressed": True})


BUTTON = Tool("press", "Presses.", Nothing, Safety.PRIVILEGED, 10.0, _pressed)


@pytest.mark.parametrize("name", ["schedule_create", "egress_propose"])
async def test_it_makes_no_schedule_whose_runs_could_do_more_and_opens_nothing(name: str) -> None:
    async def child(_: str, told: list[str]) -> AsyncIterator[Any]:
        yield " | ".join(told) if told else calls((name, {"text": "x"}))

    tasks: Tasks = [{"task": "later"}, {"task": "later", "tools": [name]}]
    create = dataclasses.replace(BUTTON, name=name)
    async with open_gateways(with_model=boss(tasks, child), tools=[create]) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        told = await alice.answer("s", "go")
        assert told.count(f"Unknown tool name: '{name}'") == 1
        assert told.count(f"tools: a sub-agent cannot have {name};") == 1


@pytest.mark.parametrize("approved", [True, False])
async def test_it_asks_through_the_turn_of_its_parent(approved: bool) -> None:
    async def child(_: str, told: list[str]) -> AsyncIterator[Any]:
        yield " | ".join(told) if told else calls(("press", {"text": "x"}))

    model = boss([{"task": "press the button"}], child)
    async with open_gateways(with_model=model, tools=[BUTTON], approval="ask") as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        started = await alice.stub.StartTurn(pb.StartTurnRequest(session_id="s", text="go"))
        follow = pb.FollowTurnRequest(turn_id=started.turn_id)
        last = None
        async for event in alice.stub.FollowTurn(follow):
            last = event
            if event.WhichOneof("event") == "approval":
                asked = event.approval
                assert asked.turn_id == started.turn_id
                assert asked.text.startswith("a sub-agent asks: allow press? Its task: press the")
                decide = pb.DecideRequest(approval_id=asked.approval_id, approved=approved)
                assert (await alice.stub.Decide(decide)).accepted
        assert last is not None
        assert ("pressed" in last.completed.text) == approved


async def test_cancelling_goes_down_and_is_not_told_of_later() -> None:
    async def child(_: str, __: list[str]) -> AsyncIterator[Any]:
        yield "so far"
        await asyncio.sleep(60)

    seen: list[str] = []
    async with open_gateways(with_model=boss([{"task": "a"}] * 3, child, seen)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        begun = pb.StartTurnRequest(session_id="s", text="go", turn_id="t1")
        await alice.stub.StartTurn(begun)
        while len([turn for turn in await sub_turns(alice) if turn.events > 1]) < 3:
            await asyncio.sleep(0.02)
        assert (await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t1"))).cancelled
        while {turn.state for turn in await sub_turns(alice)} != {"cancelled"}:
            await asyncio.sleep(0.02)
        assert await alice.answer("s", "and now?") == "yes"
        assert not any("Sub-agents have answered" in each for each in seen)


async def test_an_answer_that_comes_late_stands_before_the_next_message_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn that asked fails while its sub-agent works, and the first notice is not stored."""
    add, away = Outbox.add, [StorageError(Code.UNAVAILABLE, "the memory server is away")]

    async def add_later(*given: Any, **named: Any) -> Notice:
        if away:
            raise away.pop()
        return await add(*given, **named)

    monkeypatch.setattr(Outbox, "add", add_later)
    monkeypatch.setattr(delegation, "TELL_AGAIN_S", 0.01)
    go_on, seen = asyncio.Event(), list[str]()

    async def child(task: str, _: list[str]) -> AsyncIterator[Any]:
        yield "the sky "
        await go_on.wait()
        yield "is green"

    async def broken(_: ToolContext, __: Nothing) -> ToolOutput:
        await asyncio.sleep(0.3)
        raise asyncio.CancelledError  # as if what runs the turn had ended

    model = boss([{"task": "look up"}], child, seen)
    async with open_gateways(path=tmp_path, with_model=model) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        await alice.stub.StartTurn(pb.StartTurnRequest(session_id="s", text="go", turn_id="t1"))
        while not [turn for turn in await sub_turns(alice) if turn.events > 1]:
            await asyncio.sleep(0.02)
        (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "t1")
        task.cancel()  # and not by a person
        await asyncio.wait([task])
        assert await alice.answer("s", "is it there?") == "yes"
        assert not any("is green" in each for each in seen)
        go_on.set()
        outbox = Outbox(gateways.memory.store.database, "alice")
        while not (notices := await outbox.newest(10)):
            await asyncio.sleep(0.02)
        assert "the sky is green" in notices[0].text
        assert (notices[0].kind, notices[0].session_id) == ("delegation", "s")
    for _ in range(2):
        async with open_gateways(path=tmp_path, with_model=model) as gateways:
            alice = await gateways.serve("alice")
            assert await alice.answer("s", "and now?") == "yes"
            assert sum("the sky is green" in each for each in seen) == 1
            assert len(await Outbox(gateways.memory.store.database, "alice").newest(10)) == 1


async def test_what_another_host_works_on_is_its_own_while_it_renews_it() -> None:
    async with open_gateways() as gateways:
        memory = gateways.memory
        parent = (await memory.conversations.create(title="p")).session_id
        child = (await memory.conversations.create(title="c", parent_id=parent)).session_id
        memory.work.owner = "a"
        await memory.work.begin(handed := HandedOn(child, parent, "t1"))
        assert await memory.work.open() == [handed]
        memory.work.owner = "b"
        assert await memory.work.open() == await memory.work.open(parent) == []
        old = "UPDATE session_state SET updated_at = '2026-01-01T00:00:00.000000Z'"
        await memory.store.database.execute(old)
        assert await memory.work.open(parent) == [handed]
        await memory.work.renew(handed)
        assert await memory.work.open(parent) == []
        await memory.store.database.execute(old)
        await memory.work.told(handed)
        assert await memory.work.open() == []


PRICE = PriceSettings(input=5.0, output=10.0)


@pytest.mark.parametrize("limit", ["turn", "session", "own"])
async def test_parent_and_sub_agents_stay_within_one_limit(limit: str) -> None:
    async def child(task: str, _: list[str]) -> AsyncIterator[Any]:
        yield calls(("memory_search", {"query": f"{task} {uuid.uuid4()}"}))

    cap = 0.05
    settings: dict[str, Any] = {"max_steps": 100, "max_output_tokens": 500}
    if limit != "own":
        settings["budget"] = BudgetSettings.model_validate({f"{limit}_usd": cap})
    tasks: Tasks = [{"task": f"part {n}"} for n in range(4)]
    if limit == "own":
        tasks = [each | {"budget": 6_000} for each in tasks]
    model = boss(tasks, child)
    settings["prices"] = {model.model_name: PRICE}
    async with open_gateways(with_model=model, **settings) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        await alice.say("s", "go", turn_id="t1")
        used = await alice.stub.GetUsage(pb.GetUsageRequest())
        listed = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        assert sum(turn.cost_usd for turn in listed) == pytest.approx(used.total.cost_usd)
        subs = await sub_turns(alice)
        assert {turn.state for turn in subs} == {"failed"}
        if limit == "own":
            assert all(0 < turn.tokens <= 6_000 for turn in subs)
        else:
            assert 0.25 * cap < used.total.cost_usd <= cap
