"""A libSQL database on a server: sqld or Turso."""

import asyncio
import logging
import random
import re
import ssl
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from wire.errors import Code

from guest.egress_client import url_of
from guest.errors import ChangeUnknownError, StorageError
from guest.memory.models import RemoteConfig
from guest.memory.storage import base
from guest.memory.storage.availability import NOTHING_CHANGED
from guest.memory.storage.base import AnswerLost, ConstraintViolated, Result, Statement, Value
from guest.memory.storage.changes import Background
from guest.memory.storage.hrana import (
    NOT_TEXT,
    HttpRefused,
    NoAnswer,
    PipelineClient,
    ServerAddress,
    ServerError,
    Untrusted,
)


def from_any(error: Exception, where: str) -> ConstraintViolated | StorageError:
    """The error for a call of which nothing has happened."""
    match error:
        case ServerError():
            return from_server(error, where)
        case HttpRefused():
            return _refused(error, where)
        case Untrusted():
            return StorageError(
                Code.FAILED_PRECONDITION,
                f"the certificate of the memory server {where} is not trusted",
                details=str(error),
                resolution="if its authority is your own, name the authority's certificate in "
                "memory.ca_file",
            )
    return StorageError(
        Code.UNAVAILABLE,
        f"the memory server {where} cannot be reached",
        details=f"{error}{NOTHING_CHANGED}",
        resolution="check that it runs and that this machine reaches it; memory then "
        "continues by itself",
    )


def of_change(
    error: Exception, where: str, *, maybe_done: bool
) -> ConstraintViolated | StorageError:
    """The error for a change; with `maybe_done`, the server may have made it."""
    if not maybe_done:
        return from_any(error, where)
    return ChangeUnknownError(
        Code.UNAVAILABLE,
        f"the memory server {where} did not answer; it is not known whether the change was stored",
        details=str(error),
        resolution="search for it when memory is back, and do it again if it is not there",
    )


def from_server(error: ServerError, where: str) -> ConstraintViolated | StorageError:
    """`ConstraintViolated` or the `StorageError` for an error of the server's engine."""
    text = str(error)
    lower = text.lower()
    if "constraint failed" in lower:
        return ConstraintViolated(text)
    if "disk is full" in lower or "sqlite_full" in lower or "blocked" in lower:
        return StorageError(
            Code.RESOURCE_EXHAUSTED,
            f"no space left for the memory on {where}",
            details=f"{text}; nothing of this change was stored, everything before it is intact",
            resolution="free space on that server, or raise its quota, and try again",
        )
    if is_busy(error):
        return StorageError(
            Code.UNAVAILABLE,
            f"the memory on {where} is busy",
            details=f"{text}; nothing of this change was stored",
            resolution="try again; if it persists, look for another program that keeps a "
            "transaction open there",
        )
    if "malformed" in lower or "not a database" in lower:
        return StorageError(
            Code.DATA_LOSS,
            f"the memory on {where} is corrupt",
            details=text,
            resolution="restore that database on its server from a backup",
        )
    if "readonly" in lower or "read-only" in lower:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"the memory on {where} cannot be written to",
            details=text,
            resolution="check that server's disk, and whether it is a replica",
        )
    return StorageError(
        Code.INTERNAL,
        f"the memory on {where} failed",
        details=text,
        resolution="report this, with the log, as a bug",
    )


def is_busy(error: ServerError) -> bool:
    """Whether the engine did nothing because of another transaction."""
    text = str(error).lower()
    return "is locked" in text or "busy" in text or "transaction timed-out" in text


def _refused(error: HttpRefused, where: str) -> StorageError:
    """The error for an answer with which the server refuses the request."""
    if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        code = Code.UNAUTHENTICATED
        if error.status == HTTPStatus.FORBIDDEN:
            code = Code.PERMISSION_DENIED
        return StorageError(
            code,
            f"the memory server {where} refuses the token",
            details=str(error),
            resolution="put a token that may read and write this database into the variable "
            "that memory.auth_token_env names, then run `runner memory token`",
        )
    if error.status == HTTPStatus.NOT_FOUND:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"there is no memory at {where}",
            details=f"{error}; a server also says this where the token is for another database",
            resolution="create the database (in sqld: the namespace) on that server, or correct "
            "memory.remote_url; for another token: runner memory token",
        )
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"{where} does not serve a memory",
        details=str(error),
        resolution="let memory.remote_url name a libSQL server (sqld 0.24 or Turso)",
    )


log = logging.getLogger(__name__)

_UPSTREAM: Final = "memory"
_UPSTREAM_NEXT: Final = "memory-next"
"""The same server, with a token that is still to be tried."""
_ATTEMPTS: Final = 5
_PRUNE_EVERY_S: Final = 3600.0

_KEY: Final = "INSERT INTO batches (key, applied_at) VALUES (?, unixepoch())"
_VOID: Final = """
INSERT INTO batches (key, applied_at) VALUES (?, -unixepoch()) ON CONFLICT (key) DO NOTHING
"""
"""Reserves a key for a batch that must not be applied; its time is negative."""

_PRUNE: Final = "DELETE FROM batches WHERE abs(applied_at) < unixepoch() - 86400"
_IS_APPLIED: Final = "SELECT applied_at > 0 FROM batches WHERE key = ?"
_SIZE: Final = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"

_FAILURES: Final = (ServerError, NoAnswer, HttpRefused, Untrusted)
_WRITE: Final = re.compile(r"\b(insert|update|delete|replace)\b", re.IGNORECASE)
_READ: Final = re.compile(r"\s*(select|values|explain|pragma\s+\w+\s*$)\b", re.IGNORECASE)
_WITH: Final = re.compile(r"\s*with\b", re.IGNORECASE)

_T = TypeVar("_T")


class RemoteDatabase:
    """The `Database` of one user on a server. Opened with `open`."""

    def __init__(self, client: PipelineClient, config: RemoteConfig) -> None:
        self._client = client
        self._where = config.url
        self._is_behind_egress = config.egress is not None
        self._timeout_s = config.timeout_s
        self._first_wait_s = config.first_wait_s
        self._prune_at = 0.0
        self._running = Background()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, config: RemoteConfig) -> "RemoteDatabase":
        """A database on a server, which may be away; nothing is sent yet.

        A request may take `timeout_s`, a repeated call up to twice that. Raises `StorageError`
        INVALID_ARGUMENT for invalid certificates.
        """
        if (egress := config.egress) is not None:
            client = PipelineClient(
                ServerAddress(url_of(_UPSTREAM)), None, config.timeout_s, egress
            )
        else:
            target = ServerAddress(config.url, config.auth_token)
            client = PipelineClient(target, _trust(config), config.timeout_s)
        return cls(client, config)

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        statement = Statement(sql, args)
        base.check((statement,))
        if is_query(sql):
            return await self._run(partial(self._query, statement))
        return (await self._run(partial(self._change, (statement,)), to_its_end=True))[0]

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        statements = tuple(statements)
        base.check(statements)
        if all(is_query(statement.sql) for statement in statements):
            return await self._run(partial(self._queries, statements))
        return await self._run(partial(self._change, statements), to_its_end=True)

    async def checkpoint(self) -> None:
        """Nothing to do: the server decides when to write its log back and what it overwrites."""

    async def size_bytes(self) -> int:
        try:
            result = await self.execute(_SIZE)
        except StorageError as error:
            if error.code != Code.INTERNAL:
                raise
            return 0  # the server does not tell
        size = result.rows[0][0]
        assert isinstance(size, int)
        return size

    async def set_token(self, token: str) -> None:
        """Switch to another token, once the server allows writing with it. Behind egress, the
        egress guest has it already, and switches after this.

        Raises `StorageError`; the old token then stays in use.
        """
        if self._is_behind_egress:
            await self._run(partial(self._prove, ServerAddress(url_of(_UPSTREAM_NEXT))))
            return
        target = ServerAddress(self._where, token)
        await self._run(partial(self._prove, target))
        self._client.target = target

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._running.finish()
        await self._client.close()

    async def _query(self, statement: Statement) -> Result:
        return await self._reading(partial(self._client.query, statement))

    async def _queries(self, statements: Sequence[Statement]) -> list[Result]:
        async def ask() -> list[Result]:
            try:
                return await self._client.transaction(statements, "BEGIN")
            except NoAnswer as error:
                if NOT_TEXT not in str(error):
                    raise
                return [await self._client.query(each) for each in statements]

        return await self._reading(ask)

    async def _prove(self, target: ServerAddress) -> None:
        """Send a change without effect, for which a server requires the right to write."""
        change = (Statement("DELETE FROM batches WHERE key = ''"),)
        try:
            await self._reading(
                partial(self._client.transaction, change, "BEGIN IMMEDIATE", target=target)
            )
        except StorageError as error:
            if "no such table: batches" not in error.details:  # a new store: the token was accepted
                raise

    async def _reading(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await self._repeat(ask)
        except _FAILURES as error:
            raise from_any(error, self._where) from None

    async def _change(self, statements: Sequence[Statement]) -> list[Result]:
        key = uuid.uuid4().hex
        keyed = (Statement(_KEY, (key,)), *statements, *self._pruning())
        maybe_done = False

        async def ask() -> list[Result]:
            nonlocal maybe_done
            try:
                results = await self._client.transaction(keyed, "BEGIN IMMEDIATE")
            except NoAnswer as error:
                maybe_done = maybe_done or error.sent
                raise
            return results[1 : len(statements) + 1]

        try:
            return await self._repeat(ask)
        except ServerError as error:
            if "batches.key" in error.explanation:
                raise AnswerLost from None
            if "no such table: batches" in error.explanation:
                return await self._change_unkeyed(statements)
            if maybe_done and await self._is_done(key):
                raise AnswerLost from None
            raise from_server(error, self._where) from None
        except _FAILURES as error:
            raise of_change(error, self._where, maybe_done=maybe_done) from None

    async def _change_unkeyed(self, statements: Sequence[Statement]) -> list[Result]:
        """Change a store that has no table of keys yet. Sent only once, since nothing would tell
        whether it was done."""
        try:
            return await self._client.transaction(statements, "BEGIN IMMEDIATE")
        except _FAILURES as error:
            maybe_done = isinstance(error, NoAnswer) and error.sent
            raise of_change(error, self._where, maybe_done=maybe_done) from None

    async def _is_done(self, key: str) -> bool:
        """Whether the batch of `key` was applied; if not, it never will be, even if a request
        that seemed lost still arrives."""
        settle = (Statement(_VOID, (key,)), Statement(_IS_APPLIED, (key,)))
        try:
            results = await self._repeat(
                partial(self._client.transaction, settle, "BEGIN IMMEDIATE")
            )
        except _FAILURES as error:
            raise of_change(error, self._where, maybe_done=True) from None
        return bool(results[1].rows[0][0])

    async def _repeat(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until there is an answer. The waits are random, so that many clients of one server
        do not return all at once."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout_s
        attempt, wait_s = 1, self._first_wait_s
        while True:
            try:
                return await ask()
            except (NoAnswer, ServerError) as error:
                if isinstance(error, ServerError) and not is_busy(error):
                    raise
                if attempt == _ATTEMPTS or (attempt > 1 and loop.time() > until):
                    raise
                log.info("asking %s again: %s", self._where, error)
            await asyncio.sleep(random.uniform(0, wait_s))  # noqa: S311
            attempt, wait_s = attempt + 1, wait_s * 2

    async def _run(
        self, work: Callable[[], Coroutine[Any, Any, _T]], *, to_its_end: bool = False
    ) -> _T:
        """Do `work`; with `to_its_end` even if the caller is cancelled, and later calls then
        wait for it."""
        if self._closing is not None:
            raise StorageError(
                Code.FAILED_PRECONDITION,
                f"the memory on {self._where} is closed",
                resolution="start the guest again",
            )
        task = self._running.begin(_after(frozenset(self._abandoned), work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if to_its_end:
                self._abandoned.add(task)
                task.add_done_callback(self._forget_abandoned)
            else:
                task.cancel()
            raise

    def _forget_abandoned(self, task: asyncio.Task[Any]) -> None:
        """Retrieve the outcome: nobody else will."""
        self._abandoned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("a change whose caller was cancelled failed: %s", error)

    def _pruning(self) -> tuple[Statement, ...]:
        """From time to time, a statement that removes keys that nobody can ask for any more."""
        now = asyncio.get_running_loop().time()
        if now < self._prune_at:
            return ()
        self._prune_at = now + _PRUNE_EVERY_S
        return (Statement(_PRUNE),)


def is_query(sql: str) -> bool:
    """Whether `sql` certainly changes nothing, so that it may be repeated."""
    if _WITH.match(sql):
        return not _WRITE.search(sql)
    return bool(_READ.match(sql))


async def _after(
    earlier: frozenset[asyncio.Task[Any]], work: Callable[[], Coroutine[Any, Any, _T]]
) -> _T:
    if earlier:
        await asyncio.wait(earlier)
    return await work()


def _trust(config: RemoteConfig) -> ssl.SSLContext | None:
    """A TLS context that trusts the system's authorities and those of the configuration.

    None without TLS: reading the system's authorities takes longer than all else on opening.
    """
    if urlsplit(config.url).scheme == "http" and not config.ca_pem:
        return None
    context = ssl.create_default_context()
    if config.ca_pem:
        try:
            context.load_verify_locations(cadata=config.ca_pem)
        except ssl.SSLError as error:
            raise StorageError(
                Code.INVALID_ARGUMENT,
                "memory.ca_file holds no certificates",
                details=str(error),
                resolution="name a file of PEM certificates (-----BEGIN CERTIFICATE-----)",
            ) from None
    return context
