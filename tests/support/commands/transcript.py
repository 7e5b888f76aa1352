"""Plays the documentation's command lines in a prepared world, as somebody at a terminal does."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.commands.household import Household

_KEYS: Final = b"y\n\x04"
"""What the person at the terminal types: yes, and then nothing more."""
_ENDS_S: Final = 120.0
_READY: Final = re.compile(r"is ready|let in|works once|^  stop  runner stop$", re.MULTILINE)


class World:
    """A household with a terminal, in which `runner` is on the path.

    Args:
        household: Its directories and environment.
        placeholders: What the documentation writes for something that differs here.
    """

    def __init__(self, household: Household, placeholders: Mapping[str, str]) -> None:
        self._household = household
        self._placeholders = placeholders
        self.place = household.working_directory
        programs = household.path / "bin"
        programs.mkdir()
        Path(household.environment["HOME"]).mkdir()
        tier = "" if household.containers else "--insecure"
        self._write(programs / "runner", f'exec {sys.executable} -m runner.cli.app {tier} "$@"')
        self._write(programs / "editor", 'echo "# seen" >> "$1"')
        path = f"{programs}:{Path(sys.executable).parent}:{household.environment['PATH']}"
        household.environment |= {"PATH": path, "EDITOR": "editor", "COLUMNS": "200"}

    def play(self, transcript: str) -> dict[str, str]:
        """Run the lines of `transcript` in order; what each of them printed.

        A line begins with `$` if the documentation has it, with `+` if it only prepares the world,
        and with `&` if the documentation has it and it runs until somebody ends it.
        """
        printed = {}
        for marker, line in lines_of(transcript):
            run = self._run_until_ready if marker == "&" else self._run
            printed[line] = run(self._here(line))
        return printed

    def _here(self, line: str) -> str:
        for written, here in self._placeholders.items():
            line = re.sub(
                rf"(?<![\w.-]){re.escape(written)}(?![\w.-])", here.replace("\\", r"\\"), line
            )
        return line

    def _run(self, line: str) -> str:
        ours, theirs = pty.openpty()
        try:
            os.write(ours, _KEYS)
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {line}"],
                stdin=theirs,
                capture_output=True,
                text=True,
                env=self._household.environment,
                cwd=self.place,
                timeout=_ENDS_S,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run_until_ready(self, line: str) -> str:
        """Run `line` until it says that it is ready, then end it as Ctrl-C does."""
        log = self.place / "until-ready.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._household.environment,
                cwd=self.place,
            )
        deadline = time.monotonic() + _ENDS_S
        while not _READY.search(log.read_text()):
            assert process.poll() is None, f"{line}\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{line}\n{log.read_text()}"
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(_ENDS_S) in (0, 130), f"{line}\n{log.read_text()}"
        return log.read_text()

    @staticmethod
    def _write(path: Path, command: str) -> None:
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)

    def close(self) -> None:
        """End what still runs, and remove the world."""
        self._run("runner stop --all")
        self._household.remove()


def lines_of(transcript: str) -> list[tuple[str, str]]:
    """Each line with its marker."""
    lines = (line.strip() for line in transcript.splitlines())
    return [(line[0], line[2:]) for line in lines if line]
