"""Removing what an earlier run or a guest has left behind, and everything that this machine holds
of one user."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

from runner.audit.log import LogLocation
from runner.config.models import Config
from runner.errors import WorkspaceError
from runner.host.awake import forget
from runner.host.runtime import LastStart, Runtime, host_lock, load_state
from runner.projects.mapped import MappedMounts
from runner.tiers.base import TierDriver
from runner.tiers.drivers import driver_for, tier_of
from runner.tools import drafts
from runner.workspace import logins
from runner.workspace.beneath import clear
from runner.workspace.database_file import resolve_db_path
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)
_GRACE_S: Final = 2.0
"""Short, because such a guest should have ended with its runner already."""


async def clear_leftovers(
    runtime: Runtime, workspace: Workspace, driver: TierDriver, config: Config
) -> list[str]:
    """End the guests of an earlier runner and remove its files.

    The caller holds the host's lock and the workspace, so what is found belongs to nobody.
    `driver` is that of the tier that will be used; the guests may be of another tier. Returns
    notices about what was found. Raises `TierError` if a guest cannot be ended, because two
    agents must never share one database.
    """
    notices: list[str] = []
    try:
        handles = load_state(runtime.state)
    except ValueError as error:
        notices.append(f"the state of an earlier runner could not be read ({error})")
        handles = ()
    try:
        for handle in handles:
            same = handle.driver == driver.capabilities.tier
            responsible = driver if same else driver_for(config, handle.driver)
            if await responsible.recover(handle):
                await responsible.stop(handle, _GRACE_S)
                notices.append(f"an earlier runner was killed; its {handle.role} guest was ended")
        notices += await driver.clear(workspace.user_id, workspace.path)
        MappedMounts(runtime.projects).clear()
        notices += workspace.settle()  # a guest that ran until now may have closed its directories
    finally:  # or nothing would tell of them where one cannot be ended
        for notice in notices:
            log.warning("%s", notice)
    ours = (runtime.state, runtime.token, runtime.identity, runtime.socket)
    for path, home in (
        *((path, runtime.directory) for path in ours),
        *((path, workspace.path) for path in workspace.sockets),
    ):
        if notice := clear(path, home):
            notices.append(notice)
    return notices


_BLOCK: Final = 512
_SHOWN: Final = 3


@dataclass(frozen=True)
class Item:
    """A directory that goes, what it is, and how many bytes it takes on the disk."""

    what: str
    path: Path
    size: int


@dataclass(frozen=True)
class UserData:
    """What one user has on this machine.

    `engine_objects` are names of containers and networks that a killed host left, or of what a
    cluster has of the user. `elsewhere` says what a removal does not reach, and how to be rid of
    it; `has_settings` that there is a section of the user's in the configuration, which stays too.
    """

    parts: tuple[Item, ...]
    engine_objects: tuple[str, ...]
    elsewhere: tuple[str, ...]
    has_settings: bool


def belongings(config: Config, user_id: str) -> UserData:
    """What there is of a user. Changes nothing.

    Raises `WorkspaceError` for a bad user id, and `TierError` if guests ran in containers and the
    engine does not answer.
    """
    workspace, runtime = Workspace.locate(config, user_id), Runtime.locate(config, user_id)
    workspace.check()
    places = {path.name: path for path in _directories(workspace.path)}
    known = {
        "what the agent remembers, with backups": places.pop(".oxydra", None),
        "files shared with the agent": places.pop("shared", None),
        "files that the agent may only read": places.pop("vault", None),
        "what programs of commands keep": places.pop("cache", None),
        "skills": places.pop("skills", None),
        "logs of guests": places.pop("logs", None),
    }
    parts = [Item(what, path, _size(path)) for what, path in known.items() if path is not None]
    if rest := sum(map(_size, places.values())):
        parts.append(Item("temporary files and sockets", workspace.path, rest))
    besides = {
        "locks, state and log of the host": runtime.directory,
        "the record of tool calls": LogLocation.locate(config, user_id).directory,
    }
    parts += [Item(what, path, _size(path)) for what, path in besides.items() if path.is_dir()]
    last = config.model_copy(update={"tier": _tier(config, runtime)})
    return UserData(
        tuple(parts),
        tuple(tier_of(last).objects(last, user_id, workspace.path)),
        tuple(_elsewhere(config, workspace)),
        user_id in config.users,
    )


async def remove(config: Config, user_id: str) -> None:
    """Remove the workspace, the record of tool calls and the runtime directory of a user whose host
    does not run, and what a killed one left in the engine.

    Raises `HostError` (ALREADY_EXISTS) if the host runs, and `WorkspaceError` with what is left if
    not everything can be removed; then it can be repeated.
    """
    runtime = Runtime.locate(config, user_id)
    config = config.model_copy(update={"tier": _tier(config, runtime)})
    workspace = Workspace.locate(config, user_id)
    runtime.create()
    with host_lock(runtime.lock), workspace.held():
        driver = driver_for(config)
        try:
            await clear_leftovers(runtime, workspace, driver, config)
            await tier_of(config).remove(config, user_id)
        finally:
            await driver.close()
        _remove_tree(workspace.path)
        audit = LogLocation.locate(config, user_id)
        audit.check()
        if audit.directory.is_dir():
            _remove_tree(audit.directory)
        audit.begun.unlink(missing_ok=True)
        forget(config, user_id)
        logins.forget(user_id)
        drafts.forget(user_id)
        _remove_tree(runtime.directory)


def _tier(config: Config, runtime: Runtime) -> str:
    """The tier whose guests may be left: the one that was used last. One that is not on this
    machine keeps what is a user's without it."""
    last = LastStart.load(runtime) if runtime.directory.is_dir() else None
    if last:
        return last.tier
    return "process" if tier_of(config).here else config.tier


def _elsewhere(config: Config, workspace: Workspace) -> Iterator[str]:
    user_id = workspace.user_id
    memory = config.for_user(user_id).memory
    if server := memory.server_of(user_id):
        how = (
            f"it has a database of its own there: drop it on the server (sqld-users.sh remove "
            f"{user_id}, or with the tools of your provider)"
            if "{user_id}" in memory.remote_url
            else "others share that database: before this, forget its notes and sessions with "
            "`runner memory forget` and `runner sessions forget`"
        )
        yield f"the memory on {server} stays; {how}"
    with suppress(WireError):
        database = resolve_db_path(memory.db_path, workspace, mounted_only=False)
        if not database.is_relative_to(workspace.path) and database.exists():
            yield f"the database outside the workspace stays; to be rid of it: rm {database}*"
    yield from tier_of(config).remains(config, user_id)


def _directories(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def _size(path: Path) -> int:
    """Bytes on the disk of everything below `path`, as far as it can be read."""
    total = 0
    for directory, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += (Path(directory) / name).lstat().st_blocks * _BLOCK
    return total


def _remove_tree(path: Path) -> None:
    """Remove a directory of ours. Links in it are removed and not followed."""
    left: list[str] = []
    for directory, names, _ in os.walk(path):  # commands may have closed directories
        for name in names:
            found = Path(directory) / name
            with suppress(OSError):
                if not found.is_symlink():
                    found.chmod(0o700)

    def note(_: object, where: str, failure: tuple[object, BaseException, object]) -> None:
        left.append(f"{where}: {getattr(failure[1], 'strerror', None) or failure[1]}")

    shutil.rmtree(path, onerror=note)
    if left:
        raise WorkspaceError(
            Code.FAILED_PRECONDITION,
            f"not everything in {path} could be removed",
            details="; ".join(left[:_SHOWN]) + (" …" if len(left) > _SHOWN else ""),
            resolution="make it removable, as root if it belongs to another account, and repeat "
            "the command",
        )
