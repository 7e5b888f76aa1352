"""The search for placeholders in what is to go out, which has them nowhere any more."""

import base64
import re
from typing import Final

from wire.egress.rules import PREFIX

from egress.credentials.credential import MisplacedError

_RANDOM: Final = 32
"""So many letters, digits and hyphens follow `PREFIX` at least. A text that only mentions it, as
documentation does, is no placeholder."""
_ESCAPES: Final = 3
"""So many times a text may be percent-encoded over again."""


def _escaped(letter: str) -> bytes:
    """A pattern for a letter that may be percent-encoded."""
    codes = rb"%02x|%02x" % (ord(letter), ord(letter.upper()))
    return rb"(?:%s|%%(?:25){0,%d}(?:%s))" % (re.escape(letter.encode()), _ESCAPES, codes)


_ANY: Final = rb"(?:[a-z0-9-]|%%(?:25){0,%d}(?:2d|3[0-9]|[46][1-9a-f]|[57][0-9a]))" % _ESCAPES
_PLACEHOLDER: Final = re.compile(
    b"".join(map(_escaped, PREFIX)) + rb"%s{%d}" % (_ANY, _RANDOM)
)  # of text in lower case
_ESCAPE: Final = re.compile(rb"%(?:25|2d|[4-7])")
"""What is in lower case where a letter is percent-encoded; it is found at once, or not there."""
_LONGEST: Final = (len(PREFIX) + _RANDOM) * len("%252525ff")


def _patterns_of_base64() -> list[tuple[re.Pattern[bytes], int]]:
    """What is in base64 where a placeholder may be, and how many of its first characters are not
    to be decoded. A text begins at one of three places there, and the characters at its edges hold
    bits of its neighbours."""
    patterns = []
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + PREFIX.encode())
        first = (shift * 8 + 5) // 6
        inner = encoded[first : (shift + len(PREFIX)) * 8 // 6]
        skipped = -first % 4
        decoded = len(PREFIX) + _RANDOM - (shift and 3 - shift)
        groups = -(-decoded // 3)
        more = skipped + 4 * groups - len(inner)
        patterns.append((re.compile(rb"%s[A-Za-z0-9]{%d}" % (inner, more)), skipped))
    return patterns


_IN_BASE64: Final = _patterns_of_base64()
_INNER: Final = re.compile(
    rb"%s[a-z0-9-]{%d}" % (PREFIX[2:].encode(), _RANDOM)
)  # what is there wherever it begins


def holds_placeholder(data: bytes) -> bool:
    """Whether a placeholder is in `data`: in any case, percent-encoded, or in base64."""
    lower = data.lower()
    likely = PREFIX.encode() in lower or _ESCAPE.search(lower)
    if likely and _PLACEHOLDER.search(lower):
        return True
    for pattern, skipped in _IN_BASE64:
        for found in pattern.finditer(data):
            if _INNER.search(base64.b64decode(found[0][skipped:])):
                return True
    return False


class Search:
    """Lets a body go on piece by piece, as long as no placeholder is in it.

    The last bytes are kept back until it is clear that they begin none.
    """

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """What may go on. Raises `MisplacedError`."""
        window = self._kept + data
        if holds_placeholder(window):
            raise MisplacedError("the placeholder of a credential stands in the request's body")
        self._kept = window[-_LONGEST:]
        return window[:-_LONGEST]

    def end(self) -> bytes:
        """What was kept back."""
        return self._kept
