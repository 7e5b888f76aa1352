"""Reads an answer while it is streamed: says what of it may be shown."""

from collections.abc import Collection, Iterable
from typing import Final

from guest.agent.text_calls import may_be_calls
from guest.agent.thinking import Kind, Thinking

_OFTEN_CHARS: Final = 512
"""Up to here each piece is looked at; a longer text that may be a call is read less often."""


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
        """What may be shown once the answer has ended."""
        return self._shown(self._thinking.finish())

    def _shown(self, pieces: Iterable[tuple[Kind, str]]) -> str:
        shown = ""
        for kind, text in pieces:
            if kind == "unopened":
                self.unopened, self.held, shown = True, "", ""
                self._holds = True
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
            much = len(self.held)
            self._next = much + much // 8 if much > _OFTEN_CHARS else 0
            return ""
        text, self.held, self._holds = self.held, "", False
        return text
