"""Searches the replica: up to date while the server is there, else with a warning about its age."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.models import MemoryConfig, Only, SearchOutcome, User
from guest.memory.replica.replica import Replica, ServerUnreachable
from guest.memory.search.engine import ALL, Search
from guest.memory.search.results import narrows
from guest.memory.search.shown import Shown
from guest.memory.storage.availability import WatchedDatabase, is_away

log = logging.getLogger(__name__)


class ReplicaSearch(Search):
    def __init__(
        self,
        replica: Replica,
        server: WatchedDatabase,
        vectorizer: Vectorizer,
        config: MemoryConfig,
        user: User,
    ) -> None:
        super().__init__(replica, vectorizer, config, user)
        self._replica = replica
        self._server = server

    async def search(
        self,
        query: str,
        top_k: int,
        tags: Sequence[str],
        include_conversation: bool,
        only: Only = ALL,
        weak: bool = False,
        before: Shown = Shown(),  # noqa: B008 - it cannot change
    ) -> SearchOutcome:
        """See `Memory.search`. Raises `StorageError` if there is neither a server nor a replica."""
        wanted = [self._user.notes]
        if include_conversation and not narrows(tags, only):
            wanted.append(self._user.conversations)
        for last_attempt in (False, True):
            database = self._replica.database
            try:
                warning = await self._freshen(wanted)
                outcome = await super().search(
                    query, top_k, tags, include_conversation, only, weak, before
                )
            except StorageError as error:
                if error.code != Code.DATA_LOSS or last_attempt:
                    raise
                log.warning("the copy of the memory is damaged and fetched anew: %s", error)
                await self._replica.replace(database)
                continue
            if self._replica.database is not database and not last_attempt:
                continue  # an empty one has taken its place meanwhile
            if not warning:
                return outcome
            return replace(outcome, warnings=(warning, *outcome.warnings))
        raise AssertionError("unreachable")

    @property
    def copying(self) -> "asyncio.Task[None] | None":
        return self._replica.following

    async def copied(self, copying: "asyncio.Task[None] | None") -> None:
        if copying is not None:
            await asyncio.wait({copying}, timeout=self._patience.own_writes_s)

    async def _freshen(self, wanted: Sequence[str]) -> str:
        """Bring the replica up to date; a warning if that was not possible, else empty."""
        if self._server.problem is not None:
            return instead_of_server(self._replica, wanted, self._server.problem)
        if not self._is_stuck():
            task = self._replica.sync(wanted)
            await asyncio.wait({task}, timeout=self._patience.copy_s)
            if task.done():
                try:
                    task.result()
                except ServerUnreachable as error:
                    return instead_of_server(self._replica, wanted, error.problem)
                return ""
        if not _complete(self._replica, wanted):
            return (
                "the copy of the memory on this machine is still being fetched; "
                "these results are incomplete"
            )
        return (
            "the memory server does not answer; these results are from the copy of "
            f"{_age(self._replica, wanted)} ago"
        )

    def _is_stuck(self) -> bool:
        since = self._replica.busy_since
        waited = self._patience.copy_s
        return since is not None and asyncio.get_running_loop().time() - since > waited


async def freshen(replica: Replica, namespace: str, wait_s: float) -> None:
    """Wait briefly for the replica to follow the server; searches warn about what it lacks."""
    task = replica.sync([namespace])
    await asyncio.wait({task}, timeout=wait_s)
    if task.done():
        try:
            task.result()
        except ServerUnreachable as error:
            raise error.problem from None


def instead_of_server(replica: Replica, wanted: Sequence[str], problem: StorageError) -> str:
    """The warning for answers from the replica while the server cannot be used.

    Raises `StorageError` if there is no replica.
    """
    if not replica.progress(wanted[0]).begun:
        raise StorageError(
            problem.code,
            "the memory cannot be reached, and there is no copy of it on this machine",
            details=f"{problem.brief}: {problem.details}",
            resolution=problem.resolution,
        )
    what = "cannot be reached" if is_away(problem) else "failed"
    said = f"the memory server {what} ({problem.brief})"
    if not _complete(replica, wanted):
        return f"{said}; these results are from an incomplete copy"
    return f"{said}; these results are from the copy of {_age(replica, wanted)} ago"


def _complete(replica: Replica, wanted: Sequence[str]) -> bool:
    return all(replica.progress(namespace).complete_once for namespace in wanted)


def _age(replica: Replica, wanted: Sequence[str]) -> str:
    synced = min(replica.progress(namespace).synced_at for namespace in wanted)
    return age(synced, datetime.now(UTC))


def age(since: str, at: datetime) -> str:
    """The time from `since` to `at` in words."""
    seconds = max(0, round((at - datetime.fromisoformat(since)).total_seconds()))
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}s"
    return "1 second" if seconds == 1 else f"{seconds} seconds"
