"""Sends notices to the push services of browsers.

    outbox ── FollowNotices, a surface for each ── encrypted for the browser ── its push service

A browser is told as long as its login lasts, while the user's agent runs; none is started for it.
"""

import asyncio
import base64
import json
import logging
import ssl
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx2
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from wire.disk import store
from wire.errors import Code, WireError
from wire.text import shortened

from runner.access.agents import NoAgent
from runner.access.callers import Callers
from runner.access.exchange import json_object
from runner.access.scopes import Scope, check_scopes
from runner.client.gateway import GatewayClient
from runner.egress.configuration import public_addresses
from runner.serve.login.authenticator import Authenticator
from runner.serve.push.subscriptions import (
    Subscription,
    Subscriptions,
    host_of,
    kept_at,
)

log = logging.getLogger(__name__)

TEXT_CHARS: Final = 300
"""A push service takes at most 4,096 bytes."""
PACE_S: Final = 1.0
"""How long after one notice the same browser is sent the next one."""
PAUSE_S: Final = 5.0
PAUSE_MAX_S: Final = 600.0
SEND_S: Final = 20.0
_KEPT_S: Final = 7 * 86_400
"""How long a push service keeps a notice for a browser that is not there."""
_SIGNED_S: Final = 12 * 3_600
_GONE: Final = frozenset({404, 410})
_OVER: Final = "This browser is told no more: its login has ended. Log in to the console again."


class PublicTransport(httpx2.AsyncHTTPTransport):
    """Connects to addresses that anybody may reach, and to no other."""

    def __init__(self) -> None:
        super().__init__(verify=ssl.create_default_context(), trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode()
        address, *_ = await public_addresses(host)
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)
        return await super().handle_async_request(request)


class Push:
    """Answers browsers, and tells them while it is entered. `url` is what browsers call the server
    by, of which push services are told."""

    def __init__(
        self, authenticator: Authenticator, callers: Callers, subscriptions: Subscriptions, url: str
    ) -> None:
        self._authenticator = authenticator
        self._callers = callers
        self._subscriptions = subscriptions
        host = urlsplit(url).hostname if url.startswith("https:") else "localhost"
        self._contact = f"https://{host}"
        self._http = httpx2.AsyncClient(transport=PublicTransport(), trust_env=False)
        self._telling: dict[Path, asyncio.Task[None]] = {}
        methods = ["POST", "PUT", "DELETE"]
        self.routes = [Route("/api/users/{user}/push", self._answer, methods=methods)]

    async def __aenter__(self) -> Self:
        for path in self._subscriptions.all():
            self._begin(path)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._telling.values():
            task.cancel()
        await asyncio.gather(*self._telling.values(), return_exceptions=True)
        await self._http.aclose()

    async def _answer(self, request: Request) -> Response:
        """PUT takes a browser's subscription, DELETE ends that at `endpoint`, POST looks it up.
        Answers with the host's public `key`, and whether the browser is `told`."""
        caller, user_id = self._authenticator.caller(request), request.path_params["user"]
        caller.check_user(user_id)
        check_scopes("this page", frozenset({Scope.CHAT}), caller.scopes)
        asked = await json_object(request)
        caller.check()
        path = self._subscriptions.path(user_id, str(asked.get("endpoint", "")))
        if request.method == "DELETE":
            self._subscriptions.end(path)
        if request.method == "PUT":
            await self._add(Subscription.of(user_id, self._authenticator.login_of(request), asked))
        return JSONResponse({"key": self._public_key, "told": kept_at(path) is not None})

    async def _add(self, made: Subscription) -> None:
        try:
            async with asyncio.timeout(SEND_S):
                await public_addresses(host_of(made.endpoint))
        except OSError as error:
            raise WireError(
                Code.INVALID_ARGUMENT,
                "nothing can be sent to the push service of this browser",
                details=str(error),
                resolution="ask the person who runs this host whether it has a way to the internet",
            ) from None
        path = self._subscriptions.path(made.user_id, made.endpoint)
        agent = self._agent(made, path)
        newest = (await agent.notices(1, unread=False)).notices
        if newest and kept_at(path) is None:  # what was before is not told
            await agent.mark_notices(_surface(path), newest[0].number)
        self._begin(self._subscriptions.add(made))
        for ended in [each for each in self._telling if kept_at(each) is None]:
            self._telling.pop(ended).cancel()

    def _agent(self, of: Subscription, path: Path) -> GatewayClient:
        """The user's agent, as the login of a browser may call it. Raises `WireError`."""
        caller = replace(self._authenticator.of_login(of.login), key=f"{path}")
        return GatewayClient(self._callers.agent(caller, of.user_id), caller.channel)

    def _begin(self, path: Path) -> None:
        if path not in self._telling or self._telling[path].done():
            self._telling[path] = asyncio.create_task(self._tell(path))

    async def _tell(self, path: Path) -> None:
        """Tell one browser, until it is told no more."""
        tries = 0
        while (found := kept_at(path)) is not None:
            try:
                agent = self._agent(found, path)
                async with aclosing(agent.follow_notices(_surface(path))) as notices:
                    async for notice in notices:
                        if (to := kept_at(path)) is None:
                            return
                        self._authenticator.of_login(to.login)
                        await self._send(to, path, notice.text, f"{to.user_id} {notice.number}")
                        tries = 0
                        await asyncio.sleep(PACE_S)
            except NoAgent:
                tries = 0
            except WireError as error:
                log.info("a browser of %s is not told right now: %s", found.user_id, error)
                tries += 1
                if error.code is Code.UNAUTHENTICATED:
                    self._subscriptions.end(path)
                    with suppress(WireError):
                        await self._send(found, path, _OVER, "over")
            except Exception:
                log.exception("unexpected failure of telling a browser of %s", found.user_id)
                tries += 1
            await asyncio.sleep(min(PAUSE_S * 2 ** min(tries, 10), PAUSE_MAX_S))

    async def _send(self, to: Subscription, path: Path, text: str, tag: str) -> None:
        """Send a browser what it alone can read; the same `tag` takes the place of what it shows
        with that. One that its push service does not know any more is told no more.

        Raises `WireError` (UNAVAILABLE) if it is not taken.
        """
        from pywebpush import WebPusher  # imports much, and most servers tell nobody

        keys = {"p256dh": to.p256dh, "auth": to.auth}
        said = {"title": f"Oxydra: {to.user_id}", "body": shortened(text, TEXT_CHARS), "tag": tag}
        pusher = WebPusher({"endpoint": to.endpoint, "keys": keys})
        body = pusher.encode(json.dumps(said, ensure_ascii=False).encode())["body"]
        host, expires = host_of(to.endpoint), int(time.time()) + _SIGNED_S
        claims = {"sub": self._contact, "aud": f"https://{host}", "exp": expires}
        headers = {
            "Content-Encoding": "aes128gcm",
            "TTL": str(_KEPT_S),
            "Urgency": "high",
            **self._key.sign(claims),
        }
        sending = self._http.stream("POST", to.endpoint, content=body, headers=headers)
        why = ""
        try:
            async with asyncio.timeout(SEND_S), sending as answer:
                if answer.status_code in _GONE:
                    self._subscriptions.end(path)
                elif not answer.is_success:
                    why = f"it answers {answer.status_code}"
        except (httpx2.HTTPError, OSError) as error:
            why = str(error) or type(error).__name__
        if why:
            raise WireError(Code.UNAVAILABLE, f"{host} does not take a notice", details=why)

    @cached_property
    def _key(self) -> Any:
        """The host's key, by which push services know it again: made once."""
        from pywebpush import Vapid

        path = self._subscriptions.key
        if not path.exists():
            made = Vapid()
            made.generate_keys()
            store(path, made.private_pem())
        return Vapid.from_pem(path.read_bytes())

    @property
    def _public_key(self) -> str:
        point = self._key.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return base64.urlsafe_b64encode(point).rstrip(b"=").decode()


def _surface(path: Path) -> str:
    """By what the outbox knows up to where a browser was told."""
    return f"push-{path.name[:32]}"
