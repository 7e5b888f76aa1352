"""The bodies of readable requests and of their answers, piece by piece."""

from collections.abc import AsyncIterator
from typing import Final

from egress.credentials.credential import MisplacedError
from egress.credentials.encodings import Decoder, UnreadableError
from egress.credentials.redaction import Redaction, Values
from egress.credentials.search import Search

_PLAIN: Final = ("", "identity")


class Outgoing:
    """The body of a request. A placeholder in it, or an encoding that cannot be searched, stops
    the request."""

    def __init__(self, encoding: str = "") -> None:
        """Raises `MisplacedError` for a Content-Encoding that cannot be searched."""
        self._search = Search()
        self._decoder: Decoder | None = None
        if encoding.strip().lower() not in _PLAIN:
            try:
                self._decoder = Decoder(encoding)
            except UnreadableError as error:
                raise _unsearchable(error) from None

    async def through(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What may go out of `body`, as soon as it may. Raises `MisplacedError`."""
        async for piece in body:
            if ready := self.feed(piece):
                yield ready
        if rest := self.end():
            yield rest

    def feed(self, data: bytes) -> bytes:
        """What may go out, in the body's own encoding. Raises `MisplacedError`."""
        if self._decoder is None:
            return self._search.feed(data)
        try:
            for piece in self._decoder.feed(data):
                self._search.feed(piece)
        except UnreadableError as error:
            raise _unsearchable(error) from None
        return data

    def end(self) -> bytes:
        """What was kept back. Raises `MisplacedError`."""
        if self._decoder is None:
            return self._search.end()
        try:
            self._decoder.end()
        except UnreadableError as error:
            raise _unsearchable(error) from None
        return b""


class Incoming:
    """The body of an answer, without the values of credentials, decoded if it was encoded."""

    def __init__(self, values: Values, encoding: str = "") -> None:
        """Raises `UnreadableError` for a Content-Encoding that cannot be searched."""
        self._redaction = Redaction(values)
        self._decoder = None if encoding.strip().lower() in _PLAIN else Decoder(encoding)

    @property
    def is_decoded(self) -> bool:
        """Whether the answer's Content-Encoding and Content-Length do not hold any more."""
        return self._decoder is not None

    def feed(self, data: bytes) -> bytes:
        """What may go on to the client. Raises `UnreadableError`."""
        if self._decoder is None:
            return self._redaction.feed(data)
        return b"".join(map(self._redaction.feed, self._decoder.feed(data)))

    def end(self) -> bytes:
        """What was kept back. Raises `UnreadableError` if the answer is cut off."""
        if self._decoder is not None:
            self._decoder.end()
        return self._redaction.end()


def _unsearchable(error: UnreadableError) -> MisplacedError:
    return MisplacedError(f"{error}, and might hold the placeholder of a credential")
