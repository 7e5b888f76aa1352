"""Fields of the operator's requests over HTTP, and the record of what the operator does: an audit
log beside those of users."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from wire.errors import Code, WireError

from runner.audit.log import AuditLog, LogLocation
from runner.config.models import Config
from runner.config.user_id import DEFAULT_USER_ID, check_user_id
from runner.config.users import check_known

Asked = Mapping[str, Any]


def text_in(asked: Asked, name: str) -> str:
    """A text; empty if the request has none. Raises `WireError` for anything else."""
    value = asked.get(name, "")
    if not isinstance(value, str):
        raise WireError(Code.INVALID_ARGUMENT, f"{name} must be a string")
    return value


def number_in(asked: Asked, name: str, otherwise: int) -> int:
    """A whole number that is not negative. Raises `WireError` for anything else."""
    value = asked.get(name, otherwise)
    if type(value) is not int or value < 0:
        raise WireError(Code.INVALID_ARGUMENT, f"{name} must be a whole number, not below 0")
    return value


def user_in(asked: Asked, config: Config) -> str:
    """The user that `user_id` names; that of commands which name none is known before the first
    start. Raises `WireError` for a bad id and an unknown user."""
    user_id = check_user_id(text_in(asked, "user_id"))
    if user_id != DEFAULT_USER_ID:
        check_known(config, user_id)
    return user_id


log = logging.getLogger(__name__)

_OPERATOR: Final = "operator"
_CHARS: Final = 64
_NAMED: Final = ("user_id", "name", "role")
"""The fields of requests that are recorded; no other one is, because it may hold a secret."""


class OperatorRecord:
    """Notes each request that may change something before it is done, and how it ended."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, directory: Path, keep_days: int) -> AsyncIterator["OperatorRecord"]:
        """The record in `directory`, whose lock the caller holds."""
        audit = AuditLog(LogLocation(directory, _OPERATOR), keep_days)
        if wrong := audit.open():
            log.error("the record of what the operator does was changed: %s", wrong)
        syncing = asyncio.create_task(audit.keep_synced())
        try:
            yield cls(audit)
        finally:
            syncing.cancel()
            audit.close()

    @contextlib.contextmanager
    def of(self, method: str, asked: Asked) -> Iterator[None]:
        """Record a request around what it does, which is not done if this raises `HostError`."""
        named = {name: str(asked[name])[:_CHARS] for name in _NAMED if name in asked}
        settings = asked.get("values")
        if isinstance(settings, dict):
            named["settings"] = ", ".join(sorted(map(str, settings)))[: 8 * _CHARS]
        if asked.get("key"):
            named["key"] = "given"
        log.info("the operator asks for %s %s", method, named)
        begun = self._audit.note("operator", method=method, asked=named)
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        except WireError as error:
            outcome = error.code.value
            raise
        finally:
            self._audit.note("operator-end", begin=begun, outcome=outcome)
