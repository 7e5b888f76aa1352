"""`runner audit list|follow|verify|head`: calls of tools, and whether their record was changed."""

import re
from dataclasses import asdict
from typing import Annotated, Final

import typer
from wire.errors import Code

from runner.audit.calls import Call, Calls, Filter
from runner.audit.log import Head, LogLocation
from runner.audit.reading import verify as verified
from runner.cli.options import AsJson, Options
from runner.cli.output import Shape, one_line, print_as_they_come, print_json, to_the_second
from runner.errors import HostError

audit = typer.Typer()

CALLS: Final = Shape[Call](
    {
        "at": lambda call: to_the_second(call.began_at),
        "tool": lambda call: call.tool,
        "outcome": lambda call: call.outcome,
        "ms": lambda call: "" if call.outcome == "running" else str(call.duration_ms),
        "through": lambda call: call.channel,
        "about": lambda call: one_line(call.about or ", ".join(call.notes)),
    }
)
_KNOWN: Final = re.compile(r"([0-9]{1,15}):([0-9a-f]{64})")

Tool = Annotated[str, typer.Option(help="Only calls of this tool.")]
Outcome = Annotated[
    str,
    typer.Option(
        help="Only calls that are or ended so: running, ok, refused, failed, cancelled or "
        "interrupted."
    ),
]
Session = Annotated[str, typer.Option(help="Only calls of this session.")]
Channel = Annotated[str, typer.Option(help="Only calls that came through this channel.")]


@audit.command("list")
def list_(
    context: typer.Context,
    tool: Tool = "",
    outcome: Outcome = "",
    session: Session = "",
    channel: Channel = "",
    since: Annotated[str, typer.Option(help="Only calls since this date and time.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 50,
    json: AsJson = False,
) -> None:
    """List the newest calls of tools, the newest last."""
    options: Options = context.obj
    wanted = Filter(tool=tool, outcome=outcome, session_id=session, channel=channel, since=since)
    found = Calls.locate(options.load(), options.user_id).list(wanted, limit=limit)
    CALLS.show(reversed(found.calls), json=json, none="no such call is recorded")


@audit.command()
def follow(
    context: typer.Context,
    tool: Tool = "",
    outcome: Outcome = "",
    session: Session = "",
    channel: Channel = "",
    json: AsJson = False,
) -> None:
    """Print each call when it begins and when it ends, from now on."""
    options: Options = context.obj
    wanted = Filter(tool=tool, outcome=outcome, session_id=session, channel=channel)
    calls = Calls.locate(options.load(), options.user_id)

    print_as_they_come(CALLS.line(call, json=json) async for call in calls.follow(wanted))


@audit.command()
def verify(
    context: typer.Context,
    known: Annotated[
        str,
        typer.Option(
            "--head",
            metavar="NUMBER:HASH",
            help="What `runner audit head` printed before; it must still be in the log.",
        ),
    ] = "",
    json: AsJson = False,
) -> None:
    """Check that nobody has changed the record of calls since it was written."""
    options: Options = context.obj
    place = LogLocation.locate(options.load(), options.user_id)
    report = verified(place, known=_known(known))
    if json:
        print_json(asdict(report))
    else:
        for finding in report.findings:
            typer.echo(f"changed: {one_line(finding)}")
        none = "no lines" if report.findings else "no lines yet"
        what = f"lines {report.first} to {report.last}" if report.last else none
        state = "NOT as it was written" if report.findings else "as it was written"
        typer.echo(f"the record of {report.user_id} is {state}: {what}")
    if report.findings:
        raise typer.Exit(1)


@audit.command()
def head(context: typer.Context) -> None:
    """Print number and hash of the last line, to be kept elsewhere for `verify --head`."""
    options: Options = context.obj
    place = LogLocation.locate(options.load(), options.user_id)
    place.check()
    try:
        found = Head.read(place.head)
    except (FileNotFoundError, ValueError) as error:
        raise HostError(
            Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.DATA_LOSS,
            f"there is no head of the record of {options.user_id}",
            details=str(error),
            resolution=options.command("audit", "verify"),
        ) from None
    typer.echo(f"{found.last}:{found.hash}")


def _known(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    if (found := _KNOWN.fullmatch(text)) is None:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"bad --head: {text[:40]!r}",
            details="accepted: a number, a colon and 64 hexadecimal digits",
            resolution="runner audit head",
        )
    return int(found[1]), found[2]
