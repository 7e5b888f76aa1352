"""Redaction: answers come in without the values of credentials.

A value is found as it is, percent-encoded, escaped for JSON or HTML, in hexadecimal, and in base64,
also within more. Each of its bytes becomes an asterisk, so that lengths stay as the server has
told them.
"""

import base64
import html
import json
import re
import string
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

_MASK: Final = b"*"
_LETTERS: Final = b"%+-./=_~" + string.ascii_letters.encode() + string.digits.encode()
"""What keys and their encodings are usually made of."""
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def forms_of(value: str) -> frozenset[bytes]:
    """How `value` may be written in an answer."""
    raw = value.encode()
    escaped = {quote(value), quote(value, safe=""), quote_plus(value)}
    escaped |= {re.sub("%..", lambda found: found[0].lower(), each) for each in escaped}
    in_json = json.dumps(value)[1:-1]
    escaped |= {value, in_json, in_json.replace("/", "\\/"), html.escape(value)}
    escaped |= {raw.hex(), raw.hex().upper()}
    escaped |= {"".join(f"%{byte:{form}}" for byte in raw) for form in ("02X", "02x")}
    return frozenset({each.encode() for each in escaped} | _base64_forms(raw))


def _base64_forms(value: bytes) -> set[bytes]:
    """`value` in base64, where it begins at one of three places. The characters at its edges hold
    bits of its neighbours too and are left off, unless it stands alone."""
    plain = base64.b64encode(value).rstrip(b"=")
    forms = {plain}
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + value)
        forms.add(encoded[(shift * 8 + 5) // 6 : (shift + len(value)) * 8 // 6])
    return forms | {form.translate(_URL_SAFE) for form in forms}


class Values:
    """The values that are hidden, in all the ways in which they may be written."""

    def __init__(self, values: Iterable[str]) -> None:
        self.forms = tuple(sorted({form for value in values for form in forms_of(value)}))
        self._longest = max(map(len, self.forms), default=0)
        self._letters = bytes({*_LETTERS, *b"".join(self.forms)})

    def occurrences(self, data: bytes, fresh: int = 0) -> Iterator[tuple[int, int]]:
        """Where values stand in `data` that end after its first `fresh` bytes."""
        for form in self.forms:
            at = data.find(form, max(0, fresh - len(form) + 1))
            while at >= 0:
                yield at, at + len(form)
                at = data.find(form, at + 1)

    def begun(self, data: bytes) -> int:
        """How many of the last bytes of `data` may begin a value: those that are of one word.

        It is the same for every value of a length. Whether just the beginnings of a value wait
        would tell somebody who lets a server repeat guesses, and takes the time, one letter after
        the other.
        """
        if not self.forms:
            return 0
        tail = data[-self._longest :]
        return min(len(tail) - len(tail.rstrip(self._letters)), self._longest - 1)

    def redacted(self, text: str) -> str:
        """A whole text, such as that of a header."""
        stream = Redaction(self)
        data = text.encode("utf-8", "surrogateescape")
        return (stream.feed(data) + stream.end()).decode("utf-8", "surrogateescape")


class Redaction:
    """Hides values in a stream of bytes. A word at the end, which may begin a value, is kept back
    until it is clear that it does not."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._raw = b""
        self._shown = b""

    def feed(self, data: bytes) -> bytes:
        """What may go on."""
        raw = self._raw + data
        shown = bytearray(self._shown + data)
        for start, end in self._values.occurrences(raw, len(self._raw)):
            shown[start:end] = _MASK * (end - start)
        until = len(raw) - self._values.begun(raw)
        self._raw, self._shown = raw[until:], bytes(shown[until:])
        return bytes(shown[:until])

    def end(self) -> bytes:
        """What was kept back."""
        shown, self._raw, self._shown = self._shown, b"", b""
        return shown
