"""Refusals: why a request does not go out, in the words that its client gets."""

from http import HTTPStatus
from typing import Final

REFUSED_HEADER: Final = "oxydra-refused"
"""The header of an answer that is egress's own; its value is the code of a reason."""

_HEADERS: Final = {"Content-Type": "text/plain; charset=utf-8", "Connection": "close"}


class Refused(Exception):  # noqa: N818 - nothing went wrong
    """Something does not go out.

    Attributes:
        status: Of the answer: 400 not understood, 403 not allowed, 408 too slow, 429 over a limit,
            431 too large, 502 not reached, 503 not ready.
        code: The reason in one word, for programs. Of those with 502, "cut" alone means that the
            request may have reached the server.
        why: The reason in a sentence, for people and models.
        recorded: Whether the runner was told.
    """

    def __init__(self, status: int, code: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.code = code
        self.why = why
        self.recorded = False

    @property
    def headers(self) -> dict[str, str]:
        return {**_HEADERS, REFUSED_HEADER: self.code}

    @property
    def body(self) -> bytes:
        """Of the answer: one line of text."""
        return f"egress: {self.why}\n".encode()

    def raw(self) -> bytes:
        """The whole answer, for connections on which no HTTP server runs."""
        fields = {**self.headers, "Content-Length": str(len(self.body))}
        head = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        head += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([*head, "", ""]).encode() + self.body


def not_ready(why: str) -> Refused:
    """Nothing goes out now."""
    return Refused(503, "not_ready", why)
