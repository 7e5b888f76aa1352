"""Schemas of arguments that a server sends, reduced to what is safe to show and to check.

A schema can be made so that checking a value against it takes years (regular expressions,
references that multiply) or fetches an address. So only keywords that are cheap to check stay,
references within the schema are put in their place, and its size is bounded. What was left out the
server checks itself: whatever the full schema allows, the reduced one allows too. Texts have no
hidden characters and are bounded.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

from wire.text import visible, visible_name

from guest.tools.mcp.connection import size_of

SCHEMA_MAX_CHARS: Final = 16_000
_NODES_MAX: Final = 1_000
_DEPTH_MAX: Final = 24
_REFERENCES_MAX: Final = 8
_TEXT_MAX: Final = 500
_TEXTS_MAX: Final = (_TEXT_MAX, 100, 0)
"""How long descriptions may be; shorter where the whole would be too large."""
_NAME_MAX: Final = 200
_VALUES_MAX: Final = 200
_NUMBER_MAX: Final = 2**53
_TYPES: Final = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))


class SchemaError(ValueError):
    """The schema cannot be used; the message says why."""


def reduced(schema: object) -> dict[str, Any]:
    """The schema of a tool's arguments.

    Raises `SchemaError` if it is not that of an object, or too large.
    """
    if not isinstance(schema, dict):
        raise SchemaError("the schema of its arguments is not an object")
    for longest in _TEXTS_MAX:
        reduction = _Reduction(schema, longest)
        found = reduction.of(schema, 0, ())
        if reduction.is_full:
            continue
        if "object" not in found.get("type", "object"):
            raise SchemaError("its arguments are no object")
        found = {**found, "type": "object", "properties": found.get("properties", {})}
        if size_of(found) <= SCHEMA_MAX_CHARS:
            return found
    raise SchemaError(f"the schema of its arguments has over {SCHEMA_MAX_CHARS} characters")


def both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A schema that allows all that both allow. Of a keyword of both, what `other` says stays."""
    found = {**one, **other}
    if "properties" in one and "properties" in other:
        ours = one["properties"]
        merged = {
            name: both(ours.get(name, {}), each) for name, each in found["properties"].items()
        }
        found["properties"] = {**ours, **merged}
    if "required" in one and "required" in other:
        found["required"] = [*dict.fromkeys((*one["required"], *other["required"]))]
    return found


class _Reduction:
    def __init__(self, root: Mapping[str, Any], text_max: int) -> None:
        self._root = root
        self._nodes = self._chars = 0
        self._text_max = text_max

    @property
    def is_full(self) -> bool:
        """Whether it has too many characters, which references repeat: no more are looked at."""
        return self._chars > SCHEMA_MAX_CHARS

    def of(self, schema: Any, depth: int, seen: tuple[str, ...]) -> dict[str, Any]:
        self._nodes += 1
        if self._nodes > _NODES_MAX or depth > _DEPTH_MAX:
            raise SchemaError("the schema of its arguments is too large")
        if not isinstance(schema, dict) or self.is_full:
            return {}
        parts: list[dict[str, Any]] = []
        if schema is not self._root and "$id" in schema:
            seen = ("",) * _REFERENCES_MAX  # references in it start from another root
        if isinstance(name := schema.get("$ref"), str):
            if name in seen or len(seen) >= _REFERENCES_MAX:
                return {}
            seen = (*seen, name)
            parts.append(self.of(self._referred(name), depth, seen))
            if "draft-0" in str(self._root.get("$schema")):  # which ignores all beside it
                schema = {"description": schema.get("description")}
        found: dict[str, Any] = {}
        for keyword in filter(schema.__contains__, _KEYWORDS):
            value = schema[keyword]
            self._chars += _chars_of(value)
            if keyword == "description" and isinstance(value, str):
                found[keyword] = visible(value[: self._text_max])[: self._text_max]
                self._chars += len(found[keyword])
            elif keyword in _PLAIN and _PLAIN[keyword](value):
                found[keyword] = value
            elif keyword == "properties" and isinstance(value, dict):
                found[keyword] = {
                    _property(name): self.of(inner, depth + 1, seen)
                    for name, inner in value.items()
                }
            elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
                found[keyword] = self.of(value, depth + 1, seen)
            elif keyword in ("anyOf", "oneOf") and isinstance(value, list) and value:
                found["anyOf"] = [self.of(each, depth + 1, seen) for each in value]
            elif keyword == "allOf" and isinstance(value, list):
                parts += [self.of(each, depth + 1, seen) for each in value]
        if schema.get("patternProperties"):
            found.pop("additionalProperties", None)
        if schema.get("prefixItems"):
            found.pop("items", None)
        return reduce(both, [*parts, found])

    def _referred(self, name: str) -> Mapping[str, Any]:
        """What a reference within the schema means; anything if it means nothing."""
        if name == "#":
            return self._root
        if not name.startswith("#/") or len(name) > _TEXT_MAX:
            return {}
        place: Any = self._root
        for part in name[2:].split("/"):
            step = part.replace("~1", "/").replace("~0", "~")
            place = place.get(step) if isinstance(place, dict) else None
        return place if isinstance(place, dict) else {}


def _chars_of(value: Any) -> int:
    """How many characters of names and choices are looked at."""
    if (isinstance(value, list) and len(value) > _VALUES_MAX) or not isinstance(value, dict | list):
        return 0
    return sum(min(len(each), _TEXT_MAX) for each in value if isinstance(each, str))


def _property(name: str) -> str:
    if not 1 <= len(name) <= _NAME_MAX or visible_name(name) != name:
        raise SchemaError("an argument has a name that cannot be shown")
    return name


def _is_number(value: object) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and -_NUMBER_MAX <= value <= _NUMBER_MAX  # type: ignore[operator]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT_MAX and visible(value) == value


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, bool) or _is_number(value) or _is_text(value)


def _is_list_of(is_one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, list) and 1 <= len(value) <= _VALUES_MAX and all(map(is_one, value))
    )


def _is_type(value: object) -> bool:
    return isinstance(value, str) and value in _TYPES


_PLAIN: Final[Mapping[str, Callable[[object], bool]]] = {
    "type": lambda value: _is_type(value) or _is_list_of(_is_type)(value),
    "format": _is_text,
    "default": _is_scalar,
    "const": _is_scalar,
    "enum": _is_list_of(_is_scalar),
    "required": _is_list_of(_is_text),
    "additionalProperties": lambda value: isinstance(value, bool),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems"),
        lambda value: isinstance(value, int) and _is_number(value) and value >= 0,
    ),
}
"""Keywords whose values hold no schemas, and which values stay."""
_KEYWORDS: Final = ("description", *_PLAIN, "properties", "items", "anyOf", "oneOf", "allOf")
