"""A long text in parts that are notes of their own, always the same parts."""

import re
from collections.abc import Iterator
from typing import Final

from guest.agent.guard.sources import Source

_HEADING_CHARS: Final = 120
_BREAKS: Final = ("\n\n", "\n", ". ", " ")
_OWN_WORDS: Final = "What the user said"


def parts_of(source: Source, room: int) -> list[str]:
    """`source` as notes of at most `room` characters, cut between paragraphs where that is
    possible; each but the user's own short words says where it is from, and which part."""
    text = source.text.strip()
    if not source.name and len(text) <= room:
        return [text]
    pieces = list(_pieces(text, room - _HEADING_CHARS))
    name = f"From {_short(source.name)}" if source.name else _OWN_WORDS
    if len(pieces) == 1:
        return [f"{name}:\n\n{pieces[0]}"]
    return [
        f"{name}, part {number} of {len(pieces)}:\n\n{piece}"
        for number, piece in enumerate(pieces, 1)
    ]


def _pieces(text: str, room: int) -> Iterator[str]:
    while len(text) > room:
        cut = next((at for end in _BREAKS if (at := text.rfind(end, room // 2, room)) > 0), room)
        yield text[:cut].strip()
        text = text[cut:].strip()
    if text:
        yield text


def _short(name: str) -> str:
    name = re.sub(r"\s+", " ", name)
    return name if len(name) <= _HEADING_CHARS // 2 else f"{name[: _HEADING_CHARS // 2 - 1]}…"
