"""The kubernetes tier: a guest is a pod.

driver     starts, watches and ends guests
settings   the tier's table in runner.toml
cluster    the connection to the API server
names      what objects are called, and their labels
pods       a launch as a pod
claims     a user's volumes
policies   who may connect to whom
watching   how pods are, as the API server tells
streams    the envelope in, the output out
leadership one active runner per namespace
recovery   what a runner leaves to the next one
volumes    a user's directories, as the volumes have them
removal    what a cluster has of a user
doctor     what is wrong with the cluster
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from runner.tiers.base import Tier, TierDriver
from runner.tiers.kubernetes.settings import TIER, KubernetesSettings, settings_of

if TYPE_CHECKING:
    from runner.config.models import Config
    from runner.doctor.finding import Finding
    from runner.workspace.workspace import Workspace


class KubernetesTier(Tier):
    """See `Tier`."""

    name = TIER
    table = KubernetesSettings
    extra = TIER
    here = False
    replicas = True

    def driver(self, config: "Config") -> TierDriver:
        from runner.tiers.kubernetes.driver import KubernetesDriver

        return KubernetesDriver(settings_of(config), config.container)

    def workspace(self, config: "Config", user_id: str) -> "Workspace":
        from runner.tiers.kubernetes.volumes import VolumeWorkspace

        return VolumeWorkspace.of(config, user_id)

    def findings(self, config: "Config", user_id: str) -> "list[Finding]":
        from runner.tiers.kubernetes.doctor import cluster

        return cluster(settings_of(config), config.container, user_id)

    def memory_server(self, url: str, host: str) -> "Finding | None":
        from runner.doctor.finding import ok

        if not f"{host}.".endswith((".svc.", ".svc.cluster.local.")):
            return None
        return ok("memory server", f"{url} can be reached by egress alone; the agent asks it")

    def objects(self, config: "Config", user_id: str, home: Path) -> list[str]:
        from runner.tiers.kubernetes.removal import objects

        return asyncio.run(objects(settings_of(config), user_id))

    async def remove(self, config: "Config", user_id: str) -> None:
        from runner.tiers.kubernetes.removal import remove

        await remove(settings_of(config), user_id)

    def remains(self, config: "Config", user_id: str) -> list[str]:
        from runner.tiers.kubernetes.removal import remains

        return remains(settings_of(config), user_id)

    async def require_active(self, config: "Config") -> None:
        from runner.tiers.kubernetes.leadership import require_active

        await require_active(settings_of(config))

    async def lead(
        self,
        config: "Config",
        stack: AsyncExitStack,
        ended: asyncio.Event,
        say: Callable[[str], object],
        *,
        serves: bool,
    ) -> bool:
        from runner.tiers.kubernetes.leadership import lead

        port = int(config.serve.listen.rpartition(":")[2]) if serves and config.serve.listen else 0
        return await lead(settings_of(config), stack, ended, say, port)
