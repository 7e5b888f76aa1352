"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum

from wire.errors import WireError


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, with restrictions."""
    PROBLEM = "problem"
    """Until this is fixed, a start fails or is unsafe."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: `name` is what was checked, `what` a sentence about it, `fix` the
    command or setting that helps (empty if nothing needs to be done)."""

    name: str
    state: State
    what: str
    fix: str = ""


def ok(name: str, what: str) -> Finding:
    return Finding(name, State.OK, what)


def warning(name: str, what: str, fix: str) -> Finding:
    return Finding(name, State.WARNING, what, fix)


def problem(name: str, what: str, fix: str) -> Finding:
    return Finding(name, State.PROBLEM, what, fix)


def refused(name: str, error: WireError) -> Finding:
    """The finding for an `error` with which a start would be refused."""
    what = f"{error.brief} ({error.details})" if error.details else error.brief
    return problem(name, what, error.resolution)
