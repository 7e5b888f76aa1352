"""The container tier, and micro_vm: a guest is a hardened container of a local engine.

`Containers` does the work, in threads.
"""

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from wire.errors import Code
from wire.settings import ContainerSettings, UserSettings

from runner.errors import TierError
from runner.tiers.base import Capabilities, Confinement, Handle, LaunchSpec
from runner.tiers.container.containers import Container, Containers
from runner.tiers.container.engine import Engine, find_socket
from runner.tiers.container.host_address import has_network, unreachable_servers
from runner.tiers.container.names import ObjectNames
from runner.tiers.running import RunningGuest, RunningGuests, wait_in_thread
from runner.workspace.mounts import Role


class ContainerDriver(RunningGuests):
    """See `runner.tiers.base.TierDriver`. The engine is first asked by `check` or at the first
    use."""

    def __init__(
        self,
        settings: ContainerSettings,
        tier: Literal["container", "micro_vm"] = "container",
        engine: Engine | None = None,
    ) -> None:
        super().__init__()
        self._tier = tier
        self._settings = settings
        self._beside = ContainerDriver(settings, engine=engine) if tier == "micro_vm" else self
        runtime = settings.runtime if tier == "micro_vm" else None
        self._containers = Containers(
            engine or Engine(settings.engine), images=settings.images, runtime=runtime
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            tier=self._tier,
            unsupported={},
            own_files=frozenset(Role),
            own_programs=True,
            own_kernel=self._tier == "micro_vm",
            host_loopback=has_network(),
        )

    def confinement(self, spec: LaunchSpec) -> Confinement:
        return Confinement(
            *spec.owner,
            seccomp=self._containers.seccomp,
            own_kernel=self.capabilities.own_kernel,
        )

    @property
    def beside(self) -> "ContainerDriver":
        return self._beside

    def notices(
        self, settings: UserSettings, user_id: str, environ: Mapping[str, str]
    ) -> list[str]:
        found = unreachable_servers(settings, user_id, self._settings, environ)
        return [": ".join(each) for each in found]

    def private(self) -> list[Path]:
        return [find_socket(self._settings.engine)]

    async def check(self) -> list[str]:
        """Notices about the engine. Raises `TierError`, with the fix, if it cannot run guests."""
        return list(await asyncio.to_thread(self._containers.judge))

    async def start(self, spec: LaunchSpec) -> Handle:
        starting = asyncio.create_task(asyncio.to_thread(self._containers.start, spec))
        try:
            container = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await self._watch(await starting).end(0)
            raise
        self._guests[spec.launch_id] = self._watch(container)
        data = {"container": container.container_id}
        return Handle(self._tier, spec.role, spec.user_id, spec.launch_id, data)

    async def recover(self, handle: Handle) -> bool:
        container = await asyncio.to_thread(self._containers.recover, handle)
        if container is None:
            return False
        self._guests[handle.launch_id] = self._watch(container)
        return True

    async def clear(self, user_id: str, home: Path) -> list[str]:
        return await asyncio.to_thread(self._containers.clear, ObjectNames.of(user_id, home))

    def _watch(self, container: Container) -> RunningGuest:
        return RunningGuest(
            pid=container.pid,
            ended=wait_in_thread(partial(self._containers.until_gone, container)),
            terminate=partial(self._containers.kill, container, signal.SIGTERM),
            kill=partial(self._containers.kill, container, signal.SIGKILL),
            stuck=TierError(
                Code.INTERNAL,
                f"the container {container.name} does not end",
                details="it is still there a minute after it was killed",
                resolution=f"docker rm --force {container.name}",
            ),
        )
