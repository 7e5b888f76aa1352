"""What a command executes: a shell, or its program itself where a shell would do no more."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.disk import held
from wire.errors import Code, WireError
from wire.tools import PAGE_READER, READER

from shell_daemon.limits import PATH

_WORDS: Final = re.compile(r"[A-Za-z0-9_@%+:,./-]+(?: +[A-Za-z0-9_@%+:,./=-]+)*")
"""Words in which no shell sees anything but letters: no quotes, variables, patterns, operators or
assignments."""
_EXECUTABLE: Final = (b"\x7fELF", b"#!")
"""How a file begins that the kernel runs by itself; a shell runs others as scripts."""
_OURS: Final = Path(sys.prefix, "bin")
"""Where programs of our own are, which no command has as a word."""
_READERS: Final = {READER: "reader.read", PAGE_READER: "reader.page"}
_ASKING_S: Final = 10.0


@dataclass(frozen=True)
class Program:
    """A file to execute, and its arguments: the first is the name that it is called by. Without a
    file, the boundary self-test's probe."""

    file: str = ""
    argv: Sequence[str] = ()


class Programs:
    """Finds the programs of one guest. Raises `WireError` if there is no shell."""

    def __init__(self) -> None:
        shell = shutil.which("bash", path=PATH) or shutil.which("sh", path=PATH)
        if shell is None:
            raise WireError(
                Code.FAILED_PRECONDITION,
                "no shell is installed",
                details=f"neither bash nor sh in {PATH}",
                resolution="install bash in the shell guest",
            )
        self._shell = shell
        self._own_words = _own_words(shell)

    def find(self, command: str, words: Sequence[str], *, variables: bool = False) -> Program:
        """What to execute for `command`, or for `words`, a program and its arguments.

        With `variables` of its own, a command always gets a shell, which may obey them: PATH,
        BASH_ENV. Raises `WireError` NOT_FOUND if the program of `words` is missing.
        """
        if not words:
            alone = None if variables else self._alone(command)
            return alone or Program(self._shell, (self._shell, "-c", command))
        name = words[0]
        if name in _READERS:
            reading = (sys.executable, "-I", "-B", "-m", _READERS[name], *words[1:])
            return Program(reading[0], reading)
        file = name if "/" in name else shutil.which(name, path=f"{PATH}:{_OURS}")
        if file is None:
            raise WireError(Code.NOT_FOUND, f"{name}: no such program; this runs without a shell")
        return Program(file, words)

    def _alone(self, command: str) -> Program | None:
        """What a shell would execute for `command` and do nothing else; None if it would."""
        if self._own_words is None or not _WORDS.fullmatch(command):
            return None
        words = command.split()
        relative = "/" in words[0] and not words[0].startswith("/")
        if words[0] in self._own_words or relative:
            return None
        file = shutil.which(words[0], path=PATH)
        return Program(file, words) if file and _is_executable(file) else None


def _own_words(shell: str) -> frozenset[str] | None:
    """The builtins and keywords of the shell; None if it does not tell them, as only bash does."""
    try:
        asked = subprocess.run(  # noqa: S603 - a shell of the system, and no input of others
            [shell, "-c", "compgen -bk"],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASKING_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return frozenset(asked.stdout.decode().split())


def _is_executable(program: str) -> bool:
    """Whether the kernel runs a file by itself. Anybody may have made it, so it is never waited
    for: the other end of a pipe may never come."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        with held(os.open(program, flags)) as descriptor:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return regular and os.read(descriptor, 4).startswith(_EXECUTABLE)
    except OSError:
        return False
