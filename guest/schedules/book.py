"""What people and models do with schedules: make, change, list, pause, run and delete them."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypedDict

from wire import zones
from wire.errors import Code, WireError
from wire.text import shortened
from wire.tools import FAMILIES

from guest.errors import GuestError
from guest.memory.usage import UNITS_PER_DOLLAR
from guest.schedules import timing
from guest.schedules.scheduler import Scheduler
from guest.schedules.store import INSTRUCTIONS_MAX_CHARS, NAME_MAX_CHARS, Schedule, Slot

NOT_IN_RUNS: Final = frozenset((*FAMILIES["schedules"], *FAMILIES["egress"]))
"""Tools that no run has: what begins by itself makes nothing that does, and opens nothing."""
BUDGET_MAX_USD: Final = 1_000.0
CONDITION_MAX_CHARS: Final = 500


class Changes(TypedDict, total=False):
    """What a schedule is to be; what is left out stays as it is. `tools` that are empty: all."""

    when: str
    instructions: str
    name: str
    time_zone: str
    tools: Sequence[str]
    budget_usd: float
    day_usd: float
    again: bool
    queue: bool
    paused: bool
    condition: str
    model: str
    project: str


class Agent(Protocol):
    """What runs the schedules."""

    async def admit(self, schedule: Schedule, allow: Sequence[str]) -> str:
        """Check what only the agent knows of a schedule; returns what its condition sees now."""

    async def allow(self, schedule: Schedule, allow: Sequence[str], channel: str) -> None:
        """Let its runs call these commands, and never more."""

    def forget(self, schedule_id: str) -> None:
        """It is deleted, and with it what it may do."""


class ScheduleBook:
    """The schedules of a user. `offered` are the names of the tools that there are.

    Methods raise `GuestError` INVALID_ARGUMENT, with the name of the field and what is accepted.
    """

    agent: Agent  # the gateway sets it before anything is asked

    def __init__(self, scheduler: Scheduler, offered: Callable[[], Collection[str]]) -> None:
        self.scheduler: Final = scheduler
        self._store = scheduler.schedules
        self.find: Final = self._store.find
        self._offered = offered

    async def create(
        self,
        wanted: Changes,
        *,
        session_id: str = "",
        made_by: str = "user",
        made_in: str = "",
        material: Sequence[str] = (),
        allow: Sequence[str] = (),
        channel: str = "gateway",
    ) -> Schedule:
        """Make a schedule. Of `material`, what the model had read when it made it. `allow` are
        commands that its runs may call without a question, as a person has said in `channel`."""
        blank = Schedule(
            *("", "", "", "", "", ""),
            session_id=session_id,
            made_by=made_by,
            made_in=made_in,
            material=tuple(material),
        )
        name = wanted.get("name") or shortened(wanted["instructions"], NAME_MAX_CHARS - 1)
        wanted = {"time_zone": zones.AUTO, **wanted, "name": name}
        made = self._changed(blank, wanted)
        made = replace(made, seen=await self.agent.admit(made, allow))
        made = await self._store.create(made, self.scheduler.now)
        try:
            await self.agent.allow(made, allow, channel)
        except WireError:
            await self._store.delete(made.schedule_id)
            raise
        self.scheduler.wake()
        return made

    async def change(
        self, named: str, wanted: Changes, *, made_by: str = "user", material: Sequence[str] = ()
    ) -> Schedule:
        """Change a schedule. Instructions are then whose words they are now."""
        before = await self._store.find(named)
        after = self._changed(before, wanted)
        if after.instructions != before.instructions:
            after = replace(after, made_by=made_by, material=tuple(material))
        if {"condition", "model", "project"} & wanted.keys():
            seen = await self.agent.admit(after, ())
            if after.condition != before.condition:
                after = replace(after, seen=seen)
        changed = await self._store.change(before, after, self.scheduler.now)
        self.scheduler.wake()
        return changed

    async def delete(self, named: str) -> Schedule:
        """Delete a schedule; a run that is on goes on."""
        schedule = await self._store.find(named)
        await self._store.delete(schedule.schedule_id)
        self.agent.forget(schedule.schedule_id)
        self.scheduler.wake()
        return schedule

    async def page(self, limit: int, after: str = "") -> list[Schedule]:
        last = await self._store.find(after) if after else None
        return await self._store.page(limit, last)

    async def run(self, named: str) -> Slot:
        return await self.scheduler.run_now(await self.find(named))

    async def runs(self, named: str, limit: int, before: str = "") -> list[Slot]:
        schedule = await self.find(named)
        return await self._store.runs(schedule.schedule_id, limit, before)

    def _changed(self, schedule: Schedule, wanted: Changes) -> Schedule:
        to: dict[str, Any] = {
            name: wanted[name]
            for name in ("again", "queue", "paused", "model", "project")
            if name in wanted
        }
        zone = schedule.zone
        if named := wanted.get("time_zone"):
            with _naming("time_zone"):
                zones.zone(named)
            own = zones.own_name(os.environ) or "UTC"
            zone = to["zone"] = own if named == zones.AUTO else named
        if "when" in wanted or zone != schedule.zone:
            now = self.scheduler.now
            with _naming("when"):
                to["timing"] = timing.parse(wanted.get("when", schedule.timing), zone, now).text
            to["starts"] = timing.stored(now.replace(microsecond=0))
        if "instructions" in wanted:
            to["instructions"] = _length(
                "instructions", wanted["instructions"], INSTRUCTIONS_MAX_CHARS
            )
        if "name" in wanted:
            to["name"] = " ".join(_length("name", wanted["name"], NAME_MAX_CHARS).split())
        if "tools" in wanted:
            known = sorted(set(self._offered()) - NOT_IN_RUNS)
            if strange := [each for each in wanted["tools"] if each not in known]:
                raise bad("tools", f"{strange[0]!r:.80} is not one of {', '.join(known)}")
            to["tools"] = tuple(dict.fromkeys(wanted["tools"]))
        if "budget_usd" in wanted:
            to["budget"] = _amount("budget_usd", wanted["budget_usd"])
        if "day_usd" in wanted:
            to["day_budget"] = _amount("day_usd", wanted["day_usd"])
        if "condition" in wanted:
            to["condition"] = _condition(wanted["condition"])
        return replace(schedule, **to, capped=False)


CONDITIONS: Final = (
    "'changed PATH' (since the last run), 'command COMMAND' (it ends with exit code 0), 'due' (a "
    "reminder's time has come), or 'none'"
)


def _condition(text: str) -> str:
    if len(text) > CONDITION_MAX_CHARS or "\0" in text:
        raise bad("condition", f"it must have at most {CONDITION_MAX_CHARS} characters")
    kind, _, what = " ".join(text.split(maxsplit=1)).partition(" ")
    what = what.strip()
    if kind in ("", "none") and not what:
        return ""
    if kind not in ("changed", "command", "due") or (kind == "due") is bool(what):
        raise bad("condition", f"{text!r:.80} is not {CONDITIONS}")
    return f"{kind} {what}".strip()


def _amount(field: str, dollars: float) -> int:
    if not 0 <= dollars <= BUDGET_MAX_USD:
        raise bad(field, f"it must be from 0 to {BUDGET_MAX_USD:g}")
    return round(dollars * UNITS_PER_DOLLAR)


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """What is refused in the block is refused for this field."""
    try:
        yield
    except ValueError as error:
        raise bad(field, str(error)) from None


def _length(field: str, text: str, most: int) -> str:
    if not text.strip() or len(text) > most or "\0" in text:
        raise bad(field, f"it must have 1 to {most:,} characters, and not be blank")
    return text.strip()


def bad(field: str, why: str) -> GuestError:
    return GuestError(Code.INVALID_ARGUMENT, f"{field}: {why}")
