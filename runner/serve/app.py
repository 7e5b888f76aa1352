"""The application: all paths that the HTTP server answers."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp
from wire.errors import Code, WireError

from runner.access.exchange import INTERNAL, Refusal, answer
from runner.access.sockets import is_local
from runner.serve.assets import Assets, web_directory
from runner.serve.guard import REPORTS_PATH, Guard, Reports


def application(faces: Iterable[BaseRoute], origins: Mapping[str, str]) -> ASGIApp:
    """The application of one server, with the paths of its `faces`, which is called by the Hosts in
    `origins`; see `Guard`."""
    reports = Reports()
    app = Starlette(
        routes=[
            Route("/healthz", _healthy, methods=["GET"]),
            Route(REPORTS_PATH, reports.take, methods=["POST"]),
            Route(REPORTS_PATH, reports.show, methods=["GET"]),
            *faces,
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
