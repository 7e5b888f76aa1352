"""Globs over commands (`*`, `?`, `[…]`) that can also be matched against a beginning."""

import functools
import re
from fnmatch import translate
from typing import Final

_CLASS: Final = re.compile(r"\[!?\]?[^\]]*\]", re.DOTALL)
_STAR: Final = "*"


class Glob:
    """One pattern.

    `*` matches any text, also an empty one or one with spaces. A pattern that ends in ` *` also
    matches the command without arguments.
    """

    def __init__(self, pattern: str) -> None:
        self._whole = re.compile(translate(pattern))
        self._bare = pattern.endswith(" *")
        self._steps: list[str | re.Pattern[str]] = []
        at = 0
        while at < len(pattern):
            found = _CLASS.match(pattern, at)
            piece = found[0] if found else pattern[at]
            at += len(piece)
            if piece == "?" or found:
                self._steps.append(re.compile(translate(piece)))
            elif piece != _STAR or self._steps[-1:] != [_STAR]:
                self._steps.append(piece)

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole of `text`."""
        if self._whole.match(text):
            return True
        return self._bare and self._whole.match(f"{text} ") is not None

    def may_match(self, beginning: str) -> bool:
        """Whether the pattern matches at least one text with this beginning."""
        stars = {place for place, step in enumerate(self._steps) if step == _STAR}
        return bool(self._after(beginning, stars))

    def must_match(self, beginning: str) -> bool:
        """Whether the pattern matches every command that begins with these words."""
        if self._steps[-1:] != [_STAR]:
            return False
        last = {len(self._steps) - 1}
        if last & self._after(beginning, last):
            return True
        return self._bare and bool(last & self._after(f"{beginning} ", last))

    def _after(self, text: str, enough: set[int]) -> set[int]:
        """The steps of the pattern that can be next after `text`.

        Stops early at a step of `enough`; these are stars, which stay possible.
        """
        places = self._with_stars({0})
        for letter in text:
            if not places or places & enough:
                break
            places = self._with_stars({self._next(place, letter) for place in places} - {-1})
        return places

    def _next(self, place: int, letter: str) -> int:
        """The step after `letter` at the step `place`; -1 if the letter does not match."""
        if place == len(self._steps):
            return -1
        step = self._steps[place]
        if step == _STAR:
            return place
        fits = step.match(letter) if isinstance(step, re.Pattern) else step == letter
        return place + 1 if fits else -1

    def _with_stars(self, places: set[int]) -> set[int]:
        """`places` and the steps after their stars, which may match nothing."""
        return places | {place + 1 for place in places if self._steps[place : place + 1] == [_STAR]}


@functools.lru_cache(maxsize=1024)
def glob(pattern: str) -> Glob:
    return Glob(pattern)
