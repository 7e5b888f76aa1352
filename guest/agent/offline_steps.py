"""The two things the built-in model can do next, and how it asks once and reports failure."""

from dataclasses import dataclass
from typing import Any

from guest.agent.offline_view import Outcome, View


@dataclass(frozen=True)
class Call:
    """Call a tool; the handler is asked again with the result."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Say:
    """Answer the user, which ends the turn."""

    text: str


Step = Call | Say


def call_once(view: View, tool: str, **arguments: Any) -> Call | Outcome:
    """The outcome of `tool` in this turn, or the call that gets it."""
    for outcome in reversed(view.outcomes):
        if outcome.tool == tool:
            return outcome
    return Call(tool, arguments)


def failure(what: str, outcome: Outcome) -> Say:
    """Say that `what` did not happen, in the tool's own words."""
    return Say(f"{what}: {outcome.text}")


def answer(text: str, outcome: Outcome) -> Say:
    """Say `text`, and with it what the tool noted about its result."""
    return Say("\n".join((text, *outcome.notes)))
