"""Notices that a model writes or calls the same again and again, or writes only white space."""

import json
import re
from typing import Final

from wire.errors import Code

from guest.agent.receipts.saving import Call
from guest.errors import BudgetError

_TIMES: Final = 10
_TIMES_AT_WILL: Final = 60
"""How often code, and what the user has said, may stand in a row: they may have been asked for."""
_TIMES_IN_CELLS: Final = 100
"""How often a few words may, as in a table."""
_SENTENCE_CHARS: Final = 8
_LINE_CHARS: Final = 24
"""The letters that a sentence must have, and a line that is none, for `_TIMES` to be too often."""
_BLOCK_CHARS: Final = 120
"""The letters of several lines: half as many times are too often."""
_RUN_CHARS: Final = 12_000
"""How much may be made of anything shorter."""
_UNIT_MAX_CHARS: Final = 1_000
_BLANK_CHARS: Final = 2_000
AGAIN: Final = (
    "This call has been made before, with the same result. Answer the user in words now, without "
    "a call."
)
"""What a model is told with a result that is no news. Of other wordings a model of 0.5 billion
parameters made the same call once more."""
_CALLS_MAX: Final = 3
_WAITS_MS: Final = 1_000
_TIME_TAKEN: Final = re.compile(r'"duration_ms": ?\d+')
_PROBE: Final = 24
_STRIDE: Final = 64
_ENDS: Final = str.maketrans("!?…。！？", "......")


class Repetition:
    """Reads one answer. `asked` is what the user has said."""

    def __init__(self, asked: str) -> None:
        self._asked = _plain(asked)
        self._plain = ""
        self._unread = self._unit = ""
        self._blank = self._fences = 0

    def add(self, text: str) -> bool:
        """Whether the answer has come to repeat itself, or to be white space, without end."""
        self._blank = 0 if text.strip() else self._blank + len(text)
        if self._blank >= _BLANK_CHARS:
            return True
        self._unread += text
        if len(self._unread) < _STRIDE:
            return False
        self._fences += self._unread.count("```")
        self._plain = (self._plain + _plain(self._unread))[-_TIMES_AT_WILL * _UNIT_MAX_CHARS :]
        self._unread = ""
        probe, at = self._plain[-_PROBE:], len(self._plain) - len(self._plain[-_PROBE:])
        while len(probe) == _PROBE:
            at = self._plain.rfind(probe, 0, at + _PROBE - 1)
            unit = self._plain[at + _PROBE :]
            if at < 0 or len(unit) > _UNIT_MAX_CHARS:
                break
            if self._plain.endswith(unit * 2):
                self._unit = unit
                return self._plain.endswith(unit * self._most(unit))
        return False

    def once(self, text: str) -> str:
        """`text`, the answer so far, with what it repeats written once."""
        times = 0
        while self._unit and self._plain.endswith(self._unit * (times + 1)):
            times += 1
        more, at = (times - 1) * len(self._unit), len(text)
        while at and more > 0:
            at -= 1
            more -= len(_plain(text[at]))
        return text[:at]

    def _most(self, unit: str) -> int:
        """How often `unit` in a row is too often."""
        letters = sum(map(str.isalpha, unit))
        if letters < _SENTENCE_CHARS:
            return -(-_RUN_CHARS // len(unit))
        if letters < _LINE_CHARS and "." not in unit:
            return _TIMES_IN_CELLS
        turned = (unit[at:] + unit[:at] for at in range(len(unit)))
        at_will = self._fences % 2 or any(each.strip(".") in self._asked for each in turned)
        return (_TIMES_AT_WILL if at_will else _TIMES) // (2 if letters > _BLOCK_CHARS else 1)


class SameCalls:
    """Reads the calls of one turn."""

    def __init__(self) -> None:
        self._made: set[tuple[str, str, str, bool]] = set()
        self._seen: set[tuple[str, str, str, bool]] = set()
        self._times: dict[tuple[str, str, str, bool], int] = {}

    def add(self, call: Call) -> bool:
        """Count a call that has ended, unless it has waited for something, as one that polls.
        Returns whether it has succeeded as it did when nothing was news since."""
        result = call.result
        if not result.is_error and result.duration_ms >= _WAITS_MS:
            return False
        arguments = json.dumps(call.arguments, sort_keys=True, default=str)
        brought = _TIME_TAKEN.sub("", result.text)
        made = call.tool, arguments, brought, result.is_error
        self._made.add(made)
        return not result.is_error and made in self._times

    def end_answer(self) -> None:
        """End the calls of one answer.

        Raises `BudgetError` if one of them has failed alike in three answers, or has brought the
        same in three answers while no call of the turn brought anything new.
        """
        made, self._made = self._made, set()
        if not made or made - self._seen:
            self._times = {same: count for same, count in self._times.items() if same[3]}
        self._seen |= made
        self._times |= {same: self._times.get(same, 0) + 1 for same in made}
        for same in made:
            if self._times[same] >= _CALLS_MAX:
                tool, *_, failed = same
                calls = f"{'failing ' * failed}call of {tool} {_CALLS_MAX} times"
                raise BudgetError(
                    Code.RESOURCE_EXHAUSTED,
                    f"the model made the same {calls}{'' if failed else ', with the same result'}",
                    resolution="ask in other words, or choose another model",
                )


def _plain(text: str) -> str:
    """The letters, digits and ends of sentences in `text`."""
    ends = text.casefold().translate(_ENDS)
    return "".join(c for c in ends if c.isalnum() or c == ".").replace("..", ".")
