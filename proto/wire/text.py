"""What somebody else wrote: made visible, so that no reader is deceived by it (neither a model, nor
a terminal, nor a person), and read as JSON, whatever it says."""

import json
import os
import re
from typing import Any, Final

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\U000e0000-\U000e0fff]"
)
"""Controls but tab and newline, what reorders text or takes no room, and lone surrogates. The two
joiners stay: words of some languages, and some emoji, are made with them."""

_MARKS_MAX: Final = 500_000
_IN_NAMES: Final = re.compile(f"[\t\n]|{_HIDDEN.pattern}")


def visible(text: str) -> str:
    """`text` with every hidden character as an escape; lines and tabs stay."""
    return _HIDDEN.sub(_escape, text)


def visible_name(name: str | os.PathLike[str]) -> str:
    """The name or path of a file, for any reader: on one line, with every hidden character and
    every byte that is not UTF-8 as an escape.

    Whoever makes a file chooses its name. So each name that was read from a directory, or that a
    caller sent, goes through here on its way into a message, a result, a prompt or a log.
    """
    return _IN_NAMES.sub(_escape, os.fspath(name))


def parsed_json(text: str | bytes) -> Any:
    """The value that `text` says in JSON.

    Raises `ValueError` if it is no JSON, or is nested more deeply than can be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def bounded_json(text: bytes, values_max: int) -> Any:
    """The same, of somebody who may want to keep its reader busy: of at most `values_max` values.

    Raises `ValueError` for more, before they are made where they are very many.
    """
    if sum(map(text.count, (b"{", b"[", b":", b","))) <= _MARKS_MAX:  # texts have some, too
        content = parsed_json(text)
        unseen = [content]
        while unseen and len(unseen) <= values_max:
            values_max -= 1
            value = unseen.pop()
            if isinstance(value, (dict, list)):
                unseen += value.values() if isinstance(value, dict) else value
        if not unseen:
            return content
    raise ValueError("it has too many values")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python decodes a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode()
