"""Validates what a model wrote as a tool's arguments, and explains mistakes to it.

A call is shown as text to the person who decides on it or looks at it. Every surface shows this
text, and none reads the arguments itself: two readers of the same JSON need not see the same in it.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, ValidationError
from wire.text import HIDDEN, shortened
from wire.tools import SHARED

from guest.errors import ToolError
from guest.tools.base import Arguments, Safety, Tool
from guest.tools.files.roots import VirtualPaths

_SHOWN_CHARS: Final = 60
DEPTH_MAX: Final = 32
_PROBLEMS_MAX: Final = 5
_PROBLEM_CHARS: Final = 300
_NUMBER: Final = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?", re.ASCII)


class SchemaArguments(Arguments):
    """Base of the arguments of a tool that comes with a JSON Schema. The schema must be cheap to
    check; see `guest.tools.mcp.schema`. What a model is shown of it may be less, and have other
    names; `restored` turns these back."""

    json_schema: ClassVar[dict[str, Any]] = {}
    shown: ClassVar[dict[str, Any]] = {}

    model_config = ConfigDict(extra="allow", frozen=True)

    @classmethod
    def of(
        cls,
        schema: dict[str, Any],
        shown: dict[str, Any] | None = None,
        restored: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> type["SchemaArguments"]:
        """The arguments that `schema` describes; a person sees the first one that is a text."""
        shown = schema if shown is None else shown
        properties = shown.get("properties", {}).items()
        texts = (name for name, field in properties if field.get("type") == "string")
        own = {"json_schema": schema, "shown": shown, "restored": staticmethod(restored)}
        return type(cls.__name__, (cls,), {**own, "telling": next(texts, "")})

    @staticmethod
    def restored(value: dict[str, Any]) -> dict[str, Any]:
        """What a model wrote, with the names of `json_schema`."""
        return value

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """What a model is shown."""
        return cls.shown

    @classmethod
    def problems(cls, value: dict[str, Any]) -> Iterator[str]:
        """What of `value` the schema does not allow, in words."""
        from jsonschema import Draft202012Validator  # only guests with such tools need it

        for error in Draft202012Validator(cls.json_schema).iter_errors(value):
            place = error.json_path.removeprefix("$").removeprefix(".") or "arguments"
            yield f"{place}: {error.message}"


def check(
    tool: Tool,
    arguments: str | Mapping[str, object],
    scrub: Callable[[str], str],
    remarks: list[str] | None = None,
    paths: VirtualPaths | None = None,
) -> Arguments:
    """Validate the arguments of a call. Those with paths begin where `paths` do.

    With `remarks` they are a model's: what it clearly means for a tool of ours is taken, and what
    was changed of it is added there.

    Raises `ToolError` with a few words for each wrong field: its name, the value (redacted by
    `scrub`) and what is accepted. Of many unknown fields only the first are told.
    """
    value = _parsed(arguments)
    if remarks is not None and isinstance(value, str):  # some models write JSON in JSON
        value = _parsed(value)
    if nested_deeper(value, DEPTH_MAX):
        raise ToolError(f"arguments must not be nested deeper than {DEPTH_MAX} levels")
    if not isinstance(value, dict):
        raise ToolError(f"arguments must be a JSON object with the fields {_fields(tool)}")
    paths = paths or VirtualPaths()
    fields = {argument.field for argument in tool.paths}
    if problems := list(islice(_unstorable(value, fields), _PROBLEMS_MAX)):
        raise ToolError(". ".join(problems))
    if issubclass(tool.arguments, SchemaArguments):
        value = tool.arguments.restored(value)
        if wrong := list(islice(tool.arguments.problems(value), _PROBLEMS_MAX)):
            raise ToolError(". ".join(shortened(scrub(each), _PROBLEM_CHARS) for each in wrong))
        return tool.arguments.model_validate(value)
    if remarks is not None:
        remarks += _mended(tool, value, scrub, paths.anchored)
    if paths.base != SHARED.path:
        for name in fields:
            if not tool.arguments.model_fields[name].is_required():
                value.setdefault(name, paths.base)
    unknown = (name for name in value if name not in tool.arguments.model_fields)
    for name in [*islice(unknown, _PROBLEMS_MAX, None)]:
        del value[name]
    try:
        return tool.arguments.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise ToolError(_explained(tool, error, scrub)) from None


def _mended(
    tool: Tool,
    value: dict[str, Any],
    scrub: Callable[[str], str],
    anchored: Callable[[str], str],
) -> Iterator[str]:
    """Put into `value` what a model clearly means by it; yields what is to be said of that.

    Types follow the schema, and what stands for nothing is left out. A relative path lies where
    it is `anchored`. A number out of bounds becomes the nearest one, unless the tool stores
    something. An unknown field of a call that only reads is left out, unless another one is
    missing.
    """
    schema = tool.arguments.model_json_schema()
    fields, required = schema["properties"], set(schema.get("required", ()))
    paths = {argument.field for argument in tool.paths}
    for name in [name for name in fields if name in value]:
        field = fields[name].get("anyOf", [fields[name]])[0]  # the other one is null
        meant = _meant(value[name], field)
        if name not in required and (meant is None or (name in paths and not meant)):
            del value[name]
            continue
        if name in paths and isinstance(meant, str):
            meant = anchored(meant)
        if tool.stored is None and type(meant) in (int, float):
            nearest = max(min(meant, field.get("maximum", meant)), field.get("minimum", meant))
            if nearest != meant:
                yield f"{name}: {meant} counts as {nearest}"
            meant = nearest
        value[name] = meant
    unknown = [name for name in value if name not in fields]
    if unknown and tool.safety is Safety.READ_ONLY and required <= value.keys():
        shown = ", ".join(_shown(name, scrub) for name in unknown[:_PROBLEMS_MAX])
        yield f"{shown} was left out: accepted fields are {_fields(tool)}"
        for name in unknown:
            del value[name]


def _meant(given: Any, field: dict[str, Any]) -> Any:
    """What `given` means as a value of `field`: None for nothing; unchanged if it is not clear."""
    text = given.strip() if isinstance(given, str) else ""
    kind, word = field["type"], text.lower()
    if isinstance(given, str) and kind != "string" and word in ("", "null", "none"):
        return None
    if kind in ("integer", "number") and _NUMBER.fullmatch(text):
        given = float(text) if "." in text else int(text)
    if kind == "integer" and isinstance(given, float) and given.is_integer():
        return int(given)
    if kind == "boolean" and word in ("true", "false"):
        return word == "true"
    if kind == "array" and text:
        listed = None
        with suppress(ValueError, RecursionError):
            listed = json.loads(text)
        return listed if isinstance(listed, list) else [given]
    if kind == "string" and word in field.get("enum", ()):
        return word
    if kind == "string" and type(given) in (int, float):
        return json.dumps(given)
    return given


def _explained(tool: Tool, error: ValidationError, scrub: Callable[[str], str]) -> str:
    """What is wrong, first what is missing: that tells best what an unknown field was meant for."""
    schema = tool.arguments.model_json_schema()["properties"]
    found = error.errors(include_url=False)
    missing = [each["loc"] for each in found if each["type"] == "missing"]
    unknown = [str(each["loc"][0]) for each in found if each["type"] == "extra_forbidden"]
    sentences = [
        f"{'.'.join(map(str, each))} is required: "
        f"{tool.arguments.first.get(str(each[0])) or _accepted(schema.get(str(each[0]), {}))}"
        for each in missing
    ]
    if missing and unknown:
        given = ", ".join(_shown(name, scrub) for name in unknown)
        sentences[-1] += f"; you gave {given}, and accepted fields are {_fields(tool)}"
    sentences += [
        _sentence(tool, schema, each["type"], each["loc"], each["input"], scrub)
        for each in found
        if each["loc"] not in missing and not (missing and each["type"] == "extra_forbidden")
    ]
    return ". ".join(dict.fromkeys(sentences))


def _parsed(arguments: str | Mapping[str, object]) -> Any:
    try:
        if isinstance(arguments, str):
            return json.loads(arguments) if arguments.strip() else {}
        return json.loads(json.dumps(dict(arguments)))
    except (ValueError, TypeError, RecursionError) as error:
        reason = getattr(error, "msg", "it cannot be written as JSON")
        raise ToolError(f"arguments are not valid JSON: {reason}") from None


def nested_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects in `value` are nested deeper than `levels`."""
    layer = [value]
    while layer and levels:
        layer = [
            inner
            for item in layer
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        levels -= 1
    return any(isinstance(item, dict | list) for item in layer)


def _unstorable(value: Any, paths: set[str], field: str = "") -> Iterator[str]:
    """Messages about what cannot be stored or sent; NUL in `paths` is left to the path policy."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unstorable(key, set(), "the name of a field")
            yield from _unstorable(item, paths, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unstorable(item, set(), f"{field}.{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{_printable(field)}: got {value}; accepted is a number"
    elif isinstance(value, str):
        if "\0" in value and field not in paths:
            yield f"{_printable(field)}: must not hold NUL characters"
        elif _printable(value) != value:
            yield f"{_printable(field)}: must be valid Unicode, without lone surrogates"


def _sentence(
    tool: Tool,
    schema: dict[str, Any],
    kind: str,
    location: tuple[int | str, ...],
    seen: Any,
    scrub: Callable[[str], str],
) -> str:
    field = ".".join(map(str, location))
    if kind == "extra_forbidden":
        similar = difflib.get_close_matches(field, schema, n=1)
        hint = f"did you mean {similar[0]}? " if similar else ""
        return f"unknown field {_shown(field, scrub)}: {hint}accepted fields are {_fields(tool)}"
    accepted = _accepted(of := schema.get(str(location[0]), {}))
    blank = "not blank, " if kind == "value_error" and "format" not in of else ""
    return f"{field}: got {_shown(seen, scrub)}; accepted is {blank}{accepted}"


def _accepted(schema: dict[str, Any]) -> str:
    """What a field accepts, in words, from its JSON schema."""
    choices = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    if choices:
        schema = choices[0]
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    match schema.get("type"):
        case "string" if "pattern" in schema:
            return f"text of the form {schema['pattern'].strip('^$')}"
        case "string" if schema.get("format") == "date":
            return "a day such as 2026-11-22"
        case "string":
            least, most = schema.get("minLength", 0), schema.get("maxLength")
            return f"text of {least} to {most} characters" if most else "text"
        case "integer":
            return f"a whole number{_bounds(schema)}"
        case "number":
            return f"a number{_bounds(schema)}"
        case "boolean":
            return "true or false"
        case "array":
            return f"a list of at most {schema.get('maxItems')}, each {_accepted(schema['items'])}"
        case _:
            return "a value of the type in the tool's schema"


def _bounds(schema: dict[str, Any]) -> str:
    return f" from {schema['minimum']} to {schema['maximum']}" if "minimum" in schema else ""


def _fields(tool: Tool) -> str:
    return ", ".join(tool.arguments.model_fields)


def _shown(value: Any, scrub: Callable[[str], str]) -> str:
    """`value`, first redacted and then shortened."""
    text = scrub(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if len(text) > _SHOWN_CHARS:
        return f"{_printable(text[:_SHOWN_CHARS])!r}… ({len(text)} characters)"
    return repr(_printable(text)) if isinstance(value, str) else text


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


_BLANKS: Final = r"\t\u00a0\u1680\u2000-\u200f\u202f\u205f\u3000"
_UNCLEAR: Final = re.compile(rf"[{_BLANKS}\u23ce\ufe0e\ufe0f{HIDDEN}]")
_BLANKS_AT_END: Final = re.compile(r" +$", re.MULTILINE)
_PLAIN_NAME: Final = re.compile(r"[\w.$@/\[\]-]+", re.ASCII)
_TOLD_CHARS: Final = 500


def asked_text(tool: str, arguments_json: str, question: str = "") -> str:
    """What a person decides on: a question in one line, and below it `arguments_text`."""
    asked = exact(question or f"allow {tool}?").replace("\n", "<U+000A>")
    return "\n".join([asked, *_lines(arguments_json)])


def arguments_text(arguments_json: str) -> str:
    """Every argument, one below the other, in order and exactly.

    Each line of a text stands behind a bar. Whatever is nested stands in one line of JSON. What
    looks like nothing, or like a blank and is none, is named by its code point.
    """
    return "\n".join(_lines(arguments_json))


def told(arguments_json: str, name: str) -> str:
    """The argument `name` in one line that is never long; empty if it is no text."""
    value = _read(arguments_json).get(name)
    if not isinstance(value, str):
        return ""
    lines = (exact(" ".join(each.split())) for each in value.splitlines())
    line = " ⏎ ".join(filter(None, lines))
    return shortened(line, _TOLD_CHARS)


def _lines(arguments_json: str) -> Iterator[str]:
    given = _read(arguments_json)
    if not given and arguments_json.strip() not in ("", "{}"):
        given = {"arguments": arguments_json}
    for name, value in given.items():
        shown = name if _PLAIN_NAME.fullmatch(name) else exact(_json(name))
        if isinstance(value, str):
            yield f"  {shown}"
            yield from (f"  │ {line}" for line in exact(value).split("\n"))
        else:
            yield f"  {shown} {exact(_json(value))}"


def _read(arguments_json: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments_json or "{}")
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def exact(text: str) -> str:
    """`text` with names for what cannot be seen."""
    shown = _UNCLEAR.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
    return _BLANKS_AT_END.sub(lambda found: "␠" * len(found[0]), shown)
