"""The host's API for the operator: `POST /api/host/{Method}`, all in JSON.

ListUsers      {}                         users, whose hosts run, their guests
Status         user_id                    one user's host, with samples of the last minutes
Start          user_id, insecure          starts the user's host in the background
Stop           user_id
Restart        user_id, role              guests in place; without a role all
CheckBoundary  user_id                    the boundary self-test, again
Doctor         user_id                    what is wrong with this machine and the settings
ListTokens     {}
CreateToken    user_id, name, scopes, expires     answers with the secret, this once
RevokeToken    user_id, name
ListCalls      user_id, limit, cursor, and what limits them    calls of tools, newest first
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from wire.errors import Code, WireError

from runner.access.exchange import json_object
from runner.access.scopes import Scope
from runner.access.tokens import EXPIRES_DAYS, Tokens, lifetime_of
from runner.audit.calls import Calls, Filter
from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.config.users import known_users
from runner.doctor.examination import examine
from runner.doctor.finding import State
from runner.errors import HostError
from runner.host.control import ControlClient, connect_control
from runner.host.runtime import LastStart, Runtime, lock_holder
from runner.serve.login.authenticator import Authenticator
from runner.serve.operator.samples import Samples
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)

_ASKED_AT_ONCE: Final = 8
_APPEAR_S: Final = 2.0
_CALLS: Final = 100


@dataclass(frozen=True)
class Commands:
    """What the API has done as a command does it.

    Attributes:
        load: The settings as they are now.
        start: Starts a user's host in the background and returns what is to be said of it; the
            second argument asks for the process tier. Blocks.
    """

    load: Callable[[], Config]
    start: Callable[[str, bool], list[str]]


class HostApi:
    """Answers the operator, and nobody else."""

    def __init__(
        self,
        config: Config,
        door: Authenticator,
        tokens: Tokens,
        samples: Samples,
        commands: Commands,
    ) -> None:
        self._config = config
        self._door = door
        self._tokens = tokens
        self._samples = samples
        self._commands = commands
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "ListUsers": self._list_users,
            "Status": self._status,
            "Start": self._start,
            "Stop": self._stop,
            "Restart": self._restart,
            "CheckBoundary": self._check_boundary,
            "Doctor": self._doctor,
            "ListTokens": self._list_tokens,
            "CreateToken": self._create_token,
            "RevokeToken": self._revoke_token,
            "ListCalls": self._list_calls,
        }

    @property
    def routes(self) -> list[Route]:
        return [Route("/api/host/{method}", self._call, methods=["POST"])]

    async def _call(self, request: Request) -> Response:
        if not self._door.caller(request).operator:
            raise WireError(
                Code.PERMISSION_DENIED,
                "this is for the account that runs the agents",
                resolution="ask the person who runs this host",
            )
        name = request.path_params["method"]
        method = self._methods.get(name)
        if method is None:
            raise WireError(Code.NOT_FOUND, "the host has no such method", details=name[:80])
        return JSONResponse(await method(await json_object(request)))

    async def _list_users(self, _: dict[str, Any]) -> dict[str, Any]:
        room = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def told(user_id: str) -> dict[str, Any]:
            async with room:
                return await self._user(user_id)

        users = await asyncio.gather(*map(told, known_users(self._config)))
        return {"users": users}

    async def _status(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id = self._user_in(asked)
        return await self._user(user_id) | {"samples": self._samples.of(user_id)}

    async def _user(self, user_id: str) -> dict[str, Any]:
        """A user: `state` ("running", "stopped" or "stuck") with its `reason`, and of a host that
        runs what `runner status` shows."""
        runtime = Runtime.locate(self._config, user_id)
        told: dict[str, Any] = {
            "user_id": user_id,
            "workspace": str(Workspace.locate(self._config, user_id).path),
            "state": "stopped",
            "reason": "",
        }
        if lock_holder(runtime.lock) is None:
            last = LastStart.load(runtime) if runtime.directory.exists() else None
            return told | {"tier": last.tier if last else self._config.tier}
        try:
            control = await connect_control(self._config, user_id, appear_s=_APPEAR_S)
            if control is None:
                return told
            async with control:
                reply = await control.status()
        except WireError as error:
            return told | {"state": "stuck", "reason": str(error)}
        self._samples.note(user_id, {guest.role: guest.pid for guest in reply.guests})
        status = MessageToDict(
            reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return told | status | {"user_id": user_id, "state": "running"}

    async def _start(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id = self._user_in(asked)
        log.info("the operator starts the agent of %s", user_id)
        insecure = asked.get("insecure") is True
        return {"notices": await asyncio.to_thread(self._commands.start, user_id, insecure)}

    async def _stop(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id = self._user_in(asked)
        log.info("the operator stops the agent of %s", user_id)
        async with await self._control(user_id) as control:
            await control.stop()
        return {}

    async def _restart(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id = self._user_in(asked)
        log.info("the operator restarts guests of %s", user_id)
        async with await self._control(user_id) as control:
            await control.restart(_text(asked, "role"))
        return {}

    async def _check_boundary(self, asked: dict[str, Any]) -> dict[str, Any]:
        async with await self._control(self._user_in(asked)) as control:
            report = await control.check_boundary()
        return {
            "boundary": MessageToDict(
                report, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        }

    async def _doctor(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id = self._user_in(asked)
        findings = await asyncio.to_thread(
            examine, self._commands.load, user_id, fallback=self._config
        )
        return {
            "ok": not any(each.state is State.PROBLEM for each in findings),
            "findings": [asdict(each) for each in findings],
        }

    async def _list_tokens(self, _: dict[str, Any]) -> dict[str, Any]:
        used = self._tokens.last_used()
        tokens = sorted(self._tokens.all(), key=lambda token: (token.user_id, token.name))
        return {"tokens": [each.listed(used.get(each.digest)) for each in tokens]}

    async def _create_token(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id, name = self._user_in(asked), _text(asked, "name")
        scopes = asked.get("scopes", [Scope.CHAT, Scope.MEMORY])
        if not isinstance(scopes, list) or not scopes or not set(scopes) <= set(Scope):
            raise WireError(
                Code.INVALID_ARGUMENT,
                "bad scopes of a token",
                details=f"accepted: a list of {', '.join(Scope)}, at least one",
            )
        lifetime = lifetime_of(_text(asked, "expires") or f"{EXPIRES_DAYS}d")
        token, secret = self._tokens.create(user_id, name, frozenset(map(Scope, scopes)), lifetime)
        log.info("the operator makes the access token %s/%s", user_id, name)
        return {"token": token.listed(None), "secret": secret}

    async def _revoke_token(self, asked: dict[str, Any]) -> dict[str, Any]:
        user_id, name = self._user_in(asked), _text(asked, "name")
        if not name or not self._tokens.revoke(user_id, name):
            raise WireError(Code.NOT_FOUND, f"{user_id} has no token named {name[:40]!r}")
        log.info("the operator revokes the access token %s/%s", user_id, name)
        return {}

    async def _list_calls(self, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = Filter(**{each.name: _text(asked, each.name) for each in fields(Filter)})
        calls = Calls.locate(self._config, self._user_in(asked))
        limit, cursor = _number(asked, "limit", _CALLS), _number(asked, "cursor", 0)
        return asdict(await asyncio.to_thread(calls.list, wanted, limit=limit, cursor=cursor))

    async def _control(self, user_id: str) -> ControlClient:
        control = await connect_control(self._config, user_id)
        if control is None:
            raise HostError(
                Code.FAILED_PRECONDITION,
                f"no agent runs for {user_id}",
                resolution=f"runner --user {user_id} start --detach",
            )
        return control

    def _user_in(self, asked: dict[str, Any]) -> str:
        user_id = check_user_id(_text(asked, "user_id"))
        if user_id not in known_users(self._config):
            raise HostError(
                Code.NOT_FOUND,
                f"there is no user {user_id}",
                details=f"no workspace in {self._config.workspace_root} and no section "
                f"[users.{user_id}]",
                resolution=f"runner --user {user_id} start --detach",
            )
        return user_id


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name, "")
    if not isinstance(value, str):
        raise WireError(Code.INVALID_ARGUMENT, f"{name} must be a string")
    return value


def _number(asked: dict[str, Any], name: str, otherwise: int) -> int:
    value = asked.get(name, otherwise)
    if type(value) is not int or value < 0:
        raise WireError(Code.INVALID_ARGUMENT, f"{name} must be a whole number, not below 0")
    return value
