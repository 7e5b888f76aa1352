"""Which processes run the agents of some users, and what they take."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import psutil

from runner.config.models import Config
from runner.host.control import connect_control

Inventory = Mapping[str, frozenset[psutil.Process]]
"""Processes by what they are: the role of a guest, "host" or "shim"."""

ENGINE: Final = "engine"
_ENGINES: Final = ("dockerd", "containerd", "podman", "conmon")
_SHIM: Final = "containerd-shim"


def engine_processes() -> frozenset[psutil.Process]:
    """The container engine itself, which others may use as well."""
    return frozenset(each for each in psutil.process_iter() if each.name() in _ENGINES)


async def users_processes(config: Config, names: Sequence[str]) -> Inventory:
    """Hosts, guests and embedder with all that they started, and what the engine runs beside each
    container. Raises `RuntimeError` if one of them is not ready."""
    children: dict[int, list[psutil.Process]] = {}
    for each in psutil.process_iter():
        children.setdefault(each.ppid(), []).append(each)
    found: dict[str, set[psutil.Process]] = {}
    for name in names:
        for kind, pid in await _pids(config, name):
            process = psutil.Process(pid)
            found.setdefault(kind, set()).update(_with_descendants(process, children))
            parent = process.parent()
            if parent is not None and parent.name().startswith(_SHIM):
                found.setdefault("shim", set()).add(parent)
    return {kind: frozenset(processes) for kind, processes in found.items()}


async def _pids(config: Config, name: str) -> list[tuple[str, int]]:
    """What runs for a user, and its first process."""
    control = await connect_control(config, name)
    if control is None:
        raise RuntimeError(f"no host runs for {name}")
    async with control:
        status = await control.status()
    guests = [guest for guest in status.guests if guest.state != "disabled"]
    for guest in guests:
        if guest.state != "ready" or guest.restarts:
            raise RuntimeError(
                f"{guest.role} of {name} is {guest.state} after {guest.restarts} restarts: "
                f"{guest.reason or guest.last_end}"
            )
    return [("host", status.pid), *((guest.role, guest.pid) for guest in guests)]


def _with_descendants(
    process: psutil.Process, children: Mapping[int, Sequence[psutil.Process]]
) -> Iterable[psutil.Process]:
    yield process
    for child in children.get(process.pid, ()):
        yield from _with_descendants(child, children)


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """What they and their ended children have computed."""
    return sum(sum(each.cpu_times()[:4]) for each in processes)


def proportional_bytes(processes: Iterable[psutil.Process]) -> int:
    """Their memory, of which a page that several have counts in parts (PSS)."""
    return sum(each.memory_full_info().pss for each in processes)
