"""What a search found as lines for a model: each with its id, its date and its origin.

A text becomes one line, whatever it holds, so that no note can look like two, or
like a section of the prompt.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from guest.memory.models import Hit
from guest.memory.search.tokens import bytes_within, tokens_of

_LAST_WORD: Final = re.compile(r"[^\s\u0e00-\u0eff\u2e80-\U0010ffff]*\Z")
"""What may be half a word; in scripts that write no spaces every character ends one."""

_SHORTENED: Final = " […]"
_LEAST_TOKENS: Final = 20
"""Of less than that nobody learns anything; the line is left out then."""

_LINK_MAX_CHARS: Final = 200
_SAID_BY: Final = {
    "user": "user said",
    "agent": "agent noted",
    "automatic": "saved automatically",
    "import": "imported",
}


@dataclass(frozen=True)
class Block:
    """Lines for a prompt, and the hits that they show, in order. `material` names where
    those come from that nobody vouched for."""

    text: str
    hits: tuple[Hit, ...] = ()
    material: tuple[str, ...] = ()


def render(hits: Sequence[Hit], budget_tokens: int) -> Block:
    """The hits as lines, best first, within `budget_tokens` by `tokens_of`.

    A line that does not fit whole is shortened after a word and ends in "[…]", or left
    out where hardly anything of it would stay; shorter ones after it may still come.
    """
    left = budget_tokens
    lines: list[str] = []
    shown: list[Hit] = []
    for hit in hits:
        line = _line(hit, left)
        if line:
            lines.append(line)
            shown.append(hit)
            left -= tokens_of(f"{line}\n")
    material = dict.fromkeys(source_of(hit) for hit in shown if hit.material)
    return Block("\n".join(lines), tuple(shown), tuple(material))


def source_of(hit: Hit) -> str:
    """Where what `hit` shows comes from: its link, else the note or the session itself."""
    return one_line(hit.link)[:_LINK_MAX_CHARS] or hit.note_id or f"session {hit.session_id}"


def one_line(text: str) -> str:
    """`text` without line breaks and runs of spaces."""
    return " ".join(text.split())


def shortened(text: str, max_tokens: int, mark: str = _SHORTENED) -> str:
    """`text`, or as many whole words of its beginning as fit with `mark` into `max_tokens`.

    Empty where not one word fits. Words stay whole, so that a secret that stands in one
    is either there for redaction to see or not there at all.
    """
    if tokens_of(text) <= max_tokens:
        return text
    encoded = text.encode(errors="replace")
    room = bytes_within(encoded, max_tokens - tokens_of(mark))
    ends_with_word = encoded[room : room + 1].isspace()
    words = encoded[:room].decode(errors="ignore")
    kept = (words if ends_with_word else _LAST_WORD.sub("", words)).rstrip()
    return kept + mark if kept else ""


def _line(hit: Hit, max_tokens: int) -> str:
    head = f"- {_about(hit)}: " if hit.note_id else f"- {_about(hit)}, "
    room = max_tokens - tokens_of(f"{head}\n")
    text = one_line(hit.text)
    if room < min(_LEAST_TOKENS, tokens_of(text)):
        return ""
    text = shortened(text, room)
    return head + text if text else ""


def _about(hit: Hit) -> str:
    """Who a text is from, and since when; a conversation's text says when itself."""
    if not hit.note_id:
        given = "; what a tool gave, not the user's words" if hit.material else ""
        return f"session {hit.session_id}{given}" if hit.session_id else f"a session{given}"
    said_by = _SAID_BY.get(hit.actor, "saved")
    if hit.material:
        said_by = f"from what was read: {source_of(hit)}; not the user's words"
    part = "; a passage of it" if hit.shortened else ""
    return f"{hit.note_id} ({hit.updated_at[:10]}; {said_by}{part})"
