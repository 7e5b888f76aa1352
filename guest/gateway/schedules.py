"""Schedules behind the gateway, and the turns that are their runs."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Account
from guest.agent.failures import INTERRUPTED
from guest.agent.turn import Origin, TurnRequest
from guest.errors import GuestError, ToolError
from guest.gateway import convert
from guest.gateway.turns.registry import Turn
from guest.gateway.validation import largest_page
from guest.memory.usage import UNITS_PER_DOLLAR
from guest.notices.reminders import Reminders
from guest.schedules import timing
from guest.schedules.book import NOT_IN_RUNS, Changes, ScheduleBook, bad
from guest.schedules.scheduler import NOTHING, SILENT, Ran, reason, receipt, took
from guest.schedules.store import Schedule, Slot
from guest.schedules.timing import stored
from guest.tools.base import Offer, ToolContext
from guest.tools.files.roots import Roots
from guest.tools.grants import Grants
from guest.tools.grants import schedule as _scope
from guest.tools.pipeline import ToolPipeline
from guest.watch import CallReporter

CHANNEL: Final = "schedule"
COMMANDS: Final = "shell_exec"
_NOT_RUN: Final = 126
"""From this exit code on a shell says that it could not run a command, or that it was killed."""
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
    """Runs slots as turns, and checks their conditions. `start` begins a turn inside the agent,
    `create` a session; `resolve` raises `GuestError` for a model that there is not."""

    pipeline: ToolPipeline
    start: StartInside
    create: CreateSession
    resolve: Callable[[str], Awaitable[str]]
    roots: Roots
    reminders: Reminders
    user_id: str
    now: Callable[[], datetime]
    witness: CallReporter

    async def __call__(self, schedule: Schedule, slot: Slot) -> Ran:
        """Run a slot to its end. Raises `WireError`."""
        if not schedule.session_id:
            await self.create(
                pb.CreateSessionRequest(
                    session_id=slot.session_id,
                    title=f"{schedule.name}, {slot.slot[:16].replace('T', ' ')}",
                    channel=CHANNEL,
                    parent_session_id=schedule.made_in,
                    project=schedule.project,
                )
            )
        left = schedule.left(self.now())
        names = schedule.tools or (each.name for each in self.pipeline.tools())
        request = TurnRequest(
            ToolContext("", slot.session_id, slot.turn_id, CHANNEL, time_zone=schedule.zone),
            schedule.instructions,
            schedule.model,
            remark=_TOLD.format(name=schedule.name),
            origin=Origin("schedule", schedule_id=schedule.schedule_id, slot=slot.slot),
            tools=frozenset(names) - NOT_IN_RUNS,
            account=Account(None if left is None else {"usd": max(0, left - slot.cost)}),
            sources=() if schedule.made_by == "user" else (f"schedule {schedule.name}",),
        )
        ran, began = Ran(failed=True, text="cancelled"), time.monotonic()
        record = self.witness.recording(
            tool="schedule",
            safety="side_effecting",
            session_id=slot.session_id,
            turn_id=slot.turn_id,
            channel=CHANNEL,
            actor="automatic",
            must_be_recorded=True,
        )
        await record.begin(f"{schedule.schedule_id} {slot.slot}")
        try:
            turn = await self.start(request)
            assert turn.task is not None
            await asyncio.wait([turn.task])
            ran = await _ran(turn)
            if schedule.day_budget:  # sub-agents that go on may spend nothing that is not counted
                request.account.limits = {"usd": ran.cost}
        finally:
            record.receipt = took(ran)
            milliseconds = round((time.monotonic() - began) * 1000)
            record.end("failed" if ran.failed else "ok", milliseconds)
        of_day = schedule.day_budget and left != schedule.budget
        return replace(ran, capped=bool(of_day and request.account.reached))

    async def look(self, schedule: Schedule) -> tuple[bool, str]:
        """Whether its condition is met, and what it has seen. Raises `WireError`."""
        kind, _, what = schedule.condition.partition(" ")
        if kind == "due":
            now = stored(self.now())
            due = await self.reminders.next_due(timing.read(schedule.seen or schedule.starts))
            return "" < due <= now, now
        if kind == "changed":
            try:
                seen = await asyncio.to_thread(self.roots.mark, what, schedule.project)
            except (ToolError, OSError) as error:
                raise bad("condition", str(error)) from None
            return seen != schedule.seen, seen
        result = await self.pipeline.call(
            ToolContext(
                *(self.user_id, "", "", CHANNEL),
                time_zone=schedule.zone,
                project=schedule.project,
                schedule=schedule.schedule_id,
            ),
            COMMANDS,
            {"command": what},
        )
        ended = json.loads(result.data_json or "{}")
        code = ended.get("exit_code", -1)
        if result.is_error or ended.get("timed_out") or not 0 <= code < _NOT_RUN:
            why = "timed out" if ended.get("timed_out") else f"exit code {code}"
            raise bad("condition", f"`{what:.80}`: {result.summary if result.is_error else why}")
        return code == 0, ""

    async def admit(self, schedule: Schedule, allow: Sequence[str]) -> str:
        """Check model, project, condition and commands; returns what the condition sees now."""
        if schedule.model:
            await self.resolve(schedule.model)
        if (project := schedule.project) and project not in self.pipeline.paths.by_name:
            there = ", ".join(self.pipeline.paths.by_name) or "none"
            raise bad("project", f"{project!r:.80} is not open; open are: {there}")
        offered = self._offered(schedule, allow)
        if schedule.schedule_id and offered:
            given = {each.mark for each in self.pipeline.grants.list(_scope(schedule.schedule_id))}
            if not given.issuperset(each.mark for each in offered):
                raise GuestError(
                    Code.FAILED_PRECONDITION,
                    "condition: what a schedule may do is given when it is made, and never later",
                    resolution="make it anew: runner schedules create",
                )
        looks = schedule.condition and not schedule.condition.startswith("command")
        return (await self.look(schedule))[1] if looks else ""

    async def allow(self, schedule: Schedule, allow: Sequence[str], channel: str) -> None:
        if offered := self._offered(schedule, allow):
            scope = _scope(schedule.schedule_id)
            await self.pipeline.grants.give(scope, offered, channel=channel, seal=True)

    def forget(self, schedule_id: str) -> None:
        self.pipeline.grants.drop(_scope(schedule_id))

    def _offered(self, schedule: Schedule, allow: Sequence[str]) -> list[Offer]:
        """What allows these commands, and that of the condition where one is asked for."""
        kind, _, what = schedule.condition.partition(" ")
        checks = kind == "command" and (allow or self.pipeline.asks(COMMANDS))
        try:
            wanted = [*allow, what] if checks else allow
            return [self.pipeline.offer(each, schedule.project) for each in wanted]
        except ToolError as error:
            raise bad("allow" if allow else "condition", str(error)) from None


async def _ran(turn: Turn) -> Ran:
    outcome: Any = turn.outcome
    ended = outcome.so_far if isinstance(outcome, pb.TurnIncomplete) else outcome
    failed = not isinstance(outcome, pb.TurnCompleted)
    events = [each async for each in turn.events.follow()]
    kept = [each for each in ended.receipts if (each.action, each.outcome) == ("saved", "done")]
    return Ran(
        failed=failed,
        text=reason(outcome.message, outcome.resolution) if failed else outcome.text,
        cost=turn.request.account.of("usd"),
        calls=sum(each.HasField("tool_started") for each in events),
        notes=len(kept),
        interrupted=getattr(outcome, "code", "") == INTERRUPTED,
    )


@dataclass
class SchedulesOfUser:
    book: ScheduleBook
    grants: Grants

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
        made = await self.book.create(
            _wanted(request), session_id=request.session_id, allow=request.allow
        )
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
        return _run(await self.book.run(request.schedule))

    async def runs(self, request: pb.ListScheduleRunsRequest) -> pb.ListScheduleRunsReply:
        limit = request.limit or _PAGE
        found = await self.book.runs(request.schedule, limit, request.before)
        answers = await self.book.scheduler.schedules.answers(found)
        runs = [_run(each, answers.get(each.turn_id, "")) for each in found]
        return pb.ListScheduleRunsReply(runs=runs)

    def _message(self, schedule: Schedule) -> pb.Schedule:
        costs = schedule.costs(self.book.scheduler.now)
        spent, month, today = (each / UNITS_PER_DOLLAR for each in costs)
        return convert.message(
            pb.Schedule,
            schedule,
            text=schedule.instructions,
            when=schedule.when,
            time_zone=schedule.zone,
            budget_usd=schedule.budget / UNITS_PER_DOLLAR,
            day_usd=schedule.day_budget / UNITS_PER_DOLLAR,
            allowed=[each.text for each in self.grants.list(_scope(schedule.schedule_id))],
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


def _run(slot: Slot, answer: str = "") -> pb.ScheduleRun:
    return convert.message(
        pb.ScheduleRun,
        slot,
        told=receipt(slot),
        began_at=slot.began if slot.state != "missed" else "",
        ended_at=slot.ended,
        cost_usd=slot.cost / UNITS_PER_DOLLAR,
        reason=slot.detail,
        answer="" if slot.told == SILENT else answer,
    )
