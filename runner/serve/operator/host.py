"""The host's API for the operator: `POST /api/host/{Method}`, all in JSON.

    a page ── operator? ── fields ── the record ── method ── hosts, tokens, people, settings

What is not for looking only is in the operator's record before it is done.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from wire.errors import Code, WireError
from wire.settings import ProjectSettings

from runner.access.agents import NoAgent
from runner.access.exchange import json_object, plain
from runner.access.scopes import Scope
from runner.access.tokens import EXPIRES_DAYS, Tokens, lifetime_of
from runner.audit.calls import Calls, Filter
from runner.config.models import Config
from runner.config.users import known_users
from runner.doctor.examination import examine
from runner.doctor.finding import State
from runner.host.awake import described
from runner.host.control import ControlClient, connect_control
from runner.host.runtime import LastStart, is_running
from runner.serve.login.authenticator import Authenticator
from runner.serve.login.links import Links
from runner.serve.operator.people import People
from runner.serve.operator.record import Asked, OperatorRecord, number_in, text_in, user_in
from runner.serve.operator.samples import Samples
from runner.serve.operator.settings import SettingsApi, SettingsFile
from runner.workspace.workspace import Workspace

_FILTER: Final = tuple(each.name for each in fields(Filter))
_ASKED_AT_ONCE: Final = 8
_APPEAR_S: Final = 2.0
_CALLS: Final = 100


Answer = Callable[[Asked], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Method:
    """A method: what answers it, the names of its request's fields, and whether it may change
    something, so that it is recorded."""

    answer: Answer
    fields: str = ""
    changes: bool = False


@dataclass(frozen=True)
class Commands:
    """What the API has done as a command does it.

    Attributes:
        load: The settings as they are now.
        start: Starts a user's host in the background and returns what is to be said of it; the
            second argument asks for the process tier. Blocks.
        file: The configuration file.
        program: What begins a command for the same settings, in a terminal of the operator.
    """

    load: Callable[[], Config]
    start: Callable[[str, bool], list[str]]
    file: SettingsFile
    program: str = "runner"


class HostApi:
    """Answers the operator, and nobody else."""

    def __init__(
        self,
        config: Config,
        authenticator: Authenticator,
        tokens: Tokens,
        links: Links,
        addresses: Sequence[str],
        record: OperatorRecord,
        samples: Samples,
        commands: Commands,
    ) -> None:
        people = People(config, tokens, links, addresses, commands.file.change, self._end)
        settings = SettingsApi(config, commands.file)
        self._config = config
        self._authenticator = authenticator
        self._record = record
        self._tokens = tokens
        self._samples = samples
        self._commands = commands
        self.routes = [Route("/api/host/{method}", self._call, methods=["POST"])]
        self.methods: Mapping[str, Method] = {
            # users, whose hosts run, their guests; one with samples of the last minutes
            "ListUsers": Method(self._list_users),
            "Status": Method(self._status, "user_id"),
            # a host in the background, without `insecure` in the tier of its last start; without
            # `role` all guests; the boundary self-test, again
            "Start": Method(self._start, "user_id insecure", changes=True),
            "Stop": Method(self._stop, "user_id", changes=True),
            "Restart": Method(self._restart, "user_id role", changes=True),
            "CheckBoundary": Method(self._check_boundary, "user_id", changes=True),
            # directories of the operator's: those of the settings, of which `OpenProject` opens one
            # by its name; a path is never taken from here
            "ListProjects": Method(self._list_projects, "user_id"),
            "OpenProject": Method(self._open_project, "user_id name", changes=True),
            "CloseProject": Method(self._close_project, "user_id name", changes=True),
            # what is wrong with this machine and the settings
            "Doctor": Method(self._doctor, "user_id"),
            # `CreateToken` answers with the secret, this once
            "ListTokens": Method(self._list_tokens),
            "CreateToken": Method(self._create_token, "user_id name scopes expires", changes=True),
            "RevokeToken": Method(self._revoke_token, "user_id name", changes=True),
            # calls of tools, newest first
            "ListCalls": Method(self._list_calls, f"user_id limit cursor {' '.join(_FILTER)}"),
            # see `people`
            "AddUser": Method(people.add, "user_id", changes=True),
            "Invite": Method(people.invite, "user_id", changes=True),
            "ListBelongings": Method(people.belongings, "user_id"),
            "RemoveUser": Method(people.remove, "user_id confirm", changes=True),
            # see `settings`
            "GetSettings": Method(settings.get, "user_id"),
            "SetSettings": Method(settings.set, "user_id values key", changes=True),
            "ListModels": Method(settings.list_models, "user_id provider base_url key", True),
            "PlanTools": Method(settings.plan_tools, "user_id block"),
            "AddTools": Method(settings.add_tools, "user_id block", changes=True),
            "TryModel": Method(settings.try_model, "user_id values key", changes=True),
        }

    async def _call(self, request: Request) -> Response:
        caller = self._authenticator.caller(request)
        if not caller.operator:
            raise WireError(
                Code.PERMISSION_DENIED,
                "this is for the account that runs the agents",
                resolution="ask the person who runs this host",
            )
        name = request.path_params["method"]
        if (method := self.methods.get(name)) is None:
            raise WireError(Code.NOT_FOUND, "the host has no such method", details=name[:80])
        asked = await json_object(request)
        caller.check()  # the request has taken its time, and so does the answer
        if unknown := asked.keys() - method.fields.split():
            raise WireError(
                Code.INVALID_ARGUMENT,
                f"{name} has no field {min(unknown)[:40]!r}",
                details=f"accepted: {', '.join(method.fields.split()) or 'none'}",
            )
        with self._record.of(name, asked) if method.changes else contextlib.nullcontext():
            answer = JSONResponse(await method.answer(asked))
        caller.check()
        return answer

    async def _list_users(self, _: Asked) -> dict[str, Any]:
        room = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def told(user_id: str) -> dict[str, Any]:
            async with room:
                return await self._user(user_id)

        return {"users": await asyncio.gather(*map(told, known_users(self._config)))}

    async def _status(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
        return await self._user(user_id) | {"samples": self._samples.of(user_id)}

    async def _user(self, user_id: str) -> dict[str, Any]:
        """A user: `state` ("running", "stopped" or "stuck") with its `reason`, and of a host that
        runs what `runner status` shows."""
        told: dict[str, Any] = {
            "user_id": user_id,
            "workspace": str(Workspace.locate(self._config, user_id).path),
            "state": "stopped",
            "reason": "",
        }
        if not is_running(self._config, user_id):
            tier = LastStart.tier_of(self._config, user_id)
            return told | described(self._config, user_id) | {"tier": tier}
        try:
            control = await connect_control(self._config, user_id, appear_s=_APPEAR_S)
            if control is None:
                return told
            async with control:
                reply = await control.status()
        except WireError as error:
            return told | {"state": "stuck", "reason": str(error)}
        self._samples.note(user_id, {guest.role: guest.pid for guest in reply.guests})
        return told | plain(reply, whole=True) | {"user_id": user_id, "state": "running"}

    async def _start(self, asked: Asked) -> dict[str, Any]:
        user_id = user_in(asked, self._config)
        as_last = LastStart.tier_of(self._config, user_id) == "process"
        insecure = asked.get("insecure", as_last) is True
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
        return {"boundary": plain(report, whole=True)}

    async def _projects(self, user_id: str) -> Mapping[str, ProjectSettings]:
        settings = await asyncio.to_thread(self._commands.load)
        return settings.for_user(user_id).workspace.projects

    async def _list_projects(self, asked: Asked) -> dict[str, Any]:
        found = await self._projects(user_in(asked, self._config))
        return {
            "projects": [
                {"name": name, "path": str(each.path), "write": each.write}
                for name, each in found.items()
            ]
        }

    async def _open_project(self, asked: Asked) -> dict[str, Any]:
        user_id, name = user_in(asked, self._config), text_in(asked, "name")
        if (found := (await self._projects(user_id)).get(name)) is None:
            raise WireError(
                Code.NOT_FOUND,
                f"the settings name no project {name[:64]!r}",
                resolution="add [workspace.projects.NAME]: runner config edit",
            )
        async with await self._control(user_id) as control:
            reply = await control.open_project(
                str(found.path), name=name, write=found.write, hide=found.hide, lift=found.lift
            )
        return {"notices": [*reply.notices]}

    async def _close_project(self, asked: Asked) -> dict[str, Any]:
        async with await self._control(user_in(asked, self._config)) as control:
            await control.close_project(text_in(asked, "name"))
        return {}

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
        wanted = Filter(**{name: text_in(asked, name) for name in _FILTER})
        calls = Calls.locate(self._config, user_in(asked, self._config))
        limit, cursor = number_in(asked, "limit", _CALLS), number_in(asked, "cursor", 0)
        return asdict(await asyncio.to_thread(calls.list, wanted, limit=limit, cursor=cursor))

    async def _end(self, user_id: str) -> None:
        """Stop a user's host, if it runs."""
        if (control := await connect_control(self._config, user_id)) is not None:
            async with control:
                await control.stop()

    async def _control(self, user_id: str) -> ControlClient:
        if (control := await connect_control(self._config, user_id)) is None:
            raise NoAgent(user_id)
        return control
