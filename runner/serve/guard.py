"""What every request must be like before anybody looks at it, and what every answer says.

With an access file nobody comes from a page: at the listeners of `[access]` every request carries
an access token, and nothing else lets anybody in. Everywhere else:

Host      one of the names of this server, so that no other site's name leads here
Origin    this server's own, where there is one, as browsers send it
X-Oxydra  where a cookie could act: only pages of this server can send it; with a cookie it is the
          page's own secret of the session
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from wire.errors import Code
from wire.text import bounded_json

from runner.access.exchange import SMALL, VALUES_MAX, Refusal, answer, bearer, whole
from runner.serve.connections import HEAD_MAX_BYTES
from runner.serve.login.authenticator import BY_ACCESS, HEADER

log = logging.getLogger(__name__)

REPORTS_PATH: Final = "/api/csp-report"
CALLBACK_PATH: Final = "/logins/callback"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; manifest-src 'self'; worker-src 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    f"trusted-types dompurify oxydra; report-uri {REPORTS_PATH}"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), "
    "payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SAFE: Final = frozenset({"GET", "HEAD"})
_FROM_HERE: Final = frozenset({"same-origin", "none"})
_REPORTS_LOGGED: Final = 20
_REPORTS_WITHIN_S: Final = 60.0


class Guard:
    """Refuses requests that no client of this server makes, and gives answers their headers.

    `origins` has, for every Host that this server is called by, what browsers name it as.
    """

    def __init__(self, app: ASGIApp, origins: Mapping[str, str]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        state = scope.setdefault("state", {})

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if cookie := state.get("set_cookie"):
                    headers.append("Set-Cookie", cookie)
            await send(message)

        try:
            self._check(Request(scope), state)
        except Refusal as error:
            await answer(error)(scope, receive, answered)
            return
        await self._app(scope, receive, answered)

    def _check(self, request: Request, state: dict[str, Any]) -> None:
        headers = request.headers
        if sum(len(name) + len(value) for name, value in headers.raw) > HEAD_MAX_BYTES:
            raise Refusal(431, Code.INVALID_ARGUMENT, "the request has too many headers")
        if request.scope.get(BY_ACCESS) is True:
            _check_from_outside(request)
            return
        origin = self._origins.get(headers.get("host", "").lower())
        if origin is None or len(headers.getlist("host")) != 1:
            raise Refusal(
                421,
                Code.PERMISSION_DENIED,
                "the Host header does not name this server",
                details=f"Host: {headers.get('host', '')[:100]!r}",
                resolution="name it in [serve] hosts, or the address of the reverse proxy in "
                "[serve] url",
            )
        state["origin"] = origin
        if headers.get("origin", origin) != origin:
            raise _foreign(f"Origin: {headers['origin'][:100]!r}")
        site = headers.get("sec-fetch-site", "none")
        page = request.method in _SAFE and headers.get("sec-fetch-mode") == "navigate"
        if site not in _FROM_HERE and not (page and request.url.path in ("/", CALLBACK_PATH)):
            raise _foreign(f"Sec-Fetch-Site: {site[:20]!r}")
        acts = request.method not in _SAFE and request.url.path != REPORTS_PATH
        if acts and bearer(request) is None and not headers.get(HEADER):
            raise Refusal(
                403,
                Code.PERMISSION_DENIED,
                "the request does not come from a page of this server",
                details="it has no header X-Oxydra",
                resolution="send that header, or an access token as Authorization: Bearer oxa_…",
            )


class Reports:
    """What browsers report that the policy has kept them from. Counted; a few are logged."""

    def __init__(self) -> None:
        self.count = 0
        self._since = time.monotonic()
        self._logged = 0

    async def take(self, request: Request) -> Response:
        body = await whole(request, SMALL)
        self.count += 1
        now = time.monotonic()
        if now - self._since > _REPORTS_WITHIN_S:
            self._since, self._logged = now, 0
        self._logged += 1
        if self._logged <= _REPORTS_LOGGED:
            log.warning("a browser reports a breach of the policy: %s", _shown(body))
        return Response(status_code=204)

    async def show(self, _: Request) -> Response:
        return JSONResponse({"reports": self.count})


def _check_from_outside(request: Request) -> None:
    if "origin" in request.headers or "sec-fetch-site" in request.headers:
        raise _foreign("a browser has sent it")
    if bearer(request) is None:
        raise Refusal(
            401,
            Code.UNAUTHENTICATED,
            "the request carries no access token",
            resolution="send one as Authorization: Bearer oxa_…; the console is at [serve] listen",
        )


def _shown(body: bytes) -> str:
    """What a report says, without what an address may hold."""
    try:
        report = bounded_json(body, VALUES_MAX)["csp-report"]
        named = ("effective-directive", "violated-directive", "blocked-uri", "source-file")
        told = {name: str(report[name])[:200] for name in named if name in report}
    except (ValueError, KeyError, TypeError):
        return "(not readable)"
    return json.dumps({name: re.split("[?#]", value)[0] for name, value in told.items()})


def _foreign(details: str) -> Refusal:
    return Refusal(
        403,
        Code.PERMISSION_DENIED,
        "the request comes from a page of another site",
        details=details,
        resolution="use the console at this server's own address",
    )
