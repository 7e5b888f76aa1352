"""The host's API for the operator: `POST /api/host/{Method}`, all in JSON.

    a page ── operator? ── fields ── the record ── method ── hosts, tokens, people, settings

What is not for looking only is in the operator's record before it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from wire.errors import Code, WireError

from runner.access.exchange import json_object, plain
from runner.access.scopes import Scope
from runner.access.tokens import EXPIRES_DAYS, Tokens, lifetime_of
from runner.audit.calls import Calls, Filter
from runner.audit.log import LogLocation
from runner.config.models import Config
from runner.config.users import known_users
from runner.doctor.examination import examine
from runner.doctor.finding import State
from runner.errors import HostError
from runner.host.control import ControlClient, connect_control
from runner.host.runtime import LastStart, Runtime, lock_holder
from runner.serve.login.authenticator import Authenticator
from runner.serve.login.links import Links
from runner.serve.operator.fields import Asked, number_in, text_in, user_in
from runner.serve.operator.people import People
from runner.serve.operator.record import OperatorRecord
from runner.serve.operator.samples import Samples
from runner.serve.operator.settings import SettingsApi, SettingsFile
from runner.serve.operator.week import week
from runner.workspace.workspace import Workspace

METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    # users, whose hosts run, their guests; one with samples of the last minutes
    "ListUsers": (),
    "Status": ("user_id",),
    # a host in the background, without `insecure` in the tier of its last start; without `role`
    # all guests; the boundary self-test, again
    "Start": ("user_id", "insecure"),
    "Stop": ("user_id",),
    "Restart": ("user_id", "role"),
    "CheckBoundary": ("user_id",),
    # what is wrong with this machine and the settings
    "Doctor": ("user_id",),
    # `CreateToken` answers with the secret, this once
    "ListTokens": (),
    "CreateToken": ("user_id", "name", "scopes", "expires"),
    "RevokeToken": ("user_id", "name"),
    # calls of tools, newest first
    "ListCalls": ("user_id", "limit", "cursor", *(each.name for each in fields(Filter))),
    # what may leave and what the last seven days were
    "Reach": ("user_id",),
    # see `people`
    "AddUser": ("user_id",),
    "Invite": ("user_id",),
    "ListBelongings": ("user_id",),
    "RemoveUser": ("user_id", "confirm"),
    # see `settings`
    "GetSettings": ("user_id",),
    "SetSettings": ("user_id", "values", "key"),
    "ListModels": ("user_id", "provider", "base_url", "key"),
    "TryModel": ("user_id", "values", "key"),
}
"""The methods, and the fields of their requests."""
_ONLY_LOOK: Final = frozenset(
    {
        "ListUsers",
        "Status",
        "Doctor",
        "ListTokens",
        "ListCalls",
        "Reach",
        "ListBelongings",
        "GetSettings",
    }
)
"""Methods that are not recorded."""
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
        file: The configuration file.
    """

    load: Callable[[], Config]
    start: Callable[[str, bool], list[str]]
    file: SettingsFile


class HostApi:
    """Answers the operator, and nobody else."""

    def __init__(
        self,
        config: Config,
        door: Authenticator,
        tokens: Tokens,
        links: Links,
        addresses: Iterable[str],
        record: OperatorRecord,
        samples: Samples,
        commands: Commands,
    ) -> None:
        people = People(config, tokens, links, addresses, commands.file.change, self._end)
        settings = SettingsApi(config, commands.file, self._runs, self._last_tier)
        self._config = config
        self._door = door
        self._record = record
        self._tokens = tokens
        self._samples = samples
        self._commands = commands
        self._methods: dict[str, Callable[[Asked], Awaitable[dict[str, Any]]]] = {
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
            "Reach": self._reach,
            "AddUser": people.add,
            "Invite": people.invite,
            "ListBelongings": people.belongings,
            "RemoveUser": people.remove,
            "GetSettings": settings.get,
            "SetSettings": settings.set,
            "ListModels": settings.list_models,
            "TryModel": settings.try_model,
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
        asked = await json_object(request)
        if unknown := asked.keys() - METHODS[name]:
            raise WireError(
                Code.INVALID_ARGUMENT,
                f"{name} has no field {min(unknown)[:40]!r}",
                details=f"accepted: {', '.join(METHODS[name]) or 'none'}",
            )
        if name in _ONLY_LOOK:
            return JSONResponse(await method(asked))
        with self._record.of(name, asked):
            return JSONResponse(await method(asked))

    async def _list_users(self, _: Asked) -> dict[str, Any]:
        room = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def told(user_id: str) -> dict[str, Any]:
            async with room:
                return await self._user(user_id)

        users = await asyncio.gather(*map(told, known_users(self._config)))
        return {"users": users}

    async def _status(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
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
            return told | {"tier": self._last_tier(user_id)}
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

    async def _start(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
        insecure = asked.get("insecure", self._last_tier(user_id) == "process") is True
        return {"notices": await asyncio.to_thread(self._commands.start, user_id, insecure)}

    async def _stop(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
        async with await self._control(user_id) as control:
            await control.stop()
        return {}

    async def _restart(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
        async with await self._control(user_id) as control:
            await control.restart(text_in(asked, "role"))
        return {}

    async def _check_boundary(self, asked: Asked) -> dict[str, Any]:
        async with await self._control(user_in(asked, self._config)) as control:
            report = await control.check_boundary()
        return {
            "boundary": MessageToDict(
                report, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        }

    async def _doctor(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
        findings = await asyncio.to_thread(
            examine, self._commands.load, user_id, fallback=self._config
        )
        return {
            "ok": not any(each.state is State.PROBLEM for each in findings),
            "findings": [asdict(each) for each in findings],
        }

    async def _list_tokens(self, _: Asked) -> dict[str, Any]:
        used = self._tokens.last_used()
        tokens = sorted(self._tokens.all(), key=lambda token: (token.user_id, token.name))
        return {"tokens": [each.listed(used.get(each.digest)) for each in tokens]}

    async def _create_token(self, asked: Asked) -> dict[str, Any]:
        user_id, name = user_in(asked, self._config), text_in(asked, "name")
        scopes = asked.get("scopes", [Scope.CHAT, Scope.MEMORY])
        if not isinstance(scopes, list) or not scopes or not set(scopes) <= set(Scope):
            raise WireError(
                Code.INVALID_ARGUMENT,
                "bad scopes of a token",
                details=f"accepted: a list of {', '.join(Scope)}, at least one",
            )
        lifetime = lifetime_of(text_in(asked, "expires") or f"{EXPIRES_DAYS}d")
        token, secret = self._tokens.create(user_id, name, frozenset(map(Scope, scopes)), lifetime)
        return {"token": token.listed(None), "secret": secret}

    async def _revoke_token(self, asked: Asked) -> dict[str, Any]:
        user_id, name = user_in(asked, self._config), text_in(asked, "name")
        if not name or not self._tokens.revoke(user_id, name):
            raise WireError(Code.NOT_FOUND, f"{user_id} has no token named {name[:40]!r}")
        return {}

    async def _list_calls(self, asked: Asked) -> dict[str, Any]:
        wanted = Filter(**{each.name: text_in(asked, each.name) for each in fields(Filter)})
        calls = Calls.locate(self._config, user_in(asked, self._config))
        limit, cursor = number_in(asked, "limit", _CALLS), number_in(asked, "cursor", 0)
        return asdict(await asyncio.to_thread(calls.list, wanted, limit=limit, cursor=cursor))

    def _last_tier(self, user_id: str) -> str:
        runtime = Runtime.locate(self._config, user_id)
        last = LastStart.load(runtime) if runtime.directory.exists() else None
        return last.tier if last else self._config.tier

    async def _runs(self, user_id: str) -> bool:
        return lock_holder(Runtime.locate(self._config, user_id).lock) is not None

    async def _end(self, user_id: str) -> None:
        """Stop a user's host, if it runs."""
        if (control := await connect_control(self._config, user_id)) is not None:
            async with control:
                await control.stop()

    async def _reach(self, asked: Asked) -> dict[str, Any]:
        """`week`, and what egress lets out of a host that runs."""
        user_id = user_in(asked, self._config)
        log = LogLocation.locate(self._config, user_id)
        told = {"week": await asyncio.to_thread(week, log)}
        control = await connect_control(self._config, user_id)
        if control is None:
            return told
        async with control:
            found = (await control.get_egress()).configuration
        return told | {"egress": plain(found)}

    async def _control(self, user_id: str) -> ControlClient:
        control = await connect_control(self._config, user_id)
        if control is None:
            raise HostError(
                Code.FAILED_PRECONDITION,
                f"no agent runs for {user_id}",
                resolution=f"runner --user {user_id} start --detach",
            )
        return control
