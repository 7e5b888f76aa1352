"""The answer of one check."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from wire.errors import WireError


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It runs, with less than it could have."""
    PROBLEM = "problem"
    """A start fails or is not safe until this is mended."""


@dataclass(frozen=True)
class Finding:
    """What one check found: `name` is what was looked at, `what` a sentence about it,
    `fix` the command or setting that mends it (empty where nothing is to be done)."""

    name: str
    state: State
    what: str
    fix: str = ""

    def as_json(self) -> Mapping[str, str]:
        return {"name": self.name, "state": self.state, "what": self.what, "fix": self.fix}


def ok(name: str, what: str) -> Finding:
    return Finding(name, State.OK, what)


def warning(name: str, what: str, fix: str) -> Finding:
    return Finding(name, State.WARNING, what, fix)


def problem(name: str, what: str, fix: str) -> Finding:
    return Finding(name, State.PROBLEM, what, fix)


def refused(name: str, error: WireError) -> Finding:
    """The finding that a start would be refused with `error`."""
    what = f"{error.brief} ({error.details})" if error.details else error.brief
    return problem(name, what, error.resolution)
