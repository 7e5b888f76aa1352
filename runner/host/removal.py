"""Everything that this machine holds of one user, and its removal."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

from runner.audit.log import Place
from runner.config.models import Config
from runner.errors import WorkspaceError
from runner.host.cleanup import clear_leftovers
from runner.host.runtime import LastStart, Runtime, host_lock
from runner.tiers.drivers import driver_for
from runner.workspace.database_file import resolve_db_path
from runner.workspace.workspace import Workspace

_BLOCK: Final = 512
_SHOWN: Final = 3


@dataclass(frozen=True)
class Part:
    """A directory that goes, what it is, and how many bytes it takes on the disk."""

    what: str
    path: Path
    size: int


@dataclass(frozen=True)
class Belongings:
    """What one user has on this machine.

    `engine_objects` are names of containers and networks that a killed host left, or of what a
    cluster has of the user. `elsewhere` says
    what a removal does not reach, and how to be rid of it.
    """

    parts: tuple[Part, ...]
    engine_objects: tuple[str, ...]
    elsewhere: tuple[str, ...]


def belongings(config: Config, user_id: str) -> Belongings:
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
        "logs of guests": places.pop("logs", None),
    }
    parts = [Part(what, path, _size(path)) for what, path in known.items() if path is not None]
    if rest := sum(map(_size, places.values())):
        parts.append(Part("temporary files and sockets", workspace.path, rest))
    if runtime.directory.is_dir():
        what = "locks, state and log of the host"
        parts.append(Part(what, runtime.directory, _size(runtime.directory)))
    audit = Place.locate(config, user_id)
    if audit.directory.is_dir():
        parts.append(Part("the record of tool calls", audit.directory, _size(audit.directory)))
    return Belongings(
        tuple(parts),
        tuple(_engine_objects(config, runtime, workspace)),
        tuple(_elsewhere(config, workspace)),
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
        driver = driver_for(config.tier, config.container, config.kubernetes)
        try:
            await clear_leftovers(runtime, workspace, driver, config.container)
            if config.tier == "kubernetes":
                await _remove_from_cluster(config, user_id)
        finally:
            await driver.close()
        _remove_tree(workspace.path)
        audit = Place.locate(config, user_id)
        audit.check()
        if audit.directory.is_dir():
            _remove_tree(audit.directory)
        audit.begun.unlink(missing_ok=True)
        _remove_tree(runtime.directory)


def _tier(config: Config, runtime: Runtime) -> str:
    """The tier whose guests may be left: the one that was used last. A cluster keeps what is a
    user's without this machine."""
    last = LastStart.load(runtime) if runtime.directory.is_dir() else None
    if last:
        return last.tier
    return "kubernetes" if config.tier == "kubernetes" else "process"


def _engine_objects(config: Config, runtime: Runtime, workspace: Workspace) -> Iterator[str]:
    tier = _tier(config, runtime)
    if tier == "process":
        return
    if tier == "kubernetes":
        yield from asyncio.run(_in_cluster(config, workspace.user_id))
        return
    from runner.tiers.container.engine import Engine
    from runner.tiers.container.names import Place

    filters = Place.of(workspace.user_id, workspace.path).filters
    with Engine(config.container.engine).client() as client:
        for each in client.containers(all=True, filters=filters):
            yield f"container {each['Names'][0].lstrip('/')}"
        for each in client.networks(filters=filters):
            yield f"network {each['Name']}"


async def _in_cluster(config: Config, user_id: str) -> list[str]:
    """The user's pods and claims, and what becomes of the latter."""
    from runner.tiers.kubernetes.claims import claims_of, size_of
    from runner.tiers.kubernetes.cluster import Cluster
    from runner.tiers.kubernetes.names import Owner, selector

    owner = Owner(user_id)
    async with Cluster(config.kubernetes) as cluster:
        pods = await cluster.pods(selector(owner.labels))
        claims = await claims_of(cluster, owner)
    fate = "stays, with what it holds" if config.kubernetes.keep_claims else "goes"
    return [
        *(f"pod {pod['metadata']['name']}" for pod in pods),
        *(
            f"claim {name} of {size_of(claim)}, which {fate}"
            for name, claim in claims.items()
            if claim is not None
        ),
    ]


async def _remove_from_cluster(config: Config, user_id: str) -> None:
    """Remove the user's policies and, unless they are to be kept, the claims."""
    from runner.tiers.kubernetes import claims, policies
    from runner.tiers.kubernetes.cluster import Cluster
    from runner.tiers.kubernetes.names import Owner

    owner = Owner(user_id)
    async with Cluster(config.kubernetes) as cluster:
        await policies.remove(cluster, owner, config.kubernetes)
        if not config.kubernetes.keep_claims:
            await claims.remove(cluster, owner)


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
    if config.tier == "kubernetes" and config.kubernetes.keep_claims:
        from runner.tiers.kubernetes.names import LABEL_USER, Owner

        within = f" -n {config.kubernetes.namespace}" if config.kubernetes.namespace else ""
        yield (
            "the claims stay (kubernetes.keep_claims); to be rid of what they hold: "
            f"kubectl{within} delete pvc -l {LABEL_USER}={Owner(user_id).slug}"
        )
    if user_id in config.users:
        yield f"the section [users.{user_id}] of the configuration stays: runner config edit"


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
