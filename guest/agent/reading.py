"""Reads an answer while it is streamed: its thinking apart from its text, and what of that may be
shown.

A server may send thinking and answer as one text. The library knows one pair of tags, and only as
pieces of their own. Here they may be split over pieces, stand behind a first newline, lack their
end, or lack their beginning: some templates write that themselves.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal

from guest.agent.text_calls import may_be_calls

Kind = Literal["text", "thought", "unopened"]
"""Of a piece: the answer, thinking, or the sign that all text so far was thinking."""

_PAIRS: Final = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "[think]": "[/think]",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
_FINAL: Final = "<|channel|>final<|message|>"
_SILENT: Final = ("<|end|>", "<|return|>", "<|start|>assistant")
_TAGS: Final = (*_PAIRS, *_PAIRS.values(), *_SILENT)
_TAG: Final = re.compile("|".join(map(re.escape, _TAGS)), re.IGNORECASE)
_TAG_MAX_CHARS: Final = max(map(len, _TAGS))
_QUOTES: Final = ("`", '"', "'", "“", "«")
_LINE_CHARS: Final = 200


class Thinking:
    """Splits one answer, piece by piece.

    A tag counts at the beginning of a line, outside of code. An end without a beginning counts,
    once, unless the answer has named the tag before.

    Args:
        opened: Whether this model's template writes the beginning, so that all is thinking up to
            the first end; it is the answer where no end comes.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self._waiting = ""
        self._end = ""
        self._ended = self._named = False
        self._line = ""
        self._fences = 0
        self._unsure: list[str] | None = [] if opened else None

    def add(self, piece: str) -> Iterator[tuple[Kind, str]]:
        """What of the answer so far is certain since the last call."""
        text, self._waiting = self._waiting + piece, ""
        while tag := _TAG.search(text):
            yield from self._plain(text[: tag.start()])
            yield from self._tagged(tag[0])
            text = text[tag.end() :]
        end = text[-_TAG_MAX_CHARS:].lower()
        begun = (n for n in range(len(end), 0, -1) if any(t.startswith(end[-n:]) for t in _TAGS))
        certain = len(text) - next(begun, 0)
        self._waiting = text[certain:]
        yield from self._plain(text[:certain])

    def finish(self) -> Iterator[tuple[Kind, str]]:
        waiting, self._waiting = self._waiting, ""
        yield from self._plain(waiting)
        unsure, self._unsure = self._unsure, None
        yield from self._plain("".join(unsure or ()))

    def _plain(self, text: str) -> Iterator[tuple[Kind, str]]:
        if self._unsure is not None:
            self._unsure.append(text)
        elif self._end and text:
            yield "thought", text
        elif text := text.lstrip() if self._ended and not self._line else text:
            self._fences += (self._line[-2:] + text).count("```")
            self._line = (self._line + text)[-_LINE_CHARS:]
            yield "text", text

    def _tagged(self, tag: str) -> Iterator[tuple[Kind, str]]:
        known, in_code = tag.lower(), self._fences % 2
        if self._unsure is not None:
            if known in _PAIRS.values():
                thought, self._unsure, self._ended = "".join(self._unsure), None, True
                yield "thought", thought
            elif known not in _PAIRS or "".join(self._unsure).strip():
                self._unsure.append(tag)
        elif self._end:
            if known == self._end:
                self._end, self._ended, self._line = "", True, ""
            else:
                yield "thought", tag
        elif known in _PAIRS and not self._line.rpartition("\n")[2].strip() and not in_code:
            self._end = _PAIRS[known]
        elif known == _FINAL or (self._ended and known not in _PAIRS):
            self._ended = True
        elif known in _PAIRS.values() and not (
            in_code or self._named or self._line.endswith(_QUOTES)
        ):
            self._ended, self._line = True, ""
            yield "unopened", ""
        else:
            self._named |= known in _PAIRS
            yield from self._plain(tag)


def thinking_apart(text: str, *, opened: bool = False) -> tuple[str, str, bool]:
    """The answer in a whole text, the thinking in it, and whether only the end of that is there."""
    thinking = Thinking(opened=opened)
    answer = thought = ""
    unopened = False
    for kind, piece in (*thinking.add(text), *thinking.finish()):
        if kind == "unopened":
            answer, thought, unopened = "", thought + answer, True
        elif kind == "text":
            answer += piece
        else:
            thought += piece
    return answer, thought, unopened


class Reading:
    """Reads one streamed answer. `offered` are the tools that it may call in text.

    Attributes:
        held: What is held back, because it may be a call, or nothing but white space.
        unopened: Whether what was shown so far has turned out to be thinking.
    """

    def __init__(self, offered: Collection[str], *, opened: bool = False) -> None:
        self._offered = offered
        self._thinking = Thinking(opened=opened)
        self._holds = True
        self._next = 0
        self.held = ""
        self.unopened = False

    def add(self, text: str) -> str:
        """What may be shown of the answer since the last call."""
        return self._shown(self._thinking.add(text))

    def finish(self) -> str:
        return self._shown(self._thinking.finish())

    def _shown(self, pieces: Iterable[tuple[Kind, str]]) -> str:
        shown = ""
        for kind, text in pieces:
            if kind == "unopened":
                self.unopened, self._holds, self.held, shown = True, True, "", ""
            elif kind == "text":
                shown += self._unheld(text)
        return shown

    def _unheld(self, text: str) -> str:
        if not self._holds:
            return text
        self.held += text
        if len(self.held) < self._next:
            return ""
        if may_be_calls(self.held, self._offered) if self._offered else not self.held.strip():
            self._next = len(self.held) * 9 // 8  # a long text is looked at less often
            return ""
        text, self.held, self._holds = self.held, "", False
        return text
