"""Cursors of searches.

A cursor names the results that were shown. The same search without them gives the next ones, so
that nothing comes twice and nothing is left out, whatever is written in between.
"""

import base64
import binascii
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from wire.limits import CURSOR_MAX_CHARS

from guest.memory.models import Hit

_BYTES: Final = 3
"""Four characters for each result. Two of 250 are alike by chance in one search of 500."""

SHOWN_MAX: Final = CURSOR_MAX_CHARS // 4 - 1
"""How many results a cursor can name."""


class Shown:
    """The results that `cursor` names; none without one.

    `search` is what was searched. `fits` is false if the cursor is of another search, or damaged.
    """

    def __init__(self, cursor: str = "", search: object = None) -> None:
        self._search = repr(search)
        try:
            named = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            named = b"?"
        pieces = [named[at : at + _BYTES] for at in range(0, len(named), _BYTES)]
        self._named = pieces[1:]
        self.fits = not cursor or pieces[0] == self._check(self._named)

    def __contains__(self, hit: Hit) -> bool:
        return bool(self._named) and _name(hit) in self._named

    def __len__(self) -> int:
        return len(self._named)

    def cursor_after(self, page: Sequence[Hit], more: bool, count: int) -> str:
        """The cursor of what follows the first `count` results of a page, which is the last one
        without `more`; empty at the end."""
        if count >= len(page) and not more:
            return ""
        named = [*self._named, *map(_name, page[:count])]
        return base64.urlsafe_b64encode(b"".join((self._check(named), *named))).decode()

    def _check(self, named: Sequence[bytes]) -> bytes:
        return _digest(self._search.encode() + b"".join(named))


def _name(hit: Hit) -> bytes:
    return _digest((hit.note_id or f"{hit.session_id} {hit.sequence} {hit.text}").encode())


def _digest(of: bytes) -> bytes:
    return blake2b(of, digest_size=_BYTES).digest()
