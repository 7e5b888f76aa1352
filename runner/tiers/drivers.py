"""The driver of each tier."""

from typing import Final

from wire.errors import Code
from wire.settings import ContainerSettings

from runner.errors import TierError
from runner.tiers.base import TierDriver

_DEFAULTS: Final = ContainerSettings()


def driver_for(tier: str, container: ContainerSettings = _DEFAULTS) -> TierDriver:
    """A new driver, which has touched nothing yet.

    Raises `TierError` for an unknown tier; a weaker tier never takes its place.
    """
    match tier:
        case "process":
            from runner.tiers.process.driver import ProcessDriver

            return ProcessDriver()
        case "container" | "micro_vm":
            from runner.tiers.container.driver import ContainerDriver  # imports docker

            return ContainerDriver(container, tier)
    raise TierError(
        Code.FAILED_PRECONDITION,
        f"there is no {tier} tier",
        details="accepted: container, micro_vm, process",
        resolution="runner --tier container",
    )
