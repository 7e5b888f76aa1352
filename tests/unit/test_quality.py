"""Linters, types and architecture are tests: the same checks everywhere."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
OPEN = {"_exit", "_replace"}
"""Names with an underscore that belong to everybody: of `os` and of named tuples."""


def run(*command: str, at: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_lint() -> None:
    run(str(BIN / "ruff"), "check", ".")


def test_format() -> None:
    run(str(BIN / "ruff"), "format", "--check", ".")


@pytest.mark.timeout(600)
def test_types() -> None:
    run(str(BIN / "mypy"))


@pytest.mark.node
def test_types_of_the_console() -> None:
    run("node_modules/.bin/tsc", at=ROOT / "web")


def test_architecture() -> None:
    run(str(BIN / "lint-imports"), "--no-cache")


def test_size() -> None:
    run(sys.executable, "tools/size.py")


PROGRAMS = ("guest", "runner", "shell_daemon", "reader", "proto/wire")


def test_no_program_of_ours_takes_modules_from_the_directory_it_is_started_in() -> None:
    """Another account, or a command, may have put them there."""
    started = [
        (f"{path.relative_to(ROOT)}:{words[0].lineno}", ast.unparse(words[1]))
        for directory in PROGRAMS
        for path in sorted((ROOT / directory).rglob("*.py"))
        for words in lists_of(path.read_text())
        if ast.unparse(words[0]) == "sys.executable"
    ]
    assert len(started) >= 10
    assert [each for each in started if each[1] not in ("'-P'", "'-I'")] == []


def lists_of(code: str) -> Iterator[list[ast.expr]]:
    """All lists, tuples and arguments of calls that hold something."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.List([_, *_] as words) | ast.Tuple([_, *_] as words):
                yield words
            case ast.Call(_, [_, *_] as words):
                yield words


def test_tests_know_nothing_private() -> None:
    """No private name of another module or object; a patch names the object, not its path."""
    known = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in private_names(path.read_text())
    ]
    assert known == []


@pytest.mark.parametrize(
    "code",
    [
        "store._database",
        "self.host._guests",
        "from guest.memory import _clock",
        "monkeypatch.setattr(retention, '_SLICE', 2)",
        "monkeypatch.setattr('guest.memory.clock.now', now)",
        "monkeypatch.setattr(part, now)",
        "mock.patch('time.sleep')",
    ],
)
def test_a_private_name_is_noticed(code: str) -> None:
    assert len(list(private_names(code))) == 1


def test_names_of_ones_own_are_no_private_names() -> None:
    code = "self._place; cls._all; row._replace(a=1); os._exit(3); value.__dict__"
    assert list(private_names(f"{code}; monkeypatch.setattr(time, 'sleep', wait)")) == []


def private_names(code: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(ast.Name("self" | "cls"), _):
                continue
            case ast.Attribute(_, name):
                names = [name]
            case ast.ImportFrom():
                names = [alias.name for alias in node.names]
            case ast.Call(ast.Attribute(_, "setattr"), [ast.Name(), _]):
                names = ["_path"]
            case ast.Call(ast.Attribute(_, "setattr" | "delattr" | "patch" | "object")):
                given = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
                names = [f"_{name}" if "." in name else name for name in given[:1]]
            case _:
                continue
        for name in names:
            if name.startswith("_") and not name.startswith("__") and name not in OPEN:
                yield node.lineno, ast.unparse(node)
