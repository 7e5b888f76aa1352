"""What an agent can reach, whether its boundary holds, and what it did in the last seven days:
`GET /api/users/{user}/safety`. `POST` there probes the boundary now.

At `/api/users/{user}/logins` a person logs in at MCP servers: `POST` says what to open, whose last
page leads to `CALLBACK_PATH`, a page of the console; that brings what it came with, by `PUT`. It
counts once, and from the session that has begun it. `DELETE` forgets a login.

For the user whose agent it is, and the operator.
"""

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from wire.errors import Code, WireError
from wire.v1.egress_pb2 import EgressLogin

from runner.access.agents import NoAgent, away
from runner.access.callers import Caller, Callers
from runner.access.exchange import json_object, plain
from runner.access.scopes import Scope, check_scopes
from runner.audit.calls import Calls, Filter
from runner.audit.log import LogLocation
from runner.config.models import Config
from runner.egress.log import Requests
from runner.egress.login import Login
from runner.host.control import ControlClient, connect_control
from runner.host.runtime import LastStart
from runner.serve.guard import CALLBACK_PATH
from runner.serve.login.authenticator import Authenticator
from runner.serve.operator.host import Commands
from runner.serve.operator.record import text_in
from runner.workspace import logins
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)

DAYS: Final = 7
READ_MAX: Final = 50_000
"""Requests, and calls, that are counted; what is older is left out."""
HOSTS_MAX: Final = 50

_NEEDED: Final = frozenset({Scope.CHAT, Scope.MEMORY})
_REACH: Final = ("upstreams", "agent", "shell", "credentials")
"""What is shown of egress; the rest of its configuration is about the host and its network."""


class Safety:
    """Answers for the agent of whoever is let in."""

    def __init__(
        self, config: Config, authenticator: Authenticator, callers: Callers, commands: Commands
    ) -> None:
        self._config = config
        self._load = commands.load
        self._begun: dict[str, tuple[str, Login, asyncio.Task[EgressLogin]]] = {}
        self._authenticator = authenticator
        self._callers = callers
        self._probing: set[str] = set()
        path = "/api/users/{user}/safety"
        self.routes = [
            Route(path, self._look, methods=["GET"]),
            Route(path, self._probe, methods=["POST"]),
            Route("/api/users/{user}/logins", self._act, methods=["POST", "PUT", "DELETE"]),
        ]

    async def _look(self, request: Request) -> Response:
        """The `tier`, the `week` and, while a host runs, its `boundary`, `egress` and `projects`;
        for the operator also where the files lie."""
        caller, user_id = self._asked(request)
        found: dict[str, Any] = {}
        if caller.operator:
            found["workspace"] = str(Workspace.locate(self._config, user_id).path)
        with _discreet(user_id):
            found["tier"] = LastStart.tier_of(self._config, user_id)
            async with self._callers.large(caller):
                location = LogLocation.locate(self._config, user_id)
                found["week"] = await asyncio.to_thread(week, location)
        with contextlib.suppress(NoAgent):
            async with self._control(user_id) as control:
                status, kept = await control.status(), logins.kept(user_id)
                reach = plain((await control.get_egress()).configuration)
            for upstream in reach.get("upstreams", ()):
                upstream.pop("host_socket", None)
                if (named := str(upstream["name"])).startswith("mcp-"):
                    name = named.removeprefix("mcp-")
                    begins, fix = f"the MCP server {name} is away: ", f"runner tools login {name}"
                    wants = any(each.startswith(begins) and fix in each for each in status.notices)
                    upstream |= {"wanted": wants, "kept": name in kept}
            found["egress"] = {name: reach[name] for name in _REACH if name in reach}
            found["tier"] = status.tier
            shown = ("name", "writable", "walls", "hidden", *(["path"] if caller.operator else ()))
            found["projects"] = [
                {name: value for name, value in plain(each).items() if name in shown}
                for each in status.projects
            ]
            if status.HasField("boundary"):
                found["boundary"] = plain(status.boundary, whole=True)
        caller.check()
        return JSONResponse(found)

    async def _probe(self, request: Request) -> Response:
        """The `boundary`, as probes find it now."""
        caller, user_id = self._asked(request)
        if user_id in self._probing:
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "the boundary is being probed already",
                resolution="wait until that has ended",
            )
        self._probing.add(user_id)
        try:
            async with self._control(user_id) as control:
                report = await control.check_boundary()
        finally:
            self._probing.remove(user_id)
        caller.check()
        return JSONResponse({"boundary": plain(report, whole=True)})

    async def _act(self, request: Request) -> Response:
        caller, user_id = self._asked(request)
        by = self._authenticator.login_of(request)
        self._authenticator.of_login(by)  # an access token has none
        asked = await json_object(request)
        caller.check()
        name = text_in(asked, "name")
        if request.method == "POST":
            back = f"{request.state.origin}{CALLBACK_PATH}"
            return JSONResponse({"url": await self._begin(caller, user_id, by, name, back)})
        if request.method == "PUT":
            begun, query = self._begun.get(user_id), text_in(asked, "query")
            if begun is None or begun[0] != by or not begun[1].answered(query):
                raise WireError(
                    Code.NOT_FOUND,
                    "no login waits for this answer",
                    details="it has ended, or a later one or another browser has begun it",
                    resolution="log in again",
                )
            _, login, running = self._begun.pop(user_id)
            name, found = login.name, await running
            caller.check()
            logins.write(user_id, name, found)
        elif name in logins.kept(user_id):
            logins.forget(user_id, name)
        try:
            with contextlib.suppress(NoAgent):
                async with self._control(user_id) as control:
                    await control.reload_egress()
        except WireError as error:
            brief = "that is done, but the agent has not taken it up"
            fix = "ask the person who runs this host for: runner egress reload"
            raise WireError(Code.UNAVAILABLE, brief, resolution=fix) from error
        return JSONResponse({"name": name})

    async def _begin(self, caller: Caller, user_id: str, by: str, name: str, back: str) -> str:
        """What to open in the browser, which is then to come to `back`."""
        with _discreet(user_id):
            settings = (await asyncio.to_thread(self._load)).for_user(user_id)
        if (server := logins.servers(settings).get(name)) is None:
            raise WireError(Code.NOT_FOUND, "there is no such server to log in at")
        to_open: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        login = Login(name, server, settings.egress, os.environ, to_open.set_result)
        leave = partial(login.back.put_nowait, {"error": "nobody waits for it any more"})
        counted = self._callers.begin(caller, leave)
        running = asyncio.create_task(login.run(back))
        running.add_done_callback(lambda task: task.cancelled() or task.exception())
        running.add_done_callback(lambda _: self._callers.done(counted))
        if before := self._begun.get(user_id):
            before[1].back.put_nowait({"error": "a later one was begun"})
        self._begun[user_id] = by, login, running
        await asyncio.wait((to_open, running), return_when=asyncio.FIRST_COMPLETED)
        if not to_open.done():
            await running
        return to_open.result()

    def _asked(self, request: Request) -> tuple[Caller, str]:
        """Who asks, and about whose agent. Raises `WireError`."""
        caller, user_id = self._authenticator.caller(request), request.path_params["user"]
        caller.check_user(user_id)
        check_scopes("this page", _NEEDED, caller.scopes)
        return caller, user_id

    @asynccontextmanager
    async def _control(self, user_id: str) -> AsyncIterator[ControlClient]:
        """The user's host. Raises `NoAgent`, and as `_discreet` does."""
        with _discreet(user_id):
            if (control := await connect_control(self._config, user_id)) is None:
                raise NoAgent(user_id)
            async with control:
                yield control


@contextmanager
def _discreet(user_id: str) -> Iterator[None]:
    """Raises UNAVAILABLE without more about the host for what goes wrong in it, and `NoAgent`."""
    try:
        yield
    except NoAgent:
        raise
    except WireError as error:
        log.warning("the host of %s cannot be asked: %s", user_id, error)
        raise away(user_id) from error


@dataclass
class Reached:
    """What went to one host. Bytes are counted where a request was let out."""

    host: str
    role: str
    requests: int = 0
    refused: int = 0
    bytes: int = 0


def week(log: LogLocation, now: datetime | None = None) -> dict[str, Any]:
    """Counts since `since`: tool `calls`, of which a person was `asked` about some and some were
    `refused`; and the hosts that were `reached` or refused, the most asked first, without those
    after the first `HOSTS_MAX`. Blocks."""
    since = ((now or datetime.now(UTC)) - timedelta(days=DAYS)).isoformat(timespec="seconds")
    reached: dict[tuple[str, str], Reached] = {}
    for request in itertools.islice(Requests(log).newest(), READ_MAX):
        if datetime.fromisoformat(request.at) < datetime.fromisoformat(since):
            break
        name, role = request.host or request.upstream, request.role
        host = reached.setdefault((name, role), Reached(name, role))
        host.requests += 1
        host.refused += request.decision == "refused"
        host.bytes += request.sent + request.received
    calls = list(itertools.islice(Calls(log).newest(Filter(since=since)), READ_MAX))
    most = sorted(reached.values(), key=lambda each: -each.requests)[:HOSTS_MAX]
    return {
        "since": since,
        "reached": [asdict(each) for each in most],
        "calls": len(calls),
        "asked": sum(call.asked for call in calls),
        "refused": sum(call.asked and call.outcome == "refused" for call in calls),
    }
