"""`runner logs`: the log of a guest, the embedder or the host."""

import contextlib
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import typer
from wire.errors import Code
from wire.text import parsed_json

from runner.cli.options import Options
from runner.cli.output import discard
from runner.config.models import Config
from runner.errors import HostError
from runner.host.runtime import LastStart, Runtime
from runner.logs import follow as follow_log
from runner.logs import readable
from runner.logs import tail as tail_of
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace

_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def show_log(
    options: Options, role: str, count: int, *, since: str, follow: bool, as_json: bool
) -> None:
    """Print the last `count` lines of a log that are not older than `since`.

    With `follow`, also print every later line.
    """
    path, home = _place(options.load(), options.user_id, role)
    show = json_line if as_json else readable
    lines, offset = tail_of(path, home, count)
    if since:
        lines = _not_older(lines, _moment(since))
    if not lines and not follow:
        typer.echo(f"nothing logged yet: {path}", err=True)
    try:
        for line in lines:
            typer.echo(show(line))
        if follow:
            for line in follow_log(path, home, offset):
                typer.echo(show(line))
    except BrokenPipeError:  # the reader of `| head` is gone
        discard(sys.stdout)


def _place(config: Config, user_id: str, role: str) -> tuple[Path, Path]:
    """The log, and the directory above it that only the runner can replace."""
    runtime = Runtime.locate(config, user_id)
    if role == "host":
        return runtime.log, runtime.directory
    if role == "embedder":
        from runner.host.embedder import EmbedderHome, log_in

        last = LastStart.load(runtime)
        home = last.embedder if last else EmbedderHome.locate(config, runtime.base).path
        return log_in(home), home
    workspace = Workspace.locate(config, user_id)
    return workspace.log(Role(role)), workspace.path


def _moment(text: str) -> datetime:
    if found := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"--since {text!r} is not a time",
            details="accepted: 90s, 15m, 2h, 3d, or a date and time such as 2026-11-20T08:00",
        ) from None


def _not_older(lines: list[str], moment: datetime) -> list[str]:
    """The lines from the first one on whose time is not before `moment`."""
    for index, line in enumerate(lines):
        try:
            if datetime.fromisoformat(parsed_json(line)["time"]) >= moment:
                return lines[index:]
        except (ValueError, KeyError, TypeError):
            continue
    return []


def json_line(line: str) -> str:
    """A line of a log as a JSON object, also if a library printed plain text."""
    content: object = None
    with contextlib.suppress(ValueError):
        content = parsed_json(line)
    if not isinstance(content, dict):
        content = {"message": line}
    written = json.dumps(content, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in written)
