"""What a guest prints, written to its log by the runner. The guest has no way to the file."""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

from wire.logs import JsonFormatter

from runner.logs import open_for_append
from runner.workspace.mounts import Role

LOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""The limit of what one launch may log; the rest is dropped."""


class OutputLog:
    """The log at `path` of one launch, in its `home`. Raises `WorkspaceError` if it is not a plain
    file."""

    def __init__(
        self, path: Path, home: Path, role: Role, user_id: str, bytes_max: int = LOG_BYTES_MAX
    ) -> None:
        self._role = role
        self._user_id = user_id
        self._left = bytes_max
        self._fd = open_for_append(path, home)

    def write(self, block: bytes) -> None:
        """Append what the guest has printed, up to the limit."""
        if self._left > 0:
            self._append(block[: self._left])
            self._left -= len(block)
            if self._left <= 0:
                self._append(b"\n")
                self.add_line("the log is full: what follows is dropped")

    def add_line(self, message: str) -> None:
        """Append a line of the runner's own."""
        record = logging.makeLogRecord({"name": __name__, "levelname": "ERROR", "msg": message})
        line = JsonFormatter(str(self._role), self._user_id).format(record)
        self._append(line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the guest
            while data:
                data = data[os.write(self._fd, data) :]
