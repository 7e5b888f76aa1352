"""Search what a command can read for secrets of the runner and the agent.

The probe knows only digests of the secrets. It therefore digests every piece of text that is as
long as a secret, and compares.
"""

import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from typing import Final

from wire.boundary import CANARY, SecretDigest, digest

from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World

_OF_PROCESS: Final = ("environ", "cmdline", "comm", "mountinfo")
_OF_KERNEL: Final = ("cmdline", "keys", "version", "net/unix", "sys/kernel/hostname")
_PLACES: Final = ("/run/", "/var/run/", "/ipc/", "/logs/")
_FILE_MAX_BYTES: Final = 256 * 1024
_WINDOWS_MAX: Final = 100_000


def secrets(world: World) -> str:
    """No token or key is in an environment, a command line or a file."""
    return _report(world, canary=False)


def canary(world: World) -> str:
    """The canary, which only the agent guest was given, is nowhere to be found."""
    return _report(world, canary=True)


def _report(world: World, *, canary: bool) -> str:
    found, looked = _scan(world)
    hits = [
        f"{secret.label} is in {place}"
        for secret, place in found
        if (secret.label == CANARY) == canary
    ]
    BoundaryHit.raise_if(hits)
    count = sum((secret.label == CANARY) == canary for secret in world.spec.secrets)
    if not count:
        return "nothing to look for"
    return f"{count} not found in {looked} places"


@cache
def _scan(world: World) -> tuple[list[tuple[SecretDigest, str]], int]:
    salt = bytes.fromhex(world.spec.salt)
    found = []
    looked = 0
    budget = _WINDOWS_MAX
    for place, content in _texts(world):
        looked += 1
        hits, tried = search(content, world.spec.secrets, salt, budget)
        budget -= tried
        found += [(secret, place) for secret in hits]
    return found, looked


def search(
    content: bytes, wanted: tuple[SecretDigest, ...], salt: bytes, budget: int = _WINDOWS_MAX
) -> tuple[list[SecretDigest], int]:
    """The `wanted` secrets in `content`, and how many windows were counted against the budget.

    At most `budget` windows are digested for secrets that are not plain words. Windows of word
    characters are always digested, because few texts have long words.
    """
    found = []
    tried = 0
    for length, word in sorted({(secret.length, secret.word) for secret in wanted}):
        digests = {
            secret.digest: secret
            for secret in wanted
            if (secret.length, secret.word) == (length, word)
        }
        windows = set(_words(content, length) if word else _windows(content, length))
        if not word:
            windows = set(list(windows)[: max(0, budget - tried)])
            tried += len(windows)
        for window in windows:
            if (secret := digests.get(digest(salt, window))) is not None:
                found.append(secret)
    return found, tried


def _words(content: bytes, length: int) -> Iterator[bytes]:
    for match in re.finditer(rb"[A-Za-z0-9_-]{%d,}" % length, content):
        yield from _windows(match[0], length)


def _windows(content: bytes, length: int) -> Iterator[bytes]:
    return (content[start : start + length] for start in range(len(content) - length + 1))


def _texts(world: World) -> Iterator[tuple[str, bytes]]:
    """All texts to search, those likeliest to hold a secret first."""
    for name in _OF_PROCESS:
        for pid in world.pids:
            yield from _content(world, f"/proc/{pid}/{name}")
    for name in _OF_KERNEL:
        yield from _content(world, f"/proc/{name}")
    for entry in walk(world):
        if entry.path.startswith(_PLACES):
            yield from _content(world, entry.path)


def _content(world: World, path: str) -> Iterator[tuple[str, bytes]]:
    """The path and the last bytes of a regular file; nothing if it cannot be read."""
    real = world.proc / path[6:] if path.startswith("/proc/") else world.at(path)
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        result = os.fstat(descriptor)
        if not stat.S_ISREG(result.st_mode):
            return
        os.lseek(descriptor, max(0, result.st_size - _FILE_MAX_BYTES), os.SEEK_SET)
        content = _read_all(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
    if content:
        yield path, content


def _read_all(descriptor: int) -> bytes:
    """Read in several pieces: the kernel returns files in /proc page by page."""
    content = b""
    while len(content) < _FILE_MAX_BYTES and (piece := os.read(descriptor, 65536)):
        content += piece
    return content
