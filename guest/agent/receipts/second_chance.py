"""When the model is asked once more, because words and receipts do not agree.

The trigger is wide on purpose: a false alarm costs one call of the model and never a wrong
word. What it sees and how often it is wrong is measured on sentences that it was not made
from (docs/guide/save-promise.md).
"""

import re
from typing import Final

from guest.agent.receipts.ledger import Ledger
from guest.agent.receipts.wording import FIRST_PERSON, REMEMBER, SPACELESS, STORE

NOTHING_TO_ADD: Final = "(nothing to add)"
"""What the model answers to a false alarm; it is neither shown nor stored."""

FROM_THE_RUNTIME: Final = "[This is the runtime, not the user.]"
"""How the facts begin that the model is asked once more with."""

STEPS_MAX: Final = 3
"""Model requests: to look for a note, to save, and to say so."""

_EDGE_CHARS: Final = 400
"""A request stands at the beginning or the end of a message; what is between was pasted."""
_SHORT_WORDS: Final = 7

_SENTENCE: Final = re.compile(r"[^.!?…。！？\n]+[.!?…。！？]*")
_MEMORY: Final = re.compile(
    rf"(?<![\w/])(?:{'|'.join(REMEMBER)})(?!\w)|{'|'.join(SPACELESS)}", re.IGNORECASE
)
_STORE: Final = re.compile(rf"(?<![\w/])(?:{'|'.join(STORE)})(?!\w)", re.IGNORECASE)
_FIRST_PERSON: Final = re.compile(rf"(?<!\w)(?:{'|'.join(FIRST_PERSON)}|l'ho)(?!\w)", re.IGNORECASE)
_ASKS_TO_DO: Final = re.compile(
    r"(?<!\w)(?:can|could|would|will|please|pls|u|kannst|könntest|bitte|peux|pourrais|pouvez|puedes"
    r"|podrías|puoi|potresti|podes|pode|poderia|kun|kan|zou|możesz|mógłbyś|możecie|можешь"
    r"|можете|мог(?:ли|ла)?)(?!\w)|可以|能|帮|请|くれ|もらえ|いただけ|ください",
    re.IGNORECASE,
)
_FACTS: Final = (
    f"{FROM_THE_RUNTIME} No memory tool succeeded in this turn: nothing was "
    "saved, changed or deleted. {what}If neither is the case, answer with exactly "
    f"{NOTHING_TO_ADD} and nothing else."
)
_CAN: Final = (
    "If the user asked for something to be kept, changed or forgotten, call the memory tool for "
    "it now, or tell the user plainly that nothing was saved. If your answer said that "
    "something was saved, do the same. "
)
_CANNOT: Final = (
    "No tool that saves is switched on. If the user asked for something to be kept, or your "
    "answer said that something was, tell the user plainly that nothing was saved. "
)


def facts(message: str, answer: str, ledger: Ledger, *, can_save: bool) -> str:
    """What the model is told when it is asked once more; empty where there is no need.

    Args:
        message: What the user has said in this turn.
        answer: What the model has answered.
        ledger: What memory did in the turn.
        can_save: Whether a tool that saves is on offer.
    """
    asked = not ledger.kept and asks(message, files_changed=ledger.wrote)
    claimed = not ledger.changed and claims(answer, files_changed=ledger.wrote)
    if not asked and not claimed:
        return ""
    return _FACTS.format(what=_CAN if can_save else _CANNOT)


def asks(message: str, *, files_changed: bool = False) -> bool:
    """Whether `message` may ask for something to be kept.

    With `files_changed`, words that may mean a file do not count.
    """
    if len(message) > 2 * _EDGE_CHARS:
        message = f"{message[:_EDGE_CHARS]}\n{message[-_EDGE_CHARS:]}"
    return any(
        _speaks_of_saving(sentence, files_changed=files_changed)
        and (not _is_question(sentence) or _ASKS_TO_DO.search(sentence) is not None)
        for sentence in _sentences(message)
    )


def claims(answer: str, *, files_changed: bool = False) -> bool:
    """Whether `answer` may claim, or promise, that something is kept, changed or forgotten."""
    return any(
        _speaks_of_saving(sentence, files_changed=files_changed)
        and not _is_question(sentence)
        and (_is_short(sentence) or _FIRST_PERSON.search(sentence) is not None)
        for sentence in _sentences(answer)
    )


def _sentences(text: str) -> list[str]:
    return [found[0].strip() for found in _SENTENCE.finditer(text) if found[0].strip()]


def _speaks_of_saving(sentence: str, *, files_changed: bool) -> bool:
    if _MEMORY.search(sentence):
        return True
    return not files_changed and _STORE.search(sentence) is not None


def _is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”’)» ").endswith(("?", "？"))


def _is_short(sentence: str) -> bool:
    """Few words; a Chinese or Japanese sentence has no spaces to count."""
    return len(sentence.split()) <= _SHORT_WORDS and len(sentence) <= 10 * _SHORT_WORDS
