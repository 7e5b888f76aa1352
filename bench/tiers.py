"""What a user's pair of guests costs in each tier: time until ready, memory. The micro_vm tier is
measured on gVisor's kernel.

Run alone: `python -m bench.tiers`.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from wire import transport
from wire.settings import EmbedderSettings
from wire.v1 import control_pb2, gateway_pb2_grpc

from bench import engine
from bench.processes import one_turn
from bench.report import verdict
from bench.scratch import scratch
from runner.config.models import Config
from runner.config.tiers import TierName
from runner.host.host import Host
from runner.images.naming import ImageRole, image_name
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.mounts import Role

COLD_GOAL: Final = 3.0
"""So many runs of the smallest program in a container may a pair take until it is ready."""
MEMORY_GOAL_MB: Final = 140
USERS: Final = 10
_MB: Final = 1e6
_TIERS: Final[tuple[TierName, ...]] = ("process", "container", "micro_vm")
_EMBEDDER_READY_S: Final = 120.0


@dataclass(frozen=True)
class Memory:
    """Bytes of some processes: `resident` counts a page once per process that has it,
    `proportional` shares it among them."""

    resident: int = 0
    proportional: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.resident + other.resident, self.proportional + other.proportional)

    def __str__(self) -> str:
        return f"{self.proportional / _MB:4.0f} MB PSS, {self.resident / _MB:4.0f} MB RSS"


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` measures more rounds."""
    tiers = list(_TIERS)
    lines = ["a user's pair of guests, per tier"]
    if why := ProcessDriver().capabilities.unsupported.get(Role.SHELL, ""):
        tiers.remove("process")
        lines.append(f"  process tier left out: {why}")
    for tier in _TIERS[1:]:
        if why := await engine.missing(tier):
            tiers.remove(tier)
            lines.append(f"  {tier} tier left out: {why}")
    lines += await _cold(tiers, 10 if full else 5)
    for tier in tiers:
        lines += await _memory(tier)
    if "container" in tiers:
        lines += [f"  image {each.name:24} {each.size / _MB:5.0f} MB" for each in engine.images()]
    return lines


async def _cold(tiers: list[TierName], rounds: int) -> list[str]:
    """Time until ready, boundary self-test included, against `docker run`; interleaved."""
    times: dict[str, list[float]] = {tier: [] for tier in tiers}
    bare: list[float] = []
    for _ in range(rounds):
        for tier in tiers:
            with scratch() as root:
                host = Host(_config(root, tier, embedder=False), "bench")
                began = time.perf_counter()
                async with host:
                    times[tier].append(time.perf_counter() - began)
        if "container" in tiers:
            began = time.perf_counter()
            image = image_name(engine.SETTINGS.images, ImageRole.SHELL)
            engine.docker("run", "--rm", "--entrypoint", "python3", image, "-c", "pass")
            bare.append(time.perf_counter() - began)
    lines = [f"  {tier:9} tier ready from cold   {_spread(found)}" for tier, found in times.items()]
    if bare:
        ratio = statistics.median(times["container"]) / statistics.median(bare)
        lines.append(f"  docker run … python3 -c pass   {_spread(bare)}")
        lines.append(
            f"  container tier / docker run: {ratio:.1f} times   "
            f"goal: at most {COLD_GOAL:g} times: {verdict(ratio <= COLD_GOAL)}"
        )
    return lines


async def _memory(tier: TierName) -> list[str]:
    """Of one pair after a turn, then of many users with one embedder (not in micro_vm)."""
    with scratch() as root:
        async with _user(_config(root, tier, embedder=False), "bench") as host:
            parts = {role: await _guest_memory(host, role) for role in ("agent", "shell")}
    pair = sum(parts.values(), Memory())
    met = verdict(pair.resident <= MEMORY_GOAL_MB * _MB)
    goal = "" if tier == "micro_vm" else f"goal: at most {MEMORY_GOAL_MB} MB RSS: {met}"
    lines = [
        f"  {tier:9} tier, one pair   {pair}   {goal}",
        *(f"      {role:22} {memory}" for role, memory in parts.items()),
    ]
    if tier == "micro_vm":  # a kernel for each guest: many users are that much as often
        return lines
    with scratch() as root:
        config = _config(root, tier, embedder=True)
        async with AsyncExitStack() as stack:
            names = [f"user{number}" for number in range(USERS)]
            hosts = [await stack.enter_async_context(_user(config, name)) for name in names]
            await _embedder_ready(hosts[0])
            embedder = await _guest_memory(hosts[0], "embedder")
            pairs = Memory()
            for host in hosts:
                for role in ("agent", "shell"):
                    pairs += await _guest_memory(host, role)
    each = Memory(pairs.resident // USERS, pairs.proportional // USERS)
    lines += [
        f"  {tier:9} tier, {USERS} users   {pairs + embedder}",
        f"      one user's pair        {each}",
        f"      the one embedder       {embedder}",
    ]
    return lines


@asynccontextmanager
async def _user(config: Config, user: str) -> AsyncIterator[Host]:
    """A user's host that has answered one turn."""
    async with Host(config, user) as host:
        async with transport.open_channel(await host.gateway()) as channel:
            await one_turn(gateway_pb2_grpc.GatewayStub(channel))
        yield host


async def _embedder_ready(host: Host) -> None:
    deadline = time.monotonic() + _EMBEDDER_READY_S
    while (state := await _status(host, "embedder")).state != "ready":
        if time.monotonic() > deadline:
            raise RuntimeError(f"the embedder did not become ready: {state}")
        await asyncio.sleep(0.2)


async def _guest_memory(host: Host, role: str) -> Memory:
    """Of a guest and all its processes, as this host sees them."""
    process = psutil.Process((await _status(host, role)).pid)
    total = Memory()
    for each in [process, *process.children(recursive=True)]:
        found = each.memory_full_info()
        total += Memory(found.rss, found.pss)
    return total


async def _status(host: Host, role: str) -> control_pb2.GuestStatus:
    return next(each for each in (await host.status()).guests if each.role == role)


def _config(root: Path, tier: TierName, *, embedder: bool) -> Config:
    return Config(
        workspace_root=root / "w",
        runtime_dir=root / "r",
        tier=tier,
        embedder=EmbedderSettings() if embedder else EmbedderSettings(backend="none"),
        container=engine.SETTINGS,
    )


def _spread(seconds: list[float]) -> str:
    return (
        f"p50 {statistics.median(seconds):5.2f} s "
        f"(min {min(seconds):.2f}, max {max(seconds):.2f}, {len(seconds)} times)"
    )


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
