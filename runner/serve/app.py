"""The application: all paths that the HTTP server answers, and the console's own files."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp
from wire.errors import Code, WireError

from runner.access.exchange import INTERNAL, Refusal, answer
from runner.access.sockets import is_local
from runner.serve.guard import CALLBACK_PATH, REPORTS_PATH, Guard, Reports

_FOLDERS: Final = ("src", "styles", "vendor")
_PIECE_BYTES: Final = 16 * 1024
_KINDS: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
    ".LICENSE": "text/plain; charset=utf-8",
}


def web_directory() -> Path:
    """Where the console's files are: in the installed package, or in the clone."""
    installed = Path(__file__).parent / "web"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "web"


class Assets:
    """Serves `index.html` at `/` and `CALLBACK_PATH`, the service worker at `/sw.js`, and the files
    of a few folders below `/assets/`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        worker = directory / "src" / "sw.js"
        self.routes = [
            *(Route(path, self._page, methods=["GET"]) for path in ("/", CALLBACK_PATH)),
            Route("/sw.js", partial(self._file, path=worker, kind=_KINDS[".js"]), methods=["GET"]),
            Route("/assets/{path:path}", self._asset, methods=["GET"]),
        ]

    async def _page(self, request: Request) -> Response:
        return self._file(request, self._directory / "index.html", "text/html; charset=utf-8")

    async def _asset(self, request: Request) -> Response:
        names = request.path_params["path"].split("/")
        kind = _KINDS.get(Path(names[-1]).suffix)
        plain = all(name and not name.startswith(".") and "\0" not in name for name in names)
        if kind is None or not plain or names[0] not in _FOLDERS:
            raise HTTPException(404)
        return self._file(request, self._directory.joinpath(*names), kind)

    def _file(self, request: Request, path: Path, kind: str) -> Response:
        try:
            content, tag = _read(path, path.stat().st_mtime_ns)
        except OSError:
            raise HTTPException(404) from None
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        headers["Content-Length"] = str(len(content))
        return StreamingResponse(_pieces(content), headers=headers, media_type=kind)


@lru_cache
def _read(path: Path, _changed: int) -> tuple[bytes, str]:
    """A file's content and its tag: once for all who ask, since they need not be logged in."""
    content = path.read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), _PIECE_BYTES):
        yield content[begin : begin + _PIECE_BYTES]
        await asyncio.sleep(0)  # who has gone is noticed


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
