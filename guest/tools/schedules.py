"""Tools with which the model makes work begin by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, ClassVar, Final, cast

from pydantic import Field
from wire.errors import Code
from wire.zones import local

from guest.errors import GuestError, ToolError
from guest.memory.usage import UNITS_PER_DOLLAR
from guest.schedules.book import CONDITIONS, Changes, ScheduleBook
from guest.schedules.scheduler import receipt
from guest.schedules.store import INSTRUCTIONS_MAX_CHARS, NAME_MAX_CHARS, Schedule
from guest.schedules.timing import WHEN_MAX_CHARS, stored
from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput

_TIMEOUT_S: Final = 15.0
_UPCOMING: Final = 3
_WHEN: Final = (
    "In the time zone of the user, or of the schedule: a cron line ('0 7 * * 1-5'), "
    "'every 30 minutes', '2026-12-24 18:00' or 'in 2 hours'."
)
_INSTRUCTIONS: Final = "What the run is to do; it knows nothing of this conversation."
_TOOLS: Final = "The only tools of its runs; none named: all."
_BUDGET: Final = "The most that one run may cost, in US dollars; 0: no limit of its own."
_DAY: Final = "The most that all its runs of a day may cost, in US dollars; 0: no limit."
_CONDITION: Final = f"Checked first, without a model; a run begins only if it is met: {CONDITIONS}."
_MODEL: Final = "Of its runs, 'provider:model'; empty: the configured one."
_ALLOW: Final = (
    "Commands that its runs may call without a question, each exactly; the user is asked for all "
    "of them now, and never again."
)
_COMMAND_MAX_CHARS: Final = 300
_AGAIN: Final = "Begin a run once more if the agent was killed during it."


class ScheduleArguments(Arguments):
    """What both making and changing a schedule take; what is None is left out."""

    name: str | None = Field(default=None, max_length=NAME_MAX_CHARS, description="A few words.")
    tools: list[str] | None = Field(default=None, max_length=100, description=_TOOLS)
    budget_usd: float | None = Field(default=None, description=_BUDGET)
    day_usd: float | None = Field(default=None, description=_DAY)
    again: bool | None = Field(default=None, description=_AGAIN)
    condition: str | None = Field(default=None, description=_CONDITION)
    model: str | None = Field(default=None, max_length=200, description=_MODEL)

    def changes(self) -> Changes:
        return cast(
            Changes, self.model_dump(exclude_none=True, exclude={"schedule", "here", "allow"})
        )


class CreateArguments(ScheduleArguments):
    telling: ClassVar[str] = "when"

    when: str = Field(min_length=1, max_length=WHEN_MAX_CHARS, description=_WHEN)
    instructions: str = Field(
        min_length=1, max_length=INSTRUCTIONS_MAX_CHARS, description=_INSTRUCTIONS
    )
    here: bool = Field(default=False, description="Run in this session, not in new ones.")
    allow: list[Annotated[str, Field(max_length=_COMMAND_MAX_CHARS)]] = Field(
        default=[], max_length=20, description=_ALLOW
    )


class NamedArguments(Arguments):
    schedule: str = Field(min_length=1, max_length=NAME_MAX_CHARS, description="Its id or name.")


class UpdateArguments(ScheduleArguments, NamedArguments):
    telling: ClassVar[str] = "schedule"

    when: str | None = Field(default=None, max_length=WHEN_MAX_CHARS, description=_WHEN)
    instructions: str | None = Field(default=None, max_length=INSTRUCTIONS_MAX_CHARS)
    paused: bool | None = Field(default=None, description="true stops it, false lets it go on.")


class ListArguments(Arguments):
    after: str = Field(default="", max_length=64, description="The last id seen.")


class RunsArguments(NamedArguments):
    telling: ClassVar[str] = "schedule"

    limit: int = Field(default=10, ge=1, le=50)


_LISTED: Final = 20


def schedule_tools(book: ScheduleBook) -> list[Tool]:
    tools = _ScheduleTools(book)
    changes = partial(Tool, safety=Safety.PRIVILEGED, timeout=_TIMEOUT_S)
    reads = partial(Tool, safety=Safety.READ_ONLY, timeout=_TIMEOUT_S)
    return [
        changes(
            name="schedule_create",
            description="Schedule work that begins by itself, once or again and again, as a turn "
            "of its own whose answer is told to the user: 'every weekday at 7 look at …', 'in an "
            "hour check …'. Say in the instructions when nothing is to be told. Tell the user "
            "when it runs next, and what the notes of the answer say.",
            arguments=CreateArguments,
            run=tools.create,
            asks=_asks,
        ),
        reads(
            name="schedule_list",
            description="List the user's schedules with their ids and when each runs next.",
            arguments=ListArguments,
            run=tools.page,
        ),
        changes(
            name="schedule_update",
            description="Change, pause or resume a schedule; what is left out stays.",
            arguments=UpdateArguments,
            run=tools.update,
        ),
        changes(
            name="schedule_delete",
            description="Delete a schedule with its history, for good.",
            arguments=NamedArguments,
            run=tools.delete,
        ),
        reads(
            name="schedule_runs",
            description="Tell what became of a schedule's runs, the newest first: when, cost, "
            "tools, notes, or why there was none.",
            arguments=RunsArguments,
            run=tools.runs,
        ),
    ]


class _ScheduleTools:
    def __init__(self, book: ScheduleBook) -> None:
        self._book = book

    async def create(self, context: ToolContext, given: CreateArguments) -> ToolOutput:
        if given.allow and context.reply is None:
            raise ToolError("allow: only a conversation can ask the user for it; leave it out")
        wanted = given.changes()
        if context.time_zone:
            wanted["time_zone"] = context.time_zone
        if context.project:
            wanted["project"] = context.project
        with _refusing():
            made = await self._book.create(
                wanted,
                session_id=context.session_id if given.here else "",
                made_by="agent",
                made_in=context.session_id,
                material=context.material,
                allow=given.allow,
                channel=context.channel,
            )
        return ToolOutput(_shown(made), summary=f"Scheduled: {made.schedule_id}")

    async def update(self, context: ToolContext, given: UpdateArguments) -> ToolOutput:
        with _refusing():
            changed = await self._book.change(
                given.schedule, given.changes(), made_by="agent", material=context.material
            )
        return ToolOutput(_shown(changed), summary=f"Changed: {changed.schedule_id}")

    async def page(self, context: ToolContext, given: ListArguments) -> ToolOutput:  # noqa: ARG002
        with _refusing():
            found = await self._book.page(_LISTED, given.after)
        return ToolOutput({"schedules": [_shown(each) for each in found]}, count=len(found))

    async def delete(self, context: ToolContext, given: NamedArguments) -> ToolOutput:  # noqa: ARG002
        with _refusing():
            deleted = await self._book.delete(given.schedule)
        return ToolOutput({"deleted": deleted.schedule_id}, summary=f"Deleted: {deleted.name}")

    async def runs(self, context: ToolContext, given: RunsArguments) -> ToolOutput:  # noqa: ARG002
        with _refusing():
            found = await self._book.runs(given.schedule, given.limit)
        told = [{"told": receipt(each), "turn": each.turn_id} for each in found]
        return ToolOutput({"runs": told}, count=len(told))


async def _asks(context: ToolContext, given: CreateArguments) -> dict[str, str]:  # noqa: ARG001
    """What a schedule may do is asked for, whatever the operator's settings."""
    return {"allow": ""} if given.allow else {}


def _shown(schedule: Schedule) -> dict[str, Any]:
    upcoming = [local(stored(each), schedule.zone) for each in schedule.upcoming(_UPCOMING)]
    shown: dict[str, Any] = {
        "id": schedule.schedule_id,
        "name": schedule.name,
        "when": schedule.when,
        "time_zone": schedule.zone,
        "next": [each.replace(".000000", "") for each in upcoming],
        "instructions": schedule.instructions,
    }
    more = {
        "tools": list(schedule.tools),
        "budget_usd": schedule.budget / UNITS_PER_DOLLAR,
        "day_usd": schedule.day_budget / UNITS_PER_DOLLAR,
        "condition": schedule.condition,
        "model": schedule.model,
        "project": schedule.project,
        "paused": schedule.paused,
    }
    return shown | {name: value for name, value in more.items() if value}


@contextmanager
def _refusing() -> Iterator[None]:
    """What the model can mend is said to it."""
    try:
        yield
    except GuestError as error:
        mendable = (
            *(Code.INVALID_ARGUMENT, Code.NOT_FOUND),
            *(Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION),
        )
        if error.code not in mendable:
            raise
        hint = f"; {error.resolution}" if error.resolution else ""
        raise ToolError(f"{error.brief}{hint}") from None
