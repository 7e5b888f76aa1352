"""What somebody else wrote: made visible, so that no reader is deceived by it (neither a model, nor
a terminal, nor a person), and read as JSON, whatever it says. And amounts of money, for people."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = (
    r"\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d"
    r"\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3"
    r"\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""What is never seen, as a class of a regular expression: the categories Cc, Cf, Cs, Zl and Zp,
what Unicode calls ignorable by default, and letters and signs that look like nothing. Tab, newline
and the signs of Arabic that are in Cf and are seen stay out. `web/src/text.js` has the same table.
"""

JOINED: Final = (
    r"\u0600-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    r"\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
"""Scripts whose words are made with the two joiners."""

PICTURES: Final = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299"
    r"\U0001f000-\U0001faff"
)
"""Where emoji are, which the joiners and the selectors U+FE0E and U+FE0F are for."""

UNSEEN: Final = re.compile(
    rf"[{HIDDEN}]"
    rf"|(?<![{JOINED}{PICTURES}])(?<![{PICTURES}]\ufe0f)[\u200c\u200d]"
    rf"|[\u200c\u200d](?=[{HIDDEN}\u200c\u200d\ufe0e\ufe0f])"
    rf"|(?<![{PICTURES}#*0-9])[\ufe0e\ufe0f]"
)
_IN_NAMES: Final = re.compile(rf"[\t\n]|{UNSEEN.pattern}")
_MARKS_MAX: Final = 500_000


def visible(text: str) -> str:
    """`text` with every hidden character as an escape; lines and tabs stay.

    A joiner or an emoji's selector stays where it belongs: one, behind what it works on.
    """
    return UNSEEN.sub(_escape, text)


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

    Raises `ValueError` for more, before they are made where they are very many, and for text that
    holds half a character, which nobody can write again.
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
            try:
                json.dumps(content, ensure_ascii=False).encode()
            except UnicodeError:
                raise ValueError("it holds an incomplete character") from None
            return content
    raise ValueError("it has too many values")


def refusal_words(body: object, deepest: int = 5) -> str:
    """The words in the body of a refusal, parsed, which each kind of server puts somewhere else;
    empty if there are none."""
    if isinstance(body, str):
        return body.strip()
    if isinstance(body, list):
        body = {"message": body[0]} if body else {}
    if not isinstance(body, Mapping) or not deepest:
        return ""
    names = ("message", "error", "detail", "msg")
    return next(filter(None, (refusal_words(body.get(each), deepest - 1) for each in names)), "")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python decodes a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode()


def shortened(text: str, most: int) -> str:
    """`text`; of a longer one the first `most` characters, and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


def dollars(amount: float) -> str:
    """US dollars with as many places as a small amount needs: $12.50, $0.10, $0.0912."""
    for places in (2, 4, 6):
        if amount >= 100 / 10**places or round(amount, places) == amount:
            return f"${amount:,.{places}f}"
    return f"${amount:.9f}".rstrip("0")
