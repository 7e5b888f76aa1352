"""The lines of an audit log, each with the hash of the one before, and the head that anchors them.

A line is a JSON object: `n`, its number; `prev`, the hash of the line before; what happened; and
`hash`, the SHA-256 of all bytes before it. So no byte of a line can change, and no line be added,
moved or removed, without a contradiction in the lines that follow, or with the head.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from wire.text import parsed_json

GENESIS: Final = "0" * 64
"""What stands in for the hash before the first line."""
HEAD_BYTES: Final = 512
_BEFORE_HASH: Final = b',"hash":"'
_AFTER_HASH: Final = b'"}\n'
_SEAL_BYTES: Final = len(_BEFORE_HASH) + 64 + len(_AFTER_HASH)


@dataclass(frozen=True)
class Link:
    """One line: its number, the hash before, its own hash, and what it says."""

    number: int
    previous: str
    hash: str
    entry: Mapping[str, Any]


def sealed(number: int, previous: str, entry: Mapping[str, Any]) -> tuple[bytes, str]:
    """The line for an entry, and its hash."""
    whole = json.dumps({"n": number, "prev": previous, **entry}, separators=(",", ":"))
    body = whole[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + _BEFORE_HASH + digest.encode() + _AFTER_HASH, digest


def opened(line: bytes) -> Link:
    """What a whole line says. Raises `ValueError` if it is not as it was written."""
    body, seal = line[:-_SEAL_BYTES], line[-_SEAL_BYTES:]
    digest = hashlib.sha256(body).hexdigest()
    if seal != _BEFORE_HASH + digest.encode() + _AFTER_HASH:
        raise ValueError("its hash does not fit its content")
    found = parsed_json(body.decode() + "}")
    number, previous = found.pop("n", None), found.pop("prev", None)
    if not isinstance(number, int) or not isinstance(previous, str):
        raise ValueError("it has no number or no hash of the line before")
    return Link(number, previous, digest, found)


@dataclass(frozen=True)
class Head:
    """Where a log begins and ends: the number of its first line with the hash before that, and the
    number and hash of its last line."""

    first: int = 1
    before: str = GENESIS
    last: int = 0
    hash: str = GENESIS

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `FileNotFoundError` where there is none, `ValueError` where it is damaged."""
        content = path.read_bytes()
        try:
            found = cls(**parsed_json(content.decode()))
        except TypeError as error:
            raise ValueError(str(error)) from None
        if found.encoded() != content:
            raise ValueError("it is not what this program writes")
        return found

    def encoded(self) -> bytes:
        """As it is kept: always of the same length, so that it is written in place."""
        return json.dumps(asdict(self)).encode().ljust(HEAD_BYTES - 1) + b"\n"
