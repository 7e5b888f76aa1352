"""A program on a pseudo-terminal, typed at and read as a person would."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]|\x1b\][^\x07]*\x07")


class Terminal:
    """`command` on a terminal of its own. Use as a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        *,
        rows: int = 40,
        columns: int = 100,
    ) -> None:
        self._rows = rows
        self._columns = columns
        self._command = command
        self._cwd = cwd
        self._environment = {**environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        for name in ("COLUMNS", "LINES"):  # would hide the size of this terminal
            self._environment.pop(name, None)
        self.raw = b""

    async def __aenter__(self) -> "Terminal":
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self._rows, self._columns, 0, 0))
        self.process = subprocess.Popen(
            self._command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self._environment,
            cwd=self._cwd,
            start_new_session=True,
        )
        os.close(slave)
        self._arrived = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.raw += data
        self._arrived.set()

    @property
    def text(self) -> str:
        """All that was ever written, without the terminal's own sequences."""
        return _SEQUENCES.sub("", self.raw.decode(errors="replace")).replace("\r", "")

    def screen(self) -> pyte.Screen:
        """What the terminal shows now."""
        screen = pyte.Screen(self._columns, self._rows)
        pyte.ByteStream(screen).feed(self.raw)
        return screen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def expect(self, text: str, *, after: int = 0, timeout: float = 60) -> int:
        """Wait until `text` was written behind position `after`; the position behind it."""
        try:
            async with asyncio.timeout(timeout):
                while (found := self.text.find(text, after)) < 0:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(
                f"{text!r} did not come; the terminal shows\n{self.text}"
            ) from None
        return found + len(text)

    async def ended(self, timeout: float = 60) -> int:
        """The exit code, once the program has ended by itself."""
        return await asyncio.to_thread(self.process.wait, timeout)
