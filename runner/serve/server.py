"""`runner serve`: one HTTP server for all users of a `workspace_root`.

At `/mcp` it speaks the Model Context Protocol over streamable HTTP, for whoever is let in. There,
every request stands for itself: there are no sessions to keep or to take over.
"""

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from wire import locks
from wire.disk import store
from wire.egress import hosts
from wire.errors import Code, WireError
from wire.settings import ServeSettings

from runner.access.callers import Callers
from runner.access.exchange import read_object, whole
from runner.access.sockets import (
    check_settings,
    clear_socket,
    is_local,
    open_to_group,
    own_identity,
    read_pem,
)
from runner.access.tokens import Tokens
from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.errors import HostError
from runner.host.authority import names_in
from runner.mcp.server import Context, build
from runner.openai.routes import OpenAI
from runner.serve.app import addresses_of, application
from runner.serve.bridge import Bridge, Files
from runner.serve.connections import Crowd, Listener, raise_descriptors
from runner.serve.login.authenticator import BY_ACCESS, BY_SOCKET, Authenticator
from runner.serve.login.links import Links
from runner.serve.login.sessions import Sessions
from runner.serve.operator.host import Commands, HostApi
from runner.serve.operator.record import OperatorRecord
from runner.serve.operator.samples import Samples
from runner.serve.push.sending import Push
from runner.serve.push.subscriptions import Subscriptions
from runner.serve.safety import Safety
from runner.workspace.directories import descriptor

_BODY_BYTES: Final = 4 * 1024 * 1024


class Mcp:
    """Answers MCP clients while it is entered."""

    def __init__(self, authenticator: Authenticator, callers: Callers) -> None:
        self._authenticator = authenticator
        self._callers = callers
        self._sessions = StreamableHTTPSessionManager(build(self._agent), stateless=True)
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.routes = [Route("/mcp", self)]

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        if self._running is not None:
            await self._running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request.state.caller = self._authenticator.caller(request)
        if request.method != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        async with self._callers.large(request.state.caller):
            body = await whole(request, _BODY_BYTES)
            await asyncio.to_thread(read_object, request, body)
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def read() -> Message:
            return unread.pop() if unread else await receive()

        await self._sessions.handle_request(scope, read, send)

    def _agent(self, context: Context) -> GatewayClient:
        assert isinstance(context.request, Request)
        caller = context.request.state.caller
        return GatewayClient(self._callers.agent(caller), caller.channel)

    async def _run(self) -> None:
        """In a task of its own, because the SDK's task group is left where it was entered."""
        async with self._sessions.run():
            self._ready.set()
            await self._ended.wait()


log = logging.getLogger(__name__)

_HOUR_S: Final = 3600.0
_END_S: Final = 2
_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_LOOPBACKS: Final = {"127.0.0.1": (socket.AF_INET6, "::1"), "::1": (socket.AF_INET, "127.0.0.1")}
_BACKLOG: Final = 4_096
_ENDS: Final = WireError(
    Code.UNAVAILABLE, "the server ends", resolution="try again once it serves again: runner serve"
)


@dataclass(frozen=True)
class _Place:
    """Where the server listens.

    Attributes:
        section: What names it in the configuration.
        listening: What connections are accepted by.
        tls: Certificate and key; None: in clear.
        mark: What the scope of its requests says of it; empty: nothing.
        one_person: Whether an address of another machine is one person's.
    """

    section: str
    listening: socket.socket
    tls: tuple[Path, Path] | None = None
    mark: str = ""
    one_person: bool = True


class HttpServer:
    """Listens where `[serve]` and `[access]` say. An async context manager.

    Entering it raises `WireError` if it cannot listen there; then nothing is left behind.
    """

    def __init__(self, config: Config, commands: Commands) -> None:
        self._config = config
        self._commands = commands
        self._settings = config.serve
        self._links = Links.locate(config)
        self._stack = AsyncExitStack()
        self.urls: list[str] = []

    @property
    def url(self) -> str:
        """What browsers call it by."""
        return self._settings.url or next(iter(self.urls), "")

    @property
    def lets_in(self) -> list[str]:
        """Where people with access files are let in, in words of the configuration."""
        access = self._config.access
        return [str(each) for each in (access.socket, access.listen) if each]

    async def __aenter__(self) -> Self:
        check_settings(self._settings, self._config.access)
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        self._links.prepare()
        stack.enter_context(_alone(self._links))
        callers = await stack.enter_async_context(Callers.locate(self._config))
        callers.tokens.prepare()
        sessions = Sessions(
            self._links.sessions,
            callers.with_key,
            settings.idle_hours * _HOUR_S,
            settings.session_hours * _HOUR_S,
        )
        authenticator = Authenticator(
            self._config, callers, sessions, self._links, self._commands.program
        )
        places = list(self._places(stack, callers.tokens))
        origins = origins_of(
            settings, places[0].listening.getsockname()[1] if settings.listen else 0
        )
        self.urls = list(origins.values())
        samples = Samples(self._config)
        crowd = Crowd(raise_descriptors())
        sampling = asyncio.create_task(samples.watch())
        stack.callback(sampling.cancel)
        mcp = await stack.enter_async_context(Mcp(authenticator, callers))
        record = await stack.enter_async_context(
            OperatorRecord.opened(self._links.directory, self._config.audit.keep_days)
        )
        push = await stack.enter_async_context(
            Push(authenticator, callers, Subscriptions(self._config.workspace_root), self.url)
        )
        addresses = addresses_of(self.urls)
        openai = OpenAI(callers, authenticator.with_token, settings.openai)
        operator = HostApi(
            self._config,
            authenticator,
            callers.tokens,
            self._links,
            addresses,
            record,
            samples,
            self._commands,
        )
        faces = (
            *authenticator.routes,
            *Files(authenticator, callers).routes,
            *Safety(self._config, authenticator, callers, self._commands).routes,
            *push.routes,
            *Bridge(authenticator, callers).routes,
            Mount("/v1", routes=openai.routes),
            *operator.routes,
            *mcp.routes,
        )
        app = application(faces, origins)
        if address := self._config.telemetry.prometheus:
            from runner.serve.metrics import HttpMetrics  # imports prometheus_client

            metrics = HttpMetrics()
            app = metrics.counting(app)
            metrics_place = _Place("telemetry", stack.enter_context(_tcp(address)))
            await _serve(
                stack, metrics.page(self._config, authenticator.with_token), metrics_place, crowd
            )
        for each in places:
            await _serve(stack, _marked(app, each.mark) if each.mark else app, each, crowd)
        stack.callback(callers.end_calls, _ENDS)  # first, so that streams end with a reason
        found_at = self._links.directory / "address.json"
        store(found_at, json.dumps({"url": self.url, "pid": os.getpid()}))
        stack.callback(found_at.unlink, missing_ok=True)
        log.info("the console is at %s", self.url or settings.socket or "no address")
        if self.lets_in:
            log.info("people with access files are let in at %s", " and ".join(self.lets_in))

    def _places(self, stack: AsyncExitStack, tokens: Tokens) -> Iterator["_Place"]:
        """Listen at all addresses; that of browsers is the first one."""
        for section, settings, mark in (
            ("serve", self._config.serve, BY_SOCKET),
            ("access", self._config.access, BY_ACCESS),
        ):
            if not (settings.listen or settings.socket):
                continue
            outside = section == "access"
            tls = None
            if settings.certificate is not None and settings.key is not None:
                tls = settings.certificate, settings.key
            elif outside:
                tls = (own_identity(tokens),) * 2
            if settings.listen:
                one_person = outside or not (self._settings.url or self._settings.user_header)
                listening = stack.enter_context(_tcp(settings.listen))
                yield _Place(section, listening, tls, mark if outside else "", one_person)
            if settings.socket is not None:
                listening = stack.enter_context(
                    _unix(section, settings.socket, settings.socket_group)
                )
                stack.callback(settings.socket.unlink, missing_ok=True)
                yield _Place(section, listening, tls if outside else None, mark)


def origins_of(settings: ServeSettings, port: int) -> dict[str, str]:
    """Each Host that the server is called by, and what browsers then name it as. Those of the
    address where it listens come first."""
    found: dict[str, str] = {}
    if settings.listen:
        scheme, usual = ("http", 80) if settings.certificate is None else ("https", 443)
        host = settings.listen.rpartition(":")[0].lower()
        names = [*([] if _is_any(host) else [host]), *settings.hosts]
        if settings.certificate is not None:
            names += names_in(read_pem("serve", "certificate", settings.certificate))
        if is_local(host) or _is_any(host):
            names += _LOCAL_NAMES
        for name in names:
            found[f"{name}:{port}"] = f"{scheme}://{name}:{port}"
            if port == usual:
                found[name] = f"{scheme}://{name}"
    if settings.url:
        found[settings.url.partition("://")[2]] = settings.url
    if settings.socket is not None and not settings.url:
        for name in (*settings.hosts, "localhost"):
            found.setdefault(name, f"http://{name}")
    return found


def _is_any(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    return False


@contextmanager
def _alone(links: Links) -> Iterator[None]:
    """Hold the lock of the one server. Raises `HostError` (ALREADY_EXISTS)."""
    path = links.directory / "serving"
    with descriptor(path, os.O_RDWR | os.O_CREAT) as lock:
        if not locks.take(lock):
            raise HostError(
                Code.ALREADY_EXISTS,
                "an HTTP server runs already for these users",
                details=f"{path} is held by another process",
                resolution="runner serve --open shows a link to it",
            )
        yield


@contextmanager
def _tcp(listen: str) -> Iterator[socket.socket]:
    host, _, port = listen.rpartition(":")
    with ExitStack() as stack:
        try:
            (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
                host.strip("[]"), int(port), type=socket.SOCK_STREAM
            )
            made = stack.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            _keep_localhost(made, stack)
            made.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            raise HostError(
                Code.UNAVAILABLE,
                f"cannot listen on {listen}",
                details=str(error),
                resolution="name another address in runner.toml ([serve] listen, [access] listen, "
                "or [telemetry] prometheus), or end the program that is there",
            ) from None
        yield made


def _keep_localhost(made: socket.socket, stack: ExitStack) -> None:
    """Keep others from this port at the other address that `localhost` leads to: a page from there
    reads what browsers keep for that name. Raises `OSError` if somebody is there."""
    here, port, *_ = made.getsockname()
    if here in _LOOPBACKS:
        family, there = _LOOPBACKS[here]
        try:
            stack.enter_context(socket.socket(family)).bind((there, port))
        except OSError as error:  # without IPv6 nobody is there
            if error.errno == errno.EADDRINUSE:
                said = f"{hosts.shown(there, port)}, where localhost leads too, is in use"
                raise OSError(said) from None


@contextmanager
def _unix(section: str, path: Path, group: str) -> Iterator[socket.socket]:
    clear_socket(section, path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        try:
            made.bind(os.fspath(path))
        except OSError as error:
            raise HostError(
                Code.UNAVAILABLE,
                f"cannot listen on {path}",
                details=str(error),
                resolution=f"correct [{section}] socket in runner.toml",
            ) from None
        open_to_group(section, path, group)
        made.listen(_BACKLOG)
        yield made


def _marked(app: ASGIApp, mark: str) -> ASGIApp:
    """`app`, which knows by the `mark` where its requests came in."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, mark: True}, receive, send)

    return marked


async def _serve(
    stack: AsyncExitStack,
    app: ASGIApp,
    place: _Place,
    crowd: Crowd,
) -> None:
    certificate, key = place.tls or (None, None)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_END_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    server = Listener(config, crowd, one_person=place.one_person)
    running = asyncio.create_task(server.serve(sockets=[place.listening]))

    async def end() -> None:
        server.should_exit = True
        await asyncio.wait({running})

    stack.push_async_callback(end)
    await server.listens.wait()
