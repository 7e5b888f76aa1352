"""Keeps what commands leave in a workspace within what the boundary self-test can look through.

The self-test walks through all that a command can reach, and a walk that does not end is a hit. So
what is too much is moved out of the mounted directories before a shell starts, and is named.
"""

import logging
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from wire.boundary import CROWD_MAX
from wire.disk import MovedError, walk
from wire.text import visible_name

from runner.workspace.beneath import directory_beneath
from runner.workspace.directories import descriptor
from runner.workspace.mounts import Access, Role
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)
_ALL: Final = ""
_AT_ONCE: Final = 10_000


def quarantine_excess(
    workspace: Workspace, most: int = CROWD_MAX, *, mounted: bool = False
) -> list[str]:
    """Move aside what is too much in a guest's own writable directories, and all in its `ipc`.

    If one directory is the greater part, that is moved, otherwise everything. What is moved stays
    in the workspace, where no guest sees it. `mounted` says that the agent guest may run: then the
    directories themselves stay what they are. Returns notices. No shell may run.
    """
    notices = []
    for bound in workspace.mounts(Role.SHELL):
        others = bound.identity is not None or (workspace.tool and bound.mount.name == "shared")
        if others or bound.mount.access is Access.READ_ONLY:
            continue
        place, most_here = bound.host_path, 0 if bound.mount.name == "ipc" else most
        try:
            with (
                directory_beneath(workspace.path, place.parent) as above,
                directory_beneath(workspace.path, place) as directory,
            ):
                for what, aside in _thinned(above, directory, place.name, most_here, mounted):
                    notices.append(
                        f"{visible_name(str(place / what))} was moved aside to "
                        f"{place.with_name(aside)}, because what commands had left in it would "
                        "keep the boundary self-test from its end"
                    )
        except FileNotFoundError:
            continue
        except OSError as error:
            notices.append(f"{place} holds too much, which cannot be moved aside: {error}")
    for notice in notices:
        log.warning("%s", notice)
    return notices


def _thinned(
    above: int, directory: int, name: str, most: int, mounted: bool
) -> Iterator[tuple[str, str]]:
    """Yields what was moved, and the name of the directory that it was moved to."""
    while (surplus := _surplus(directory, most)) is not None:
        aside = f"{name}.aside-{secrets.token_hex(4)}"
        if surplus == _ALL and not mounted:
            os.rename(name, aside, src_dir_fd=above, dst_dir_fd=above)
            yield _ALL, aside
            return
        os.mkdir(aside, 0o700, dir_fd=above)
        with descriptor(aside, os.O_PATH | os.O_DIRECTORY, dir_fd=above) as target:
            for each in _names(directory) if surplus == _ALL else (surplus,):
                _move(each, directory, target)
        yield surplus, aside


def _surplus(directory: int, most: int) -> str | None:
    """Which entry costs more than half of `most`; `_ALL` if none does and together they cost more
    than `most`; None if they do not."""
    costs: Counter[str] = Counter()
    total = 0
    try:
        for entry in walk(directory):
            total += entry.cost
            if entry.above or not entry.is_plain:
                costs[entry.above[0] if entry.above else entry.name] += entry.cost
            if total > most:
                largest, cost = max(costs.items(), key=lambda item: item[1], default=(_ALL, 0))
                return largest if 0 < most < 2 * cost else _ALL
    except MovedError as error:
        log.warning("not everything was counted: %s", error.strerror)
    return None


def _names(directory: int) -> Iterator[str]:
    """The entries of a directory from which the caller takes each away."""
    with descriptor(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory) as readable:
        while names := _first(readable):
            yield from names


def _first(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _AT_ONCE)]


def _move(name: str, source: int, target: int) -> None:
    try:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:  # a directory that is closed, whose way up changes
        with descriptor(name, os.O_PATH, dir_fd=source) as fd:
            Path(f"/proc/self/fd/{fd}").chmod(0o700)
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
