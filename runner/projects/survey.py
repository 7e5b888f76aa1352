"""What lies in a project that its owner should know of before an agent does: files that have other
names elsewhere, what may be a secret, and sockets that programs of the owner's serve."""

import itertools
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from wire.disk import Entry, listener, walk

from runner.workspace.directories import descriptor

_ENTRIES_MAX: Final = 400_000
_SECONDS_MAX: Final = 5.0
_NAMED_MAX: Final = 20
_LINKED_MAX: Final = 200_000
_HEAD_BYTES: Final = 64 * 1024
_HEADS_MAX: Final = 500
_INSTALLED: Final = frozenset({"node_modules", ".venv", "venv", ".tox", ".nox", "__pypackages__"})
"""Where tools put packages whose files may be those of a cache of all projects."""
_SECRET: Final = re.compile(
    r"(?s)\.env(\..+)?|[._]netrc|\.git-credentials|\.pypirc|\.htpasswd|id_(rsa|dsa|ecdsa|ed25519)(_sk)?"
    r"|.*\.(p12|pfx|kdbx|jks|keystore|ppk)|credentials\.json|service[-_]account.*\.json"
)
_EXAMPLE: Final = re.compile(r"(?s)\.env\..*(example|sample|template|dist|defaults?)|.*\.pub")
_HEADS: Final = {
    re.compile(r"(?s).*\.(pem|key)"): re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"\.npmrc"): re.compile(rb"_auth(Token)?\s*="),
    re.compile(r"config|\.gitmodules"): re.compile(
        rb"://[^/\s:@]+:[^/\s@]+@|(?i:extraheader)\s*=.*(?i:authorization)"
    ),
}
"""What makes a file with such a name a secret."""


@dataclass
class Survey:
    """What was found, as paths below the project, at most 20 of each kind. `shared` are directories
    of packages that have files with other names elsewhere; `linked` is how many further such files
    there are, and `names` the first of them. `unfinished` says why not everything was looked at."""

    secrets: list[str] = field(default_factory=list)
    sockets: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    linked: int = 0
    unfinished: str = ""


def look(
    directory: int, *, entries_max: int = _ENTRIES_MAX, seconds_max: float = _SECONDS_MAX
) -> Survey:
    """Look through an open directory, over no link and into nothing that is mounted below it.
    Opens nothing but plain files. Blocks for seconds."""
    survey, heads = Survey(), _HEADS_MAX
    linked: dict[int, list[str]] = {}
    device, deadline = os.fstat(directory).st_dev, time.monotonic() + seconds_max
    try:
        for number, entry in enumerate(walk(directory)):
            if number >= entries_max or time.monotonic() > deadline:
                survey.unfinished = f"only {number:,} entries of it were looked at"
                break
            with suppress(FileNotFoundError):
                found = entry.found.stat(follow_symlinks=False)
                if found.st_dev != device:
                    continue
                if stat.S_ISSOCK(found.st_mode) and _is_served(entry):
                    _note(survey.sockets, entry.path)
                if not stat.S_ISREG(found.st_mode):
                    continue
                if found.st_nlink > 1 and len(linked) < _LINKED_MAX:
                    names = linked.setdefault(found.st_ino, [])
                    names.append(entry.path)
                    if len(names) == found.st_nlink:
                        del linked[found.st_ino]
                if _INSTALLED.isdisjoint(entry.above):
                    head = _head_of(entry)
                    heads -= head is not None
                    if _is_secret(entry.name) or (
                        head and heads > 0 and head.search(_begin(entry))
                    ):
                        _note(survey.secrets, entry.path)
    except OSError as error:
        survey.unfinished = f"not everything in it was looked at: {error.strerror or error}"
    for path in itertools.chain.from_iterable(linked.values()):
        above = path.split("/")[:-1]
        at = next((at for at, name in enumerate(above, 1) if name in _INSTALLED), 0)
        if not at:
            survey.linked += 1
            _note(survey.names, path)
        elif (place := "/".join(above[:at])) not in survey.shared:
            survey.shared.append(place)
    return survey


def doors(directory: int) -> tuple[list[str], list[str]]:
    """What else could be written in the place of what lies below an open directory: its files that
    have another name, and its links. Git shares objects of clones so, and checks them by what they
    hold."""
    files, links = list[str](), list[str]()
    for entry in walk(directory):
        if "objects" not in entry.above:
            with suppress(FileNotFoundError):
                found = entry.found.stat(follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    links.append(entry.path)
                elif found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                    files.append(entry.path)
    return files, links


def _note(into: list[str], path: str) -> None:
    if len(into) < _NAMED_MAX:
        into.append(path)


def _is_secret(name: str) -> bool:
    return bool(_SECRET.fullmatch(name)) and not _EXAMPLE.fullmatch(name)


def _head_of(entry: Entry) -> re.Pattern[bytes] | None:
    """What to look for in a file with such a name; of those named `config`, only in git's."""
    if entry.name == "config" and not {".git", "modules"} & {*entry.above}:
        return None
    return next((head for name, head in _HEADS.items() if name.fullmatch(entry.name)), None)


def _begin(entry: Entry) -> bytes:
    flags = os.O_RDONLY | os.O_NONBLOCK
    with suppress(OSError), descriptor(entry.name, flags, entry.directory) as fd:
        return os.read(fd, _HEAD_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    return b""


def _is_served(entry: Entry) -> bool:
    """Whether a program listens on a socket, or would take what is sent to it."""
    try:
        with descriptor(entry.name, os.O_PATH, entry.directory) as fd:
            listener(f"/proc/self/fd/{fd}")
    except OSError as error:
        return not isinstance(error, ConnectionError | FileNotFoundError)
    return True
