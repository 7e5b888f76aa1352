"""Changes of single settings in a configuration file."""

import stat
from pathlib import Path

import pytest
from wire.errors import Code, WireError

from runner.workspace.configuration_file import change_file, edited

FILE = """\
# ours
tier = "container" # why

[agent] # who
# the one that we like
model = "x"   # good
[users.alice.agent]
model = "a"
[tools]
disabled = [ # these
  "shell",
]
[users."carol".tools]
approval = "ask"
# the end
"""


def test_values_change_and_everything_else_stays() -> None:
    changes = {
        ("agent", "model"): "y",
        ("agent", "budget", "day_usd"): 2.0,
        ("users", "alice", "tools", "approval"): "ask",
        ("users", "bob", "agent", "model"): "b",
    }
    after = edited(FILE, changes)
    assert set(FILE.splitlines()) - set(after.splitlines()) == {'model = "x"   # good'}
    assert 'model = "y"   # good' in after
    assert "[agent.budget]\nday_usd = 2.0" in after
    assert '[users.bob.agent]\nmodel = "b"' in after
    assert edited(after, {("agent", "model"): "y"}) == after


def test_a_setting_or_a_table_is_removed_and_one_that_is_not_there_is_no_trouble() -> None:
    after = edited(FILE, {("users", "alice"): None, ("users", "dora", "tools", "approval"): None})
    assert "alice" not in after
    assert "dora" not in after
    assert '[users."carol".tools]\napproval = "ask"' in after


@pytest.mark.parametrize("text", ["", 'agent.model = "x"\n', "[agent]\r\nmodel = 'x'\r\n"])
def test_any_way_of_writing_a_table_is_understood(text: str) -> None:
    after = edited(text, {("tier",): "process", ("agent", "model"): "y"})
    assert edited(after, {("tier",): None, ("agent",): None}).strip() == ""


@pytest.mark.parametrize("text", ["agent = {model = 'x'}", "agent = 5", "no toml"])
def test_what_cannot_be_changed_alone_is_refused(text: str) -> None:
    with pytest.raises(WireError) as caught:
        edited(text, {("agent", "budget", "day_usd"): 1.0})
    assert "agent.budget.day_usd" in caught.value.brief
    assert "runner config edit" in caught.value.resolution


def test_a_file_keeps_its_mode_and_is_begun_with_a_word_on_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "new" / "runner.toml"
    change_file(file, {("agent", "model"): "x"}, lambda _: None)
    assert file.read_text().startswith("# Settings of Oxydra")
    file.chmod(0o640)
    change_file(file, {("agent", "model"): "y"}, lambda _: None)
    assert 'model = "y"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_settings_that_are_refused_or_a_file_that_has_changed_leave_it_as_it_is(
    tmp_path: Path,
) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(FILE)

    def refuse(_: str) -> None:
        raise WireError(Code.INVALID_ARGUMENT, "bad setting")

    with pytest.raises(WireError, match="bad setting"):
        change_file(file, {("agent", "model"): 5}, refuse)
    assert file.read_text() == FILE

    with pytest.raises(WireError) as caught:
        change_file(file, {("agent", "model"): "z"}, lambda _: file.write_text("# theirs"))
    assert caught.value.code is Code.CONFLICT
    assert file.read_text() == "# theirs"
