"""Redaction: hides secrets from models, people who watch and logs.

Known secrets (provider keys, tokens of the launch) are found exactly, and also URL-encoded,
in base64, in hexadecimal and JSON-escaped, all of it also where it is spread over lines, and pieces
of them where a text was cut; common credentials by their form (`credentials`). Only output is
redacted: what a user asks to remember is stored as it is.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus, unquote_to_bytes

from guest.tools.redaction.credentials import Span, find_all

REDACTED: Final = "[redacted]"

_URL_SAFE: Final = str.maketrans("+/", "-_")
_SHORTEST: Final = 4
_LONG: Final = 8
"""Known secrets of this length are also searched in other encodings. A shorter plain word is not
a secret: local model servers take keys such as "ollama", and hiding that word everywhere would
protect nothing."""


_BREAKS: Final = re.compile(r"(?:\s|\\[nr])+")
_SPREAD: Final = 12
"""Shorter forms would be found by chance where blanks do not count."""

_PART: Final = 8
_PIECE: Final = 2 * _PART
"""Shorter pieces of known secrets are shown: they may be no more than the beginning that all keys
of a provider have."""

_HEX: Final = re.compile(r"[0-9a-fA-FxX\\\s:,;-]{16,}+")
_HEX_DIGITS: Final = re.compile(r"0[xX]|\\[xX]|([0-9a-fA-F])")
_NO_DIGIT: Final = re.compile(r"0[xX]|\\[xX]|[^0-9a-fA-F]")
_WORD: Final = re.compile(r"\S+")
_URL_BYTE: Final = re.compile(r"%[0-9a-fA-F]{2}|.", re.DOTALL)

Bytes = tuple[bytes, list[Span]]
"""What an encoded text says, and where each byte of it stands."""


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


def occurrences(text: str, part: str) -> Iterator[Span]:
    """Where `part` stands in `text`, also where it overlaps itself."""
    start = text.find(part)
    while start >= 0:
        yield start, start + len(part)
        start = text.find(part, start + 1)


class Secret(NamedTuple):
    """Where a secret stands in a text; `known`: it is one of the secrets of this launch."""

    start: int
    end: int
    known: bool


def joined(found: Iterable[Secret]) -> list[Secret]:
    """`found`, sorted, with those that touch as one."""
    merged: list[Secret] = []
    for start, end, known in sorted(found):
        if start == end:
            continue
        if merged and start <= merged[-1].end:
            last = merged[-1]
            merged[-1] = Secret(last.start, max(end, last.end), known or last.known)
        else:
            merged.append(Secret(start, end, known))
    return merged


class Scrubber:
    """Finds secrets in text; time is linear in the text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        self._in_lines: tuple[str, ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self._cut: frozenset[str] = frozenset()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Redact this secret, too, from now on."""
        secret = secret.strip()
        forms = _forms(secret)
        in_lines = {spread for form in forms if len(spread := _in_one_line(form)) >= _SPREAD}
        self._forms = tuple(sorted({*self._forms, *forms}))
        self._in_lines = tuple(sorted({*self._in_lines, *in_lines}))
        if len(secret) >= _LONG:
            raw = secret.encode()
            self._bytes = (*self._bytes, raw)
            whole = {_in_one_line(secret), raw.hex(), raw.hex().upper(), *_base64_forms(raw)}
            self._cut |= {form for form in whole if len(form) > _PIECE}

    def found(self, text: str) -> list[Secret]:
        """The secrets in `text`: sorted, and no two touch."""
        known = (Secret(*span, True) for span in self._known(text))
        others = (Secret(*span, False) for span in (*find_all(text), *self._pieces(text)))
        return joined([*known, *others])

    def scrub(self, text: str) -> str:
        """`text` with `[redacted]` in place of every secret."""
        return replaced(text, [(one.start, one.end, REDACTED) for one in self.found(text)])

    def scrub_known(self, text: str) -> str:
        """`text` without the known secrets, otherwise unchanged."""
        known = joined(Secret(*span, True) for span in self._known(text))
        return replaced(text, [(one.start, one.end, REDACTED) for one in known]) if known else text

    def _known(self, text: str) -> Iterator[Span]:
        for form in self._forms:
            yield from occurrences(text, form)
        yield from self._spread(text)
        for run in _HEX.finditer(text):
            digits = _NO_DIGIT.sub("", run[0]).lower()
            if any(secret.hex() in digits for secret in self._bytes):
                yield from _inside(run, self._bytes, _bytes_of_hex(run[0]))
        for run in _WORD.finditer(text) if "%" in text else ():
            if "%" in run[0]:
                content = unquote_to_bytes(run[0].encode(errors="replace"))
                if any(secret in content for secret in self._bytes):
                    yield from _inside(run, self._bytes, _bytes_of_url(run[0]))

    def _spread(self, text: str) -> Iterator[Span]:
        """Known secrets over which line breaks and blanks are strewn."""
        line = _in_one_line(text)
        if len(line) == len(text):
            return
        place: list[int] = []
        for form in self._in_lines:
            for start, end in occurrences(line, form):
                place = place or _places(text)
                yield place[start], place[end - 1] + 1

    def _pieces(self, text: str) -> Iterator[Span]:
        """Pieces of known secrets, as they are left where a text was cut into passages.

        Every piece of `_PIECE` characters holds one of the parts that are looked for.
        """
        line = _in_one_line(text)
        if len(line) < _PIECE:
            return
        place: Sequence[int] = ()
        for form in self._cut:
            for offset in range(0, len(form) - _PART + 1, _PART):
                part = form[offset : offset + _PART]
                at = line.find(part)
                while at >= 0:
                    start, end = _grown(line, at, form, offset)
                    if end - start >= _PIECE:
                        place = place or _places(text)
                        yield place[start], place[end - 1] + 1
                    at = line.find(part, max(end, at + 1))


def _grown(line: str, at: int, form: str, offset: int) -> Span:
    """How far `line` around `at` says the same as `form` around `offset`."""
    before = after = 0
    while before < min(at, offset) and line[at - before - 1] == form[offset - before - 1]:
        before += 1
    most = min(len(line) - at, len(form) - offset)
    while after < most and line[at + after] == form[offset + after]:
        after += 1
    return at - before, at + after


def _in_one_line(text: str) -> str:
    """`text` without white space, and without line breaks that are written as escapes."""
    if "\\" in text:
        text = text.replace("\\n", "").replace("\\r", "")
    return "".join(text.split())


def _places(text: str) -> list[int]:
    """Where each character of `_in_one_line(text)` stands in `text`."""
    places: list[int] = []
    done = 0
    for gap in _BREAKS.finditer(text):
        places += range(done, gap.start())
        done = gap.end()
    return [*places, *range(done, len(text))]


def _inside(
    run: re.Match[str], secrets: Sequence[bytes], decoded: Iterable[Bytes]
) -> Iterator[Span]:
    """Where `run`, which says what is `decoded`, holds one of the `secrets`."""
    for content, spans in decoded:
        for secret in secrets:
            start = content.find(secret)
            while start >= 0:
                end = start + len(secret) - 1
                yield run.start() + spans[start][0], run.start() + spans[end][1]
                start = content.find(secret, start + 1)


def _bytes_of_hex(run: str) -> Iterator[Bytes]:
    """What the hexadecimal digits say, which may begin in the middle of a byte."""
    digits = [found for found in _HEX_DIGITS.finditer(run) if found[1]]
    for first in (0, 1):
        pairs = list(zip(digits[first::2], digits[first + 1 :: 2], strict=False))
        content = bytes(int(high[0] + low[0], 16) for high, low in pairs)
        yield content, [(high.start(), low.end()) for high, low in pairs]


def _bytes_of_url(run: str) -> Iterator[Bytes]:
    """What the text says whose characters may be escaped as in a URL."""
    content = bytearray()
    spans: list[Span] = []
    for found in _URL_BYTE.finditer(run):
        byte = found[0]
        decoded = unquote_to_bytes(byte) if len(byte) == 3 else byte.encode(errors="replace")
        content += decoded
        spans += [found.span()] * len(decoded)
    yield bytes(content), spans


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
