"""The container tier, and micro_vm: guests are containers of a local engine."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from runner.tiers.base import Tier, TierDriver

if TYPE_CHECKING:
    from runner.config.models import Config
    from runner.doctor.finding import Finding


class ContainerTier(Tier):
    """See `Tier`."""

    name: Literal["container", "micro_vm"] = "container"

    def driver(self, config: "Config") -> TierDriver:
        from runner.tiers.container.driver import ContainerDriver  # imports docker

        return ContainerDriver(config.container, self.name)

    def memory_server(self, url: str, host: str) -> "Finding | None":
        from runner.doctor.finding import problem

        if host not in ("localhost", "127.0.0.1", "::1"):
            return None
        return problem(
            "memory server",
            f"{host} is the egress guest itself in the container tiers",
            "name the server by an address that containers reach, such as the bridge's",
        )

    def objects(self, config: "Config", user_id: str, home: Path) -> list[str]:
        from runner.tiers.container.engine import Engine
        from runner.tiers.container.names import ObjectNames

        filters = ObjectNames.of(user_id, home).filters
        with Engine(config.container.engine).client() as client:
            containers = client.containers(all=True, filters=filters)
            return [
                *(f"container {each['Names'][0].lstrip('/')}" for each in containers),
                *(f"network {each['Name']}" for each in client.networks(filters=filters)),
            ]


class MicroVmTier(ContainerTier):
    """The same with an OCI runtime that gives each guest a kernel of its own."""

    name = "micro_vm"
    own_kernel = True
