"""Logins at MCP servers: their tokens are put into requests here, and renewed when they end.

A configuration brings a login as the runner knows it. What was renewed since counts more: the
refresh token from before opens nothing any more.
"""

import asyncio
import re
import time
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from wire.egress.loopback import LASTS_S, LOGIN
from wire.egress.policy import Attempt, Scheme
from wire.text import bounded_json, visible_name
from wire.v1.egress_pb2 import EgressEvent, EgressLogin, EgressRenewed
from yarl import URL

from egress.admission.admission import Admission
from egress.admission.record import Caller
from egress.outbound.upstreams import Upstream
from egress.refusals import Refused

EARLY_S: Final = 30
"""How long before its end a token is renewed."""
_RENEW_S: Final = 30.0
_ANSWER_MAX: Final = 64 * 1024
_TOKEN: Final = re.compile("[!-~]+")
_UNUSABLE: Final = (KeyError, TypeError, ValueError, OverflowError)
"""What an answer of other types than OAuth's raises."""


class Logins:
    """All logins, by the names of their upstreams, whatever configuration counts."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._renewed: dict[str, EgressLogin] = {}
        self._renewing: dict[str, asyncio.Task[str]] = {}

    async def renew(self, upstream: Upstream, caller: Caller) -> None:
        """Renew the login at `upstream`, if it has one that ends soon, once for all who wait.
        Raises `Refused` if it has ended."""
        login, why = self._latest(upstream), "has ended"
        if login is None or not _ends_within(login, EARLY_S):
            return
        if login.refresh_token:
            task = self._renewing.get(login.id)
            if task is None or task.done():
                task = asyncio.create_task(self._renew(login, upstream, caller))
                self._renewing[login.id] = task
            why = await asyncio.shield(task)  # who asked may leave; its token must not be lost
        if why and _ends_within(login, 0):
            name = upstream.name.removeprefix("mcp-")
            raise Refused(403, "missing", f"the login at {name} {why}: runner tools login {name}")

    def applied(self, upstream: Upstream) -> Upstream:
        """`upstream` with the token of its login among the headers that are put in."""
        if (login := self._latest(upstream)) is None:
            return upstream
        token = {"Authorization": f"Bearer {login.access_token}"}
        return replace(upstream, headers={**upstream.headers, **token})

    def _latest(self, upstream: Upstream) -> EgressLogin | None:
        if (given := upstream.login) is None:
            return None
        held = self._renewed.get(upstream.name, given)
        return held if held.id == given.id and held.renewals >= given.renewals else given

    async def _renew(self, login: EgressLogin, upstream: Upstream, by: Caller) -> str:
        """Renew it and tell the runner. Returns why that was not possible; empty if it was."""
        try:
            status, answer = await self._asked(login, upstream, by)
            if status != 200 or str(answer["token_type"]).lower() != "bearer":
                return f"cannot be renewed ({status} {visible_name(str(answer.get('error'))[:40])})"
            if not _TOKEN.fullmatch(answer["access_token"]):
                return "cannot be renewed (its token fits into no header)"
            renewed = EgressLogin()
            renewed.CopyFrom(login)
            renewed.renewals += 1
            renewed.access_token = answer["access_token"]
            renewed.refresh_token = answer.get("refresh_token") or login.refresh_token
            renewed.expires_at = int(time.time()) + int(answer.get("expires_in") or LASTS_S)
        except (Refused, aiohttp.ClientError, OSError, *_UNUSABLE) as error:
            return f"cannot be renewed ({error or type(error).__name__})"
        told = EgressRenewed(upstream=upstream.name, login=renewed)
        self._admission.tell(EgressEvent(renewed=told))
        self._renewed[upstream.name] = renewed
        return ""

    async def _asked(
        self, login: EgressLogin, upstream: Upstream, by: Caller
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer of the authorization server."""
        endpoint = self._admission.state.current.upstreams.of_name(upstream.name + LOGIN)
        headers = endpoint.outgoing({"Accept": "application/json", "Accept-Encoding": "identity"})
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
        form |= {"client_id": login.client_id, "resource": login.resource}
        if login.client_secret and login.auth_method == "client_secret_basic":
            pair = (quote(each, safe="") for each in (login.client_id, login.client_secret))
            headers["Authorization"] = aiohttp.encode_basic_auth(*pair)
        elif login.client_secret:
            form["client_secret"] = login.client_secret
        url, body = URL(login.token_url, encoded=True), b""
        scheme: Scheme = "https" if url.scheme == "https" else "http"
        attempt = Attempt(scheme, url.host or "", url.port or 0, "POST", url.raw_path)
        passage = await self._admission.admit(by, attempt, upstream=endpoint)
        outside, context = passage.configuration.outside, passage.configuration.contexts
        rest: Any = {"headers": headers, "data": form, "ssl": context[endpoint.name]}
        try:
            async with (
                passage.lasting(),
                asyncio.timeout(_RENEW_S),
                outside.client(by.role, (), upstream=endpoint) as client,
                client.post(url, allow_redirects=False, **rest) as received,
            ):
                passage.entry.status = received.status
                async for piece in received.content.iter_any():
                    body += piece
                    if len(body) > _ANSWER_MAX:
                        raise ValueError("its answer is too long")
        finally:
            await self._admission.end(passage, "done" if body else "failed")
        return received.status, dict(bounded_json(body, 1_000))


def _ends_within(login: EgressLogin, seconds: int) -> bool:
    return 0 < login.expires_at < time.time() + seconds
