"""What nobody reads in a project: something empty is mounted in its place.

Such a mount falls silently when somebody outside replaces what is below it, as editors do that save
by renaming. So that is watched, and the shell, which relies on the mount alone, starts anew. The
agent's file tools refuse the path by its name, too.
"""

import asyncio
import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn

from wire.errors import Code
from wire.text import visible_name

from runner.errors import TierError, WorkspaceError
from runner.workspace.beneath import status_beneath
from runner.workspace.mounts import Access, BoundMount, Mount, OpenProject

_POLL_S: Final = 0.5
_PAUSE_S: Final = 0.05
"""Between two looks, however much changes."""
_CHANGES: Final = 0xFC0
"""Of inotify: what is moved, made or removed in a directory, and the directory itself."""
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC

Covered = Mapping[PurePosixPath, tuple[int, int, int] | None]
"""Device, inode and kind of what stands at each path that is hidden; None where nothing does."""


def look(directory: int, hidden: Iterable[str]) -> Covered:
    """What stands now at the outermost of these paths below an open directory. Raises
    `WorkspaceError` for what cannot be hidden."""
    found: dict[PurePosixPath, tuple[int, int, int] | None] = {}
    for path in sorted(map(PurePosixPath, hidden), key=lambda path: len(path.parts)):
        if found.keys().isdisjoint((path, *path.parents)):
            found[path] = _seen(directory, path)
    return found


def _seen(directory: int, path: PurePosixPath) -> tuple[int, int, int] | None:
    try:
        found = status_beneath(directory, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "it is a link; hide what it leads to")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise _refused(path, "it has another name, by which it could be read")
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode)


def _refused(path: PurePosixPath, why: str) -> WorkspaceError:
    return WorkspaceError(
        Code.FAILED_PRECONDITION,
        f"{visible_name(str(path))} cannot be hidden",
        details=why,
        resolution="name a plain file or a directory in `hide`, or take it away",
    )


def rows(
    home: Path, virtual: str, where: Path, directory: int, covered: Covered, walls: Iterable[str]
) -> Iterator[BoundMount]:
    """The rows for a project at `virtual`, of which drivers mount `where`; `home`: the workspace.

    Directories on the way are mounts of their own, unless they lie in one of the `walls`: who can
    rename one takes along what is mounted in it, and its name is free.
    """
    there = {path: what for path, what in covered.items() if what is not None}
    fixed = set(map(PurePosixPath, walls))
    on_the_way = {above for path in there for above in path.parents if above.parts}
    for path in sorted(on_the_way, key=lambda path: len(path.parts)):
        if fixed.isdisjoint((path, *path.parents)):
            found = status_beneath(directory, path, os.O_DIRECTORY)
            yield _row(f"{virtual}/{path}", Access.READ_WRITE, where / path, found)
    for path, what in there.items():
        empty = _empty(home, stat.S_ISDIR(what[2]))
        yield _row(f"{virtual}/{path}", Access.READ_ONLY, empty, empty.lstat())


def _row(virtual: str, access: Access, source: Path, found: os.stat_result) -> BoundMount:
    return BoundMount(Mount("hidden", "", virtual, access), source, (found.st_dev, found.st_ino))


def _empty(home: Path, is_directory: bool) -> Path:
    """An empty file or directory that everybody may read. Only the runner can write beside it."""
    path = home / ("empty.d" if is_directory else "empty")
    with contextlib.suppress(FileExistsError):
        path.mkdir() if is_directory else path.touch(exist_ok=False)
    path.chmod(0o555 if is_directory else 0o444)
    return path


async def until_replaced(projects: Sequence[OpenProject]) -> NoReturn:
    """Watch what is hidden in them. Raises `TierError` once something is not any more."""
    changed = asyncio.Event()
    if not any(project.covered for project in projects):
        await changed.wait()
    with _told(changed, [project.path / path for project in projects for path in project.covered]):
        while True:
            await asyncio.to_thread(require_covered, projects)
            await asyncio.sleep(_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _POLL_S)
            changed.clear()


def require_covered(projects: Sequence[OpenProject]) -> None:
    """Raises `TierError` if something that is hidden in one of them was replaced. Blocks."""
    for project in projects:
        if project.covered and (path := project.uncovered()):
            raise TierError(
                Code.UNAVAILABLE,
                f"{visible_name(path)} in the project {project.name} was replaced",
                details="it is hidden again once the shell has started anew; commands have ended",
            )


@contextlib.contextmanager
def _told(event: asyncio.Event, paths: Iterable[Path]) -> Iterator[None]:
    """Set `event` when something comes or goes beside one of `paths`, if the kernel tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (watch := libc.inotify_init1(_FLAGS)) < 0:
        yield
        return
    for directory in {path.parent for path in paths}:
        libc.inotify_add_watch(watch, os.fsencode(directory), _CHANGES)
    loop = asyncio.get_running_loop()

    def read() -> None:
        os.read(watch, 65_536)
        event.set()

    loop.add_reader(watch, read)
    try:
        yield
    finally:
        loop.remove_reader(watch)
        os.close(watch)
