"""The tier of a name, and its driver."""

from runner.config.models import Config
from runner.config.tiers import installed
from runner.errors import TierError, packages
from runner.tiers.base import Tier, TierDriver


def tier_of(config: Config) -> Tier:
    """The tier that is configured. Raises `ConfigError` if it is not installed."""
    found: Tier = installed(config.tier)
    return found


def driver_for(config: Config, tier: str = "") -> TierDriver:
    """A new driver of the configured tier, or of another `tier`, which has touched nothing yet.

    Raises `ConfigError` for an unknown tier, and `TierError` for one whose packages are missing; a
    weaker tier never takes its place.
    """
    found: Tier = installed(tier or config.tier)
    with packages(found.extra or "runner", f"the {found.name} tier", kind=TierError):
        return found.driver(config)
