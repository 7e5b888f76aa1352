"""The daemon's settings, and the checks of every field of a request."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from typing import Final

from google.protobuf.message import Message
from wire.errors import Code, WireError
from wire.limits import (
    BACKGROUND_MAX_S,
    COMMAND_MAX_CHARS,
    COMMAND_TIMEOUT_MAX_S,
    COMMAND_TIMEOUT_S,
    GIT_IDENTITY,
)

_CACHES: Final = {"npm_config_cache": "npm", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
EXTENSION_MAX_MS: Final = 60_000
_ENVIRONMENT_MAX_CHARS: Final = 32_000
_CALLER: Final = re.compile(r"[!-~]{1,256}")
_FILES_MAX_BYTES: Final = 1024 * 1024
_FILE_DEPTH_MAX: Final = 8
_IDENTITY: Final = re.compile(GIT_IDENTITY)


@dataclass(frozen=True)
class Settings:
    """Where commands run and what they may use. Times are in seconds.

    `shared` and `tmp` are the directories behind those virtual paths, and `projects` has the
    project directories, each under its name; `run` is one for files of the
    daemon that commands read. `commands_max` may run at
    once. `buffer_bytes` of each output stream are kept, and `ring_bytes` on the disk behind `tmp`
    of a command in the background, which may run for `background_max`. `free_bytes_min` must stay
    free on a disk (see `guards`). The guest may hold `memory_bytes` (see `guards`); where it is not
    given, a control group limits that. `ended_max` ended commands are remembered, for `ended_age`.
    `grace` is the time between SIGTERM and SIGKILL. A command with an open standard input is ended
    after `unattended` without a reader of its output. Package managers keep what they have fetched
    below `cache`. `git_identity`, as "Name <mail>", is who commits.
    """

    shared: Path = Path("/shared")
    tmp: Path = Path("/tmp")  # noqa: S108 - the guest's own
    run: Path = Path("/run")
    projects: Path = Path("/projects")
    cache: Path = Path("/cache")
    git_identity: str = ""
    commands_max: int = 32
    buffer_bytes: int = 256 * 1024
    ring_bytes: int = 8 * 1024 * 1024
    stdin_bytes: int = 1024 * 1024
    free_bytes_min: int = 256 * 1024 * 1024
    memory_bytes: int | None = None
    timeout_default: float = COMMAND_TIMEOUT_S
    timeout_max: float = COMMAND_TIMEOUT_MAX_S
    background_max: float = BACKGROUND_MAX_S
    ended_max: int = 64
    ended_age: float = 600.0
    grace: float = 1.0
    unattended: float = 30.0

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if isinstance(value, int | float) and value <= 0:
                raise _bad(field, f"{value} is not above 0", "a positive number")
        if self.timeout_default > self.timeout_max:
            raise _bad(
                "timeout_default",
                f"{self.timeout_default:g} s is above timeout_max",
                f"up to {self.timeout_max:g} s",
            )
        for field, root in (("shared", self.shared), ("tmp", self.tmp)):
            if not root.is_absolute() or not root.is_dir():
                raise _bad(field, f"{root} is not a directory", "an absolute path that exists")
        if not _IDENTITY.fullmatch(self.git_identity):
            raise _bad("git_identity", f"{self.git_identity!r}", "Name <mail>")

    def environment(self) -> dict[str, str]:
        """The environment of every command; it takes nothing from the daemon's own."""
        own = {"PATH": PATH, "HOME": str(self.tmp), "LANG": "C.UTF-8", "TERM": "dumb"}
        kept = {name: str(self.cache / place) for name, place in _CACHES.items()}
        name, _, mail = self.git_identity.rstrip(">").partition(" <")
        who = {
            f"GIT_{each}_{what}": value
            for each in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", name), ("EMAIL", mail))
            if value
        }
        # uv fetches no Python of its own: the guest has one.
        return {**own, **kept, "UV_PYTHON_DOWNLOADS": "never", **who}


def _bad(field: str, problem: str, accepted: str) -> WireError:
    return refused(f"bad shell daemon setting {field}", problem, accepted)


def refused(field: str, problem: str, accepted: str) -> WireError:
    """INVALID_ARGUMENT with the field, what is wrong with it and what is accepted."""
    return WireError(Code.INVALID_ARGUMENT, f"{field}: {problem}", details=f"accepted: {accepted}")


def check_id(field: str, value: str) -> None:
    if not _ID.fullmatch(value):
        raise refused(field, f"{value[:80]!r} is not an id", f"{_ID.pattern}")


def check_token(value: str) -> None:
    """Check a token to admit; the error does not repeat it."""
    if not (12 <= len(value) <= 1024 and value.isascii() and value.isprintable()):
        raise refused("token", "it is not a token", "12 to 1024 printable ASCII characters")


def fingerprint(request: Message) -> bytes:
    """A digest by which requests are compared, so that they need not be kept."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def check_same(field: str, value: str, known: bytes, asked: bytes) -> None:
    """Raises CONFLICT if a known id comes with a different request."""
    if known != asked:
        raise WireError(
            Code.CONFLICT,
            f"{field}: {value} is taken by a different request",
            resolution="choose another id, or repeat exactly the first request",
        )


def check_command(command: str, argv: Sequence[str]) -> None:
    """One of the two must be given: a text for a shell, or a program and its arguments."""
    accepted = f"1 to {COMMAND_MAX_CHARS} characters without NUL"
    if command and argv:
        raise refused("argv", "a command is given too", "one of the two")
    text = command or " ".join(argv)
    if not 1 <= len(text) <= COMMAND_MAX_CHARS or (argv and not argv[0]):
        raise refused("command", f"{len(text)} characters", accepted)
    if "\0" in text:
        raise refused("command", "it contains NUL", accepted)


def check_extension(by_ms: int) -> float:
    """How many seconds more a command gets."""
    if not 0 < by_ms <= EXTENSION_MAX_MS:
        raise refused("by_ms", f"{by_ms}", f"1 to {EXTENSION_MAX_MS}")
    return by_ms / 1000


def check_timeout(
    timeout_ms: int, settings: Settings, *, endless: bool, background: bool = False
) -> float | None:
    """The timeout in seconds; 0 means none for an `endless` command, and the default for others."""
    most = (settings.background_max if background else settings.timeout_max) * 1000
    if timeout_ms > most:
        raise refused("timeout_ms", f"{timeout_ms}", f"up to {most:.0f}")
    if endless and not timeout_ms:
        return None
    return timeout_ms / 1000 or settings.timeout_default


def check_stdin(data: bytes, settings: Settings) -> None:
    if len(data) > settings.stdin_bytes:
        raise refused("stdin", f"{len(data)} bytes", f"up to {settings.stdin_bytes} bytes")


def check_environment(environment: Mapping[str, str]) -> None:
    size = sum(len(name) + len(value) for name, value in environment.items())
    if size > _ENVIRONMENT_MAX_CHARS:
        raise refused("environment", f"{size} characters", f"up to {_ENVIRONMENT_MAX_CHARS}")
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise refused("environment", f"{name[:80]!r} is not a name", _VARIABLE.pattern)
        if "\0" in value:
            raise refused("environment", f"{name} contains NUL", "text without NUL")


def check_caller(session_id: str, turn_id: str) -> None:
    """Of whom egress is told; they stand in one line of text."""
    for field, value in (("session_id", session_id), ("turn_id", turn_id)):
        if value and not _CALLER.fullmatch(value):
            raise refused(field, f"{value[:80]!r} is not an id", _CALLER.pattern)


def check_files(files: Mapping[str, bytes]) -> None:
    """Of the home directory, by their paths there."""
    size = sum(len(name) + len(content) for name, content in files.items())
    if size > _FILES_MAX_BYTES:
        raise refused("files", f"{size} bytes", f"up to {_FILES_MAX_BYTES}")
    for name in files:
        parts = name.split("/")
        if "\0" in name or len(parts) > _FILE_DEPTH_MAX or {"", ".", ".."} & {*parts}:
            raise refused("files", f"{name[:80]!r}", "a path below the home directory, without ..")


def open_directory(virtual: str, settings: Settings) -> int:
    """Open the directory at a virtual path and return its descriptor.

    The directory must be below the named root after all symlinks are followed, so that callers
    use only paths that a model knows. This is not the boundary: a command can leave the
    directory, and only the sandbox decides what it then sees. Raises `WireError` if there is no
    such directory under `/shared`, `/tmp` or `/projects/NAME`.
    """
    accepted = "a directory under /shared, /tmp or /projects/NAME"
    path = normpath(virtual)
    roots = [("/shared", settings.shared), ("/tmp", settings.tmp)]  # noqa: S108
    if path.startswith("/projects/"):
        project = path.split("/")[2]
        roots = [(f"/projects/{project}", settings.projects / project)]
    for name, root in roots:
        if path != name and not path.startswith(f"{name}/"):
            continue
        real = root / path[len(name) + 1 :]
        try:
            descriptor = os.open(real, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError):
            raise refused("cwd", f"no such directory: {virtual[:200]!r}", accepted) from None
        if path_of(descriptor).is_relative_to(root.resolve()):
            return descriptor
        os.close(descriptor)
    raise refused("cwd", f"{virtual[:200]!r} is outside /shared, /tmp and /projects", accepted)


def path_of(descriptor: int) -> Path:
    """Where an open directory is, without symlinks."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()
