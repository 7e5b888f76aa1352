"""A call as text, for the person who decides on it or looks at it. Every surface shows this text,
and none reads the arguments itself: two readers of the same JSON need not see the same in it."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from wire.text import HIDDEN, shortened

_BLANKS: Final = r"\t\u00a0\u1680\u2000-\u200f\u202f\u205f\u3000"
_UNCLEAR: Final = re.compile(rf"[{_BLANKS}\u23ce\ufe0e\ufe0f{HIDDEN}]")
_BLANKS_AT_END: Final = re.compile(r" +$", re.MULTILINE)
_PLAIN_NAME: Final = re.compile(r"[\w.$@/\[\]-]+", re.ASCII)
_TOLD_CHARS: Final = 500


def asked_text(tool: str, arguments_json: str, question: str = "") -> str:
    """What a person decides on: a question in one line, and below it `arguments_text`."""
    asked = _exact(question or f"allow {tool}?").replace("\n", "<U+000A>")
    return "\n".join([asked, *_lines(arguments_json)])


def arguments_text(arguments_json: str) -> str:
    """Every argument, one below the other, in order and exactly.

    Each line of a text stands behind a bar. Whatever is nested stands in one line of JSON. What
    looks like nothing, or like a blank and is none, is named by its code point.
    """
    return "\n".join(_lines(arguments_json))


def told(arguments_json: str, name: str) -> str:
    """The argument `name` in one line that is never long; empty if it is no text."""
    value = _parsed(arguments_json).get(name)
    if not isinstance(value, str):
        return ""
    lines = (_exact(" ".join(each.split())) for each in value.splitlines())
    line = " ⏎ ".join(filter(None, lines))
    return shortened(line, _TOLD_CHARS)


def _lines(arguments_json: str) -> Iterator[str]:
    given = _parsed(arguments_json)
    if not given and arguments_json.strip() not in ("", "{}"):
        given = {"arguments": arguments_json}
    for name, value in given.items():
        shown = name if _PLAIN_NAME.fullmatch(name) else _exact(_json(name))
        if isinstance(value, str):
            yield f"  {shown}"
            yield from (f"  │ {line}" for line in _exact(value).split("\n"))
        else:
            yield f"  {shown} {_exact(_json(value))}"


def _parsed(arguments_json: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments_json or "{}")
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _exact(text: str) -> str:
    shown = _UNCLEAR.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
    return _BLANKS_AT_END.sub(lambda found: "␠" * len(found[0]), shown)
