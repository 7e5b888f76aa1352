"""Logins as egress keeps them: renewed once for all who wait, and told to the runner."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from wire.egress.loopback import LASTS_S
from wire.v1.egress_pb2 import EgressEvent, EgressLogin

from egress.admission.record import Caller
from egress.outbound.upstreams import Upstream, Upstreams
from egress.proxy.logins import EARLY_S, Logins
from egress.refusals import Refused
from tests.support.egress.origins import origin

AGENT = Caller("agent")


@dataclass
class World:
    """An authorization server that answers with `answer`, and what was asked of and told by
    egress."""

    logins: Any = None
    url: str = ""
    status: int = 200
    answer: dict[str, Any] = field(
        default_factory=lambda: {"access_token": "new", "token_type": "Bearer", "expires_in": 600}
    )
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    told: list[EgressEvent] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def upstream(self, lasts_s: int, **login: Any) -> Upstream:
        """The server as a configuration brings it, with a login that ends in so many seconds."""
        whole: dict[str, Any] = {
            "id": "a",
            "access_token": "old",
            "refresh_token": "r1",
            "token_url": self.url,
        }
        whole |= {"expires_at": int(time.time()) + lasts_s, "client_id": "ours", **login}
        return Upstream("mcp-docs", "http://127.0.0.1/mcp", {}, login=EgressLogin(**whole))

    def token(self, upstream: Upstream) -> str:
        return str(self.logins.applied(upstream).headers["Authorization"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.may_answer.set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        made.asked.append(parse_qs((await request.read()).decode()))
        made.proofs.append(request.headers.get("authorization", ""))
        await made.may_answer.wait()
        return web.json_response(made.answer, status=made.status)

    async with aiohttp.ClientSession(auto_decompress=False) as client, origin(handle=handle) as at:
        made.url = f"http://127.0.0.1:{at.port}/token"

        @asynccontextmanager
        async def clients(*_: object, **__: object) -> AsyncIterator[aiohttp.ClientSession]:
            yield client

        configuration = SimpleNamespace(
            upstreams=Upstreams([Upstream("mcp-docs.login", made.url, {})]),
            contexts={"mcp-docs.login": True},
            outside=SimpleNamespace(client=clients),
        )

        async def admit(*_: object, upstream: Upstream) -> Any:
            assert upstream.name == "mcp-docs.login"
            entry = SimpleNamespace(status=0)
            return SimpleNamespace(configuration=configuration, entry=entry, lasting=nullcontext)

        async def end(_: object, outcome: str) -> None:
            made.ends.append(outcome)

        state = SimpleNamespace(current=configuration)
        made.logins = Logins(
            SimpleNamespace(state=state, tell=made.told.append, admit=admit, end=end)  # type: ignore[arg-type]
        )
        yield made


async def test_it_is_renewed_once_for_all_who_wait_and_told(world: World) -> None:
    world.answer["refresh_token"] = "r2"
    upstream = world.upstream(EARLY_S - 5, resource="https://here", access_token="old")
    await asyncio.gather(*(world.logins.renew(upstream, AGENT) for _ in range(5)))
    (asked,) = world.asked
    assert asked == {
        "grant_type": ["refresh_token"],
        "refresh_token": ["r1"],
        "client_id": ["ours"],
        "resource": ["https://here"],
    }
    (told,) = world.told
    assert (told.renewed.upstream, told.renewed.login.renewals) == ("mcp-docs", 1)
    assert (told.renewed.login.access_token, told.renewed.login.refresh_token) == ("new", "r2")
    assert world.token(upstream) == "Bearer new"
    await world.logins.renew(upstream, AGENT)
    assert len(world.asked) == 1
    assert world.ends == ["done"]


async def test_what_was_renewed_counts_more_than_an_older_configuration(world: World) -> None:
    await world.logins.renew(world.upstream(0), AGENT)
    assert world.token(world.upstream(0)) == "Bearer new"
    assert world.token(world.upstream(0, renewals=2, access_token="newer")) == "Bearer newer"
    assert world.token(world.upstream(0, id="b", access_token="another")) == "Bearer another"


async def test_one_that_lasts_is_left_alone(world: World) -> None:
    for upstream in (world.upstream(EARLY_S + 60), world.upstream(0, expires_at=0)):
        await world.logins.renew(upstream, AGENT)
        assert world.token(upstream) == "Bearer old"
    assert world.asked == []


async def test_an_answer_without_an_end_counts_for_an_hour(world: World) -> None:
    del world.answer["expires_in"]
    await world.logins.renew(world.upstream(0), AGENT)
    assert world.told[0].renewed.login.expires_at > time.time() + LASTS_S - 60
    assert world.told[0].renewed.login.refresh_token == "r1"


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (400, {"error": "invalid_grant"}, "cannot be renewed (400 invalid_grant)"),
        (503, {}, "cannot be renewed (503 None)"),
        (307, {}, "cannot be renewed (307 None)"),
        (200, {"access_token": "new"}, "cannot be renewed ('token_type')"),
        (200, {"token_type": "bearer"}, "cannot be renewed ('access_token')"),
        (200, {"token_type": "mac", "access_token": "new"}, "cannot be renewed (200 None)"),
        (200, {"token_type": "bearer", "access_token": 5}, "cannot be renewed"),
        (200, {"token_type": 1, "access_token": "new"}, "cannot be renewed"),
        (200, {"token_type": "bearer", "access_token": "a", "expires_in": float("inf")}, "cannot"),
        (200, {"token_type": "bearer", "access_token": "a\r\nX: b"}, "cannot be renewed"),
        (200, {"x": "x" * 70_000}, "its answer is too long"),
    ],
)
async def test_a_login_that_cannot_be_renewed_counts_until_its_end(
    world: World, status: int, answer: dict[str, Any], why: str
) -> None:
    world.status, world.answer = status, answer
    await world.logins.renew(still := world.upstream(EARLY_S - 5), AGENT)
    assert world.token(still) == "Bearer old"
    with pytest.raises(Refused) as refused:
        await world.logins.renew(world.upstream(-1), AGENT)
    assert why in refused.value.why
    assert refused.value.why.startswith("the login at docs cannot")
    assert refused.value.why.endswith(": runner tools login docs")
    assert world.told == []


async def test_one_without_a_refresh_token_ends(world: World) -> None:
    with pytest.raises(Refused, match="the login at docs has ended: runner tools login docs"):
        await world.logins.renew(world.upstream(-1, refresh_token=""), AGENT)


async def test_a_client_that_leaves_does_not_lose_the_new_token(world: World) -> None:
    world.may_answer.clear()
    upstream = world.upstream(0)
    waiting = asyncio.create_task(world.logins.renew(upstream, AGENT))
    while not world.asked:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    world.may_answer.set()
    await world.logins.renew(upstream, AGENT)
    assert len(world.told) == len(world.asked) == 1
    assert world.token(upstream) == "Bearer new"


async def test_a_client_with_a_secret_proves_itself_as_it_was_registered(world: World) -> None:
    secret = {"client_secret": "s:/", "auth_method": "client_secret_basic"}
    await world.logins.renew(world.upstream(0, **secret), AGENT)
    assert world.proofs == [aiohttp.encode_basic_auth("ours", "s%3A%2F")]
    secret["auth_method"] = "client_secret_post"
    await world.logins.renew(world.upstream(0, id="b", **secret), AGENT)
    assert world.asked[1]["client_secret"] == ["s:/"]


def test_the_agent_does_not_reach_where_logins_are_renewed() -> None:
    upstreams = Upstreams([Upstream("mcp-docs.login", "https://as.example/token", {})])
    assert upstreams.find("/mcp-docs.login/x") is None
