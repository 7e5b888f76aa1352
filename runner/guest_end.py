"""What it means that a guest has ended: its own words, or the last line it logged."""

import signal
from typing import Final

from wire.errors import Code, WireError
from wire.logs import EXIT_OPERATOR, find_startup_failure

from runner.errors import TierError

_LAST_LINE_CHARS: Final = 300


class NeedsOperator(Exception):  # noqa: N818 - a condition that the supervisor handles
    """The guest ended with `EXIT_OPERATOR`; starting it again would not help."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.brief)
        self.error = error


def meaning_of_end(role: str, code: int | None, output: str, when: str) -> Exception:
    """`NeedsOperator` with what the guest said, or a `TierError` that tells how it ended.

    `output` is what this launch logged; `code` is negative for a signal.
    """
    told = find_startup_failure(output)
    if code == EXIT_OPERATOR and told is not None:
        return NeedsOperator(told)
    return TierError(
        Code.UNAVAILABLE,
        f"the {role} guest {_how(code)} {when}".strip(),
        details=last_line(output),
        resolution="runner logs",
    )


def last_line(output: str) -> str:
    """The last thing a guest said, short."""
    text = output.strip()
    return text.splitlines()[-1][:_LAST_LINE_CHARS] if text else "it logged nothing"


def _how(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}"
