"""Who makes a request: by an access token, a session's cookie, or what a trusted proxy says."""

import ipaddress
import logging
from functools import partial
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from wire.errors import Code, WireError
from wire.settings import ServeSettings

from runner.access.callers import Caller, Callers
from runner.access.exchange import Refusal, bearer, json_object
from runner.access.scopes import Scope
from runner.access.tokens import digest
from runner.config.models import Config
from runner.config.users import known_users
from runner.serve.connections import place_of
from runner.serve.login.links import CHANNEL, Links, not_known
from runner.serve.login.sessions import Sessions

log = logging.getLogger(__name__)

HEADER: Final = "x-oxydra"
"""What only a page of this server can send: the page's secret of its session."""
BY_SOCKET: Final = "oxydra.by_socket"
"""How the listener at `[serve] socket` marks what it has accepted, in the scope of a request."""
BY_ACCESS: Final = "oxydra.by_access"
"""How the listeners of `[access]` mark what they have accepted, in the scope of a request."""
_PROXY: Final = "proxy "
_NOBODY: Final = partial(
    WireError,
    Code.UNAUTHENTICATED,
    "nobody is logged in",
    resolution="open the link that this shows: runner serve --open; or log in with an access token",
)


class Authenticator:
    """Finds out who makes a request; begins and ends sessions. `program`: see `Commands`."""

    def __init__(
        self, config: Config, callers: Callers, sessions: Sessions, links: Links, program: str
    ) -> None:
        self._config = config
        self._program = program
        self._callers = callers
        self._sessions = sessions
        self._links = links
        self.routes = [
            Route("/api/login", self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route("/api/me", self._me, methods=["GET"]),
        ]

    def caller(self, request: Request) -> Caller:
        """Who makes `request`. Raises `WireError`: UNAUTHENTICATED if nobody is let in by it,
        RESOURCE_EXHAUSTED if too many of their requests are under way."""
        return _admitted(request, self._caller(request))

    def _caller(self, request: Request) -> Caller:
        if bearer(request) is not None:
            return self._callers.with_token(bearer(request) or "", address(request))
        if (user_id := self._said_by_proxy(request)) is not None:
            return self.of_login(f"{_PROXY}{user_id}")
        if not _secrets(request)[0]:
            raise _NOBODY()
        return self._sessions.find(*_secrets(request))

    def login_of(self, request: Request) -> str:
        """Names the browser's login, for `of_login`; that of an access token has ended already."""
        if (user_id := self._said_by_proxy(request)) is not None:
            return f"{_PROXY}{user_id}"
        return digest("" if bearer(request) is not None else _secrets(request)[0])

    def of_login(self, login: str) -> Caller:
        """Who has the login; see `login_of`. Raises UNAUTHENTICATED once it has ended."""
        if not login.startswith(_PROXY):
            return self._sessions.named(login)
        user_id = login.removeprefix(_PROXY)
        if not self._config.serve.user_header or user_id not in known_users(self._config):
            raise _NOBODY()
        return Caller(user_id, frozenset(Scope), CHANNEL, key=login)

    def with_token(self, request: Request) -> Caller:
        """Who makes `request`, by its access token and by nothing else. Raises as `caller` does."""
        caller = self._callers.with_token(bearer(request) or "", address(request))
        return _admitted(request, caller)

    async def _login(self, request: Request) -> Response:
        asked = await json_object(request)
        link, token = asked.get("link"), asked.get("token")
        if isinstance(link, str) and link and token is None:
            caller = self._by_link(link, address(request))
        elif isinstance(token, str) and token and link is None:
            caller = self._callers.with_token(token.strip(), address(request))
        else:
            raise Refusal(
                400, Code.INVALID_ARGUMENT, "a login has either a link or a token, as a string"
            )
        self._sessions.end(*_secrets(request))
        cookie, page = self._sessions.begin(caller)
        self._keep(request, cookie)
        return JSONResponse({**self._who(caller), "page": page})

    def _by_link(self, secret: str, where: str) -> Caller:
        link = self._links.take(secret)
        if link is None or not (link.operator or link.user_id in known_users(self._config)):
            raise self._callers.refuse(where, not_known())
        if link.operator:
            return Caller.at_terminal(link.user_id, CHANNEL)
        log.info("%s is let in by a link, from %s", link.user_id, where)
        return self._callers.invited(link.user_id)

    async def _logout(self, request: Request) -> Response:
        asked = await json_object(request)
        self._sessions.end(*_secrets(request), everywhere=asked.get("everywhere") is True)
        self._keep(request, "")
        return JSONResponse({})

    async def _me(self, request: Request) -> Response:
        return JSONResponse(self._who(self.caller(request)))

    def _who(self, caller: Caller) -> dict[str, Any]:
        users = {*known_users(self._config), caller.user_id} if caller.operator else ()
        return {
            "user_id": caller.user_id,
            "users": sorted(users) or [caller.user_id],
            "scopes": sorted(caller.scopes),
            "operator": caller.operator,
            "version": version("oxydra"),
            "program": self._program if caller.operator else "",
        }

    def _said_by_proxy(self, request: Request) -> str | None:
        """The user that a trusted proxy names. Raises `Refusal` where somebody else does."""
        settings = self._config.serve
        named = request.headers.getlist(settings.user_header) if settings.user_header else []
        if not named:
            return None
        if not _is_proxy(settings, request) or len(named) != 1:
            raise Refusal(
                403,
                Code.PERMISSION_DENIED,
                f"the header {settings.user_header} is accepted only from [serve] user_header_from",
                details=f"[serve] user_header_from is {settings.user_header_from}",
                resolution="log in without that header",
            )
        if named[0] not in known_users(self._config):
            raise Refusal(
                403,
                Code.PERMISSION_DENIED,
                "the proxy names an unknown user",
                resolution="ask the person who runs this host",
            )
        return named[0]

    def _keep(self, request: Request, secret: str) -> None:
        """Let the answer set the cookie, or (empty) remove it."""
        attributes = [
            f"{cookie_name(request)}={secret}",
            "Path=/",
            "HttpOnly",
            "SameSite=Strict",
            f"Max-Age={int(self._sessions.lifetime_s) if secret else 0}",
        ]
        if is_secure(request):
            attributes.append("Secure")
        request.state.set_cookie = "; ".join(attributes)


def address(request: Request) -> str:
    """Where a request comes from, for logs and counts."""
    if by_socket(request):
        return "the socket"
    return place_of(request.client.host) if request.client else "a socket"


def _admitted(request: Request, caller: Caller) -> Caller:
    if (connection := getattr(request.state, "connection", None)) is not None:
        connection.admit(caller.key)
    return caller


def by_socket(request: Request) -> bool:
    """Whether the listener at `[serve] socket` has accepted the connection. That a connection has
    no address says nothing: one that was reset has none any more."""
    return request.scope.get(BY_SOCKET) is True


def is_secure(request: Request) -> bool:
    """Whether the browser reached the server, or the proxy before it, by TLS."""
    return str(request.state.origin).startswith("https://")


def cookie_name(request: Request) -> str:
    """Cookies are for all ports of a host: another server there must not take ours for its own."""
    name = f"oxydra-{urlsplit(str(request.state.origin)).port or 'usual'}"
    return f"__Host-{name}" if is_secure(request) else name


def _secrets(request: Request) -> tuple[str, str]:
    """Both secrets of a session, as a page sends them."""
    return request.cookies.get(cookie_name(request), ""), request.headers.get(HEADER, "")


def _is_proxy(settings: ServeSettings, request: Request) -> bool:
    if settings.user_header_from == "socket" or request.client is None:
        return by_socket(request) and settings.user_header_from == "socket"
    try:
        there = ipaddress.ip_address(settings.user_header_from)
        return ipaddress.ip_address(request.client.host) == there
    except ValueError:
        return False
