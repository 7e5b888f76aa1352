"""Which files of a project git would ignore, by the rules as they were when it was opened.

A name is matched with patterns that never try a place twice, however hostile they are.
"""

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

FILE: Final = ".gitignore"
MAX_BYTES: Final = 256 * 1024
_RULES_MAX: Final = 1_000
_RULE_MAX: Final = 500
"""A longer rule hides nothing."""


class _Rule(NamedTuple):
    parts: tuple[str, ...]
    includes: bool
    directories: bool
    anywhere: bool

    def matches(self, path: Sequence[str], *, is_directory: bool) -> bool:
        if self.directories and not is_directory:
            return False
        if self.anywhere:
            return _segment(self.parts[0]).fullmatch(path[-1]) is not None
        return _matches(self.parts, path)


def rules(text: str) -> tuple[_Rule, ...]:
    """The rules of a file, the one that decides first at first."""
    found = []
    for line in text.removeprefix("\ufeff").split("\n"):
        if len(line) > _RULE_MAX:
            continue
        pattern = re.sub(r"(?<!\\) +$", "", line.removesuffix("\r"))
        includes = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        if not pattern.strip("/") or pattern.startswith("#"):
            continue
        directories = pattern.endswith("/")
        pattern = pattern.rstrip("/") if directories else pattern
        parts = tuple(part for part in pattern.split("/") if part)
        found.append(_Rule(parts, includes, directories, "/" not in pattern))
    return tuple(reversed(found[-_RULES_MAX:]))


def decides(rules: Sequence[_Rule], path: Sequence[str], *, is_directory: bool) -> bool | None:
    """Whether these rules ignore a path below their directory; None if none is about it."""
    for rule in rules:
        if rule.matches(path, is_directory=is_directory):
            return not rule.includes
    return None


def _matches(parts: Sequence[str], path: Sequence[str]) -> bool:
    """Whether all of `path` is as the parts say, of which `**` stands for any directories."""
    places = {0}
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            low = min(places)
            places = set(range(low + last, len(path) + 1))
        else:
            match = _segment(part).fullmatch
            places = {at + 1 for at in places if at < len(path) and match(path[at])}
        if not places:
            return False
    return len(path) in places


@lru_cache(maxsize=4_096)
def _segment(pattern: str) -> re.Pattern[str]:
    """One part of a path. A backslash makes the next character mean itself."""
    out, at = "", 0
    while at < len(pattern):
        letter, at = pattern[at], at + 1
        if letter == "\\" and at < len(pattern):
            letter, at = f"[{pattern[at]}]" if pattern[at] in "*?[" else pattern[at], at + 1
        elif letter == "[" and pattern[at : at + 1] == "^":
            letter, at = "[!", at + 1
        out += letter
    return re.compile(fnmatch.translate(re.sub(r"\*\*+", "*", out)))
