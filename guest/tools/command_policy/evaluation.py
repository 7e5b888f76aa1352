"""Commands in the words of bash's builtins: names, variables and files that are read as commands.

A subscript (`test -v 'a[$(x)]'`) is expanded when the builtin looks the name up, a variable such as
PS4 when bash uses it, and a file such as /dev/stdin holds what nobody has seen. All of these are
refused, whatever would be run.
"""

import re
from collections.abc import Sequence
from posixpath import basename
from typing import Final

from guest.tools.command_policy.words import UncertainError

_EXECUTED: Final = re.compile(
    r"(?:BASH_ENV|BASH_FUNC_.*|BASH_LOADABLES_PATH|BASHOPTS|ENV|PROMPT_COMMAND|PS[0-4]|SHELLOPTS)"
)
"""Variables whose text bash runs, or that change what it reads as a command."""
_ASSIGNED: Final = re.compile(r"([^=\[+]*)\+?(?:\[.*)?=", re.DOTALL)

_DECLARING: Final = frozenset({"declare", "export", "local", "readonly", "typeset"})
_NAMING: Final = _DECLARING | {"getopts", "mapfile", "read", "readarray", "unset", "wait"}
"""Builtins whose words are names of variables."""
_TESTING: Final = frozenset({"[", "test"})
_NAME_TESTS: Final = frozenset({"-v", "-R"})
_SOURCING: Final = frozenset({".", "source"})
_ALWAYS: Final = frozenset({"bind", "compgen", "complete", "fc", "history", "let"})
"""Builtins that evaluate every argument, or run what was said elsewhere."""
_PLAIN_DECLARATION: Final = re.compile(r"[-+][fFglprux]+|--")
_STREAM: Final = re.compile(r"-|(?:.*/)?(?:stdin|fd/[0-9]+)|/dev/.*|/proc/.*", re.DOTALL)

Words = Sequence[str | None]


def check_variable(name: str) -> None:
    """Raises `UncertainError` for a variable whose text bash would run."""
    if _EXECUTED.fullmatch(name):
        raise UncertainError(f"the variable {name}, whose text the shell runs")


def check_assignments(words: Sequence[str]) -> None:
    """The same for words that may assign variables (`export`, `env`)."""
    for word in words:
        if assigned := _ASSIGNED.match(word):
            check_variable(assigned[1])


def check_script_file(program: str, word: str) -> None:
    """Raises `UncertainError` if a shell would read commands from a stream."""
    if _STREAM.fullmatch(word):
        raise UncertainError(f"{program}, which reads commands from {word}")


def check_evaluation(program: str, arguments: Words) -> None:
    """Raises `UncertainError` if `program` is a builtin that would run a part of its arguments, or
    sets a variable whose text would be run."""
    known = [word for word in arguments if word is not None]
    if program in _NAMING:
        check_assignments(known)
    filled_in = len(known) < len(arguments)
    if program in _ALWAYS:
        raise UncertainError(f"{program!r}, which evaluates its arguments")
    if program == "printf":
        _check_printf(arguments)
    elif program in _TESTING:
        names = any(word in _NAME_TESTS for word in known)
        if filled_in or (names and any("[" in word for word in known)):
            raise _evaluated(program)
    elif program in _NAMING:
        if filled_in or any("[" in word for word in known):
            raise _evaluated(program)
        for word in known:
            check_variable(word)
        if program in _DECLARING:
            _check_declaration(program, known)
        elif program in ("mapfile", "readarray") and any(
            word.startswith("-") and "C" in word for word in known
        ):
            raise UncertainError(f"{program!r} with a command of its own")
    elif program in _SOURCING:
        if filled_in or not known:
            raise UncertainError(f"a file for {program!r} that the shell fills in")
        for word in known:
            check_script_file(program, word)
    elif program == "set" and any(
        word == "keyword" or (word[:1] in "-+" and "k" in word) for word in known
    ):
        raise UncertainError("'set -k', after which every word may be an assignment")


def _check_printf(arguments: Words) -> None:
    first = arguments[0] if arguments else ""
    if first is None:
        raise _evaluated("printf")
    if first.startswith("-v"):
        name = first[2:] or (arguments[1] if len(arguments) > 1 else "")
        if name is None or "[" in name:
            raise _evaluated("printf")
        check_variable(name)


def _check_declaration(program: str, words: Sequence[str]) -> None:
    for word in words:
        if word.startswith(("-", "+")) and not _PLAIN_DECLARATION.fullmatch(word):
            raise UncertainError(f"'{program} {word}'")
        if "=(" in word:
            raise _evaluated(program)


def _evaluated(program: str) -> UncertainError:
    return UncertainError(f"words of {basename(program)!r} that the shell evaluates once more")
