"""The HTTP server before real agents of two users, whose model is a test's."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from pydantic_ai.models import Model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from runner.access.callers import Caller, Callers
from runner.access.exchange import bearer
from runner.access.scopes import Scope
from runner.access.tokens import Tokens
from runner.config.models import Config
from runner.openai.routes import OpenAI
from runner.serve.server import HttpServer
from tests.support.gateway.front import USERS, FakeHost
from tests.support.gateway.gateways import Client, open_gateways
from tests.support.gateway.http_front import looking, served

_DAY = timedelta(days=1)


@dataclass
class HttpAgents:
    """What a test has of them."""

    server: HttpServer
    config: Config
    agents: dict[str, Client]
    tokens: Tokens

    @property
    def alice(self) -> Client:
        return self.agents["alice"]

    @asynccontextmanager
    async def another_server(self) -> AsyncIterator[httpx.AsyncClient]:
        """A server that knows nothing of what the first one was asked."""
        async with Callers.locate(self.config) as callers:

            def caller(request: Request) -> Caller:
                return callers.with_token(bearer(request) or "", "a test")

            openai = OpenAI(callers, caller, self.config.serve.openai)
            app = Starlette(routes=[Mount("/v1", routes=openai.routes)])
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
                yield http

    def token(self, user_id: str = "alice", name: str = "laptop", *scopes: Scope) -> str:
        """A new access token; of all scopes where none is named."""
        return self.tokens.create(user_id, name, frozenset(scopes or Scope), _DAY)[1]


@asynccontextmanager
async def open_http_agents(model: Model | None, /, **settings: Any) -> AsyncIterator[HttpAgents]:
    """Agents of alice and bob; `settings` are those of `open_gateways`."""
    async with AsyncExitStack() as stack:
        gateways = await stack.enter_async_context(open_gateways(with_model=model, **settings))
        root = gateways.path / "w"
        root.mkdir(mode=0o700)
        config = served(Config(workspace_root=root, runtime_dir=gateways.path / "r"))
        agents = {}
        for user_id in USERS:
            agents[user_id] = await gateways.serve(user_id)
            host = FakeHost(config, user_id, agents[user_id])
            await host.start()
            stack.push_async_callback(host.stop)
        server = await stack.enter_async_context(HttpServer(config, looking(config)))
        yield HttpAgents(server, config, agents, Tokens.locate(config))
