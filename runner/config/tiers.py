"""The tiers that are installed: the entry points of the group `oxydra.tiers`, by their names.

Each leads to a `runner.tiers.base.Tier`. It is loaded by name, so nothing imports a tier.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Literal

from wire.errors import Code
from wire.installation import adding
from wire.settings import Section

from runner.errors import ConfigError

GROUP: Final = "oxydra.tiers"
DEFAULT: Final = "container"
_FOUND: Final = entry_points(group=GROUP)
"""Read once: each time, the metadata of all installed packages is looked at."""
NAMES: Final = tuple(sorted(_FOUND.names))
if TYPE_CHECKING:
    TierName = str
else:
    TierName = Literal[NAMES or (DEFAULT,)]


@cache
def installed(name: str) -> Any:
    """The `runner.tiers.base.Tier` of this name. Raises `ConfigError` if it is not installed."""
    for found in _FOUND.select(name=name):
        return found.load()()
    raise ConfigError(
        Code.FAILED_PRECONDITION,
        f"there is no {name} tier",
        details=f"accepted: {', '.join(NAMES)}",
        resolution=f"runner --tier {DEFAULT}",
    )


def tables() -> Mapping[str, type[Section]]:
    """The models of the tables that tiers have in `runner.toml`, by their names.

    Raises `ConfigError` if the metadata of this installation names no tier.
    """
    if not NAMES:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "this installation does not name its tiers",
            details=f"it was made from an older version, without entry points of {GROUP}",
            resolution=adding("runner"),
        )
    models = {name: installed(name).table for name in NAMES}
    return {name: model for name, model in models.items() if model is not None}


def extras_of_tiers() -> list[str]:
    """The extras of the wheel that have the packages of a tier alone."""
    return [extra for name in NAMES if (extra := installed(name).extra)]
