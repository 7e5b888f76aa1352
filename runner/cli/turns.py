"""`runner turns`: what runs and what has run lately, with the sub-agents of each turn below it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from wire.text import dollars
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent
from runner.cli.options import Options
from runner.cli.output import Shape, brief_session, lately, one_line

_Turn = gateway_pb2.Turn


def tree(turns: Iterable[_Turn]) -> list[_Turn]:
    """The turns in their order, each with its sub-agents behind it, the first one first."""
    turns = list(turns)
    tops = {turn.turn_id for turn in turns if not turn.parent_turn_id}
    below: defaultdict[str, list[_Turn]] = defaultdict(list)
    for turn in turns:
        below[turn.parent_turn_id if turn.parent_turn_id in tops else ""].append(turn)
    return [each for top in below[""] for each in (top, *reversed(below.get(top.turn_id, ())))]


def took(turn: _Turn) -> str:
    """What the turn's own requests took."""
    cost = f" {dollars(round(turn.cost_usd, 6))}" if turn.cost_usd else ""
    return f"{turn.tokens:,}{cost}" if turn.tokens else ""


def asked(turn: _Turn) -> str:
    """What was asked, and behind a mark if a turn has asked it."""
    return ("└ " if turn.parent_turn_id else "") + one_line(turn.text)


TURNS: Final = Shape[_Turn](
    {
        "session": lambda turn: brief_session(turn.session_id),
        "state": lambda turn: turn.state,
        "began": lambda turn: lately(turn.started_at),
        "tokens": took,
        "message": asked,
    },
    "turn_id session_id state text channel model started_at ended_at? parent_session_id? "
    "parent_turn_id? schedule_id? slot? cost_usd? tokens?",
)


def show_turns(options: Options, session_id: str, *, json: bool) -> None:
    listed: Sequence[_Turn] = ask_agent(options, lambda agent: agent.list_turns(session_id))
    TURNS.show(tree(listed), json=json, none="no turns yet")
