"""Formats search results as lines for a model, each with its id, date and origin.

A text becomes one line, so that a note can imitate neither a second note nor a section of the
prompt.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wire import zones

from guest.memory.models import Hit, stays_here
from guest.memory.search.tokens import bytes_within, tokens_of

_LAST_WORD: Final = re.compile(r"[^\s\u0e00-\u0eff\u2e80-\U0010ffff]*\Z")
"""A word that may be cut in half; in scripts without spaces every character ends a word."""

_SHORTENED: Final = " […]"
_LEAST_TOKENS: Final = 20
"""A line shortened to less than this is left out: it would say nothing."""

_MARK: Final = " ⌂"
_LINES: Final = re.compile(rf"(?:^.*{_MARK}(?:\n|\Z))+", re.MULTILINE)
STAYS: Final = "(What was here stays on this machine.)"
"""What a model outside of this machine is sent instead."""
_LINK_MAX_CHARS: Final = 200
_SAID_BY: Final = {
    "user": "user said",
    "agent": "agent noted",
    "automatic": "saved automatically",
    "import": "imported",
}


@dataclass(frozen=True)
class Block:
    """Lines for a prompt, and the search results that they show, in order. `material` names the
    sources of those that nobody vouched for."""

    text: str
    results: tuple[Hit, ...] = ()
    material: tuple[str, ...] = ()


def render(results: Sequence[Hit], budget_tokens: int, time_zone: str = "") -> Block:
    """Format search results as lines, best first, within `budget_tokens` as counted by `tokens_of`.
    Dates are those of `time_zone`.

    A line that is too long is cut after a word and ends in "[…]", or left out if hardly anything
    would remain; shorter lines may still follow.
    """
    left = budget_tokens
    lines: list[str] = []
    shown: list[Hit] = []
    for hit in results:
        line = _line(hit, left, time_zone)
        if line:
            lines.append(line)
            shown.append(hit)
            left -= tokens_of(f"{line}\n")
    material = dict.fromkeys(source_of(hit) for hit in shown if hit.material)
    return Block("\n".join(lines), tuple(shown), tuple(material))


def source_of(hit: Hit) -> str:
    """The source of a hit: its link, else the note or session itself. It outlives the hit, so of
    what stays on this machine it is no link."""
    link = "" if stays_here(hit.tags) else one_line(hit.link)[:_LINK_MAX_CHARS]
    return link or hit.note_id or f"session {hit.session_id}"


def marked_local(text: str, tags: Iterable[str]) -> str:
    """A text of the runtime on what has these tags, with a mark behind each line that stays."""
    return text.replace("\n", f"{_MARK}\n") + _MARK if stays_here(tags) else text


def outside(text: str) -> str:
    """The text without the lines that stay on this machine."""
    return _LINES.sub(f"{STAYS}\n", text)


def one_line(text: str) -> str:
    """`text` without line breaks and runs of spaces."""
    return " ".join(text.split())


def shortened(text: str, max_tokens: int, mark: str = _SHORTENED) -> str:
    """`text`, or as many of its first whole words as fit with `mark` into `max_tokens`.

    Empty if not one word fits. Words stay whole, so that redaction sees a secret completely or not
    at all.
    """
    if tokens_of(text) <= max_tokens:
        return text
    encoded = text.encode(errors="replace")
    room = bytes_within(encoded, max_tokens - tokens_of(mark))
    ends_with_word = encoded[room : room + 1].isspace()
    words = encoded[:room].decode(errors="ignore")
    kept = (words if ends_with_word else _LAST_WORD.sub("", words)).rstrip()
    return kept + mark if kept else ""


def _line(hit: Hit, max_tokens: int, time_zone: str) -> str:
    about = _about(hit, time_zone)
    head = f"- {about}: " if hit.note_id else f"- {about}, "
    room = max_tokens - tokens_of(marked_local(f"{head}\n", hit.tags))
    text = one_line(hit.text)
    if room < min(_LEAST_TOKENS, tokens_of(text)):
        return ""
    text = shortened(text, room)
    return marked_local(head + text, hit.tags) if text else ""


def _about(hit: Hit, time_zone: str) -> str:
    """The author and date of a hit; a conversation's text contains its date itself."""
    if not hit.note_id:
        given = "; what a tool gave, not the user's words" if hit.material else ""
        return f"session {hit.session_id}{given}" if hit.session_id else f"a session{given}"
    said_by = _SAID_BY.get(hit.actor, "saved")
    if hit.material:
        said_by = f"from what was read: {source_of(hit)}; not the user's words"
    part = "; a passage of it" if hit.shortened else ""
    older = f"; older than {hit.older_than}" if hit.older_than else ""
    return f"{hit.note_id} ({zones.local(hit.updated_at, time_zone)[:10]}; {said_by}{part}{older})"
