"""What of one account there is to attempt for another: found by looking, not by a list of names."""

import base64
import itertools
import json
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.support.accounts.visitor import GOT, REFUSED

Attempt = dict[str, Any]
"""What `visitor` is told to do."""

PRIVATE_OF_A_PROCESS: Final = frozenset(
    {
        *("environ", "auxv", "maps", "smaps", "smaps_rollup", "numa_maps", "map_files", "mem"),
        *("pagemap", "clear_refs", "fd", "fdinfo", "cwd", "root", "exe", "io", "stack", "syscall"),
        *("personality", "ns", "mountstats", "patch_state", "timers"),
    }
)
"""Names below `/proc/PID` that tell what is in a process, or lead to it."""

_CLOSED: Final = "everything lies in a directory that its owner alone may enter"
_OTHER_UID: Final = "the kernel: another uid without a capability"


@dataclass(frozen=True)
class Kind:
    """One thing that can be attempted: what `visitor` does, and a row of the table of attempts."""

    do: str
    name: str
    stopped_by: str


OF_DIRECTORIES: Final = (
    Kind("names", "listing a directory", _CLOSED),
    Kind("lock", "locking a directory, so that a start waits", _CLOSED),
    Kind("watch", "watching a directory, to learn what happens in it", _CLOSED),
    Kind("plant", "making something in a directory", _CLOSED),
    Kind("replace", "putting another directory in the place of one", _CLOSED),
)
OF_FILES: Final = (
    Kind("read", "reading a file", _CLOSED),
    Kind("write", "writing a file", _CLOSED),
    Kind("lock", "locking a file", _CLOSED),
    Kind("watch", "watching a file", _CLOSED),
    Kind("replace", "putting another file in the place of one", _CLOSED),
)
OF_SOCKETS: Final = (
    Kind("connect", "connecting to a socket", _CLOSED),
    Kind("replace", "putting another socket in the place of one", _CLOSED),
)
OF_PROCESSES: Final = (
    Kind("trace", "tracing a process", _OTHER_UID),
    Kind("stop", "sending a signal", _OTHER_UID),
    Kind("hang_up", "sending a signal by a process's descriptor", _OTHER_UID),
    Kind("peek", "reading the memory of a process", _OTHER_UID),
    Kind("borrow", "taking an open file of a process", _OTHER_UID),
    Kind("slow_down", "changing priority, processors and limits of a process", _OTHER_UID),
)
OF_PROC: Final = (
    Kind("files_of", "environment, memory map, descriptors and more in /proc", _OTHER_UID),
    Kind("files_of", "secrets in what /proc shows to all", "no secret is in a command line"),
)
_MUTUAL: Final = "mutual TLS: who has no certificate of this runner is not heard"
OF_SERVERS: Final = (
    Kind("speak", "a call without TLS over a connection to a server", _MUTUAL),
    Kind("speak", "a call without a certificate over a connection to a server", _MUTUAL),
    Kind("speak", "a call with a certificate of one's own and a guessed token", _MUTUAL),
)


def by(whom: str, *kinds: Kind) -> list[Kind]:
    """The same kinds, named for the table as what `whom` attempts."""
    return [replace(kind, name=f"{whom}: {kind.name}") for kind in kinds]


_LISTENING: Final = "0A"


def everything(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All that lies below `root` in its file system, with what it is. Links are not followed."""
    device = root.lstat().st_dev
    for directory, names, files in os.walk(root):
        found = [(path, path.lstat()) for path in map(Path(directory).joinpath, (*names, *files))]
        yield from found
        names[:] = [path.name for path, seen in found if seen.st_dev == device]


def of_places(found: Iterable[tuple[str, os.stat_result]]) -> list[Attempt]:
    """All that can be attempted at these places, which are named as they are found there."""
    made: list[Attempt] = []
    for place, seen in found:
        kinds: Sequence[Kind] = OF_FILES
        if stat.S_ISDIR(seen.st_mode):
            kinds = OF_DIRECTORIES
        elif stat.S_ISSOCK(seen.st_mode):
            kinds = OF_SOCKETS
        elif stat.S_ISLNK(seen.st_mode):
            kinds = OF_SOCKETS[1:]
        made += ({"do": kind.do, "at": place} for kind in kinds)
    return made


def of_processes(pids: Iterable[int]) -> list[Attempt]:
    """All that can be attempted with these processes, but for what `/proc` shows of them."""
    return [{"do": kind.do, "pid": pid} for pid in pids for kind in OF_PROCESSES]


def of_servers(connections: Iterable[socket.socket], pem: str) -> list[Attempt]:
    """All that can be said to servers by who has a connection to each: three for each, which must
    be new. `pem` is an identity of another authority."""
    ways: list[Attempt] = [{"tls": False}, {"tls": True}, {"tls": True, "pem": pem}]
    pairs = zip(connections, itertools.cycle(ways), strict=False)
    return [{"do": "speak", "fd": each.fileno(), **way} for each, way in pairs]


def not_refused(attempts: Sequence[Attempt], told: Sequence[str]) -> list[str]:
    """Those that were not refused, with what came of them."""
    assert attempts
    pairs = zip(attempts, told, strict=True)
    return [f"{each}: {result[:300]}" for each, result in pairs if not result.startswith(REFUSED)]


def told_of_processes(told: Sequence[str], secrets: Mapping[str, str]) -> list[str]:
    """What results of `files_of` show that they should not: private names, and secrets."""
    found = []
    shown_of = [result for result in told if result.startswith(GOT)]  # others have just ended
    assert shown_of
    for result in shown_of:
        shown = json.loads(result.removeprefix(f"{GOT}: "))
        assert "cmdline" in shown, shown
        found += sorted(name for name in PRIVATE_OF_A_PROCESS if shown.get(name))
        text = json.dumps(shown)
        for name, secret in secrets.items():
            encoded = base64.b64encode(secret.encode()).decode().rstrip("=")[:-2]
            found += [name] if secret in text or encoded in text else []
    return found


def connected(path: Path) -> socket.socket:
    """A connection to a Unix socket, however long its path is."""
    place = os.open(path, os.O_PATH)
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"/proc/self/fd/{place}")
    finally:
        os.close(place)
    return client


def listeners(pids: Iterable[int]) -> set[str]:
    """Addresses at which these processes listen: ports of TCP, all sockets of UDP and raw ones, and
    Unix sockets that have no file."""
    found = set()
    for pid in pids:
        theirs = _sockets(pid)
        for kind in ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6"):
            for fields in _table(pid, kind):
                listens = not kind.startswith("tcp") or fields[3] == _LISTENING
                found |= {f"{kind} {fields[1]}"} if listens and fields[9] in theirs else set()
        for fields in _table(pid, "unix"):
            if len(fields) > 7 and fields[7].startswith("@") and fields[6] in theirs:
                found.add(f"unix {fields[7]}")
    return found


def _sockets(pid: int) -> set[str]:
    """The numbers of all sockets that a process, which may just end, has open."""
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                kind, _, number = os.readlink(path).partition(":")
                found |= {number.strip("[]")} if kind == "socket" else set()
    return found


def _table(pid: int, kind: str) -> list[list[str]]:
    try:
        lines = Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
    except OSError:  # it has ended
        return []
    return [line.split() for line in lines]
