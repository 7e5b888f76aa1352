"""Which session of the agent a resent conversation is.

Most programs send their whole conversation with each question. The server remembers, by a hash of
what was said before it, each question that came and what was answered; a conversation that goes on
from there belongs to the same session. A conversation that was edited or branches off, or that this
server does not remember, as after its restart, is a new session.

Spaces do not count: programs trim texts, and the agent's record has other breaks between its parts.
"""

import hashlib
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wire.v1 import gateway_pb2 as pb

from runner.openai.requests import Exchange

KNOWN_MAX: Final = 4096
KNOWN_CHARS_MAX: Final = 16_000_000
SESSIONS_LOOKED_AT: Final = 100
EVENTS_READ: Final = 1_000
_EARLIER_CHARS: Final = 24_000
_REDACTED: Final = "[redacted:"
_LEFT_OUT: Final = "[what came before is left out]"


@dataclass(eq=False)
class Known:
    """A question, and what the client was told so far.

    Attributes:
        key: Of the question with all that was said before it.
        said: The answer without spaces.
        left: The client closed the connection before the end.
        called: The answer ended with a call of the client's tools. Some programs tell of it, and of
            what it gave, in words of their own.
    """

    key: str
    user_id: str
    session_id: str
    turn_id: str
    said: str = ""
    left: bool = False
    called: bool = False

    def told(self, text: str) -> None:
        self.said += plain(text)


class Conversations:
    """The last question of each session of all users; the oldest are dropped first."""

    def __init__(self, most: int = KNOWN_MAX, most_chars: int = KNOWN_CHARS_MAX) -> None:
        self._most = most
        self._most_chars = most_chars
        self._last: OrderedDict[tuple[str, str], Known] = OrderedDict()

    def add(self, known: Known) -> None:
        """Remember a question, which is now the last one of its session."""
        place = (known.user_id, known.session_id)
        self._last[place] = known
        self._last.move_to_end(place)
        chars = sum(len(each.said) for each in self._last.values())
        while len(self._last) > self._most or chars > self._most_chars:
            _, oldest = self._last.popitem(last=False)
            chars -= len(oldest.said)

    def last(self, user_id: str, session_id: str) -> Known | None:
        """The last question of a session, if it came through this server."""
        return self._last.get((user_id, session_id))

    def of_turn(self, user_id: str, turn_id: str) -> Known | None:
        """The question that a turn answers."""
        mine = (known for known in self._last.values() if known.user_id == user_id)
        return next((known for known in mine if known.turn_id == turn_id), None)

    def asked(self, user_id: str, talk: Sequence[Exchange]) -> Known | None:
        """The session whose last question is that of `talk`, after the same conversation."""
        return next(self._ending_with(user_id, talk), None)

    def before(self, user_id: str, talk: Sequence[Exchange]) -> Known | None:
        """The session that `talk` goes on from with its last question. Of the last answer the
        beginning is enough: the client may have left before its end."""
        if len(talk) < 2:
            return None
        answered = plain(talk[-2].answered)
        found = self._ending_with(user_id, talk[:-1])
        return next((each for each in found if each.called or each.said.startswith(answered)), None)

    def _ending_with(self, user_id: str, talk: Sequence[Exchange]) -> Iterator[Known]:
        key = key_of(talk)
        latest = reversed(self._last.values())
        return (known for known in latest if known.user_id == user_id and known.key == key)


def exchanges(events: Iterable[pb.HistoryEvent]) -> list[Exchange]:
    """What was said in these events of a session."""
    said: list[Exchange] = []
    for event in events:
        if event.role == "user":
            said.append(Exchange(event.text))
        elif event.role == "assistant" and said:
            answered = "\n\n".join(filter(None, (said[-1].answered, event.text)))
            said[-1] = Exchange(said[-1].asked, answered)
    return said


def go_on(events: Sequence[pb.HistoryEvent], sent: Sequence[Exchange], *, left: bool) -> bool:
    """Whether what was `sent` ends with what a session holds. A question may have come with more
    around it, such as what a program had looked up; an answer that was stopped, or (`left`) the
    last one, may have come in part. What was redacted is not compared."""
    held = exchanges(events)
    stopped = {each.text for each in events if each.role == "assistant" and each.incomplete}

    def same(kept: Exchange, told: Exchange) -> bool:
        asked, answered = plain(kept.asked), plain(kept.answered)
        part = kept.answered in stopped or (left and kept is held[-1])
        return (_REDACTED in asked or plain(told.asked) in asked) and (
            _REDACTED in answered
            or answered == plain(told.answered)
            or (part and answered.startswith(plain(told.answered)))
        )

    return len(sent) >= len(held) and all(map(same, held, sent[len(sent) - len(held) :]))


def as_context(talk: Sequence[Exchange]) -> str:
    """What was said, as the agent is told of it once; the oldest is left out where it is much."""
    lines: list[str] = []
    for each in talk:
        lines += [f"User: {each.asked}"] if each.asked else []
        lines += [f"Answer: {each.answered}"] if each.answered else []
    text = "\n".join(lines)
    return text if len(text) <= _EARLIER_CHARS else f"{_LEFT_OUT}\n{text[-_EARLIER_CHARS:]}"


def key_of(talk: Sequence[Exchange]) -> str:
    """The last question of `talk` with all that was said before it, as a hash."""
    digest = hashlib.sha256()
    for each in talk[:-1]:
        for text in (each.asked, each.answered):
            digest.update(hashlib.sha256(plain(text).encode(errors="replace")).digest())
    digest.update(plain(talk[-1].asked).encode(errors="replace"))
    return digest.hexdigest()


def plain(text: str) -> str:
    """`text` in one normal form, without spaces."""
    return "".join(unicodedata.normalize("NFC", text).split())
