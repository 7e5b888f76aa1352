"""The record of what left and what was refused, on the terminal."""

import sys
from dataclasses import asdict

import typer

from runner.cli.operation.egress.tables import amount
from runner.cli.output import (
    json_line,
    one_line,
    print_as_they_come,
    print_table,
    table_of,
    to_the_second,
)
from runner.egress.log import Request, Requests, Wanted

_HEADINGS = "at", "role", "outcome", "method", "where", "status", "sent", "received", "why"


def show_log(
    requests: Requests, wanted: Wanted, *, limit: int, follow: bool, as_json: bool
) -> None:
    """Print the newest requests that are wanted, and with `follow` each that ends from then on,
    until Ctrl-C. As JSON, each is a line."""
    newest = list(reversed(requests.list(wanted, limit=limit)))
    if as_json:
        for request in newest:
            typer.echo(json_line(asdict(request)))
    elif newest:
        print_table(table_of(*_HEADINGS, rows=map(_row, newest)))
    elif not follow:
        typer.echo("no such request is recorded")
    if not follow:
        return
    sys.stdout.flush()

    print_as_they_come(
        json_line(asdict(request)) if as_json else "  ".join(_row(request))
        async for request in requests.follow(wanted)
    )


def _row(request: Request) -> tuple[str, ...]:
    where = request.place
    if request.upstream:
        where = f"{request.upstream}: {where}"
    return (
        to_the_second(request.at),
        request.role,
        request.outcome,
        request.method,
        one_line(where),
        str(request.status or ""),
        amount(request.sent),
        amount(request.received),
        one_line(request.reason or request.rule),
    )
