"""The result of one check."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import ParamSpec

from wire.errors import WireError

_P = ParamSpec("_P")


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


def check(name: str) -> Callable[[Callable[_P, str | Finding]], Callable[_P, Finding]]:
    """Make a check of a function: a text that it returns is well, an error a problem."""

    def checking(look: Callable[_P, str | Finding]) -> Callable[_P, Finding]:
        @wraps(look)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> Finding:
            try:
                found = look(*args, **kwargs)
            except WireError as error:
                return refused(name, error)
            except OSError as error:
                where = error.filename or ""
                fix = f"ls -ld {where}; make it accessible"
                return problem(name, f"{error.strerror}: {where}", fix)
            return ok(name, found) if isinstance(found, str) else found

        return checked

    return checking
