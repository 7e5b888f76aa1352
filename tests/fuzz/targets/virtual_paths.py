"""Paths as models and operators write them, in a workspace full of links.

What is opened lies beneath its root, whichever way it is opened, and refusals show no path of the
host and no hidden character. No user id and no database leads elsewhere either.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, Final

from wire.endpoint import Endpoint
from wire.errors import WireError
from wire.kernel.beneath import Beneath, KernelBeneath, OutsideError, WalkingBeneath
from wire.text import visible, visible_name

from guest.errors import ToolError
from guest.tools.files.roots import Location, Roots, parse
from runner.config.user_id import check_user_id
from runner.errors import ConfigError, WorkspaceError
from runner.workspace.beneath import open_beneath
from runner.workspace.database_file import resolve_db_path
from runner.workspace.workspace import Workspace
from tests.fuzz.material import Choices, OneInput, Target, chosen

_LINKS: Final = {
    "up": "..",
    "out": "../.oxydra",
    "file-out": "../.oxydra/memory.db",
    "absolute": "/etc",
    "circle": "circle",
    "other-root": "../tmp",
    "proc": "/proc/self/root",
    "inner": "dir/deep",
    "there-and-back": "../shared/dir",
    "dangling": "nowhere",
    "dir/back": "../..",
}
_WORDS: Final = (
    *("/shared", "/tmp", "/vault", "/", "..", ".", "dir", "deep", "file", "fifo", "hard"),
    *(*_LINKS, "/etc/passwd", ".oxydra", "memory.db", "alice", "bob", "ipc", "logs", "\0", "\n"),
    *("\udcff", "\u202e", "a" * 300, "a\\b", "~", "unix:", "tcp:127.0.0.1:80"),
)
_FLAGS: Final = (os.O_PATH, os.O_RDONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_DIRECTORY)
_USER_ID_MAX: Final = 32


def _path(choices: Choices) -> str:
    """Words and text, joined with and without slashes."""
    parts = []
    for _ in range(1 + choices.below(8)):
        kind = choices.below(8)
        parts.append(choices.text()[:300] if kind == 7 else choices.one_of(_WORDS))
        parts.append("" if kind == 6 else "/")
    return "".join(parts[:-1])


class _Workspace:
    """A workspace whose file tools are tried."""

    def __init__(self, base: Path) -> None:
        self.base = base / "alice"
        self.workspace = Workspace(base, "alice")
        self.names = {name: self.base / name for name in ("shared", "tmp", "vault")}
        self.roots = {kind: self._roots(kind()) for kind in (KernelBeneath, WalkingBeneath)}
        self.inside = {
            (found.st_dev, found.st_ino)
            for root in self.names.values()
            for found in map(os.lstat, [root, *root.rglob("*")])
        }
        private = os.stat(self.base / ".oxydra/memory.db")
        self.inside.discard((private.st_dev, private.st_ino))

    def _roots(self, beneath: Beneath) -> Roots:
        return Roots(self.names, [self.base / ".oxydra"], beneath)

    def one_input(self, data: bytes) -> None:
        choices = Choices(data)
        path, flags = _path(choices), choices.one_of(_FLAGS)
        self._shown(path)
        self._tools(path, flags)
        self._runners(path, flags)
        self._named(path)

    def _shown(self, path: str) -> None:
        shown = visible_name(path)
        assert shown == visible_name(shown)
        assert visible(shown) == shown
        assert len(shown.splitlines()) <= 1

    def _tools(self, path: str, flags: int) -> None:
        try:
            location = parse(path)
        except ToolError as error:
            self._refusal(error)
            return
        assert path.startswith(location.root.path)
        assert "/" not in "".join(location.parts)
        seen = []
        for kind, roots in self.roots.items():
            seen.append(self._looked_at(roots, location))
            seen.append(self._opened(kind(), self.names[location.root.name], location, flags))
        assert seen[:2] == seen[2:], "both ways must answer alike"

    def _looked_at(self, roots: Roots, location: Location) -> list[Any]:
        seen = [self._entered(roots.file(location)), self._entered(roots.directory(location))]
        try:
            with roots.parent(location) as (directory, name):
                assert name not in ("", ".", "..")
                assert "/" not in name
                found = os.fstat(directory)
                assert (found.st_dev, found.st_ino) in self.inside
                roots.existing(location, directory, name)
                seen.append((found.st_dev, found.st_ino))
        except (ToolError, OSError) as error:
            seen.append(self._refusal(error))
        return seen

    def _entered(self, opening: AbstractContextManager[int]) -> Any:
        try:
            with opening as descriptor:
                found = os.fstat(descriptor)
        except (ToolError, OSError) as error:
            return self._refusal(error)
        assert (found.st_dev, found.st_ino) in self.inside, "what was opened lies outside"
        return found.st_dev, found.st_ino

    def _opened(self, beneath: Beneath, root: Path, location: Location, flags: int) -> Any:
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
        try:
            opened = beneath.open(descriptor, location.relative, flags)
        except OutsideError:
            return "outside"
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        finally:
            os.close(descriptor)
        found = os.fstat(opened)
        os.close(opened)
        return found.st_dev, found.st_ino

    def _refusal(self, error: ToolError | OSError) -> str:
        """What a tool tells of an error; of the system's own only the system's words."""
        told = str(error) if isinstance(error, ToolError) else str(error.strerror)
        assert str(self.base) not in told
        assert visible(told) == told
        return told

    def _runners(self, path: str, flags: int) -> None:
        """What the runner opens in a workspace; there no link at all is followed."""
        anchor = os.open(self.base, os.O_PATH | os.O_DIRECTORY)
        try:
            descriptor = open_beneath(anchor, PurePath(path), flags)
        except (OSError, ValueError):
            return
        finally:
            os.close(anchor)
        where = Path(f"/proc/self/fd/{descriptor}").readlink()
        os.close(descriptor)
        assert where == self.base / path, "it leads elsewhere"

    def _named(self, path: str) -> None:
        try:
            assert check_user_id(path) == path
            assert PurePath(path).name == path
            assert len(path) <= _USER_ID_MAX
            assert path.isascii()
        except WorkspaceError as error:
            assert error.details
        for mounted_only in (True, False):
            self._database(path, mounted_only=mounted_only)
        with suppress(WireError):
            assert Endpoint.of_target(path).for_grpc in (path, path.removeprefix("tcp:"))

    def _database(self, path: str, *, mounted_only: bool) -> None:
        if "\0" in path or not path:
            return  # refused by the settings
        try:
            found = resolve_db_path(path, self.workspace, mounted_only=mounted_only)
        except ConfigError as error:
            assert error.details
            return
        real = Path(os.path.realpath(found))
        inside = real.is_relative_to(self.base)
        assert inside or not real.is_relative_to(self.workspace.root), "it is another user's"
        assert not inside or real.relative_to(self.base).parts[0] not in (
            *self.names,
            "ipc",
            "logs",
        )
        assert inside or not mounted_only

    def close(self) -> None:
        for roots in self.roots.values():
            roots.close()


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    base = scratch.resolve() / "alice"
    for name in ("shared/dir/deep", "tmp", "vault", ".oxydra", "ipc", "logs", "../bob/shared"):
        (base / name).mkdir(parents=True)
    for name in (".oxydra/memory.db", "shared/file", "shared/dir/file", "tmp/file", "vault/file"):
        (base / name).write_text(name)
    os.mkfifo(base / "shared/fifo")
    os.link(base / ".oxydra/memory.db", base / "shared/hard")
    for name, target in _LINKS.items():
        (base / "shared" / name).symlink_to(target)
    with closing(_Workspace(base.parent)) as workspace:
        yield workspace.one_input


def _seeds() -> Mapping[str, bytes]:
    words = {f"word-{number}": bytes([1, 0, 0, 0, number]) for number in range(len(_WORDS))}
    steps = {f"steps-{number}": bytes([3, 0, 0, 0, 12 + number, 0, 4, 0, 8]) for number in range(8)}
    return words | steps | {"text": chosen(1, 0, 0, 7, "./dir//file"), "empty": b""}


TARGET = Target("paths", 120, _opened, _seeds, longest=256)
