"""Conditions of schedules, the cap of their day and what they may do, in a whole agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import PriceSettings
from wire.v1 import gateway_pb2 as pb

from guest.schedules.scheduler import Scheduler
from guest.tools.base import ToolContext, ToolOutput
from guest.tools.shell.tool import ShellArguments
from tests.support.gateway.gateways import Client, Gateways, goes_on, open_gateways
from tests.support.tools.pipelines import shell_exec

CODES = {"make -q": 0, "git pull": 0, "git fetch": 0, "test -s log.txt": 1, "nothing": 127}
ran: list[str] = []
asked: list[str] = []


async def execute(_: ToolContext, given: ShellArguments) -> ToolOutput:
    ran.append(given.command)
    code = CODES[given.command]
    return ToolOutput({"exit_code": code, "timed_out": False}, summary=f"exit code {code}")


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    asked.append("request")
    if any(each.name == "shell_exec" for each in info.function_tools) and len(messages) == 1:
        yield {0: DeltaToolCall("shell_exec", '{"command": "git pull"}', tool_call_id="c")}
    else:
        yield "there is more to do"


@asynccontextmanager
async def alice(
    answers: Any = model, **settings: Any
) -> AsyncIterator[tuple[Gateways, Client, Scheduler]]:
    ran.clear()
    asked.clear()
    async with open_gateways(
        with_model=FunctionModel(stream_function=answers, model_name="test-model"),
        tools=[shell_exec(execute)],
        provider="openai",
        model="test-model",
        **settings,
    ) as gateways:
        client = await gateways.serve("alice")
        yield gateways, client, gateways.services["alice"].scheduler


async def create(client: Client, **fields: Any) -> pb.Schedule:
    wanted = {"when": "every 5 minutes", "text": "look at it", "name": "look", **fields}
    made: pb.Schedule = await client.stub.CreateSchedule(pb.CreateScheduleRequest(**wanted))
    return made


async def change(client: Client, **fields: Any) -> pb.Schedule:
    request = pb.ChangeScheduleRequest(schedule="look", **fields)
    changed: pb.Schedule = await client.stub.ChangeSchedule(request)
    return changed


class Ahead:
    """Lets the time of a scheduler pass in steps."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.now = datetime.now(UTC)
        self._scheduler = scheduler
        scheduler.clock = lambda: self.now

    async def pass_(self, minutes: int = 5) -> None:
        self.now += timedelta(minutes=minutes)
        await self._scheduler.tick()
        await self._scheduler.finish()


async def states(client: Client) -> list[str]:
    asking = pb.ListScheduleRunsRequest(schedule="look")
    return [each.state for each in (await client.stub.ListScheduleRuns(asking)).runs]


async def test_a_file_that_has_changed_begins_one_run() -> None:
    async with alice() as (gateways, client, scheduler):
        ahead = Ahead(scheduler)
        await create(client, condition="changed log.txt", tools=["file_read"])
        await ahead.pass_()
        assert asked == []
        (gateways.path / "shared" / "log.txt").write_text("red")
        for _ in range(3):
            await ahead.pass_()
        assert len(asked) == 1
        assert await states(client) == ["idle", "done", "idle"]
        with pytest.raises(grpc.aio.AioRpcError, match="condition: path is outside"):
            await create(client, condition="changed /etc/passwd")


async def test_a_reminder_whose_time_has_come_begins_one_run() -> None:
    async with alice() as (_, client, scheduler):
        ahead = Ahead(scheduler)
        await create(client, condition="due", tools=["file_read"])
        await client.stub.SetReminder(pb.SetReminderRequest(text="tea", due="in 8 minutes"))
        for _ in range(4):
            await ahead.pass_()
        assert await states(client) == ["idle", "done", "idle"]


@pytest.mark.parametrize(
    ("command", "state"),
    [("make -q", "done"), ("test -s log.txt", "idle"), ("nothing", "unchecked")],
)
async def test_a_command_says_whether_there_is_something_to_do(command: str, state: str) -> None:
    async with alice(approval="ask") as (_, client, scheduler):
        ahead = Ahead(scheduler)
        made = await create(client, condition=f"command {command}", tools=["file_read"])
        assert made.allowed == [f"`{command}` in /shared"]
        await ahead.pass_()
        assert ran == [command]
        assert await states(client) == [state]
        assert bool(asked) is (state == "done")


async def test_a_run_may_do_what_its_schedule_was_made_with_and_never_more() -> None:
    async with alice(approval="ask") as (_, client, scheduler):
        ahead = Ahead(scheduler)
        await create(client, allow=["git pull"], tools=["shell_exec"])
        await ahead.pass_()
        assert ran == ["git pull"]
        grants = (await client.stub.ListGrants(pb.ListGrantsRequest())).grants
        assert [each.text for each in grants] == ["`git pull` in /shared"]
        with pytest.raises(grpc.aio.AioRpcError, match="given when it is made, and never later"):
            await change(client, condition="command git fetch")
        assert (await change(client, condition="command git pull")).condition
        withdrawing = pb.WithdrawGrantRequest(grant_id=grants[0].grant_id)
        assert (await client.stub.WithdrawGrant(withdrawing)).withdrawn
        await ahead.pass_()
        assert ran == ["git pull"]
        assert (await states(client))[0] == "unchecked"
        await create(client, allow=["git pull"], name="other")
        await client.stub.DeleteSchedule(pb.DeleteScheduleRequest(schedule="other"))
        assert not (await client.stub.ListGrants(pb.ListGrantsRequest())).grants


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"allow": ["git pull; rm x"]}, "allow: 'git pull; rm x' cannot be allowed"),
        ({"allow": ["sh -c 'rm x'"]}, "allow: .* cannot be allowed"),
        ({"allow": ["$EDITOR x"]}, "allow: .* cannot be allowed"),
        ({"condition": "soon"}, "condition: 'soon' is not 'changed PATH'"),
        ({"condition": f"changed {'x' * 500}"}, "condition: it must have at most 500"),
        ({"condition": "changed a\0b"}, "condition: it must not hold NUL"),
        ({"condition": "command a | b"}, "condition: 'a | b' cannot be allowed"),
        ({"model": "nobody:x"}, "cannot answer"),
        ({"project": "app"}, "project: 'app' is not open; open are: none"),
        ({"day_usd": -1.0}, "day_usd: it must be from 0 to 1000"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(fields: dict[str, Any], said: str) -> None:
    async with alice(approval="ask") as (_, client, _scheduler):
        with pytest.raises(grpc.aio.AioRpcError, match=said):
            await create(client, **fields)
        assert not (await client.stub.ListSchedules(pb.ListSchedulesRequest())).schedules
        assert not (await client.stub.ListGrants(pb.ListGrantsRequest())).grants


async def test_what_is_changed_is_given_back() -> None:
    async with alice() as (_, client, _scheduler):
        await create(client, tools=["file_read"], day_usd=0.5, condition="due")
        assert (await change(client, name="look")).tools == ["file_read"]
        changed = await change(client, all_tools=True, day_usd=0.0, condition="none")
        assert (list(changed.tools), changed.day_usd, changed.condition) == ([], 0.0, "")


async def test_a_schedule_that_always_has_more_to_do_stays_within_the_cap_of_its_day() -> None:
    price = PriceSettings(input=50.0, output=10.0)
    cap = 0.06
    async with alice(prices={"test-model": price}, max_output_tokens=200) as (
        _,
        client,
        scheduler,
    ):
        ahead = Ahead(scheduler)
        noon = f"Etc/GMT{ahead.now.hour - 12:+d}"  # the hour ends on the same day
        made = await create(
            client,
            when="every 1 minutes",
            day_usd=cap,
            tools=["file_read"],
            time_zone=noon,
        )
        for _ in range(60):
            await ahead.pass_(1)
        spent = (await client.stub.ListSchedules(pb.ListSchedulesRequest())).schedules[0]
        used = (await client.stub.GetUsage(pb.GetUsageRequest())).total.cost_usd
        assert 0 < used <= cap
        assert spent.spent_today_usd == pytest.approx(used)
        assert 1 < len(asked) < 30, used
        assert (await states(client))[0] == "capped"
        told = (await client.stub.ListNotices(pb.ListNoticesRequest(limit=100))).notices
        assert sum("cap" in each.text for each in told) == 1
        with pytest.raises(grpc.aio.AioRpcError, match="the day's cap of"):
            await client.stub.RunSchedule(pb.RunScheduleRequest(schedule=made.schedule_id))


async def test_without_a_price_a_cap_cannot_be_kept_and_nothing_is_sent() -> None:
    async with alice() as (_, client, scheduler):
        ahead = Ahead(scheduler)
        await create(client, day_usd=1.0, tools=["file_read"])
        await ahead.pass_()
        assert asked == []
        (run,) = (
            await client.stub.ListScheduleRuns(pb.ListScheduleRunsRequest(schedule="look"))
        ).runs
        assert "the price of model" in run.told
        assert "; fix: set input and output, in US dollars" in run.told


async def test_a_run_whose_agent_is_stopped_is_left_to_the_next_start() -> None:
    began = asyncio.Event()

    async def hangs(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        began.set()
        async for piece in goes_on(messages, info):
            yield piece

    async with alice(hangs) as (gateways, client, scheduler):
        made = await create(client, tools=["file_read"])
        await client.stub.RunSchedule(pb.RunScheduleRequest(schedule="look"))
        await began.wait()
        await gateways.services["alice"].close()
        (slot,) = await scheduler.schedules.runs(made.schedule_id, 10)
        assert (slot.state, slot.ended) == ("running", "")
