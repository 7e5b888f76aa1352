"""A summary without a model: the sentences that hold most of what was talked about.

Every sentence counts by how often its content words occur; what the user said, what was
decided and what names an id counts more. Sentences are taken whole, so that no id is cut.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from guest.memory.prompt_block import one_line, shortened
from guest.memory.tokens import tokens_of
from guest.memory.types import Event, Role

HEADINGS: Final[dict[Role, str]] = {
    "user": "The user said:",
    "assistant": "The agent said:",
    "tool": "What tools gave (not the user's words):",
}
_ROLES: Final = {heading: role for role, heading in HEADINGS.items()}
_SENTENCE: Final = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_SENTENCE_TOKENS: Final = 130
_SENTENCE_CHARS: Final = 400
"""Of what holds no space to end at."""

_WORD: Final = re.compile(r"\w{4,}")
"""Shorter words are mostly grammar, in every language that writes spaces."""

_ID: Final = re.compile(r"\b(?:note|session)-[0-9a-f]|/(?:shared|tmp|vault)/|https?://")
_DECIDED: Final = re.compile(
    r"\b(?:decid|agree|always|never|must|remember|prefer|entschied|beschlossen|immer|nie\b|muss|"
    r"décid|toujours|jamais|decid|siempre|nunca|sempre|mai\b)|決め|决定",
    re.IGNORECASE,
)
_WEIGHTS: Final[dict[Role, float]] = {"user": 1.5, "assistant": 1.0, "tool": 0.6}
_DECISION_WEIGHT: Final = 1.5
_ID_WEIGHT: Final = 1.3
_TOLD_ALREADY: Final = 4
"""By so much a word counts less each time a line with it is picked."""


@dataclass(frozen=True)
class Line:
    """One sentence, and who it is from."""

    role: Role
    text: str


def spoken(events: Iterable[Event]) -> list[Line]:
    """What was said in `events`, sentence by sentence."""
    return [
        Line(event.role, shortened(sentence, _SENTENCE_TOKENS) or sentence[:_SENTENCE_CHARS])
        for event in events
        for part in _SENTENCE.split(event.text)
        if (sentence := one_line(part))
    ]


def read(summary: str) -> list[Line]:
    """The lines of a summary; what stands under no heading is the agent's."""
    role: Role = "assistant"
    lines = []
    for line in map(one_line, summary.splitlines()):
        if line in _ROLES:
            role = _ROLES[line]
        elif text := line.removeprefix("- "):
            lines.append(Line(role, text))
    return lines


def render(lines: Sequence[Line]) -> str:
    """Lines under the headings of who they are from, in their order."""
    sections = []
    for role, heading in HEADINGS.items():
        if said := [f"- {line.text}" for line in lines if line.role == role]:
            sections.append("\n".join((heading, *said)))
    return "\n".join(sections)


def pick(lines: Sequence[Line], budget_tokens: int) -> list[Line]:
    """The lines that tell most, each text once, in their order; rendered within the budget.

    What a picked line tells counts less in those after it. That only takes from their
    scores, so a line whose score still leads when it is looked at again is the next.
    """
    distinct = list({line.text.casefold(): line for line in reversed(lines)}.values())[::-1]
    words = [set(_WORD.findall(line.text.casefold())) for line in distinct]
    frequency: Counter[str] = Counter(word for of_line in words for word in of_line)
    left = budget_tokens - sum(tokens_of(heading) + 1 for heading in HEADINGS.values())
    waiting = [(-_score(line, words[n], frequency), -n) for n, line in enumerate(distinct)]
    heapq.heapify(waiting)
    taken = []
    while waiting:
        _, n = heapq.heappop(waiting)
        line, of_line = distinct[-n], words[-n]
        again = -_score(line, of_line, frequency), n
        if waiting and again > waiting[0]:
            heapq.heappush(waiting, again)
            continue
        tokens = tokens_of(f"- {line.text}\n")
        if tokens <= left:
            taken.append(-n)
            left -= tokens
            for word in of_line:
                frequency[word] //= _TOLD_ALREADY
    return [distinct[n] for n in sorted(taken)]


def _score(line: Line, words: set[str], frequency: Counter[str]) -> float:
    """How often its content words occur; the logarithm, so that the longest do not always win."""
    score = _WEIGHTS[line.role] * math.log1p(sum(frequency[word] for word in words))
    if _DECIDED.search(line.text):
        score *= _DECISION_WEIGHT
    if _ID.search(line.text):
        score *= _ID_WEIGHT
    return score
