"""From what pydantic found to what an operator reads: key, value seen, values accepted."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from wire.errors import Code

from runner.config.keys import Key, accepted_values, dotted, unknown_key
from runner.errors import ConfigError

_SHOWN_CHARS = 80
_OF_SECTIONS = ("weights", "model", "credential", "key", "summary")
"""Kinds of problems that lie between settings, not in one."""


def explain(error: ValidationError, sources: Mapping[Key, str]) -> ConfigError:
    """One error for all settings that were refused; `sources` says where each came from."""
    found: list[tuple[Key, str, str]] = []
    for item in error.errors(include_url=False):
        key = _key(item)
        if key[:1] == ("users",) and any(key[2:] == other for other, _, _ in found):
            continue  # the same value, inherited from the general section
        found.append((key, _source(key, sources), _problem(key, item)))
    first_key, first_source, first_problem = found[0]
    brief = f"bad setting {dotted(first_key)}: {first_problem}"
    more = [f"{dotted(key)}: {problem} (in {source})" for key, source, problem in found[1:]]
    return ConfigError(
        Code.INVALID_ARGUMENT,
        brief,
        details="; ".join([f"it stands in {first_source}", *more]),
        resolution="correct the " + ("setting" if len(found) == 1 else "settings named above"),
    )


def _key(item: ErrorDetails) -> Key:
    """The setting's own name: what pydantic appends for unions and validators is dropped."""
    key: list[str] = []
    for part in item["loc"]:
        if isinstance(part, int) or unknown_key((*key, part)):
            break
        key.append(part)
    return tuple(key)


def _source(key: Key, sources: Mapping[Key, str]) -> str:
    """Where the value came from; for a whole section, every place that had a say in it."""
    if key in sources:
        return sources[key]
    below = {source for known, source in sources.items() if known[: len(key)] == key}
    if not below and key[:1] == ("users",):
        return _source(key[2:], sources)
    return ", ".join(sorted(below)) or "the defaults"


def _problem(key: Key, item: ErrorDetails) -> str:
    if isinstance(item["input"], Mapping) and item["type"] in _OF_SECTIONS:
        return item["msg"]
    if item["type"] == "user_id":
        return f"{_shown(item['input'])} {item['msg']}"
    accepted = accepted_values(key) or item["msg"]
    if key[-1].endswith("_env") or item["type"] == "secret_in_url":
        return f"the value is not shown; accepted: {accepted}"
    return f"{_shown(item['input'])}; accepted: {accepted}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
