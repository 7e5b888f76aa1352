"""The beginning of a text, in a sentence of our own."""

from typing import Final

from guest.memory.search.context_block import one_line

_SHOWN_CHARS: Final = 80


def beginning(text: str) -> str:
    """`text` on one line between quotation marks, cut where it is long; empty stays empty."""
    line = one_line(text)
    if len(line) > _SHOWN_CHARS:
        line = f"{line[: _SHOWN_CHARS - 1]}…"
    return f"“{line}”" if line else ""
