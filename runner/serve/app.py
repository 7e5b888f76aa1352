"""The application: all paths that the HTTP server answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp
from wire.errors import Code, WireError

from runner.access.callers import Callers
from runner.access.exchange import INTERNAL, Refusal, answer
from runner.access.sockets import is_local
from runner.config.models import Config
from runner.openai.routes import OpenAI
from runner.serve.assets import Assets, web_directory
from runner.serve.bridge import Bridge
from runner.serve.files import Files
from runner.serve.guard import REPORTS_PATH, Guard, Reports
from runner.serve.login.authenticator import Authenticator
from runner.serve.login.links import Links
from runner.serve.mcp import Mcp
from runner.serve.operator.host import Commands, HostApi
from runner.serve.operator.record import OperatorRecord
from runner.serve.operator.samples import Samples
from runner.serve.safety import Safety


@dataclass(frozen=True)
class Serving:
    """What faces need of the server.

    Attributes:
        config: All settings.
        callers: The way to agents.
        door: Who makes a request.
        links: What lets people in.
        record: Of what the operator does.
        samples: What guests take of the machine.
        commands: What is done as a command does it.
        mcp: The MCP server.
    """

    config: Config
    callers: Callers
    door: Authenticator
    links: Links
    record: OperatorRecord
    samples: Samples
    commands: Commands
    mcp: Mcp


def application(serving: Serving, origins: Mapping[str, str]) -> ASGIApp:
    """The application of one server, which is called by the Hosts in `origins`; see `Guard`."""
    reports = Reports()
    openai = OpenAI(serving.callers, serving.door.with_token, serving.config.serve.openai)
    app = Starlette(
        routes=[
            Route("/healthz", _healthy, methods=["GET"]),
            Route(REPORTS_PATH, reports.take, methods=["POST"]),
            Route(REPORTS_PATH, reports.show, methods=["GET"]),
            *serving.door.routes,
            *Files(serving.door, serving.callers).routes,
            *Safety(serving.config, serving.door, serving.callers).routes,
            *Bridge(serving.door, serving.callers).routes,
            Mount("/v1", routes=openai.routes),
            *HostApi(
                serving.config,
                serving.door,
                serving.callers.tokens,
                serving.links,
                addresses_of(origins.values()),
                serving.record,
                serving.samples,
                serving.commands,
            ).routes,
            *serving.mcp.routes,
            *Assets(web_directory()).routes,
        ],
        exception_handlers={
            WireError: _failed,
            HTTPException: _no_such_path,
            Exception: _broken,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, origins)


def addresses_of(origins: Iterable[str]) -> list[str]:
    """The addresses of a server, those that lead to it from other machines first."""
    return sorted(dict.fromkeys(origins), key=lambda each: is_local(urlsplit(each).hostname or ""))


async def _healthy(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, WireError)
    return answer(error)


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    brief = "this path takes other methods" if status == 405 else "there is no such path"
    return answer(Refusal(status, Code.NOT_FOUND, brief, details=request.url.path[:200]))


async def _broken(_: Request, __: Exception) -> Response:
    return answer(INTERNAL())
