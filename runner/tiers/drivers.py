"""The driver of each tier."""

from typing import Final

from wire.errors import Code
from wire.installation import adding
from wire.settings import ContainerSettings, KubernetesSettings

from runner.errors import TierError
from runner.tiers.base import TierDriver

_CONTAINER: Final = ContainerSettings()
_KUBERNETES: Final = KubernetesSettings()


def driver_for(
    tier: str,
    container: ContainerSettings = _CONTAINER,
    kubernetes: KubernetesSettings = _KUBERNETES,
) -> TierDriver:
    """A new driver, which has touched nothing yet.

    Raises `TierError` for an unknown tier, or one whose packages are missing; a weaker tier never
    takes its place.
    """
    match tier:
        case "process":
            from runner.tiers.process.driver import ProcessDriver

            return ProcessDriver()
        case "container" | "micro_vm":
            from runner.tiers.container.driver import ContainerDriver  # imports docker

            return ContainerDriver(container, tier)
        case "kubernetes":
            try:
                from runner.tiers.kubernetes.driver import KubernetesDriver  # imports its client
            except ModuleNotFoundError as missing:
                raise TierError(
                    Code.FAILED_PRECONDITION,
                    "the kubernetes tier needs packages that are not installed",
                    details=str(missing),
                    resolution=adding("runner", "kubernetes"),
                ) from None

            return KubernetesDriver(kubernetes, container)
    raise TierError(
        Code.FAILED_PRECONDITION,
        f"there is no {tier} tier",
        details="accepted: container, kubernetes, micro_vm, process",
        resolution="runner --tier container",
    )
