"""`runner schedules`: turns that begin by themselves."""

from typing import Annotated, Any, Final

import typer
from wire.text import dollars, shortened
from wire.v1 import gateway_pb2 as pb
from wire.zones import minute

from runner.cli.agent import ask_agent, set_time
from runner.cli.memory.notes import first_of
from runner.cli.options import AsJson, Options
from runner.cli.output import Shape, lately, one_line, to_the_second

schedules = typer.Typer()

_LISTED_MAX: Final = 10_000
_SHOWN_MAX_CHARS: Final = 300
Named = Annotated[str, typer.Argument(metavar="ID", help="Its id, or its name.")]
_WHEN: Final = (
    "A cron line ('0 7 * * 1-5'), 'every 30 minutes', '2026-12-24 18:00', 'friday 9:00' or "
    "'in 2 hours'."
)
_DOES: Final = "What a run is to do."
Name = Annotated[str | None, typer.Option(help="A few words.")]
Tools = Annotated[
    list[str] | None, typer.Option("--tool", help="Only this tool, and others named so.")
]
Budget = Annotated[float | None, typer.Option(help="The most that a run may cost, in dollars.")]
DayCap = Annotated[
    float | None,
    typer.Option("--day", help="The most that all runs of a day may cost, in dollars."),
]
Zone = Annotated[str | None, typer.Option(help="A time zone; without it the user's.")]
Condition = Annotated[
    str | None,
    typer.Option(
        "--if",
        metavar="CONDITION",
        help="Run only if this is met, which is checked without a model: 'changed PATH', "
        "'command COMMAND' (exit code 0), 'due' (a reminder), or 'none'.",
    ),
]
Model = Annotated[str | None, typer.Option(help="The model of its runs: provider:model.")]
Project = Annotated[str | None, typer.Option(help="The project in which its runs work.")]
Again = Annotated[
    bool | None,
    typer.Option("--again/--not-again", help="Begin a run once more if the agent was killed."),
]
Queue = Annotated[
    bool | None,
    typer.Option("--queue/--skip", help="Wait for the run before, instead of skipping."),
]


def _state(schedule: pb.Schedule) -> str:
    if schedule.running:
        return "running"
    return "paused" if schedule.paused else "" if schedule.next else "ended"


def _when(schedule: pb.Schedule) -> str:
    """When it is due, with its zone where that is not the user's."""
    zone = schedule.time_zone
    elsewhere = any(minute(each, zone) != to_the_second(each)[:16] for each in schedule.next)
    return one_line(f"{schedule.when} ({zone})" if elsewhere else schedule.when)


SCHEDULES: Final = Shape[pb.Schedule](
    {
        "id": lambda each: each.schedule_id,
        "name": lambda each: one_line(each.name),
        "when": _when,
        "next": lambda each: minute(each.next[0], each.time_zone) if each.next else "",
        "": _state,
    },
    "schedule_id name text when time_zone session_id? tools budget_usd day_usd condition? model? "
    "project? allowed again queue paused made_by created_at next running spent_usd spent_month_usd "
    "spent_today_usd",
)
RUNS: Final = Shape[pb.ScheduleRun](
    {
        "due": lambda each: lately(each.slot),
        "state": lambda each: each.state,
        "cost": lambda each: dollars(each.cost_usd),
        "what": lambda each: one_line(
            f"{each.told}: {shortened(each.answer, _SHOWN_MAX_CHARS)}" if each.answer else each.told
        ),
    },
    "slot state told session_id? turn_id? began_at? ended_at? cost_usd calls notes missed reason "
    "answer?",
)
NONE: Final = "there is no schedule; ask the agent for one, or: runner schedules create"


def _show(schedule: pb.Schedule, *, json: bool = False) -> None:
    if json:
        SCHEDULES.show([schedule], json=True)
        return
    zone = schedule.time_zone
    upcoming = ", ".join(minute(each, zone) for each in schedule.next)
    facts = {
        schedule.schedule_id: schedule.name,
        "when": f"{schedule.when} ({zone})",
        "next": upcoming or _state(schedule),
        "does": schedule.text,
        "tools": ", ".join(schedule.tools),
        "cost": f"{dollars(schedule.spent_usd)}, this month {dollars(schedule.spent_month_usd)}",
        "budget": ", ".join(
            f"{dollars(most)} a {each}"
            for each, most in (("run", schedule.budget_usd), ("day", schedule.day_usd))
            if most
        ),
        "only if": schedule.condition,
        "model": schedule.model,
        "project": schedule.project,
        "may": ", ".join(schedule.allowed),
        "if lost": "begun once more" if schedule.again else "",
        "if the one before is on": "waits" if schedule.queue else "",
    }
    for name, value in facts.items():
        if value:
            typer.echo(f"{one_line(name)}: {one_line(value)}")


@schedules.command("list")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the schedules, and when each is due next."""
    options: Options = context.obj
    found, _ = ask_agent(options, lambda agent: first_of(agent.schedules(), _LISTED_MAX))
    SCHEDULES.show(found, json=json, none=options.mended(NONE))


@schedules.command("show")
def show(context: typer.Context, schedule: Named, json: AsJson = False) -> None:
    """Show a schedule, and its next three times."""
    _show(ask_agent(context.obj, lambda agent: agent.find_schedule(schedule)), json=json)


@schedules.command("create")
def create(
    context: typer.Context,
    when: Annotated[str, typer.Argument(help=_WHEN)],
    instructions: Annotated[str, typer.Argument(help=_DOES)],
    name: Name = None,
    tool: Tools = None,
    budget: Budget = None,
    day: DayCap = None,
    zone: Zone = None,
    condition: Condition = None,
    model: Model = None,
    project: Project = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND",
            help="A command that its runs may call without a question, exactly; may be repeated.",
        ),
    ] = None,
    again: Again = None,
    queue: Queue = None,
    json: AsJson = False,
) -> None:
    """Make a schedule: a turn that begins by itself."""
    request = pb.CreateScheduleRequest(**_given(locals()))
    _show(set_time(context.obj, lambda agent: agent.create_schedule(request)), json=json)


@schedules.command("update")
def update(
    context: typer.Context,
    schedule: Named,
    when: Annotated[str | None, typer.Option(help=_WHEN)] = None,
    instructions: Annotated[str | None, typer.Option("--does", help=_DOES)] = None,
    name: Name = None,
    tool: Tools = None,
    all_tools: Annotated[bool, typer.Option("--all-tools", help="Not only some tools.")] = False,
    budget: Budget = None,
    day: DayCap = None,
    zone: Zone = None,
    condition: Condition = None,
    model: Model = None,
    project: Project = None,
    again: Again = None,
    queue: Queue = None,
    json: AsJson = False,
) -> None:
    """Change a schedule; what is left out stays."""
    request = pb.ChangeScheduleRequest(**_given(locals()))
    ask = ask_agent if when is None else set_time
    _show(ask(context.obj, lambda agent: agent.change_schedule(request)), json=json)


_FIELDS: Final = {
    "instructions": "text",
    "tool": "tools",
    "budget": "budget_usd",
    "day": "day_usd",
    "zone": "time_zone",
}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request that the options of a command give."""
    given = {name: value for name, value in options.items() if value is not None}
    return {_FIELDS.get(name, name): given[name] for name in given.keys() - {"context", "json"}}


@schedules.command("pause")
def pause(context: typer.Context, schedule: Named) -> None:
    """Let a schedule begin nothing, until it is resumed."""
    _change(context.obj, schedule, paused=True)


@schedules.command("resume")
def resume(context: typer.Context, schedule: Named) -> None:
    """Let a schedule go on, from now."""
    _change(context.obj, schedule, paused=False)


def _change(options: Options, schedule: str, *, paused: bool) -> None:
    request = pb.ChangeScheduleRequest(schedule=schedule, paused=paused)
    _show(ask_agent(options, lambda agent: agent.change_schedule(request)))


@schedules.command("run")
def run(context: typer.Context, schedule: Named) -> None:
    """Begin a run now, beside its times."""
    begun = ask_agent(context.obj, lambda agent: agent.run_schedule(schedule))
    typer.echo(f"{one_line(begun.turn_id)} {one_line(begun.told)}")


@schedules.command("delete")
def delete(context: typer.Context, schedule: Named) -> None:
    """Delete a schedule with its history, for good."""
    deleted = ask_agent(context.obj, lambda agent: agent.delete_schedule(schedule))
    typer.echo(f"{deleted.schedule_id} is deleted: {one_line(deleted.name)}")


@schedules.command("runs")
def runs(
    context: typer.Context,
    schedule: Named,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=500)] = 20,
    json: AsJson = False,
) -> None:
    """Show what became of its times: the runs with their cost, and those that were missed."""
    request = pb.ListScheduleRunsRequest(schedule=schedule, limit=limit)
    RUNS.show(
        ask_agent(context.obj, lambda agent: agent.schedule_runs(request)),
        json=json,
        none="nothing was due yet",
    )
