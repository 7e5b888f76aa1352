"""`runner doctor`: the findings, on a terminal or as JSON."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.text import Text
from wire.errors import WireError
from wire.v1 import control_pb2

from runner.cli.options import Options
from runner.cli.output import plain_console, print_json, print_table, table_of
from runner.cli.shapes import as_json
from runner.config.models import Config
from runner.doctor.examination import examine
from runner.doctor.finding import Finding, State, problem, refused
from runner.host.control import connect_control
from runner.logs import printable

_LOOKS: Final = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "red"}
_PROBLEM: Final = 1


def show_examination(options: Options, *, json: bool) -> int:
    """Print the finding of every check. Returns 0 if a start can work, else 1.

    The JSON object has `ok` and `findings`, a list of `name`, `state` (`ok`, `warning` or
    `problem`), `what` and `fix`.
    """
    fallback = Config(tier="process") if options.insecure else None
    findings = examine(options.load, options.user_id, fallback=fallback)
    if json:
        _print_json(findings)
    else:
        _print(findings)
    return _code(findings)


async def show_boundary(options: Options, *, json: bool) -> int:
    """Let the running host repeat the boundary self-test. Returns 0 if the boundary holds, else 1.

    The JSON object has `ok`, `findings` (what kept the test from running) and `boundary`: `passed`,
    `checked_at` and `checks`, a list of `name`, `passed` and `details`; null if it did not run.
    """
    findings: list[Finding] = []
    report: control_pb2.BoundaryReport | None = None
    try:
        control = await connect_control(options.load(), options.user_id)
        if control is None:
            findings.append(_no_host(options))
        else:
            async with control:
                report = await control.check_boundary()
    except WireError as error:
        findings.append(refused("boundary", error))
    if json:
        _print_json(findings, report)
    elif report is None:
        _print(findings)
    else:
        _print_boundary(report)
    return _code(findings) if report is None or report.passed else _PROBLEM


def _no_host(options: Options) -> Finding:
    return problem(
        "boundary",
        f"no host runs for user {options.user_id}, so there is no shell guest to probe from",
        options.command("start", "--detach", insecure=options.insecure),
    )


def _code(findings: Sequence[Finding]) -> int:
    return _PROBLEM if any(each.state is State.PROBLEM for each in findings) else 0


def _print_json(
    findings: Sequence[Finding], report: control_pb2.BoundaryReport | None = None
) -> None:
    held = report is None or report.passed
    print_json(
        {
            "ok": held and not _code(findings),
            "findings": [each.as_json() for each in findings],
            "boundary": None if report is None else as_json(report),
        }
    )


def _print(findings: Sequence[Finding]) -> None:
    console = plain_console()
    table = table_of("check", "state", "")
    for each in findings:
        told = Text(printable(each.what))
        if each.fix:
            told.append(f"\nfix: {printable(each.fix)}", style="bold")
        table.add_row(each.name, Text(each.state, style=_LOOKS[each.state]), told)
    print_table(table)
    count = {state: sum(each.state is state for each in findings) for state in State}
    console.print(
        Text(f"{_counted(count, State.PROBLEM)}, {_counted(count, State.WARNING)}"), soft_wrap=True
    )


def _counted(count: Mapping[State, int], state: State) -> str:
    return f"{count[state]} {state}{'' if count[state] == 1 else 's'}"


def _print_boundary(report: control_pb2.BoundaryReport) -> None:
    console = plain_console()
    table = table_of("probe", "held", "")
    for check in report.checks:
        held = Text("yes", style="green") if check.passed else Text("NO", style="red")
        table.add_row(printable(check.name), held, Text(printable(check.details)))
    print_table(table)
    verdict = "the boundary holds" if report.passed else "the boundary does NOT hold"
    console.print(Text(f"{verdict} (checked {report.checked_at})"), soft_wrap=True)
