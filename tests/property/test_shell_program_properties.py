"""A command that runs without a shell does what the shell would have done with it."""

import os
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shell_daemon import program
from shell_daemon.limits import PATH
from shell_daemon.program import Program, Programs

PROGRAMS = Programs()
ENVIRONMENT = {"PATH": PATH, "HOME": "/tmp"}
SHELL = PROGRAMS.find("exit", ()).file

words = st.text(st.sampled_from(string.ascii_letters + string.digits + "_@%+:,./=-"), min_size=1)
texts = st.one_of(
    st.lists(words, min_size=1, max_size=6).map(" ".join),
    st.text(string.printable, min_size=1, max_size=30),
)


def words_for_a_shell(text: str, directory: Path) -> list[str]:
    """The words that bash makes of `text` after the name of a command."""
    asked = subprocess.run(
        [SHELL, "-c", f"printf '%s\\0' {text}"], env=ENVIRONMENT, cwd=directory, capture_output=True
    )
    assert (asked.returncode, asked.stderr) == (0, b"")
    return asked.stdout.decode().split("\0")[:-1]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where patterns and tildes would find something."""
    made = tmp_path_factory.mktemp("cwd")
    for name in ("a", "b", "ab", "-x", "=a"):
        (made / name).touch()
    return made


@given(text=texts)
@example(text="~ ~root")
@example(text="a[b] {a,b} * ?")
@example(text="PATH=~:~ --home=~")
@example(text="a  b   c")
@example(text="#a")
def test_its_words_are_those_of_the_shell(directory: Path, text: str) -> None:
    found = PROGRAMS.find(f"env {text}", ())
    if found.argv[0] == SHELL:
        return
    assert list(found.argv) == ["env", *words_for_a_shell(text, directory)]


@given(text=texts)
def test_what_needs_a_shell_gets_it_whole(text: str) -> None:
    found = PROGRAMS.find(text, ())
    shell = subprocess.run(
        [SHELL, "-c", 'type -t -- "$1"', "sh", text.split(" ")[0]],
        env=ENVIRONMENT,
        capture_output=True,
    )
    if shell.stdout != b"file\n":
        assert found == Program(SHELL, (SHELL, "-c", text))


@pytest.mark.parametrize(
    "text",
    [
        *("true", "cd /tmp", "exec ls", "time ls", "! ls", "if", "echo a", "[ a ]", "umask"),
        *("A=1 ls", "A=1", "ls;", "ls&", "ls|cat", "ls>a", "ls\nls", "ls\tls", "", " ls", "ls "),
        *("./run", "bin/run", "../ls", "no-such-program", "$HOME", "'ls'", 'ls "a"', "l\\s"),
        *("ls *", "ls ?", "ls [a]", "ls ~", "ls {a,b}", "ls #a", "ls !a", "ls ^a", "ls `a`"),
    ],
)
def test_all_else_goes_to_the_shell(text: str) -> None:
    found = PROGRAMS.find(text, ())
    assert (found.file, tuple(found.argv)) == (SHELL, (SHELL, "-c", text))


@pytest.mark.parametrize("text", ["ls", "ls -la --color=never /shared", "/bin/ls a:b,c@d%e+f.g_h"])
def test_plain_words_do_not(text: str) -> None:
    found = PROGRAMS.find(text, ())
    assert found.file.endswith("/ls")
    assert list(found.argv) == text.split()


def test_a_script_without_a_first_line_goes_to_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare").write_text("echo from a script\n")
    (tmp_path / "full").write_text("#!/bin/sh\necho from a script\n")
    for script in tmp_path.iterdir():
        script.chmod(0o755)
    monkeypatch.setattr(program, "PATH", f"{tmp_path}:{PATH}")
    assert PROGRAMS.find("bare", ()).file == SHELL
    assert PROGRAMS.find("full", ()) == Program(str(tmp_path / "full"), ["full"])


@pytest.mark.timeout(20)
def test_nothing_is_waited_for(tmp_path: Path) -> None:
    """The daemon serves all commands from one thread, and any of them can make such a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o777)
    assert PROGRAMS.find(str(tmp_path / "pipe"), ()).file == SHELL


def test_a_command_with_variables_of_its_own_gets_a_shell() -> None:
    assert PROGRAMS.find("ls", (), variables=True) == Program(SHELL, (SHELL, "-c", "ls"))
    assert PROGRAMS.find("", ("ls",), variables=True).file.endswith("/ls")
