"""Reads calls that a model has written as text, in the forms that models are trained on.

A text is read as calls only if there is nothing else in it: JSON objects that name tools on offer,
bare or in a list, in a fence or in tags.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

_TAG: Final = r"</?(?:tool_calls?|tools?|function_calls?)>|\[/?TOOL_CALLS?\]|<\|/?tool_calls?\|>"
_AROUND: Final = re.compile(rf"(?:[\s,;]|```[\w-]*|{_TAG})*", re.IGNORECASE)
"""What may stand before, between and behind the objects."""
_MARKS: Final = (
    *("```", "[tool_calls]", "[/tool_calls]", "<|tool_calls|>", "<|/tool_calls|>"),
    *(f"<{end}{name}s>" for name in ("tool", "tool_call", "function_call") for end in ("", "/")),
)
"""Beginnings of these are awaited: the singular of each is one of its plural, but for its end."""
_NAMES: Final = ("name", "function", "tool")
_ARGUMENTS: Final = ("arguments", "parameters", "args")
_KEYS: Final = frozenset((*_NAMES, *_ARGUMENTS, "type", "id", "index"))
_HEAD: Final = re.compile(
    r"(?:\[\s*)*(?:\{\s*(?:\"(?P<key>[^\"\\]*)(?:\"\s*(?P<colon>:\s*"
    r"(?:\"(?P<value>[^\"\\]*)(?P<end>\"?))?)?)?)?)?"
)
"""The beginning of a first object, as far as it has come."""
_JSON: Final = json.JSONDecoder()
WRITTEN_AS_TEXT: Final = {"written_as": "text"}
"""The mark of calls that a model has written as text. Their ids are changed on their way."""


class TextCall(NamedTuple):
    """A call, as its text says it."""

    name: str
    arguments: dict[str, Any]


def parse(text: str, offered: Collection[str]) -> list[TextCall]:
    """The calls that `text` consists of; none if there is anything else in it, or a tool that is
    not `offered`."""
    calls: list[TextCall] = []
    for value in _values(text):
        found = _calls(value, offered)
        if not found:
            return []
        calls += found
    return calls


def may_be_calls(text: str, offered: Collection[str]) -> bool:
    """Whether `text`, the beginning of an answer, may come to be nothing but calls."""
    at = 0
    while True:
        around = _AROUND.match(text, at)
        at = around.end() if around else at
        rest = text[at:]
        if not rest or any(mark.startswith(rest.lower()) for mark in _MARKS):
            return True
        try:
            value, at = _decode(text, at)
        except RecursionError:
            return False
        except ValueError:
            return _may_begin_call(rest.removeprefix("{") if rest[:2] == "{{" else rest, offered)
        if not _calls(value, offered):
            return False


def _values(text: str) -> Iterator[Any]:
    """The JSON values in `text`; something that is no call for what is none."""
    at = 0
    while True:
        around = _AROUND.match(text, at)
        at = around.end() if around else at
        if at == len(text):
            return
        try:
            value, at = _decode(text, at)
        except (ValueError, RecursionError):
            value, at = None, len(text)
        yield value


def _decode(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at `at`, and where it ends. Its braces may be doubled, as the template of
    Qwen2.5-Coder shows them to the model. Raises `ValueError`, `RecursionError`."""
    doubled = text.startswith("{{", at)
    value, end = _JSON.raw_decode(text, at + doubled)
    return value, end + (doubled and text.startswith("}", end))


def _calls(value: Any, offered: Collection[str]) -> list[TextCall]:
    """The calls that a JSON value is; none if it is anything else."""
    if isinstance(value, list):
        made = [_call(each, offered) for each in value]
        return [call for call in made if call] if all(made) else []
    call = _call(value, offered)
    return [call] if call else []


def _call(value: Any, offered: Collection[str]) -> TextCall | None:
    if not isinstance(value, dict) or not _KEYS.issuperset(value):
        return None
    if isinstance(inner := value.get("function"), dict):
        return _call(inner, offered) if "function" not in inner else None
    named = [value[key] for key in _NAMES if key in value]
    given = [value[key] for key in _ARGUMENTS if key in value]
    arguments: Any = given[0] if given else {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    arguments = {} if arguments is None else arguments
    if len(named) != 1 or len(given) > 1 or not isinstance(arguments, dict):
        return None
    known = isinstance(named[0], str) and named[0] in offered
    return TextCall(named[0], arguments) if known else None


def _may_begin_call(text: str, offered: Collection[str]) -> bool:
    """Whether `text`, which is not yet whole, may begin with a call, or a list of some."""
    head = _HEAD.match(text)
    if text[0] not in "{[" or head is None:
        return False
    if text[head.end() :].startswith("\\"):
        return True  # an escape in a name
    key, value = head["key"], head["value"]
    if key is None or head["colon"] is None:
        begins = key is None or any(known.startswith(key) for known in _KEYS)
        return begins and head.end() == len(text)
    if key not in _NAMES or value is None:
        return key in _KEYS
    return value in offered if head["end"] else any(name.startswith(value) for name in offered)
