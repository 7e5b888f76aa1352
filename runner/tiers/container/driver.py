"""The container tier, and micro_vm: a guest is a hardened container of a local engine.

`Containers` does the work in threads; here is what tasks see of it.
"""

import asyncio
import contextlib
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from wire.errors import Code

from runner.config.models import ContainerSection
from runner.errors import TierError
from runner.tiers.base import Capabilities, Confinement, Handle, Inspection, LaunchSpec
from runner.tiers.container.containers import Container, Containers
from runner.tiers.container.engine import Engine
from runner.tiers.container.names import Place
from runner.tiers.process.driver import resident_bytes
from runner.workspace.mounts import Role

GUEST_PYTHON: Final = "/opt/oxydra/bin/python"
_END_S: Final = 60.0


@dataclass(frozen=True)
class _Guest:
    """`ended` resolves to the exit code once the container is gone."""

    container: Container
    ended: "asyncio.Future[int | None]"


class ContainerDriver:
    """See `runner.tiers.base.TierDriver`. Making it touches nothing; the engine is judged
    at the first use, or by `check`."""

    def __init__(
        self,
        settings: ContainerSection,
        tier: Literal["container", "micro_vm"] = "container",
        engine: Engine | None = None,
    ) -> None:
        self._tier = tier
        runtime = settings.runtime if tier == "micro_vm" else None
        self._containers = Containers(
            engine or Engine(settings.engine), images=settings.images, runtime=runtime
        )
        self._guests: dict[str, _Guest] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            tier=self._tier,
            unsupported={},
            guests_outlive_runner=False,
            own_files=frozenset(Role),
            own_programs=True,
        )

    def confinement(self, spec: LaunchSpec) -> Confinement:
        return Confinement(
            *spec.owner,
            python=GUEST_PYTHON,
            seccomp=self._containers.seccomp,
            own_kernel=self._tier == "micro_vm",
        )

    async def check(self) -> list[str]:
        """What the operator should know of the engine. Raises `TierError`, with the fix,
        for one that cannot run guests."""
        return list(await asyncio.to_thread(self._containers.judge))

    async def start(self, spec: LaunchSpec) -> Handle:
        starting = asyncio.create_task(asyncio.to_thread(self._containers.start, spec))
        try:
            container = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await self._end(self._watch(await starting), 0)
            raise
        self._guests[spec.launch_id] = self._watch(container)
        return Handle(
            driver=self._tier,
            role=spec.role,
            user_id=spec.user_id,
            launch_id=spec.launch_id,
            data={"container": container.container_id},
        )

    async def inspect(self, handle: Handle) -> Inspection:
        guest = self._guests.get(handle.launch_id)
        if guest is None:
            return Inspection(running=False)
        pid = guest.container.pid
        if guest.ended.done():
            return Inspection(running=False, pid=pid, exit_code=guest.ended.result())
        resident = await asyncio.to_thread(resident_bytes, pid)
        return Inspection(running=True, pid=pid, resident_bytes=resident)

    async def wait(self, handle: Handle) -> int | None:
        guest = self._guests.get(handle.launch_id)
        return None if guest is None else await asyncio.shield(guest.ended)

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        guest = self._guests.get(handle.launch_id)
        if guest is not None:
            await self._end(guest, grace)

    async def recover(self, handle: Handle) -> bool:
        container = await asyncio.to_thread(self._containers.recover, handle)
        if container is None:
            return False
        self._guests[handle.launch_id] = self._watch(container)
        return True

    async def clear(self, user_id: str, workspace: Path) -> list[str]:
        return await asyncio.to_thread(self._containers.clear, Place.of(user_id, workspace))

    def _watch(self, container: Container) -> _Guest:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int | None] = loop.create_future()

        def until_gone() -> None:
            code = self._containers.until_gone(container)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
                loop.call_soon_threadsafe(ended.set_result, code)

        threading.Thread(target=until_gone, name="guest-end", daemon=True).start()
        return _Guest(container, ended)

    async def _end(self, guest: _Guest, grace: float) -> None:
        if guest.ended.done():
            return
        kill = self._containers.kill
        try:
            if grace > 0:
                await asyncio.to_thread(kill, guest.container, signal.SIGTERM)
                await asyncio.wait({guest.ended}, timeout=grace)
        finally:
            if not guest.ended.done():
                await asyncio.to_thread(kill, guest.container, signal.SIGKILL)
        await asyncio.wait({guest.ended}, timeout=_END_S)
        if not guest.ended.done():
            name = guest.container.name
            raise TierError(
                Code.INTERNAL,
                f"the container {name} does not end",
                details=f"it is still there {_END_S:g} s after it was killed",
                resolution=f"docker rm --force {name}",
            )
