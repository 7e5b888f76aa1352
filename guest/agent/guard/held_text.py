"""The text of answers on its way to the user, held back where it is not true yet."""

from collections.abc import Callable
from typing import Final

from guest.agent.guard import sentences

_FENCE: Final = "```"


class HeldText:
    """Takes text as a model streams it and gives it out by whole sentences, in order.

    `is_false` says whether a sentence claims what has not happened (yet): it stays here
    with all that follows. `hold_all` says whether everything is to stay. Both are asked
    anew each time. What lies between two code fences is quoted, and claims nothing.
    """

    def __init__(self, is_false: Callable[[str], bool], hold_all: Callable[[], bool]) -> None:
        self._is_false = is_false
        self._hold_all = hold_all
        self._waiting: list[str] = []
        self._rest = ""
        self._fenced = False
        self.struck: list[str] = []

    def add(self, text: str) -> str:
        """Take `text`; what the user may see now."""
        searched = len(self._rest.rstrip(sentences.ENDING))
        self._rest += text
        whole = sentences.complete(self._rest, searched)
        self._rest = self._rest[sum(map(len, whole)) :]
        self._waiting += whole
        return self.release()

    def release(self) -> str:
        """What the user may see now that a call has ended."""
        if self._hold_all():
            return ""
        given = []
        while self._waiting and not self._lies(self._waiting[0]):
            given.append(self._pass(self._waiting.pop(0)))
        return "".join(given)

    def pause(self) -> str:
        """What the user may see now that an answer's text is over and its calls begin."""
        self._waiting += filter(None, [self._rest])
        self._rest = ""
        return self.release()

    def end(self) -> str:
        """The rest, as the answer is over: false claims are left out and lie in `struck`."""
        waiting = [*self._waiting, *filter(None, [self._rest])]
        self._waiting, self._rest = [], ""
        given = []
        for sentence in waiting:
            if self._lies(sentence):
                self.struck.append(sentence)
            else:
                given.append(self._pass(sentence))
        self._fenced = False
        return "".join(given)

    def _lies(self, sentence: str) -> bool:
        return not self._fenced and self._is_false(sentence)

    def _pass(self, sentence: str) -> str:
        self._fenced ^= sentence.count(_FENCE) % 2 == 1
        return sentence
