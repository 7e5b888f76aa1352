"""Ports for servers that must know theirs before they start."""

import contextlib
import itertools
import os
import secrets
import socket
from typing import Final

_WORKERS: Final = 8
_OF_A_WORKER: Final = 22_000 // _WORKERS
_ALONE: Final = f"gw{_WORKERS - 1}"
"""A run without workers, which may go on beside one that has some."""
_number: Final = itertools.count(secrets.randbelow(_OF_A_WORKER))


def free_port() -> int:
    """A port that nobody listens on.

    It is below those of outgoing connections, and of this worker of pytest alone: nobody else takes
    it before its server starts, or while that is away for a moment. No port comes twice.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", _ALONE).removeprefix("gw")) % _WORKERS
    while True:
        port = 10_000 + worker * _OF_A_WORKER + next(_number) % _OF_A_WORKER
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
