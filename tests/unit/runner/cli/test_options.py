"""Where global options may stand on a command line."""

import pytest

from runner.cli.options import options_first


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("chat --user alice", "--user alice chat"),
        (
            "--tier container start --detach --user=alice",
            "--tier container --user=alice start --detach",
        ),
        ("start --insecure --log-level debug", "--insecure --log-level debug start"),
        ("--user bob logs --role shell --tail 3", "--user bob logs --role shell --tail 3"),
        ("images build --role agent", "images build --role agent"),
        ("chat --session plans --user", "chat --session plans --user"),
        ("chat -- --user alice", "chat -- --user alice"),
        ("", ""),
    ],
)
def test_global_options_may_stand_behind_the_command(given: str, understood: str) -> None:
    assert options_first(given.split()) == understood.split()
