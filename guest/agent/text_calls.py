"""Reads calls that a model has written as text, in the forms that models are trained on.

A text is read as calls only if there is nothing else in it: JSON objects that name tools on offer,
bare or in a list, in a fence or in tags.
"""

import json
import re
from collections.abc import Collection
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
_OTHER_KEYS: Final = (*_ARGUMENTS, "type", "id", "index")
_FUNCTION: Final = re.compile(r"<function=([\w.-]+)>\s*(.*?)\s*</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
"""How Llama and Qwen3-Coder write a call: with JSON, or with parameters in tags of their own."""
_HEAD_CHARS: Final = 200
_JSON: Final = json.JSONDecoder()
NOT_RUN: Final = "(The model wrote a call of {tools} as text. It was not run: {why}.)"
"""What a person sees instead. A model does not see it again: it would answer so from then on."""
WRITTEN_AS_TEXT: Final = {"written_as": "text"}
"""The mark of calls that a model has written as text. Their ids are changed on their way."""


class TextCall(NamedTuple):
    name: str
    arguments: dict[str, Any]


def parse(text: str, offered: Collection[str]) -> list[TextCall]:
    """The calls that `text` consists of; none if there is anything else in it, or a tool that is
    not `offered`."""
    calls, rest = _scanned(text, offered)
    return [] if rest else calls


def may_be_calls(text: str, offered: Collection[str]) -> bool:
    """Whether `text`, the beginning of an answer, may come to be nothing but calls."""
    rest = _scanned(text, offered)[1]
    if not rest or any(mark.startswith(rest.lower()) for mark in _MARKS):
        return True
    try:
        _decoded(rest, 0)
    except (ValueError, RecursionError) as error:
        return isinstance(error, ValueError) and _may_begin_call(rest, offered)
    return False


def _scanned(text: str, offered: Collection[str]) -> tuple[list[TextCall], str]:
    """The calls that `text` begins with, and what stands behind them."""
    calls: list[TextCall] = []
    end = 0
    while True:
        around = _AROUND.match(text, end)
        at = around.end() if around else end
        try:
            value, end = _decoded(text, at)
        except (ValueError, RecursionError):
            return calls, text[at:]
        if not (found := _calls(value, offered)):
            return calls, text[at:]
        calls += found


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at `at`, or the like of it that a call in tags is, and where it ends. Braces
    may be doubled, as the template of Qwen2.5-Coder shows them to the model. Raises `ValueError`,
    `RecursionError`."""
    if tagged := _FUNCTION.match(text, at):
        name, body = tagged.groups()
        given = dict(_PARAMETER.findall(body)) if body.startswith("<") else body
        return {"name": name, "arguments": given}, tagged.end()
    doubled = text.startswith("{{", at)
    value, end = _JSON.raw_decode(text, at + doubled)
    return value, end + (doubled and text.startswith("}", end))


def _calls(value: Any, offered: Collection[str]) -> list[TextCall]:
    """The calls that a JSON value is; none if it is anything else."""
    made = [_call(each, offered) for each in (value if isinstance(value, list) else [value])]
    return [call for call in made if call] if all(made) else []


def _call(value: Any, offered: Collection[str]) -> TextCall | None:
    if not isinstance(value, dict) or not {*_NAMES, *_OTHER_KEYS}.issuperset(value):
        return None
    if isinstance(inner := value.get("function"), dict):
        return _call(inner, offered) if "function" not in inner else None
    named = [value[key] for key in _NAMES if key in value]
    given = [value[key] for key in _ARGUMENTS if key in value]
    arguments: Any = given[0] if given else {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    arguments = {} if arguments is None else arguments
    if len(named) != 1 or len(given) > 1 or not isinstance(arguments, dict):
        return None
    known = isinstance(named[0], str) and named[0] in offered
    return TextCall(named[0], arguments) if known else None


def _may_begin_call(text: str, offered: Collection[str]) -> bool:
    """Whether `text`, which is not yet whole, may begin with a call, or a list of some."""
    written = text[:_HEAD_CHARS].partition("\\")[0]  # an escape may be of any letter
    head = "".join(written.split()).lstrip("[").replace("{{", "{", 1)
    begins = [f'{{"{key}":"{name}"' for key in _NAMES for name in offered]
    begins += [f"<function={name}>" for name in offered]
    begins += ['{"function":{', *(f'{{"{key}":' for key in _OTHER_KEYS)]
    return any(each.startswith(head) or head.startswith(each) for each in begins)
