"""Which step of which trace a call belongs to, as its metadata says it (W3C Trace Context)."""

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Self

METADATA_KEY: Final = "traceparent"
_TEXT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True)
class SpanContext:
    """A step of a trace: 16 bytes that all steps of the trace share, and 8 of its own."""

    trace_id: bytes
    span_id: bytes

    @classmethod
    def below(cls, parent: Self | None) -> Self:
        """A new step, in the trace of `parent` or in one of its own."""
        trace_id = parent.trace_id if parent is not None else secrets.token_bytes(16)
        return cls(trace_id, secrets.token_bytes(8))

    @classmethod
    def of(cls, text: str) -> Self | None:
        """What a call's metadata says; None for anything odd."""
        found = _TEXT.fullmatch(text)
        if found is None or not (int(found[1], 16) and int(found[2], 16)):
            return None
        return cls(bytes.fromhex(found[1]), bytes.fromhex(found[2]))

    def __str__(self) -> str:
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-01"


here: ContextVar[SpanContext | None] = ContextVar("trace", default=None)
"""The step that runs now, in this task: calls that are made say it, calls that arrive set it."""
