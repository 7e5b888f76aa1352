"""A tool's arguments and name as every provider takes them, and which tools an operator approved.

One schema that a provider does not take fails every request that has it. So what is offered is what
all of them take: one object without unions at its top, names of plain letters, a type for whatever
has one, and lists of choices of texts only. It is for showing; calls are checked against the schema
from which it was made.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from wire.disk import store
from wire.text import parsed_json

from guest.tools.mcp.schema import both

_DIGEST_CHARS: Final = 16


def digest(value: object) -> str:
    """A short digest of a value's JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


class ApprovedTools:
    """The digests of approved tools by server, in a `file` that no tool and no command reaches."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def changed(self, server: str, tools: Mapping[str, str], approved: str) -> frozenset[str]:
        """The names of those `tools` (digests by name) that nobody has approved.

        What a server has at first is approved, and so is a list whose own digest is `approved`.
        """
        known = self._read()
        if approved == digest(tools) or (server not in known and not approved):
            if known.get(server) != tools:
                self._write({**known, server: dict(tools)})
            return frozenset()
        before = known.get(server, {})
        return frozenset(name for name, found in tools.items() if before.get(name) != found)

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            found: Any = parsed_json(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, known: Mapping[str, Mapping[str, str]]) -> None:
        store(self._file, json.dumps(known, indent=1))


NAME_MAX: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_ARGUMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_MARK_CHARS: Final = 6
_BRANCHES_MAX: Final = 16
_FOR_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), ("object",)),
    **dict.fromkeys(("items", "minItems", "maxItems"), ("array",)),
    **dict.fromkeys(("minLength", "maxLength", "format"), ("string",)),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), ("number", "integer")
    ),
}
"""Keywords that providers take beside these types only."""
_TOLD: Final = ("format", "exclusiveMinimum", "exclusiveMaximum")
"""Keywords that Google refuses, told in the description."""
_TYPE_OF: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def safe_name(name: str, taken: Collection[str], *, prefix: str = "") -> str:
    """`name` behind `prefix` as a provider takes it, and as none of `taken`: the same every
    time."""
    bare = prefix + _NOT_IN_NAMES.sub("_", name)
    if len(bare) <= NAME_MAX and bare not in taken:
        return bare
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_MARK_CHARS]
    return f"{bare[: NAME_MAX - _MARK_CHARS - 1]}_{mark}"


def offered(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What a provider is shown of a reduced `schema`, and the names of its arguments that were
    changed for it: the server's, by the provider's."""
    names = dict.fromkeys(_names(schema))
    changed: dict[str, str] = {}
    for name in names:
        if not _ARGUMENT.fullmatch(name):
            prefix = "" if re.match(r"[A-Za-z_]", _NOT_IN_NAMES.sub("_", name)) else "_"
            changed[name] = safe_name(name, {*names, *changed.values()}, prefix=prefix)
    shown = _shown({**_one_object(dict(schema)), "type": "object"}, changed)
    return shown, {safe: name for name, safe in changed.items()}


def restored(value: Any, schemas: Collection[Mapping[str, Any]], names: Mapping[str, str]) -> Any:
    """`value` with the server's `names` where one of the reduced `schemas` has them."""
    schemas = [each for schema in schemas for each in _with_branches(schema)]
    if isinstance(value, list):
        inner = [each["items"] for each in schemas if "items" in each]
        return [restored(item, inner, names) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, item in value.items():
        own = [each.get("properties", {}) for each in schemas]
        name = names.get(key, key)
        name = name if any(name in properties for properties in own) else key
        inner = [each[name] for each in own if name in each] or [
            each["additionalProperties"]
            for each in schemas
            if isinstance(each.get("additionalProperties"), dict)
        ]
        found[name] = restored(item, inner, names)
    return found


def _with_branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schema, and all that one of may be meant."""
    found = [schema]
    for branch in schema.get("anyOf", ()):
        found += _with_branches(branch)
    return found


def _names(schema: Mapping[str, Any]) -> list[str]:
    """The names of all arguments, at any depth."""
    properties = schema.get("properties", {})
    below = (schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ()))
    inner = [each for each in (*properties.values(), *below) if isinstance(each, dict)]
    return [*properties, *(name for each in inner for name in _names(each))]


def _one_object(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has all that its branches have, instead of them."""
    first, *others = _objects(schema) or [{k: v for k, v in schema.items() if k != "anyOf"}]
    if not others:
        return first
    arguments: dict[str, list[dict[str, Any]]] = {}
    for each in (first, *others):
        for name, inner in each.get("properties", {}).items():
            arguments.setdefault(name, []).append(inner)
    required = set.intersection(*(set(each.get("required", ())) for each in others))
    return {
        **{key: first[key] for key in first if all(each.get(key) == first[key] for each in others)},
        "properties": {name: _one_of(schemas) for name, schemas in arguments.items()},
        "required": [name for name in first.get("required", ()) if name in required],
    }


def _objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that one of may be meant."""
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    found = [each for one in schema.get("anyOf", ()) for each in _objects(both(rest, one))]
    return found if "anyOf" in schema else [rest] if "object" in rest.get("type", "object") else []


def _one_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """What any of the schemas of an argument allows."""
    different: dict[str, dict[str, Any]] = {}
    for schema in {id(each): each for each in schemas}.values():
        for each in schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]:
            different.setdefault(json.dumps(each, sort_keys=True), each)
    if len(different) == 1:
        return next(iter(different.values()))
    if any(each.keys() <= {"description"} for each in different.values()):
        return {}
    choices = [_choices(each) for each in different.values()]
    if all(choices):
        return {"enum": [*dict.fromkeys(value for each in choices for value in each)]}
    return {"anyOf": [*different.values()]} if len(different) <= _BRANCHES_MAX else {}


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    return list(schema.get("enum", [schema["const"]] if "const" in schema else []))


def _shown(schema: Mapping[str, Any], changed: Mapping[str, str]) -> dict[str, Any]:
    """`schema` without what a provider might refuse."""
    kinds = schema.get("type", [])
    kinds = [*dict.fromkeys([kinds] if isinstance(kinds, str) else kinds)] or _implied(schema)
    said = {key: schema[key] for key in ("description",) if key in schema}
    if not kinds and "anyOf" in schema:
        return {**said, "anyOf": [_shown(each, changed) for each in schema["anyOf"]]}
    if len(kinds) > 1:
        return {**said, "anyOf": [_shown(_of_type(schema, kind), changed) for kind in kinds]}
    found = _of_type(schema, kinds[0]) if kinds else {**said}
    if "properties" in found:
        found["properties"] = {
            changed.get(name, name): _shown(_named(name, inner, changed), changed)
            for name, inner in found["properties"].items()
        }
        required = (changed.get(name, name) for name in found.pop("required", ()))
        if declared := [*dict.fromkeys(name for name in required if name in found["properties"])]:
            found["required"] = declared
    for keyword in ("items", "additionalProperties"):
        if isinstance(found.get(keyword), dict):
            found[keyword] = _shown(found[keyword], changed)
    return found


def _named(name: str, schema: dict[str, Any], changed: Mapping[str, str]) -> dict[str, Any]:
    """The schema of an argument; names the argument if its own name differs."""
    if name not in changed:
        return schema
    return {**schema, "description": f"{name}: {schema.get('description', '')}".rstrip(": ")}


def _implied(schema: Mapping[str, Any]) -> list[str]:
    """The types of the values that are meant, as far as other keywords tell."""
    if choices := _choices(schema):
        return [*dict.fromkeys(_TYPE_OF[type(each)] for each in choices)]
    if "anyOf" in schema:
        return []
    return [*dict.fromkeys(kinds[0] for key, kinds in _FOR_TYPES.items() if key in schema)]


def _of_type(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """`schema` with what it says of values of type `kind`."""
    found = {
        key: value
        for key, value in schema.items()
        if kind in _FOR_TYPES.get(key, (kind,)) and key not in ("anyOf", "const", "enum")
    }
    found["type"] = kind
    if _TYPE_OF[type(found.get("default"))] != kind:
        found.pop("default", None)
    if kind == "array":
        found.setdefault("items", {})
    if kind == "object":
        found.setdefault("properties", {})
    told = [f"{key}: {found.pop(key)}." for key in _TOLD if key in found]
    choices = [each for each in _choices(schema) if _TYPE_OF[type(each)] == kind and each != ""]
    if kind == "string" and choices:
        found["enum"] = [*dict.fromkeys(choices)]
    elif choices and kind != "null":
        told.append(f"One of: {json.dumps(choices, ensure_ascii=False)[1:-1]}.")
    if told:
        found["description"] = " ".join(filter(None, (found.get("description"), *told)))
    return found
