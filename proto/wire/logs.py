"""Logs as JSON lines, the same in every program, including start-up failures.

A guest that cannot start gives the reason in its last log line and exits with `EXIT_OPERATOR`. The
runner reads it there, in every tier.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from wire.errors import WireError
from wire.text import parsed_json

EXIT_OPERATOR: Final = 78
"""EX_CONFIG: restarting is useless until a person has changed something."""

MAINTENANCE_PROGRESS: Final = "maintenance_progress"
"""The event of a guest at maintenance; `progress` is the step, how much is done, of how much."""
MAINTENANCE_DONE: Final = "maintenance_done"
"""The last event of a guest whose maintenance succeeded: `result` is what it did."""

_EXTRA = (
    *("session", "turn", "tool", "event", "duration_ms", "outcome", "count", "note_id", "error"),
    *("progress", "result"),
)
_QUOTED: Final = re.compile(r"\binput_value=.{0,100}?(?=, input_type=[^\s\]]+\])", re.DOTALL)
"""How pydantic quotes what it was given, up to 52 characters, which may be what somebody said."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, role, user and known extras."""

    def __init__(self, role: str, user: str) -> None:
        super().__init__()
        self._fixed = {"role": role, "user": user}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _QUOTED.sub("input_value=…", record.getMessage()),
            **self._fixed,
        }
        line.update({key: record.__dict__[key] for key in _EXTRA if key in record.__dict__})
        if record.exc_info:
            shown = self.formatException(record.exc_info)
            line["traceback"] = _QUOTED.sub("input_value=…", shown)
        return json.dumps(line, ensure_ascii=False)


def configure(role: str, user: str, level: str, stream: TextIO | None = None) -> None:
    """Send all logging of this process to `stream` (standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(role, user))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def log_startup_failure(logger: logging.Logger, error: WireError) -> None:
    """Log why this program exits with `EXIT_OPERATOR`."""
    logger.error(
        "startup failed: %s",
        error.brief,
        extra={"event": "startup_failed", "error": error.fields()},
    )


def find_startup_failure(log_text: str) -> WireError | None:
    """The last start-up failure in a log, or None."""
    for line in reversed(log_text.splitlines()):
        try:
            record = parsed_json(line)
            if record.get("event") == "startup_failed":
                return WireError.of(record["error"])
        except (ValueError, KeyError, AttributeError, TypeError):
            continue
    return None
