"""Redaction: hides secrets from models, people who watch and logs.

Known secrets (provider keys, tokens of the launch) are found exactly, and also URL-encoded,
base64-encoded and JSON-escaped; common credentials by their form (`credentials`). Only output is
redacted: what a user asks to remember is stored as it is.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote, quote_plus

from guest.tools.redaction.credentials import Span, find_all

REDACTED: Final = "[redacted]"

_URL_SAFE: Final = str.maketrans("+/", "-_")
_SHORTEST: Final = 4
_LONG: Final = 8
"""Known secrets of this length are also searched in other encodings. A shorter plain word is not
a secret: local model servers take keys such as "ollama", and hiding that word everywhere would
protect nothing."""


def replaced(
    text: str, spans: Sequence[tuple[int, int, str]], first: int = 0, last: int | None = None
) -> str:
    """`text[first:last]` with each of the sorted `spans` of `text` replaced by its word.

    Overlapping spans are replaced by the first one's word.
    """
    last = len(text) if last is None else last
    pieces: list[str] = []
    done = first
    for start, end, word in spans:
        if end > done and start < last:
            if start >= done or not pieces:
                pieces += (text[done : max(start, done)], word)
            done = min(end, last)
    return "".join((*pieces, text[done:last]))


class Scrubber:
    """Finds secrets in text; time is linear in the text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret.strip())}
        self._forms = tuple(sorted(forms))

    def learn(self, secret: str) -> None:
        """Redact this secret, too, from now on."""
        self._forms = tuple(sorted({*self._forms, *_forms(secret.strip())}))

    def spans(self, text: str) -> list[Span]:
        """The spans of secrets: sorted, and no two touch."""
        found = sorted([*self._known(text), *find_all(text)])
        merged: list[Span] = []
        for start, end in found:
            if start == end:
                continue
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def scrub(self, text: str) -> str:
        """`text` with `[redacted]` in place of every secret."""
        return replaced(text, self.replacements(text))

    def scrub_known(self, text: str) -> str:
        """`text` without the known secrets, otherwise unchanged."""
        if not any(map(text.__contains__, self._forms)):
            return text
        return replaced(text, [(*span, REDACTED) for span in sorted(self._known(text))])

    def replacements(self, text: str) -> list[tuple[int, int, str]]:
        """The spans of `text` and what to put in their place, for `replaced`."""
        return [(start, end, REDACTED) for start, end in self.spans(text)]

    def _known(self, text: str) -> Iterator[Span]:
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + 1)


def _forms(secret: str) -> set[str]:
    """The encodings in which `secret` may appear."""
    if len(secret) < _SHORTEST or (len(secret) < _LONG and secret.isalpha()):
        return set()
    forms = {secret}
    if len(secret) >= _LONG:
        for encoded in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
            forms |= {encoded, _lower_escapes(encoded)}
        for ascii_only in (True, False):
            escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
            forms |= {escaped, escaped.replace("/", "\\/")}
        forms |= _base64_forms(secret.encode())
    return forms


def _lower_escapes(encoded: str) -> str:
    head, *escapes = encoded.split("%")
    return "%".join((head, *(escape[:2].lower() + escape[2:] for escape in escapes)))


def _base64_forms(secret: bytes) -> set[str]:
    """`secret` as it appears in base64, even inside a longer text.

    There it starts at one of three alignments. The characters at either edge contain bits of the
    neighbours and are left off.
    """
    plain = base64.b64encode(secret).decode()
    forms = {plain, plain.translate(_URL_SAFE), plain.rstrip("=")}
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + secret).rstrip(b"=")
        first = (shift * 8 + 5) // 6
        last = (shift + len(secret)) * 8 // 6
        inner = encoded[first:last].decode()
        forms |= {inner, inner.translate(_URL_SAFE)}
    return forms
