"""What guests take of the machine, over the last minutes: memory and CPU, sampled now and then."""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import psutil
from wire.errors import WireError

from runner.config.models import Config
from runner.config.users import known_users
from runner.host.control import connect_control
from runner.host.runtime import is_running

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
KEPT: Final = 60
_PIDS_EVERY_S: Final = 60.0
_APPEAR_S: Final = 1.0

Guest = tuple[str, str]
"""A user and a role."""


@dataclass(frozen=True)
class Usage:
    """What a process and its descendants take: resident bytes, and seconds of CPU so far."""

    resident_bytes: int
    cpu_s: float


class Samples:
    """Samples of all guests whose pids are known. `watch` takes them until it is cancelled."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pids: dict[Guest, int] = {}
        self._last: dict[Guest, tuple[int, float, float]] = {}
        self._taken: defaultdict[Guest, deque[dict[str, Any]]] = defaultdict(
            lambda: deque(maxlen=KEPT)
        )

    def of(self, user_id: str) -> dict[str, list[dict[str, Any]]]:
        """The samples of a user's guests by role, oldest first: `at`, `resident_bytes`, and `cpu`,
        the share of one CPU since the sample before."""
        return {role: list(taken) for (user, role), taken in self._taken.items() if user == user_id}

    def note(self, user_id: str, pids: Mapping[str, int]) -> None:
        """Tell which processes a user's guests are."""
        for guest in [guest for guest in self._pids if guest[0] == user_id]:
            del self._pids[guest]
        self._pids |= {(user_id, role): pid for role, pid in pids.items() if pid}

    async def watch(self) -> None:
        asked = -_PIDS_EVERY_S
        while True:
            if time.monotonic() - asked >= _PIDS_EVERY_S:
                asked = time.monotonic()
                await self._find_guests()
            found = await asyncio.to_thread(usage_of, set(self._pids.values()))
            self._take(found)
            await asyncio.sleep(EVERY_S)

    async def _find_guests(self) -> None:
        for user_id in known_users(self._config):
            with contextlib.suppress(WireError, OSError):
                self.note(user_id, await self._pids_of(user_id))

    async def _pids_of(self, user_id: str) -> dict[str, int]:
        if not is_running(self._config, user_id):
            return {}
        control = await connect_control(self._config, user_id, appear_s=_APPEAR_S)
        if control is None:
            return {}
        async with control:
            return {guest.role: guest.pid for guest in (await control.status()).guests}

    def _take(self, found: Mapping[int, Usage]) -> None:
        now = time.monotonic()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        for guest in [guest for guest in self._taken if guest not in self._pids]:
            del self._taken[guest]
            self._last.pop(guest, None)
        for guest, pid in self._pids.items():
            if (usage := found.get(pid)) is None:
                continue
            before = self._last.get(guest)
            self._last[guest] = (pid, now, usage.cpu_s)
            share = 0.0
            if before is not None and before[0] == pid and now > before[1]:
                share = max(0.0, usage.cpu_s - before[2]) / (now - before[1])
            self._taken[guest].append(
                {"at": at, "resident_bytes": usage.resident_bytes, "cpu": round(share, 3)}
            )


def usage_of(pids: Iterable[int]) -> dict[int, Usage]:
    """What each of these processes takes with its descendants; without those that are gone."""
    known = {process.pid: process for process in psutil.process_iter(["ppid"])}
    children: defaultdict[int, list[psutil.Process]] = defaultdict(list)
    for process in known.values():
        children[process.info["ppid"]].append(process)
    found = {}
    for pid in known.keys() & set(pids):
        resident, cpu, family = 0, 0.0, [known[pid]]
        for process in family:  # which grows meanwhile
            family += children[process.pid]
            with contextlib.suppress(psutil.Error):
                resident += process.memory_info().rss
                times = process.cpu_times()
                cpu += times.user + times.system
        found[pid] = Usage(resident, cpu)
    return found
