"""`runner doctor`: the findings, on a terminal or as JSON."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from rich.text import Text
from wire.errors import WireError
from wire.v1 import control_pb2

from runner.cli.agent import as_used_last, connect_if_running, start_command
from runner.cli.options import Options
from runner.cli.output import Shape, as_json, plain_console, print_json, to_the_second
from runner.config.models import Config
from runner.doctor.examination import examine
from runner.doctor.finding import Finding, State, problem, refused
from runner.logs import printable

_LOOKS: Final = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "red"}


def _told(each: Finding) -> Text:
    told = Text(printable(each.what))
    return told.append(f"\nfix: {printable(each.fix)}", "bold") if each.fix else told


FINDINGS: Final = Shape[Finding](
    {
        "check": lambda each: each.name,
        "state": lambda each: Text(each.state, style=_LOOKS[each.state]),
        "": _told,
    }
)
CHECKS: Final = Shape[control_pb2.BoundaryCheck](
    {
        "probe": lambda check: printable(check.name),
        "held": lambda check: Text("yes", "green") if check.passed else Text("NO", "red"),
        "": lambda check: printable(check.details),
    }
)


def show_examination(options: Options, *, json: bool) -> int:
    """Print the finding of every check, for the tier in use. Returns 0 if a start can work, else 1.

    The JSON object has `ok` and `findings`, a list of `name`, `state` (`ok`, `warning` or
    `problem`), `what` and `fix`.
    """
    fallback = Config(tier="process") if options.insecure else None

    def load() -> Config:
        with suppress(WireError):  # where it is not known, the check of its directory says why
            return as_used_last(options).load()
        return options.load()

    return _show(options, examine(load, options.user_id, fallback=fallback), json=json)


async def show_boundary(options: Options, *, json: bool) -> int:
    """Let the running host repeat the boundary self-test. Returns 0 if the boundary holds, else 1.

    The JSON object has `ok`, `findings` (what kept the test from running) and `boundary`: `passed`,
    `checked_at` and `checks`, a list of `name`, `passed` and `details`; null if it did not run.
    """
    findings: list[Finding] = []
    report: control_pb2.BoundaryReport | None = None
    try:
        config = options.load()
        if (control := await connect_if_running(config, options.user_id)) is None:
            what = f"no host runs for user {options.user_id}, so there are no guests to probe from"
            findings.append(problem("boundary", what, start_command(options, config)))
        else:
            async with control:
                report = await control.check_boundary()
    except WireError as error:
        findings.append(refused("boundary", error))
    return _show(options, findings, report, json=json)


def _show(
    options: Options,
    findings: Sequence[Finding],
    report: control_pb2.BoundaryReport | None = None,
    *,
    json: bool,
) -> int:
    """Print the report of the self-test or, without one, the findings. Returns the exit code."""
    findings = [replace(each, fix=options.mended(each.fix)) for each in findings]
    bad = any(each.state is State.PROBLEM for each in findings)
    bad = bad or (report is not None and not report.passed)
    if json:
        boundary = None if report is None else as_json(report)
        found = list(map(FINDINGS.as_json, findings))
        print_json({"ok": not bad, "findings": found, "boundary": boundary})
    elif report is None:
        _print(findings)
    else:
        _print_boundary(report)
    return int(bad)


def _print(findings: Sequence[Finding]) -> None:
    FINDINGS.show(findings, json=False)
    counts = []
    for state in (State.PROBLEM, State.WARNING):
        count = sum(each.state is state for each in findings)
        counts.append(f"{count} {state}{'' if count == 1 else 's'}")
    plain_console().print(Text(", ".join(counts)), soft_wrap=True)


def _print_boundary(report: control_pb2.BoundaryReport) -> None:
    CHECKS.show(report.checks, json=False)
    verdict = "the boundary holds" if report.passed else "the boundary does NOT hold"
    checked = to_the_second(report.checked_at)
    plain_console().print(Text(f"{verdict} (checked {checked})"), soft_wrap=True)
