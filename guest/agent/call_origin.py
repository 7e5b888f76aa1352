"""Decides whether a call that a model has written as text comes from words that are not the user's.

A page may contain a call, or the command of one, and a model repeats it. What is compared is what
a call means: its tool's name and its values, by their letters and digits alone. So white space,
order, escapes, fences, tags and case make no difference. What was encoded otherwise, or split, is
not found here; it is asked about where it was read (`guest.agent.answers`).
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

_ESCAPE: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|[nrtbf])|%([0-9a-fA-F]{2})")
_ROOT: Final = re.compile(r"^/?(?:shared|tmp|vault)/")
_ID: Final = re.compile(r"(?:note|memory)-[0-9a-f-]+")
_WORD: Final = re.compile(r"[^\W_]+")
_JOINTS: Final = re.compile(r"[;&|\n]+")
"""Between the commands of one value."""
_LOOKS: Final = frozenset(("date", "df", "free", "id", "ls", "pwd", "uptime", "who", "whoami"))
_ROUNDS: Final = 3
_LONG_CHARS: Final = 16
"""From here on a value stands for a call, whatever tool is named beside it, and so does a piece."""
_SHORT_CHARS: Final = 8
_AROUND_CHARS: Final = 200
"""How far a value may stand from its tool's name, besides what the call itself takes."""
_GRAM: Final = 6
_SHARE: Final = 0.5
"""The share of a value that makes it somebody else's, in pieces."""


class Words:
    """The words of a request.

    Args:
        others: Texts that are not the user's own.
        vouched: Notes of the user's own.
    """

    def __init__(
        self, others: Iterable[str], said: Iterable[str], vouched: Iterable[str] = ()
    ) -> None:
        read = [*others]
        self._others = [text for each in read if (text := _plain(each))]
        self._read = [_spaced(each) for each in read]
        self._said = [_spaced(each) for each in said]
        self._own = self._said + [_spaced(each) for each in vouched]

    def hold(self, tool: str, arguments: Mapping[str, Any], free: Iterable[str]) -> bool:
        """Whether others' words have this call: its tool's name with all values near it, or a long
        value of an argument in `free`."""
        values = [value for each in arguments.values() for value in _leaves(each)]
        if values and all(_in(value, self._said) for value in values):
            return False
        plain = [text for value in values if (text := _plain(value))]
        wanted = [
            _plain(value)
            for name in set(free).intersection(arguments)
            for value in _leaves(arguments[name])
            if not _ID.fullmatch(value) and not _in(value, self._own)
        ]
        long = [text for text in wanted if len(text) >= _LONG_CHARS]
        if any(value in text for value in long for text in self._others):
            return True
        name, reach = _plain(tool), _AROUND_CHARS + len(json.dumps(arguments, default=str))
        return any(
            all(value in text[max(0, at.start() - reach) : at.end() + reach] for value in plain)
            for text in self._others
            for at in re.finditer(re.escape(name), text)
        )

    def touch(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a value of this call, which the user has not said, may have been put together
        from others' words, or has a long piece of them. Commands behind one another are values of
        their own. One short word says too little, but as a command that does more than look;
        several values do not, if the user has said none of them."""
        joined, own = " ".join(self._others), " ".join(map(_plain, self._own))
        short: list[str] = []
        said, runs = False, "command" in arguments
        leaves = [value for each in arguments.values() for value in _leaves(each)]
        for value in (part for each in leaves for part in _JOINTS.split(each)) if runs else leaves:
            text = _plain(_ROOT.sub("", value))
            if _ID.fullmatch(value) or _in(value, self._own):
                said = True
                continue
            if len(text) < _SHORT_CHARS:
                short.append(_ROOT.sub("", value).strip())
                continue
            grams = [text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)]
            found = [gram in joined and gram not in own for gram in grams]
            pieces = (len([*piece]) for is_found, piece in groupby(found) if is_found)
            if sum(found) >= _SHARE * len(grams) or max(pieces, default=0) > _LONG_CHARS - _GRAM:
                return True
        worded = [value for value in short if not (_plain(value) or "0").isdigit()]
        read = [value for value in worded if _in(value, self._read)]
        if any(len(_WORD.findall(each)) > 1 or (runs and each not in _LOOKS) for each in read):
            return True
        return not said and len(short) > 1 and bool(read) and read == worded


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers in a value, however deep it is nested."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str | int | float) and not isinstance(each, bool):
            yield str(each)


def _plain(text: str) -> str:
    """The letters and digits of `text`, whatever its escapes."""
    return "".join(filter(str.isalnum, _unescaped(text)))


def _spaced(text: str) -> str:
    """The words of `text`, to find whole words in."""
    return f" {' '.join(_WORD.findall(_unescaped(text)))} "


def _in(value: str, texts: Iterable[str]) -> bool:
    spaced = _spaced(_ROOT.sub("", value))
    return any(spaced in text for text in texts)


def _unescaped(text: str) -> str:
    for _ in range(_ROUNDS):
        text = _ESCAPE.sub(_character, html.unescape(text))
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return unicodedata.normalize("NFKC", text).casefold()


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else " "
