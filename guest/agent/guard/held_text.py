"""The text of answers on its way to the user, held back where it is not true yet."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from guest.agent.guard import sentences

_FENCE: Final = "```"


class HeldText:
    """Takes text as a model streams it and gives it out by whole sentences, in order.

    `is_false` says whether a sentence claims what has not happened (yet): it stays here
    with all that follows. `hold_all` says whether everything is to stay. Both are asked
    anew each time. A line that goes on in the next one is judged together with it. What
    lies between two code fences is quoted, and claims nothing; a fence that is never
    closed quotes nothing.
    """

    def __init__(self, is_false: Callable[[str], bool], hold_all: Callable[[], bool]) -> None:
        self._is_false = is_false
        self._hold_all = hold_all
        self._waiting: deque[str] = deque()
        self._rest = ""
        self._line = ""  # given last, where a line ends without its sentence
        self._fenced = False
        self._fences = 0  # among those that wait
        self.struck: list[str] = []

    def add(self, text: str) -> str:
        """Take `text`; what the user may see now."""
        searched = len(self._rest.rstrip(sentences.ENDING))
        self._rest += text
        whole = sentences.complete(self._rest, searched)
        self._rest = self._rest[sum(map(len, whole)) :]
        self._queue(whole)
        return self.release()

    def release(self) -> str:
        """What the user may see now that a call has ended."""
        if self._hold_all():
            return ""
        given = []
        while self._waiting and not self._false():
            given.append(self._next())
        return "".join(given)

    def pause(self) -> str:
        """What the user may see now that an answer's text is over and its calls begin."""
        self._queue([self._rest])
        self._rest = ""
        return self.release()

    def end(self) -> str:
        """The rest, as the answer is over: false claims are left out and lie in `struck`."""
        self._queue([self._rest])
        self._rest = ""
        given: list[str] = []
        while self._waiting:
            if false := self._false():
                self.struck.append(false)
                self._next()
                self._line = ""
            else:
                given.append(self._next())
        self._fenced = False
        self._line = ""
        return "".join(given)

    def _false(self) -> str:
        """The next sentence where it is false and not quoted, with the line before it where
        only both together are; else empty."""
        if self._fenced and self._fences:
            return ""
        sentence = self._waiting[0]
        goes_on = sentence.lstrip()[:1].islower()
        wholes = (sentence, self._line + sentence) if self._line and goes_on else (sentence,)
        return next(filter(self._is_false, wholes), "")

    def _queue(self, whole: Sequence[str]) -> None:
        self._waiting += filter(None, whole)
        self._fences += sum(map(_is_fence, whole))

    def _next(self) -> str:
        sentence = self._waiting.popleft()
        self._line = f"{sentence[:-1]} " if sentence.endswith("\n") else ""
        if _is_fence(sentence):
            self._fences -= 1
            self._fenced = not self._fenced
        return sentence


def _is_fence(sentence: str) -> bool:
    """Whether `sentence` begins or ends a block of code."""
    return sentence.count(_FENCE) % 2 == 1
