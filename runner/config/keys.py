"""The names of all settings, read from the models, and the nearest one to a wrong name."""

import difflib
import json
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from runner.config.models import Config, UserSection

Key = tuple[str, ...]
_TABLE: Final = "a table of settings"
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def dotted(key: Key) -> str:
    """How TOML writes a key."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part) for part in key)


def env_name(key: Key) -> str:
    """The environment variable that sets `key`."""
    return "OXYDRA_" + "__".join(key).upper()


def unknown_key(key: Key, spelled: Callable[[Key], str] = dotted) -> str | None:
    """None where `key` exists; else the key, the nearest known name and what its section has."""
    model: type[BaseModel] = Config
    for depth, name in enumerate(key):
        if model is Config and name == "users" and depth == 0 and len(key) > 1:
            continue
        if depth == 1 and key[0] == "users":
            model = UserSection
            continue
        field = model.model_fields.get(name)
        if field is None:
            return _explain(key, model, key[:depth], spelled)
        if depth + 1 == len(key):
            return None
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return _explain(key, model, key[:depth], spelled)
        model = field.annotation
    return None


def is_number(key: Key) -> bool:
    return bool({int, float} & _types(key))


def is_switch(key: Key) -> bool:
    return bool in _types(key)


def is_list(key: Key) -> bool:
    return tuple in _types(key)


def is_path(key: Key) -> bool:
    return Path in _types(key)


def accepted_values(key: Key) -> str:
    """What a setting accepts, in words; empty where there is nothing to add."""
    if key[:1] == ("users",) and len(key) < 3:
        return _TABLE
    model: type[BaseModel] = Config
    for name in _without_user(key):
        field = model.model_fields.get(name)
        if field is None:
            return ""
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
            continue
        if field.description:
            return field.description
        choices = [value for value in get_args(field.annotation) if isinstance(value, str)]
        return "one of " + ", ".join(choices) if choices else ""
    return _TABLE


def _explain(key: Key, model: type[BaseModel], section: Key, spelled: Callable[[Key], str]) -> str:
    nearest = max(_all_keys(key), key=lambda known: _likeness(key, known, section, spelled))
    accepted = ", ".join(model.model_fields)
    where = f"[{dotted(section)}]" if section else "the top level"
    return f"{spelled(key)}; did you mean {spelled(nearest)}? ({where} has {accepted})"


def _likeness(
    key: Key, known: Key, section: Key, spelled: Callable[[Key], str]
) -> tuple[float, float]:
    """The better of the whole names' and the last parts' likeness; the former breaks ties."""
    whole = difflib.SequenceMatcher(None, spelled(key), spelled(known)).ratio()
    last = difflib.SequenceMatcher(None, key[-1], known[-1]).ratio()
    return max(whole, last + (0.1 if known[:-1] == section else 0.0)), whole


def _all_keys(wanted: Key) -> list[Key]:
    """Every setting; those of users under the id that `wanted` names."""
    general = _keys_of(Config)
    if len(wanted) > 1 and wanted[0] == "users":
        return [("users", wanted[1], *key) for key in _keys_of(UserSection)]
    return [key for key in general if key[0] != "users"]


def _keys_of(model: type[BaseModel]) -> list[Key]:
    keys: list[Key] = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += [(name, *inner) for inner in _keys_of(field.annotation)]
        else:
            keys.append((name,))
    return keys


def _without_user(key: Key) -> Key:
    return key[2:] if len(key) > 2 and key[0] == "users" else key


def _types(key: Key) -> set[Any]:
    """The plain types of a setting, optional and generic ones taken apart."""
    annotation: Any = None
    model: type[BaseModel] = Config
    for name in _without_user(key):
        field = model.model_fields.get(name)
        if field is None:
            return set()
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    parts = get_args(annotation) if _is_union(annotation) else (annotation,)
    bare = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    return {get_origin(part) or part for part in bare}


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)
