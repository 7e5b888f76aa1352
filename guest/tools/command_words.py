"""Parses a shell command into simple commands, or refuses it; it never guesses.

It knows the part of bash's grammar in which quotes, operators and substitutions have one meaning,
and raises `UncertainError` for everything else. The property tests compare it with bash.

Words of builtins can be commands too: a subscript (`test -v 'a[$(x)]'`) is expanded when the
builtin looks the name up, a variable such as PS4 when bash uses it, and a file such as /dev/stdin
holds what nobody has seen. All of these are refused, whatever would be run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import basename
from typing import Final

_BLANK: Final = " \t"
_ENDS: Final = ";&|\n"
_BREAKS: Final = " \t\n;&|()<>"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_SUBSCRIPT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_VARIABLE: Final = re.compile(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}|[0-9@*#?$!-])"
)
_DEPTH_MAX: Final = 16
_KEYWORDS: Final = frozenset(
    """
    ! [[ ]] { } case coproc do done elif else esac fi for function if in select then time
    until while
    """.split()  # noqa: SIM905 - a list of 22 quoted words is harder to read
)


class UncertainError(Exception):
    """The command may have more than one meaning; the message names the construct."""


@dataclass
class Simple:
    """One simple command: the assignments before it, and its words without quotes.

    None is a word that the shell expands, possibly to no word or to several. Redirections are
    left out.
    """

    assignments: list[tuple[str, str | None]] = field(default_factory=list)
    words: list[str | None] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.assignments and not self.words


@dataclass
class Parsed:
    """All simple commands of a text, including those in substitutions and subshells.

    `operator` is the first operator, `keyword` the first reserved word of a compound command.
    """

    commands: list[Simple] = field(default_factory=list)
    operator: str = ""
    keyword: str = ""


def parse(command: str) -> Parsed:
    """Parse `command`; raises `UncertainError`."""
    if _CONTROL.search(command):
        raise UncertainError("a control character")
    parser = _Parser(command)
    parser.read(nested=False)
    return parser.parsed


class _Parser:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        self.parsed = Parsed()
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self, *, nested: bool) -> None:
        """Read commands up to the end of the text or, if `nested`, past a closing bracket."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise UncertainError("brackets that are nested too deeply")
        command = Simple()
        while letter := self._peek():
            if letter in _BLANK:
                self._at += 1
            elif letter == "#":
                self._skip_comment()
            elif letter in _ENDS:
                self._end_command(letter)
                self._finish(command)
                command = Simple()
            elif letter == "(":
                self._subshell(command)
            elif letter == ")":
                break
            elif letter in "<>" and self._peek(1) != "(":
                self._redirection()
            else:
                self._next_word(command)
        self._finish(command)
        if bool(letter) != nested:
            raise UncertainError("a bracket without its partner")
        self._at += nested
        self._depth -= 1

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _found(self, operator: str) -> None:
        self.parsed.operator = self.parsed.operator or operator

    def _finish(self, command: Simple) -> None:
        if command.empty:
            return
        if command.words and command.words[0] in _KEYWORDS:
            self.parsed.keyword = self.parsed.keyword or str(command.words[0])
        self.parsed.commands.append(command)

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _end_command(self, letter: str) -> None:
        if letter == "&" and self._peek(1) == ">":
            raise UncertainError("&>, which shells read differently; write > FILE 2>&1")
        self._found("a line break" if letter == "\n" else letter)
        self._at += 1

    def _subshell(self, command: Simple) -> None:
        if not command.empty or self._peek(1) == "(":
            raise UncertainError("brackets of a function, a list or arithmetic")
        self._found("(")
        self._at += 1
        self.read(nested=True)

    def _redirection(self) -> None:
        operator = self._peek()
        if operator + self._peek(1) == "<<":
            self._found("<<")
            raise UncertainError("a here-document or here-string")
        self._found(operator)
        self._at += 1
        if operator + self._peek() in (">>", ">&", ">|", "<&", "<>"):
            self._at += 1
        if self._text[: self._at].endswith("&") and self._peek() == "-":
            self._at += 1  # `>&-` closes the descriptor; no file follows
            return
        while self._peek() and self._peek() in _BLANK:
            self._at += 1
        start = self._at
        self._word()
        if self._at == start:
            raise UncertainError("a redirection without its file")

    def _next_word(self, command: Simple) -> None:
        start = self._at
        word = self._word()
        raw, after = self._text[start : self._at], self._peek()
        if after == "(":
            raise UncertainError("brackets of a function, a list or a pattern")
        if after and after in "<>":
            if raw.isascii() and raw.isdigit():
                return
            if raw.startswith("{"):
                raise UncertainError("a redirection with a name")
        if not command.words and _SUBSCRIPT.match(raw):
            raise UncertainError("an assignment to a part of a list")
        if not command.words and (assigned := _ASSIGNMENT.match(raw)):
            value = None if word is None else word[assigned.end() :]
            command.assignments.append((assigned[1], value))
        else:
            command.words.append(word)

    def _word(self) -> str | None:
        """The next word without its quotes; None if the shell expands it."""
        start = self._at
        pieces: list[str] = []
        known = True
        while letter := self._peek():
            if letter in "<>" and self._peek(1) == "(":
                self._substitution(letter)
                known = False
            elif letter in _BREAKS:
                break
            elif letter == "'":
                pieces.append(self._single_quoted())
            elif letter == '"':
                known &= self._double_quoted(pieces)
            elif letter == "\\":
                pieces.append(self._escaped())
            elif letter == "$":
                known &= self._dollar(pieces, quoted=False)
            elif letter == "`":
                self._backtick()
            else:
                known &= letter not in "*?[{~"
                pieces.append(letter)
                self._at += 1
        literal = self._text[start : self._at]
        return "".join(pieces) if known or literal in ("[", "{", "{}") else None

    def _escaped(self) -> str:
        letter = self._peek(1)
        if letter in ("", "\n"):
            raise UncertainError("a line that goes on after a backslash")
        self._at += 2
        return letter

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise UncertainError("a quote without its partner")
        quoted, self._at = self._text[self._at + 1 : end], end + 1
        return quoted

    def _double_quoted(self, pieces: list[str]) -> bool:
        self._at += 1
        known = True
        while (letter := self._peek()) != '"':
            if not letter:
                raise UncertainError("a quote without its partner")
            if letter == "$":
                known &= self._dollar(pieces, quoted=True)
            elif letter == "`":
                self._backtick()
            elif letter == "\\" and (self._peek(1) in ("", "\n") or self._peek(1) in '$`"\\'):
                pieces.append(self._escaped())
            else:
                pieces.append(letter)
                self._at += 1
        self._at += 1
        return known

    def _dollar(self, pieces: list[str], *, quoted: bool) -> bool:
        """Read a `$`; returns whether it is a plain dollar sign and no expansion."""
        if self._peek(1) == "(":
            self._at += 1
            self._substitution("$")
            return False
        if found := _VARIABLE.match(self._text, self._at):
            self._at = found.end()
            return False
        if self._peek(1) in ("{", "[") or (not quoted and self._peek(1) in ("'", '"')):
            raise UncertainError(f"${self._peek(1)}")
        pieces.append("$")
        self._at += 1
        return True

    def _substitution(self, kind: str) -> None:
        """Read the commands in the brackets of a substitution."""
        if kind != "$":
            self._at += 1
        self._found(f"{kind}(")
        if self._peek(1) == "(":
            raise UncertainError("arithmetic")
        self._at += 1
        self.read(nested=True)

    def _backtick(self) -> None:
        self._found("`")
        raise UncertainError("backticks; write $( )")


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
