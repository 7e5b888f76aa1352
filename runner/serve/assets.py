"""The console's own files, from the wheel or from a clone."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

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
    """Serves `index.html` at `/`, and the files of a few folders below `/assets/`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self._page, methods=["GET"]),
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
