"""Search what a command can read for the secrets of the runner and the agent.

The probe knows no secret. It looks for marks: the canary, which the runner planted beside the keys
in the agent's envelope, and the public beginnings of tokens.
"""

import os
import stat
import time
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from wire.boundary import CANARY, Mark
from wire.disk import held
from wire.network_probe import require_tried

from shell_daemon.probe.walk import TEXTS, place_of, walk
from shell_daemon.probe.world import BoundaryHit, World

_OF_PROCESS: Final = ("environ", "cmdline", "comm", "mountinfo")
_OF_KERNEL: Final = ("cmdline", "keys", "version", "net/unix", "sys/kernel/hostname")
_FILE_MAX_BYTES: Final = 1024 * 1024


class _Scan(NamedTuple):
    found: list[tuple[Mark, str]]
    looked: int
    unfinished: list[str]


def secrets(world: World) -> str:
    """No token is in an environment, a command line or a file."""
    return _report(world, canary=False)


def canary(world: World) -> str:
    """The canary, which only the agent guest was given, is nowhere to be found."""
    return _report(world, canary=True)


def _report(world: World, *, canary: bool) -> str:
    scan = _scan(world)
    hits = [
        f"{mark.label} is in {place}"
        for mark, place in scan.found
        if (mark.label == CANARY) == canary
    ]
    BoundaryHit.raise_if(hits + scan.unfinished)
    count = sum((mark.label == CANARY) == canary for mark in world.spec.marks)
    if not count:
        return "nothing to look for"
    return f"{count} not found in {scan.looked} places"


@cache
def _scan(world: World) -> _Scan:
    unfinished = [why for start, why in walk(world).unfinished.items() if place_of(start)]
    marks = [(mark, mark.text.encode()) for mark in world.spec.marks]
    found = []
    looked = 0
    for place, content in _texts(world, unfinished):
        looked += 1
        found += [(mark, place) for mark, text in marks if text in content]
    return _Scan(found, looked, unfinished)


def _texts(world: World, unfinished: list[str]) -> Iterator[tuple[str, bytes]]:
    """All texts to search. A place whose files take more than its budget is added to
    `unfinished`."""
    for name in _OF_PROCESS:
        for pid in world.pids:
            yield from read_end(world, f"/proc/{pid}/{name}")
    for name in _OF_KERNEL:
        yield from read_end(world, f"/proc/{name}")
    for place in TEXTS:
        left = world.budgets.own.size
        deadline = time.monotonic() + world.budgets.own.seconds
        for entry in walk(world).entries:
            if place_of(entry.path) != place:
                continue
            if left <= 0 or time.monotonic() > deadline:
                unfinished.append(f"the files of {place} are too many or too large to be searched")
                break
            for path, content in read_end(world, entry.path):
                left -= len(content)
                yield path, content


def read_end(world: World, path: str) -> Iterator[tuple[str, bytes]]:
    """The path and the last bytes of a regular file; nothing if commands cannot read it."""
    real = world.proc / path[6:] if path.startswith("/proc/") else world.at(path)
    try:
        with held(os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as descriptor:
            result = os.fstat(descriptor)
            if not stat.S_ISREG(result.st_mode):
                return
            os.lseek(descriptor, max(0, result.st_size - _FILE_MAX_BYTES), os.SEEK_SET)
            content = _read_all(descriptor)
    except OSError as error:
        require_tried(error)
        return
    if content:
        yield path, content


def _read_all(descriptor: int) -> bytes:
    """Read in several pieces: the kernel returns files in /proc page by page."""
    content = b""
    while len(content) < _FILE_MAX_BYTES and (piece := os.read(descriptor, 65536)):
        content += piece
    return content
