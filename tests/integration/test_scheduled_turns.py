"""Runs of schedules are turns: with their tools and budget, a receipt and a notice."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.identity import Party
from wire.v1 import gateway_pb2 as pb

from guest.gateway import schedules as module
from guest.gateway.validation import largest_page
from guest.schedules.scheduler import NOTHING
from runner.client.gateway import GatewayClient
from tests.support.gateway.gateways import Client, open_gateways


def answering(text: str, offered: list[str], calls: str = "") -> FunctionModel:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        offered[:] = [each.name for each in info.function_tools]
        if calls and len(messages) == 1:
            arguments = json.dumps({"content": "The user drinks tea."})
            yield {0: DeltaToolCall(calls, arguments, tool_call_id="c")}
        else:
            yield text

    return FunctionModel(stream_function=model)


async def ran(alice: Client, **fields: Any) -> pb.ScheduleRun:
    made = await alice.stub.CreateSchedule(
        pb.CreateScheduleRequest(when="0 7 * * *", text="look at it", name="look", **fields)
    )
    assert len(made.next) == 3
    await alice.stub.RunSchedule(pb.RunScheduleRequest(schedule="look"))
    asked = pb.ListScheduleRunsRequest(schedule=made.schedule_id)
    while True:
        (run,) = (await alice.stub.ListScheduleRuns(asked)).runs
        if run.state != "running" and "sent" in run.told:
            return run
        await asyncio.sleep(0.02)


async def told(alice: Client) -> list[str]:
    found = (await alice.stub.ListNotices(pb.ListNoticesRequest())).notices
    return [each.text for each in found]


async def test_a_run_has_a_session_a_receipt_and_a_notice() -> None:
    offered: list[str] = []
    model = answering("It is red.", offered, "memory_save")
    async with open_gateways(with_model=model) as gateways:
        alice = await gateways.serve("alice")
        run = await ran(alice, tools=["memory_save"])
        assert offered == ["memory_save"]
        assert (run.state, run.calls, run.notes) == ("done", 1, 1)
        assert run.answer == "It is red."
        assert run.told.endswith("cost $0.00, 1 tool, kept 1 note, sent 1 notice")
        while not (texts := await told(alice)):
            await asyncio.sleep(0.02)
        assert texts[0].endswith("It is red.")
        turns = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        assert [each.turn_id for each in turns if each.schedule_id] == [run.turn_id]
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id=run.session_id))
        assert history.events[0].text == "look at it"


async def test_all_schedules_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "largest_page", partial(largest_page, max_bytes=20_000))
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        made = []
        for _ in range(101):
            wanted = pb.CreateScheduleRequest(when="every hour", text="x" * 1_000)
            made.append((await alice.stub.CreateSchedule(wanted)).schedule_id)
        page = await alice.stub.ListSchedules(pb.ListSchedulesRequest(limit=101))
        assert page.ByteSize() <= 20_000
        async with await GatewayClient.open(alice.peer, channel_name="test") as client:
            listed = [each.schedule_id async for each in client.schedules()]
    assert sorted(listed) == sorted(made)


async def test_a_run_with_nothing_to_tell_is_silent() -> None:
    async with open_gateways(with_model=answering(NOTHING, [])) as gateways:
        alice = await gateways.serve("alice")
        run = await ran(alice)
        assert run.told.endswith("sent no notice")
        assert run.answer == ""
        assert await told(alice) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"when": "soon"}, "when: 'soon' is not a time such as"),
        ({"when": "2020-01-01"}, "when: .* has passed"),
        ({"tools": ["schedule_create"]}, "tools: 'schedule_create' is not one of"),
        ({"tools": ["egress_propose"]}, "tools: 'egress_propose' is not one of"),
        ({"budget_usd": -1.0}, "budget_usd: it must be from 0 to 1000"),
        ({"time_zone": "Mars"}, "time_zone: 'Mars' is not the IANA name"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(fields: dict[str, Any], said: str) -> None:
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        wanted = pb.CreateScheduleRequest(**{"when": "every hour", "text": "x", **fields})
        with pytest.raises(grpc.aio.AioRpcError, match=said):
            await alice.stub.CreateSchedule(wanted)


async def test_hello_says_what_is_due_first_and_whether_the_agent_may_end() -> None:
    gate = asyncio.Event()

    async def waiting(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        await gate.wait()
        yield "It is red."

    async with open_gateways(with_model=FunctionModel(stream_function=waiting)) as gateways:
        alice = await gateways.serve("alice")
        service = gateways.services["alice"]

        async def said(*, until: Any) -> pb.HelloReply:
            async with asyncio.timeout(60):
                while not until(hello := await alice.stub.Hello(pb.HelloRequest())):
                    await asyncio.sleep(0.02)
            return hello

        first = await alice.stub.Hello(pb.HelloRequest())
        assert (first.knows_due, first.next_due, first.in_use) == (False, "", False)
        service.scheduler.start()
        assert not (await alice.stub.Hello(pb.HelloRequest())).knows_due  # the reminders are not
        service.reminders.start()
        assert (await said(until=lambda hello: hello.knows_due)).next_due == ""
        await alice.stub.SetReminder(pb.SetReminderRequest(due="in 3 hours", text="tea"))
        reminder = (await said(until=lambda hello: hello.next_due)).next_due
        made = pb.CreateScheduleRequest(when="every 2 hours", text="look", name="look")
        earlier = (await alice.stub.CreateSchedule(made)).next[0]
        hello = await said(until=lambda hello: hello.next_due != reminder)
        assert hello.next_due == earlier < reminder
        await alice.stub.RunSchedule(pb.RunScheduleRequest(schedule="look"))
        await said(until=lambda hello: hello.in_use)
        gate.set()
        await said(until=lambda hello: not hello.in_use)
        service.called_by(Party.RUNNER)
        assert not (await alice.stub.Hello(pb.HelloRequest())).in_use
        service.called_by(Party.CLI)
        assert (await alice.stub.Hello(pb.HelloRequest())).in_use
