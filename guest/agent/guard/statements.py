"""What the runtime says of saves in its own name, and how that is told from a model's words.

Models see these sentences among their own earlier answers, and imitate them.
"""

import re
from typing import Final

from guest.agent.guard.sentences import unquoted

NOTHING: Final = "(In truth nothing was saved or changed in this turn: no tool did it.)"
NOT_THAT: Final = "(I left out a claim that was not true: no tool did that in this turn.)"
SAVED: Final = "(Saved by the runtime, as you asked: "

_OWN: Final = re.compile(
    r"(?:\A|\n\n)\((?:Saved by the runtime, as|Nothing was saved:|Not everything was saved:"
    r"|Not saved:|In truth nothing was|I left out a claim).*\Z",
    re.DOTALL,
)
_TELLS_OF_A_SAVE: Final = re.compile(r"\(Saved by the runtime\b|\bStored: \[id:", re.IGNORECASE)


def without(answer: str) -> str:
    """What the model said of `answer`, which ends with what the runtime had to add."""
    return _OWN.sub("", answer).strip()


def tells_of_a_save(sentence: str) -> bool:
    """Whether `sentence` says in the words of the runtime or of a tool that something was
    stored."""
    return _TELLS_OF_A_SAVE.search(unquoted(sentence)) is not None
