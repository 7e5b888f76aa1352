"""`runner status`, and the summary that a start prints."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import typer
from rich.text import Text
from wire.boundary import KERNEL_OF_HOST
from wire.v1 import control_pb2

from runner.cli.agent import connect_if_running
from runner.cli.memory.output import memory_line
from runner.cli.options import Options
from runner.cli.output import Shape, as_json, plain_console, print_json, to_the_second
from runner.cli.projects import line_of
from runner.config.models import Config
from runner.host.awake import Due, described, waker_of
from runner.logs import printable
from runner.workspace.workspace import Workspace

if TYPE_CHECKING:
    from runner.host.host import Host

NOT_RUNNING = 3
DOWN: Final = ("failed", "backing_off")
"""States in which a guest does not run. One that is unhealthy has only missed an answer."""
_COLOURS = {"ready": "green", "starting": "yellow", "disabled": "dim"}


async def show_status(options: Options, *, json: bool) -> int:
    """Print the state of the host and its guests. Returns 0 if a host runs and its guests do, 1 if
    one of them does not or the boundary does not hold, 3 if no host runs.

    The JSON object has `running`, `user` and `workspace`. If none runs, it also has `next_due`,
    `started_by`, who starts it for that, and `problem`, why that failed last. If a host runs, it
    also has `tier`, `pid`, `started_at`, `version`, `provider`, `notices` and `guests`, a list of
    `role`, `state`, `pid`, `restarts`, `reason`, `since`, `details`, `resident_bytes` and
    `last_end`. `boundary` is null without a shell guest, else `passed`, `checked_at` and `checks`,
    a list of `name`, `passed` and `details`. `kernel` says whose kernel guests run on, `projects`
    what is open. `memory` is null if the agent does not answer at once, else what `runner memory
    stats --json` prints.
    """
    config = options.load()
    if (control := await connect_if_running(config, options.user_id)) is None:
        workspace = Workspace.locate(config, options.user_id)
        if json:
            content = {"running": False, "user": options.user_id, "workspace": str(workspace.path)}
            print_json(content | described(config, options.user_id))
        else:
            typer.echo(f"not running: user {options.user_id}, workspace {workspace.path}")
            if told := when_due(options, config):
                typer.echo(printable(told))
        return NOT_RUNNING
    async with control:
        reply = await control.status()
    if json:
        print_json({"running": True, "user": reply.user_id, **as_json(reply)})
    else:
        _print_table(reply, options)
    broken = reply.HasField("boundary") and not reply.boundary.passed
    return int(broken or any(guest.state in DOWN for guest in reply.guests))


def when_due(options: Options, config: Config) -> str:
    """When a stopped agent is needed next, and who starts it then; empty if nothing is due."""
    if (due := Due.load(config, options.user_id)) is None:
        return ""
    who = waker_of(config)
    starts = f"{who} starts the agent for it"
    if not who:
        starts = f"nobody starts the agent for it; {options.command('serve')} would"
    is_due = "due next" if due.at > datetime.now(UTC) else "due since"
    told = f"{is_due}: {to_the_second(due.at.isoformat())}; {starts}"
    if due.problem:
        again = to_the_second(due.again_at.isoformat())
        told += f"; start {due.attempts} failed, the next is tried at {again}: {due.problem}"
    return told


def show_summary(host: "Host", options: Options, notices: Sequence[str]) -> None:
    """Print a few lines about a host that has just started in this terminal."""
    from importlib.metadata import version

    embedder = host.config.embedder
    model = f", {embedder.model}" if embedder.backend == "sentence-transformers" else ""
    lines = [
        f"Oxydra {version('oxydra')} is ready ({host.tier} tier)",
        f"  user       {host.user_id}",
        f"  workspace  {host.workspace.path}",
        *([f"  kernel     {host.kernel}"] if _is_own(host.kernel) else []),
        f"  provider   {host.provider}",
        f"  embedder   {embedder.backend}{model}",
        f"  shell      {'none: ' + host.no_shell if host.no_shell else 'ready, boundary proven'}",
        f"  chat       {options.command('chat')}",
        f"  stop       Ctrl-C here, or {options.command('stop')}",
        *(f"note: {options.mended(notice)}" for notice in notices),
    ]
    typer.echo(printable("\n".join(lines)))


def _is_own(kernel: str) -> bool:
    return kernel not in ("", KERNEL_OF_HOST)


def _boundary_line(report: control_pb2.BoundaryReport) -> Text:
    held = sum(check.passed for check in report.checks)
    if report.passed:
        words = f"boundary: held by all {held} probes, {_ago(report.checked_at)} ago"
        return Text(words, style="green")
    hits = "; ".join(f"{each.name}: {each.details}" for each in report.checks if not each.passed)
    return Text(printable(f"boundary: BROKEN: {hits}"), style="red")


def _print_table(reply: control_pb2.StatusReply, options: Options) -> None:
    console = plain_console()
    for guest in reply.guests:
        guest.reason = options.mended(guest.reason)
    console.print(
        Text(
            f"Oxydra {reply.version} · user {reply.user_id} · {reply.tier} tier · "
            f"{printable(reply.provider)} · pid {reply.pid}, up {_ago(reply.started_at)}\n"
            f"{reply.workspace}"
        ),
        soft_wrap=True,
    )
    GUESTS.show(reply.guests, json=False)
    for project in reply.projects:
        console.print(Text(f"project: {line_of(project)}"), soft_wrap=True)
    memory = memory_line(reply.memory) if reply.HasField("memory") else "did not answer"
    console.print(Text(printable(f"memory: {memory}")), soft_wrap=True)
    if reply.HasField("boundary"):
        console.print(_boundary_line(reply.boundary), soft_wrap=True)
    if _is_own(reply.kernel):
        console.print(Text(printable(f"kernel: {reply.kernel}")), soft_wrap=True)
    for notice in reply.notices:
        console.print(Text(f"note: {printable(options.mended(notice))}"))


def _remarks(guest: control_pb2.GuestStatus) -> str:
    again = f"started again: {guest.last_end}" if guest.last_end and not guest.reason else ""
    return printable(" · ".join(filter(None, (guest.reason, guest.details, again))))


GUESTS: Final = Shape[control_pb2.GuestStatus](
    {
        "guest": lambda guest: guest.role,
        "state": lambda guest: Text(guest.state, style=_COLOURS.get(guest.state, "red")),
        "for": lambda guest: _ago(guest.since),
        "pid": lambda guest: str(guest.pid or ""),
        "restarts": lambda guest: str(guest.restarts or ""),
        "memory": lambda guest: (
            f"{guest.resident_bytes / 2**20:.0f} MiB" if guest.resident_bytes else ""
        ),
        "": lambda guest: Text(_remarks(guest)),
    }
)


def _ago(moment: str) -> str:
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
    except (ValueError, TypeError):
        return ""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"
