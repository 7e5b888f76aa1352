"""What an operator reads about a wrong setting: its key, its value, what is accepted, and where
it was set."""

import difflib
from collections.abc import Callable, Mapping

from pydantic import ValidationError
from wire.errors import Code
from wire.settings import Key, UserSettings, dotted, keys_of, lookup, problems

from runner.config.models import Config
from runner.errors import ConfigError


def explain(error: ValidationError, sources: Mapping[Key, str]) -> ConfigError:
    """Combine all refused settings into one error. `sources` says where each was set."""
    found: dict[Key, str] = {}
    for key, problem in problems(Config, error):
        if (
            key[:1] != ("users",) or key[2:] not in found
        ):  # else it is inherited from the general section
            found.setdefault(key, problem)
    (first, problem), *others = found.items()
    more = [f"{dotted(key)}: {said} (in {_source(key, sources)})" for key, said in others]
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"bad setting {dotted(first)}: {problem}",
        details="; ".join([f"it is set in {_source(first, sources)}", *more]),
        resolution="correct the setting" + ("s named above" if others else ""),
    )


def _source(key: Key, sources: Mapping[Key, str]) -> str:
    """Where a value was set. For a section: every place that set a part of it."""
    if key in sources:
        return sources[key]
    below = {source for known, source in sources.items() if known[: len(key)] == key}
    if not below and key[:1] == ("users",):
        return _source(key[2:], sources)
    return ", ".join(sorted(below)) or "the defaults"


def unknown(key: Key, source: str, spelled: Callable[[Key], str] = dotted) -> ConfigError:
    """The error for a setting that does not exist, with the most similar one."""
    section = key
    while not isinstance(model := lookup(Config, section), type):
        section = section[:-1]
    general = key[:1] != ("users",) or len(key) < 2
    root, prefix = (Config, ()) if general else (UserSettings, key[:2])
    candidates = [(*prefix, *known) for known, _ in keys_of(root) if known != ("users",)]
    nearest = max(candidates, key=lambda known: _likeness(key, known, section, spelled))
    where = f"[{dotted(section)}]" if section else "the top level"
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"unknown setting {spelled(key)}; did you mean {spelled(nearest)}? "
        f"({where} has {', '.join(model.model_fields)})",
        details=f"it is set in {source}",
        resolution="correct or remove it",
    )


def _likeness(
    key: Key, known: Key, section: Key, spelled: Callable[[Key], str]
) -> tuple[float, float]:
    """How similar two keys are: by the whole names or by the last parts. Whole names break ties."""
    whole = difflib.SequenceMatcher(None, spelled(key), spelled(known)).ratio()
    last = difflib.SequenceMatcher(None, key[-1], known[-1]).ratio()
    return max(whole, last + (0.1 if known[:-1] == section else 0.0)), whole
