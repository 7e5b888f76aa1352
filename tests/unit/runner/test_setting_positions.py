"""On which line of a file a setting stands."""

import pytest

from runner.config.positions import lines_of

TEXT = '''\
# [memory]
log_level = "debug"  # not = here

[tools]
enabled = [
  # a list
  "memory",
  "files",
]
disabled = ["x"]

  [users . "a.b".agent] # spaces
  instructions = """
[shell]
timeout_s = 5
"""
  budget.day_usd = 1
  prices = {"openai:m" = {input = 1, output = 2}}
[memory]'''


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_each_setting_is_found_where_it_begins(ends: str) -> None:
    assert lines_of(TEXT.replace("\n", ends)) == {
        ("log_level",): 2,
        ("tools", "enabled"): 5,
        ("tools", "disabled"): 10,
        ("users", "a.b", "agent", "instructions"): 13,
        ("users", "a.b", "agent", "budget", "day_usd"): 17,
        ("users", "a.b", "agent", "prices", "openai:m", "input"): 18,
        ("users", "a.b", "agent", "prices", "openai:m", "output"): 18,
    }


def test_a_long_text_takes_no_long_time() -> None:
    """Where a value of many lines was read anew for each, this would take minutes."""
    text = 'instructions = """\n' + "one more line\n" * 20_000 + '"""\nlast = 1\n'
    assert lines_of(text)["last",] == 20_003
