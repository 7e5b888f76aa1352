"""No spelling gets a command past the operator's policy; bash itself is the judge."""

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire.settings import ShellSettings

from guest.errors import ToolError
from guest.tools.command_policy import CommandPolicy
from guest.tools.command_words import Parsed, UncertainError, parse
from tests.support.examples import examples
from tests.support.scratch import SCRATCH

NO_RM = CommandPolicy(ShellSettings(deny=("rm *",)))

_SPY = """() { local IFS=$'\\037'; builtin printf '%s\\037\\036' "$*"; } >&9"""
"""Says the words of every command that bash would run, where no program can be found.
In one write: commands in the background speak at the same time."""


@pytest.fixture(scope="module")
def empty() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        yield Path(directory)


def run_by_bash(command: str, directory: Path) -> list[tuple[str, ...]]:
    """The words of the simple commands that bash really runs."""
    seen = directory / "seen"
    seen.write_text("")
    subprocess.run(
        ["/bin/bash", "-c", f"exec 9>>{seen}; PATH=/nowhere; eval {shlex.quote(command)}"],
        env={
            "BASH_FUNC_command_not_found_handle%%": _SPY,
            "LC_ALL": "C.UTF-8",
            "HOME": f"{directory}/h",
        },
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    text = seen.read_bytes().decode(errors="replace")
    for path in directory.iterdir():
        path.unlink()
    return [tuple(run.split("\x1f")[:-1]) for run in text.split("\x1e") if run]


def could_be(words: list[str | None], ran: tuple[str, ...]) -> bool:
    """Whether `ran` is `words` with None filled in."""
    if None not in words:
        return tuple(words) == ran
    known = words.index(None)
    return tuple(words[:known]) == ran[:known]


def saw(parsed: Parsed, ran: tuple[str, ...]) -> bool:
    return any(could_be(simple.words, ran) for simple in parsed.commands if simple.words)


def check_against_bash(command: str, directory: Path) -> None:
    try:
        parsed = parse(command)
    except UncertainError:
        return
    for ran in run_by_bash(command, directory):
        assert parsed.keyword or saw(parsed, ran), (command, ran, parsed)


@examples(200)
@example(command="<&-rm x")
@given(command=st.text(alphabet="rmx \t\n'\"\\$(){};&|<>#=*~-12!", min_size=1, max_size=14))
def test_what_bash_runs_was_seen(empty: Path, command: str) -> None:
    check_against_bash(command, empty)


PIECES = st.sampled_from(
    ["rm", "r''m", "x=1 ", "x", "'", '"', "\\", "$(", ")", "(", ";", "\n", " ", "&&", "|", "> x ",
     "2>&1", "$x", "${x}", "#", "a=(", "`", "<(", "<<x", "$'r'", "{", "}", "! ", "é", "\u00a0"]
)  # fmt: skip


@examples(200)
@given(pieces=st.lists(PIECES, min_size=1, max_size=9))
def test_what_bash_runs_was_seen_in_larger_pieces(empty: Path, pieces: list[str]) -> None:
    check_against_bash("".join(pieces), empty)


def spelled(word: str) -> st.SearchStrategy[str]:
    """`word` as bash reads it, in any mixture of quotes and backslashes."""

    def letter(one: str) -> st.SearchStrategy[str]:
        return st.sampled_from([one, f"\\{one}", f"'{one}'", f'"{one}"', f"''{one}", f'{one}""'])

    return st.tuples(*map(letter, word)).map("".join)


PROGRAM = st.builds(
    lambda place, name: place + name,
    st.sampled_from(["", "/bin/", "/usr/bin/", "/usr/bin/../bin/", "./", "'/bin/'", "/us''r/bin/"]),
    spelled("rm"),
)
AROUND = st.sampled_from(
    [*[(before, "") for before in
       ("", " ", "\t\t", "x=1 ", "PATH=/shared ", "x='a b' y=$z ", "x=$(date) ", "> out ",
        "2>/dev/null ", "echo hi; ", "true && ", "false || ", "ls | ", "sleep 1 & ", "echo\n",
        "# harmless\n", "env ", "env -i x=1 ", "command ", "exec ", "timeout 5 ", "nice -n 3 ",
        "find . -exec ", "xargs ", "busybox ", "sudo -u root ", "eval ")],
     ("(", ")"), ("echo $(", ")"), ('echo "$(', ')"'), ("cat <(", ")"), ("echo $(echo $(", "))")]
)  # fmt: skip


@examples(200)
@given(AROUND, PROGRAM, st.sampled_from(["", " -rf /shared", "\t-rf\t'/shared'", " -rf *"]))
def test_a_denied_program_is_never_run(
    around: tuple[str, str], program: str, arguments: str
) -> None:
    with pytest.raises(ToolError):
        NO_RM.check(around[0] + program + arguments + around[1])


@given(st.sampled_from(["bash -c ", "sh -c ", "eval ", "env bash -lc ", "trap "]), PROGRAM)
def test_nor_by_a_shell_within_the_shell(shell: str, program: str) -> None:
    with pytest.raises(ToolError):
        NO_RM.check(shell + shlex.quote(f"x=1; {program} -rf /shared"))


OPERATORS = st.sampled_from(
    [";", "&&", "||", "|", "|&", "&", "\n", ">", ">>", "<", "2>", "&>", "<<<", "$(x)", "`x`",
     "<(x)", ">(x)", "(x)", '"$(x)"', "<<E\nE\n"]
)  # fmt: skip


@given(st.sampled_from(["echo a", "ls", "x=1 ls", "'a b'"]), OPERATORS, st.sampled_from(["", "b"]))
def test_without_operators_none_passes(before: str, operator: str, after: str) -> None:
    with pytest.raises(ToolError):
        CommandPolicy(ShellSettings(operators=False)).check(f"{before} {operator} {after}")


@given(st.lists(st.text(alphabet="ab ;|&<>()$`'\"\\\n#*é", min_size=1, max_size=6), min_size=1))
def test_quoted_operators_are_words(words: list[str]) -> None:
    command = "echo " + " ".join(map(shlex.quote, words))
    CommandPolicy(ShellSettings(operators=False, allow=("echo *",), deny=("rm *",))).check(command)
    (simple,) = parse(command).commands
    assert simple.words == ["echo", *words]
