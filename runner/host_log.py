"""The host's own log file, for as long as the host lives."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wire.logs import JsonFormatter

from runner.config import LogLevel
from runner.logs import open_for_append

_LOGGERS = ("runner", "wire")


@contextmanager
def host_log(path: Path, user_id: str, level: LogLevel) -> Iterator[None]:
    """Send what runner and wire log to `path` as JSON lines too."""
    with os.fdopen(open_for_append(path), "a", encoding="utf-8", errors="replace") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(JsonFormatter("host", user_id))
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        before = [logger.level for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(level.upper())
        try:
            yield
        finally:
            for logger, old in zip(loggers, before, strict=True):
                logger.removeHandler(handler)
                logger.setLevel(old)
