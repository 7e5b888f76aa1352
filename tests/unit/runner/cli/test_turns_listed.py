"""Turns as a person sees them."""

from wire.v1.gateway_pb2 import Turn

from runner.cli.turns import TURNS, tree


def test_sub_agents_stand_behind_the_turn_that_asked_them() -> None:
    newest_first = [
        Turn(turn_id="c2", parent_turn_id="p", text="second"),
        Turn(turn_id="q", text="later"),
        Turn(turn_id="c1", parent_turn_id="p", text="first", tokens=1200, cost_usd=0.004),
        Turn(turn_id="p", text="go"),
        Turn(turn_id="c0", parent_turn_id="gone", text="of an old one"),
        Turn(turn_id="x", parent_turn_id="c1", text="deeper than there is"),
    ]
    shown = tree(newest_first)
    assert [each.turn_id for each in shown] == ["q", "p", "c1", "c2", "c0", "x"]
    assert TURNS.row(shown[2])[3:] == ["1,200 $0.0040", "└ first"]
    assert TURNS.row(shown[1])[3:] == ["", "go"]
