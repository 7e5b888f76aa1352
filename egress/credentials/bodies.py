"""What is searched: requests for placeholders, answers for the values of credentials.

A placeholder opens nothing, so it is searched as people write it by mistake: as it is, and
percent-encoded. A body in an encoding that cannot be searched goes nowhere.
"""

import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from wire.egress.rules import PREFIX

from egress.credentials.redaction import Redaction, Values


class MisplacedError(Exception):
    """A placeholder stands where it does not become a value, so the request does not go out. The
    text says why, and holds neither placeholder nor value."""


_RANDOM: Final = 32
"""At least so many letters, digits and hyphens follow `PREFIX`. A text that only mentions it, as
documentation does, is not a placeholder."""
_ESCAPES: Final = 3
"""How many times a percent-encoded text may be percent-encoded again."""


def _escaped(letter: str) -> bytes:
    """A pattern for a letter that may be percent-encoded."""
    codes = rb"%02x|%02x" % (ord(letter), ord(letter.upper()))
    return rb"(?:%s|%%(?:25){0,%d}(?:%s))" % (re.escape(letter.encode()), _ESCAPES, codes)


_ANY: Final = rb"(?:[a-z0-9-]|%%(?:25){0,%d}(?:2d|3[0-9]|[46][1-9a-f]|[57][0-9a]))" % _ESCAPES
_PLACEHOLDER: Final = re.compile(
    b"".join(map(_escaped, PREFIX)) + rb"%s{%d}" % (_ANY, _RANDOM)
)  # of text in lower case
_ESCAPE: Final = re.compile(rb"%(?:25|2d|[4-7])")
"""Occurs in lower-case text that holds a percent-encoded letter; finding it is quick."""
_LONGEST: Final = (len(PREFIX) + _RANDOM) * len("%252525ff")


def holds_placeholder(data: bytes) -> bool:
    """Whether a placeholder is in `data`, in any case, as it is or percent-encoded."""
    lower = data.lower()
    likely = PREFIX.encode() in lower or _ESCAPE.search(lower)
    return bool(likely and _PLACEHOLDER.search(lower))


_PLAIN: Final = ("", "identity")
_COMPRESSED: Final = ("gzip", "deflate")
_GZIP_OR_ZLIB: Final = 47
"""Of zlib's `wbits`: the header says which of the two it is."""
_PIECE: Final = 64 * 1024
_RATIO_MAX: Final = 200
_FREE: Final = 1024 * 1024
"""How large a body may become besides `_RATIO_MAX` times its size; more attacks the memory."""


class UnreadableError(Exception):
    """A body cannot be searched. The text says why."""


class _Decoder:
    """Decompresses a body piece by piece. Its methods raise `UnreadableError`."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None
        self._taken = self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed `data`, in pieces of bounded size."""
        self._taken += len(data)
        more = bool(data)
        while more:
            if self._inflate is None or self._inflate.eof:
                self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error:
                raise UnreadableError("the body is not compressed as it says") from None
            self._given += len(piece)
            if self._given > self._taken * _RATIO_MAX + _FREE:
                raise UnreadableError("the body becomes too large when it is decompressed")
            yield piece
            data = self._inflate.unused_data or self._inflate.unconsumed_tail
            more = bool(data) or (len(piece) == _PIECE and not self._inflate.eof)

    def end(self) -> None:
        """Raises `UnreadableError` if the body is cut off."""
        if self._inflate is not None and not self._inflate.eof:
            raise UnreadableError("the body is cut off")


def _decoder(encoding: str) -> _Decoder | None:
    """The decoder of a Content-Encoding; None if there is nothing to decode. Raises
    `UnreadableError`."""
    name = encoding.strip().lower().removeprefix("x-")
    if name in _PLAIN:
        return None
    if name not in _COMPRESSED:
        raise UnreadableError(f"a body in the encoding {encoding[:40]!r} cannot be searched")
    return _Decoder()


@contextmanager
def _searchable() -> Iterator[None]:
    try:
        yield
    except UnreadableError as error:
        raise MisplacedError(
            f"{error}, and might hold the placeholder of a credential; send it uncompressed or "
            "with gzip"
        ) from None


class Outgoing:
    """The body of a request. A placeholder in it, or an encoding that cannot be searched, stops
    the request: the methods raise `MisplacedError`, and so does a wrong `encoding`.

    The last bytes are kept back until it is clear that no placeholder begins in them.
    """

    def __init__(self, encoding: str = "") -> None:
        self._pending = b""
        with _searchable():
            self._decoder = _decoder(encoding)

    async def through(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What may go out of `body`, as soon as it may."""
        async for piece in body:
            if ready := self.feed(piece):
                yield ready
        if rest := self.end():
            yield rest

    def feed(self, data: bytes) -> bytes:
        """What may go out, in the body's own encoding."""
        if self._decoder is None:
            return self._searched(data)
        with _searchable():
            for piece in self._decoder.feed(data):
                self._searched(piece)
        return data

    def end(self) -> bytes:
        """What was kept back."""
        if self._decoder is None:
            return self._pending
        with _searchable():
            self._decoder.end()
        return b""

    def _searched(self, data: bytes) -> bytes:
        window = self._pending + data
        if holds_placeholder(window):
            raise MisplacedError("the placeholder of a credential stands in the request's body")
        self._pending = window[-_LONGEST:]
        return window[:-_LONGEST]


class Incoming:
    """The body of an answer, without the values of credentials, decompressed. The methods raise
    `UnreadableError`, and so does a wrong `encoding`."""

    def __init__(self, values: Values, encoding: str = "") -> None:
        self._redaction = Redaction(values)
        self._decoder = _decoder(encoding)

    @property
    def is_decoded(self) -> bool:
        """Whether the answer's Content-Encoding and Content-Length do not hold any more."""
        return self._decoder is not None

    def feed(self, data: bytes) -> bytes:
        """What may go on to the client."""
        if self._decoder is None:
            return self._redaction.feed(data)
        return b"".join(map(self._redaction.feed, self._decoder.feed(data)))

    def end(self) -> bytes:
        """What was kept back."""
        if self._decoder is not None:
            self._decoder.end()
        return self._redaction.end()
