"""Schedules behind the gateway, and the turns that are their runs."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Account
from guest.agent.turn import Origin, TurnRequest
from guest.gateway import convert
from guest.gateway.turns.registry import Turn
from guest.gateway.validation import largest_page
from guest.memory.usage import UNITS_PER_DOLLAR
from guest.schedules.book import NOT_IN_RUNS, Changes, ScheduleBook
from guest.schedules.scheduler import NOTHING, SILENT, Ran, receipt
from guest.schedules.store import Schedule, Slot
from guest.schedules.timing import stored
from guest.tools.base import ToolContext
from guest.tools.pipeline import ToolPipeline

CHANNEL: Final = "schedule"
_PAGE: Final = 50
_UPCOMING: Final = 3
_TOLD: Final = (
    "in the schedule {name!r}, which begins by itself: nobody is there to answer questions, and "
    f"your answer is told to the user later; if there is nothing to tell, answer {NOTHING} alone"
)

StartInside = Callable[..., Awaitable[Turn]]
CreateSession = Callable[[pb.CreateSessionRequest], Awaitable[pb.Session]]


@dataclass
class ScheduledTurns:
    """Runs slots as turns. `start` begins a turn inside the agent, `create` a session."""

    pipeline: ToolPipeline
    start: StartInside
    create: CreateSession

    async def __call__(self, schedule: Schedule, slot: Slot) -> Ran:
        """Run a slot to its end. Raises `WireError`."""
        if not schedule.session_id:
            await self.create(
                pb.CreateSessionRequest(
                    session_id=slot.session_id,
                    title=f"{schedule.name}, {slot.slot[:16].replace('T', ' ')}",
                    channel=CHANNEL,
                    parent_session_id=schedule.made_in,
                )
            )
        names = schedule.tools or (each.name for each in self.pipeline.tools())
        request = TurnRequest(
            ToolContext("", slot.session_id, slot.turn_id, CHANNEL, time_zone=schedule.zone),
            schedule.instructions,
            remark=_TOLD.format(name=schedule.name),
            origin=Origin("schedule", schedule_id=schedule.schedule_id, slot=slot.slot),
            tools=frozenset(names) - NOT_IN_RUNS,
            account=Account({"usd": schedule.budget} if schedule.budget else None),
            sources=() if schedule.made_by == "user" else (f"schedule {schedule.name}",),
        )
        turn = await self.start(request)
        assert turn.task is not None
        await asyncio.wait([turn.task])
        return await _ran(turn)


async def _ran(turn: Turn) -> Ran:
    outcome: Any = turn.outcome
    ended = outcome.so_far if isinstance(outcome, pb.TurnIncomplete) else outcome
    failed = not isinstance(outcome, pb.TurnCompleted)
    events = [each async for each in turn.events.follow()]
    kept = [each for each in ended.receipts if (each.action, each.outcome) == ("saved", "done")]
    return Ran(
        failed=failed,
        text=outcome.message if failed else outcome.text,
        cost=turn.request.account.of("usd"),
        calls=sum(each.HasField("tool_started") for each in events),
        notes=len(kept),
    )


@dataclass
class SchedulesOfUser:
    """The RPCs about schedules."""

    book: ScheduleBook

    async def list(self, request: pb.ListSchedulesRequest) -> pb.ListSchedulesReply:
        if request.schedule:
            found = await self.book.find(request.schedule)
            return pb.ListSchedulesReply(schedules=[self._message(found)])

        async def page(limit: int) -> pb.ListSchedulesReply:
            several = await self.book.page(limit + 1, request.after)
            listed = several[:limit]
            after = listed[-1].schedule_id if len(several) > limit else ""
            return pb.ListSchedulesReply(schedules=map(self._message, listed), after=after)

        return await largest_page(request.limit or _PAGE, page)

    async def create(self, request: pb.CreateScheduleRequest) -> pb.Schedule:
        made = await self.book.create(_wanted(request), session_id=request.session_id)
        return self._message(made)

    async def change(self, request: pb.ChangeScheduleRequest) -> pb.Schedule:
        wanted = _wanted(request)
        if request.all_tools:
            wanted["tools"] = ()
        return self._message(await self.book.change(request.schedule, wanted))

    async def delete(self, request: pb.DeleteScheduleRequest) -> pb.DeleteScheduleReply:
        deleted = replace(await self.book.delete(request.schedule), due="")
        return pb.DeleteScheduleReply(schedule=self._message(deleted))

    async def run(self, request: pb.RunScheduleRequest) -> pb.ScheduleRun:
        schedule, slot = await self.book.run(request.schedule)
        return _run(slot, schedule)

    async def runs(self, request: pb.ListScheduleRunsRequest) -> pb.ListScheduleRunsReply:
        limit = request.limit or _PAGE
        schedule, found = await self.book.runs(request.schedule, limit, request.before)
        answers = await self.book.answers(found)
        runs = [_run(each, schedule, answers.get(each.turn_id, "")) for each in found]
        return pb.ListScheduleRunsReply(runs=runs)

    def _message(self, schedule: Schedule) -> pb.Schedule:
        costs = schedule.costs(self.book.scheduler.now)
        spent, month, today = (each / UNITS_PER_DOLLAR for each in costs)
        return convert.message(
            pb.Schedule,
            schedule,
            text=schedule.instructions,
            when=schedule.timing,
            time_zone=schedule.zone,
            budget_usd=schedule.budget / UNITS_PER_DOLLAR,
            day_usd=schedule.day_budget / UNITS_PER_DOLLAR,
            next=[stored(slot) for slot in schedule.upcoming(_UPCOMING)],
            running=self.book.scheduler.is_running(schedule.schedule_id),
            spent_usd=spent,
            spent_month_usd=month,
            spent_today_usd=today,
        )


def _wanted(request: pb.CreateScheduleRequest | pb.ChangeScheduleRequest) -> Changes:
    """What a request gives; where absence cannot be told, what is not empty."""
    given = {field.name: value for field, value in request.ListFields()}
    given["instructions"] = given.pop("text", None)
    names = Changes.__annotations__
    return cast(Changes, {name: given[name] for name in names if given.get(name) is not None})


def _run(slot: Slot, schedule: Schedule, answer: str = "") -> pb.ScheduleRun:
    return convert.message(
        pb.ScheduleRun,
        slot,
        told=receipt(slot, schedule.zone),
        began_at=slot.began if slot.state != "missed" else "",
        ended_at=slot.ended,
        cost_usd=slot.cost / UNITS_PER_DOLLAR,
        reason=slot.detail,
        answer="" if slot.told == SILENT else answer,
    )
