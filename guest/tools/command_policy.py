"""The operator's rules for commands: which may run, and whether they may be combined.

This is a guard-rail against accidents, not a boundary. `python3 -c`, `make`, a new script or a
copy of a binary under another name can do what a denied command does, and no parser can tell. The
shell guest decides what a command can reach.

The policy resolves quotes and backslashes, looks past assignments and directories before a
program's name, and checks the commands behind `env`, `xargs`, `bash -c` and the like. It refuses
what it cannot take apart with certainty. Where operators are not permitted, there is no shell that
could read a command in another way: its words are executed.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from posixpath import basename, dirname
from typing import Final

from wire.settings import ShellSettings
from wire.text import shortened

from guest.errors import ToolError
from guest.tools.command_words import (
    Parsed,
    Simple,
    UncertainError,
    Words,
    check_assignments,
    check_evaluation,
    check_script_file,
    check_variable,
    parse,
)

_WILD: Final = re.compile(r"[*?\[]")


class Glob:
    """One pattern.

    `*` matches any text, also an empty one or one with spaces. A pattern that ends in ` *` also
    matches the command without arguments.
    """

    def __init__(self, pattern: str) -> None:
        self._whole = re.compile(translate(pattern))
        self._bare = pattern.endswith(" *")
        self._plain, *wild = _WILD.split(pattern, maxsplit=1)
        self._is_plain = not wild
        self._is_open = pattern.endswith("*")

    def matches(self, text: str) -> bool:
        if self._whole.match(text):
            return True
        return self._bare and self._whole.match(f"{text} ") is not None

    def may_match(self, beginning: str) -> bool:
        """Whether the pattern may match a text with this beginning. It goes by what comes before
        the first wildcard, as if everything could follow there."""
        if self._plain.startswith(beginning):
            return True
        return not self._is_plain and beginning.startswith(self._plain)

    def must_match(self, beginning: str) -> bool:
        """Whether the pattern matches every command that begins with these words."""
        return self._is_open and self.matches(beginning)


@functools.lru_cache(maxsize=1024)
def glob(pattern: str) -> Glob:
    return Glob(pattern)


_SYSTEM: Final = frozenset(
    f"{prefix}/{name}" for prefix in ("", "/usr", "/usr/local") for name in ("bin", "sbin")
)
_HARMLESS: Final = frozenset({"COLUMNS", "LANG", "LINES", "NO_COLOR", "TERM", "TZ"})
"""Variables besides LC_* that do not change what a program does."""
_RUNNERS: Final = frozenset(
    """
    builtin busybox chrt command env exec find flock ionice jobs ltrace nice nohup numactl perf
    prlimit setpriv setsid stdbuf strace taskset time timeout toybox valgrind watch xargs
    """.split()  # noqa: SIM905 - a list of 25 quoted words is harder to read
)
"""Programs that run the command in their arguments."""
_OPAQUE: Final = frozenset(
    """
    at batch capsh chroot doas fakeroot i386 linux32 linux64 newgrp nsenter parallel pkexec proot
    runuser script setarch sg su sudo unshare x86_64
    """.split()  # noqa: SIM905
)
"""Programs that start a shell, or run what they are told elsewhere."""
_SHELLS: Final = frozenset(
    "ash bash csh dash fish ksh ksh93 mksh rbash sh tcsh yash zsh".split()  # noqa: SIM905
)
_READERS: Final = _SHELLS | {"eval", "flock", "mapfile", "readarray", "trap", "watch"}
"""Programs whose arguments may be scripts."""
_RENAMERS: Final = frozenset({"alias", "enable", "hash", "shopt", "unalias"})
"""Builtins after which a name may mean another program."""
_SPLIT_STRING: Final = re.compile(r"-[^-]*S.*|--s.*", re.DOTALL)
_PUT_IN_PLACE: Final = re.compile(r"-[0rtxpo]*I.*|-[0rtxpo]*i.*|--rep.*", re.DOTALL)
_TAKES_A_WORD: Final = re.compile(r"-[0rtxpo]*[adEnLPs]|--(?:arg-file|delimiter|max-\w+)")
_DEPTH_MAX: Final = 4
_ARGUMENTS_MAX: Final = 64
_SHOWN_CHARS: Final = 120
_LISTED: Final = 12


@dataclass(frozen=True)
class CommandPolicy:
    """Checks commands against the `allow`, `deny` and `operators` of `rules`."""

    rules: ShellSettings = field(default_factory=ShellSettings)

    def check(self, command: str) -> None:
        """Raises `ToolError` with the reason if `command` may not run."""
        if not self.rules.allow and not self.rules.deny and self.rules.operators:
            return
        try:
            parsed = parse(command)
            if parsed.operator and not self.rules.operators:
                raise ToolError(
                    "the operator permits one plain command at a time, without pipes, lists, "
                    f"redirections and substitutions; found {parsed.operator}"
                )
            if not self.rules.operators:
                _executable(parsed)
            if not self.rules.allow and not self.rules.deny:
                return
            if parsed.keyword:
                raise UncertainError(f"{parsed.keyword!r}")
            for simple in parsed.commands:
                if self.rules.operators:
                    _check_what_the_shell_evaluates(simple.assignments, simple.words)
                self._check_denied(simple.assignments, simple.words, 0)
                self._check_allowed(simple)
        except UncertainError as uncertain:
            raise ToolError(
                "the operator limits which commands may run, and this one cannot be taken apart "
                f"with certainty because of {uncertain}; write it as plain commands"
            ) from None

    def argv(self, command: str) -> tuple[str, ...]:
        """The program and its arguments to execute without a shell, for a command that `check` has
        let pass; empty if the operator permits a shell."""
        return () if self.rules.operators else _executable(parse(command))

    def _check_allowed(self, simple: Simple) -> None:
        if not self.rules.allow:
            return
        assignments = [
            (name, value)
            for name, value in simple.assignments
            if name not in _HARMLESS and not name.startswith("LC_")
        ]
        if not simple.words and not assignments:
            return
        _must_know_the_program(simple.words)
        words = list(simple.words)
        forms = [words]
        if words and words[0] and dirname(words[0]) in _SYSTEM:
            forms.append([basename(words[0]), *words[1:]])
        for form in forms:
            text, whole = _text(assignments, form)
            for pattern in self.rules.allow:
                covers = glob(pattern).matches if whole else glob(pattern).must_match
                if covers(text):
                    return
        permitted = ", ".join(self.rules.allow[:_LISTED]) + (
            ", …" if len(self.rules.allow) > _LISTED else ""
        )
        raise ToolError(
            f"the operator permits only commands like {permitted}; not permitted: "
            f"{_shown(assignments, words)}"
        )

    def _check_denied(
        self, assignments: Sequence[tuple[str, str | None]], words: Words, depth: int
    ) -> None:
        if not self.rules.deny:
            return
        if depth > _DEPTH_MAX:
            raise UncertainError("commands within commands")
        _must_know_the_program(words, found_by_the_shell=depth == 0)
        if depth:
            _check_what_the_shell_evaluates(assignments, words)
        if words and words[0] and "{}" in words[0]:
            raise UncertainError("a program's name that is put in place of {}")
        for text, whole in _denied_forms(assignments, words):
            for pattern in self.rules.deny:
                if glob(pattern).matches(text):
                    raise ToolError(
                        f"the operator does not permit commands like {pattern}: "
                        f"{_shown(assignments, words)}"
                    )
                if not whole and glob(pattern).may_match(text):
                    raise UncertainError(f"a word that the shell fills in after {text[-40:]!r}")
        if words and words[0]:
            self._check_what_it_runs(basename(words[0]), words[1:], depth + 1)

    def _check_what_it_runs(self, program: str, arguments: Words, depth: int) -> None:
        """Check the commands that `program` would run."""
        if program in _OPAQUE:
            raise UncertainError(f"{program!r}, which may run more than it says")
        if program in _RUNNERS:
            _check_options(program, arguments)
            if len(arguments) > _ARGUMENTS_MAX:
                raise UncertainError(f"so many words after {program!r}")
            fed: Words = [None] if program == "xargs" else []
            for first in range(len(arguments)):
                self._check_denied([], [*arguments[first:], *fed], depth)
        if program in _RENAMERS:
            raise UncertainError(f"{program!r}, which gives names another meaning")
        if program in _READERS:
            scripts = [word for word in arguments if word is not None]
            if len(scripts) < len(arguments):
                raise UncertainError(f"a word that the shell fills in after {program!r}")
            if program in _SHELLS and all(word.startswith("-") for word in scripts):
                raise UncertainError(f"{program}, which reads commands from elsewhere")
            if program in _SHELLS:
                for word in scripts:
                    check_script_file(program, word)
            for script in dict.fromkeys((*scripts, " ".join(scripts))):
                parsed = parse(script)
                if parsed.keyword:
                    raise UncertainError(f"{parsed.keyword!r}")
                for simple in parsed.commands:
                    self._check_denied(simple.assignments, simple.words, depth)


def plain_words(command: str) -> tuple[str, ...]:
    """The words of a command that says all it does; none where it does not: where a shell would
    fill something in or send it elsewhere, where there are several, where it sets a variable, or
    where its program starts another one or is another one by now."""
    try:
        parsed = parse(command)
        words = _executable(parsed)
        _check_what_the_shell_evaluates((), words)
    except (ToolError, UncertainError):
        return ()
    hides = _RUNNERS | _OPAQUE | _READERS | _RENAMERS | {".", "source", "command"}
    if parsed.operator or parsed.keyword or basename(words[0]) in hides:
        return ()
    return words


def _executable(parsed: Parsed) -> tuple[str, ...]:
    """The words of a command that needs no shell. Raises `ToolError` for one that does."""
    needed = ""
    simple = parsed.commands[0] if parsed.commands else Simple()
    words = [word for word in simple.words if word is not None]
    if simple.assignments:
        needed = "an assignment"
    elif len(words) < len(simple.words):
        needed = "a variable or a pattern that a shell would fill in"
    elif not words or not words[0]:
        needed = "no program"
    if needed:
        raise ToolError(
            "the operator permits one plain command at a time, whose words are executed without a "
            f"shell; found {needed}"
        )
    return tuple(words)


def _check_what_the_shell_evaluates(
    assignments: Sequence[tuple[str, str | None]], words: Words
) -> None:
    for name, _ in assignments:
        check_variable(name)
    if words and words[0]:
        check_evaluation(basename(words[0]), words[1:])


def _check_options(program: str, arguments: Words) -> None:
    """Refuse options of runners that hold a command, or a place for one, in one word."""
    if any(word is not None and word.lstrip()[:1] in ("|", "!") for word in arguments):
        raise UncertainError(f"a pipe in a word of {program!r}")
    if program == "env":
        known = [word for word in arguments if word is not None]
        check_assignments(known)
        for option in filter(_SPLIT_STRING.fullmatch, known):
            raise UncertainError(f"'env {option}'")
    elif program == "xargs":
        skipped = False
        for word in arguments:
            if word is None or (not skipped and not word.startswith("-")):
                return
            if not skipped and _PUT_IN_PLACE.fullmatch(word):
                raise UncertainError(f"'xargs {word}'")
            skipped = not skipped and _TAKES_A_WORD.fullmatch(word) is not None


def _must_know_the_program(words: Words, *, found_by_the_shell: bool = True) -> None:
    if not words:
        return
    if words[0] is None:
        raise UncertainError("a program's name that the shell fills in")
    if found_by_the_shell and len(words[0].split()) != 1:
        raise UncertainError("a program's name with spaces or without letters")


def _denied_forms(
    assignments: Sequence[tuple[str, str | None]], words: Words
) -> Iterator[tuple[str, bool]]:
    """Every form of the command that a pattern may match, and whether it is complete."""
    if assignments:
        yield _text(assignments, words)
    if words and words[0]:
        for program in dict.fromkeys((words[0], basename(words[0]))):
            form = [program, *words[1:]]
            yield _text([], form)
            yield _text([], [word for word in form if word != ""])


def _text(assignments: Sequence[tuple[str, str | None]], words: Words) -> tuple[str, bool]:
    """The command up to the first word that the shell expands, and whether that is all of it."""
    known: list[str] = []
    for name, value in assignments:
        if value is None:
            return " ".join(known), False
        known.append(f"{name}={value}")
    for word in words:
        if word is None:
            return " ".join(known), False
        known.append(word)
    return " ".join(known), True


def _shown(assignments: Sequence[tuple[str, str | None]], words: Words) -> str:
    pieces = [f"{name}={value if value is not None else '…'}" for name, value in assignments]
    pieces += ["…" if word is None else word for word in words]
    return shortened(" ".join(" ".join(pieces).split()), _SHOWN_CHARS)
