"""Asking before something that cannot be taken back."""

import sys

import typer
from wire.errors import Code, WireError


def confirm(question: str, *, what: str, command: str) -> None:
    """Return only where a person on the terminal says yes.

    `what` is what would be done ("forget these notes"), `command` does it without
    asking. Raises `WireError`: FAILED_PRECONDITION without a terminal, CANCELLED for a no,
    for Ctrl-C and where the input ends.
    """
    if not sys.stdin.isatty():
        raise WireError(
            Code.FAILED_PRECONDITION,
            f"nobody can be asked whether to {what}",
            details="standard input is no terminal",
            resolution=command,
        )
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        agreed = False
    if not agreed:
        raise WireError(Code.CANCELLED, "nothing was changed")
