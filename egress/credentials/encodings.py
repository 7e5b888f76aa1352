"""Content encodings that are read: gzip and deflate."""

import zlib
from collections.abc import Iterator
from typing import Final

_PIECE: Final = 64 * 1024
_RATIO_MAX: Final = 200
_FREE: Final = 1024 * 1024
"""What a body may become besides `_RATIO_MAX` times its size; more is an attack on memory."""
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
"""Of zlib's `wbits`: which header the data has."""


class UnreadableError(Exception):
    """A body cannot be searched. The text says why."""


class Decoder:
    """Decodes a body piece by piece.

    Raises `UnreadableError` for an encoding that is not known; so do its methods for a body that
    is not in it.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower().removeprefix("x-")
        if self._encoding not in ("gzip", "deflate"):
            raise UnreadableError(f"a body in the encoding {encoding[:40]!r} cannot be searched")
        self._inflate: zlib._Decompress | None = None
        self._start = b""
        self._taken = self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What `data` says, in pieces of bounded size."""
        self._taken += len(data)
        data = self._start + data
        if self._inflate is None and len(data) < 2:
            self._start = data
            return
        self._start = b""
        more = bool(data)
        while more:
            if self._inflate is None or self._inflate.eof:
                self._inflate = zlib.decompressobj(self._header(data))
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error:
                raise UnreadableError(f"the body is not in {self._encoding}, as it says") from None
            self._given += len(piece)
            if self._given > self._taken * _RATIO_MAX + _FREE:
                raise UnreadableError("the body becomes too large when it is decompressed")
            yield piece
            data = self._inflate.unused_data or self._inflate.unconsumed_tail
            more = bool(data) or (len(piece) == _PIECE and not self._inflate.eof)

    def end(self) -> None:
        """The body ends here. Raises `UnreadableError` if it is cut off."""
        if self._start or (self._inflate is not None and not self._inflate.eof):
            raise UnreadableError("the body is cut off")

    def _header(self, data: bytes) -> int:
        if self._encoding == "gzip":
            return _GZIP
        # What many call deflate has no header.
        is_zlib = data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0
        return _ZLIB if is_zlib else _RAW
