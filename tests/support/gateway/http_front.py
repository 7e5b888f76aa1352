"""The HTTP server before fake agents, and browsers of it."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx

from runner.config.loading import LoadedSettings
from runner.config.models import Config
from runner.serve.login.links import Links
from runner.serve.operator.host import Commands, HostApi
from runner.serve.operator.settings import SettingsFile
from runner.serve.server import HttpServer
from tests.support.gateway.front import Front

_NOTHING: Any = MagicMock()
METHODS = HostApi(*[_NOTHING] * 8).methods
"""Those of the host's API, by their names."""
PAGE = {"X-Oxydra": "1"}
"""What a page of the server sends."""


def served(config: Config, **settings: Any) -> Config:
    """`config` with other settings of `[serve]`."""
    serve = config.serve.model_copy(update={"listen": "127.0.0.1:0", **settings})
    return config.model_copy(update={"serve": serve})


def looking(config: Config) -> Commands:
    """What a server does that starts nobody and changes nothing."""
    nobody = MagicMock(side_effect=AssertionError("nobody starts or changes anything here"))
    file = SettingsFile(lambda: LoadedSettings(config, None, {}), nobody)
    return Commands(lambda: config, nobody, file, "/home/olga/bin/runner")


@asynccontextmanager
async def open_http(
    front: Front, commands: Commands | None = None, /, **settings: Any
) -> AsyncIterator[HttpServer]:
    """The HTTP server for the users of `front`, at a free port."""
    config = served(front.config, **settings)
    async with HttpServer(config, commands or looking(config)) as server:
        yield server


@dataclass
class Beside:
    """A server for a `workspace_root` of its own, in which alice has a workspace and no agent."""

    root: Path
    server: HttpServer


@asynccontextmanager
async def open_beside(front: Front, **settings: Any) -> AsyncIterator[Beside]:
    """Another server beside that for the users of `front`, for other settings."""
    root = Path(tempfile.mkdtemp(dir=front.directory))
    (root / "alice").mkdir(mode=0o700)
    config = front.config.model_copy(update={"workspace_root": root})
    async with open_http(replace(front, config=config), **settings) as server:
        yield Beside(root, server)


@asynccontextmanager
async def page(server: HttpServer, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A page of the server in a browser of its own, which keeps its half of a login."""

    async def keep(reply: httpx.Response) -> None:
        if reply.url.path == "/api/login" and reply.status_code == 200:
            client.headers["X-Oxydra"] = json.loads(await reply.aread())["page"]

    async with httpx.AsyncClient(
        base_url=server.url, headers=PAGE, timeout=60, event_hooks={"response": [keep]}, **options
    ) as client:
        yield client


@asynccontextmanager
async def operator(
    front: Front, server: HttpServer, user_id: str = "alice", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A page in which the operator is logged in, and began with this user."""
    async with page(server, **options) as client:
        reply = await client.post(
            "/api/login", json={"link": Links.locate(front.config).make(user_id)}
        )
        assert reply.status_code == 200, reply.text
        yield client


async def ask(client: httpx.AsyncClient, method: str, **asked: Any) -> Any:
    """What the host's API answers the operator."""
    reply = await client.post(f"/api/host/{method}", json=asked)
    assert reply.status_code == 200, reply.text
    return reply.json()
