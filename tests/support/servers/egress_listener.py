"""A listener of the agent's that plays a part, for tests of what stands on the inner side of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from wire.identity import Party, Peer
from wire.tls import server_context

from guest.egress_client import EgressClient
from tests.support import parties
from tests.support.settings import EGRESS_TOKEN as TOKEN

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def egress_at(path: Path) -> EgressClient:
    """The listener at a socket, as an agent knows it."""
    return EgressClient(Peer(f"unix:{path}", Party.EGRESS, TOKEN, parties.identity(Party.AGENT)))


@asynccontextmanager
async def served(path: Path, handler: Handler) -> AsyncIterator[EgressClient]:
    """A listener whose requests `handler` answers."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.UnixSite(runner, path, ssl_context=server_context(parties.identity(Party.EGRESS)))
    await site.start()
    listener = egress_at(path)
    try:
        yield listener
    finally:
        await listener.close()
        await runner.cleanup()


async def hanging(_: web.BaseRequest) -> web.StreamResponse:
    """Never answers."""
    await asyncio.Event().wait()
    raise AssertionError


def refusing(status: int, kind: str, why: str) -> Handler:
    """Lets nothing out."""

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, text=why, headers={"oxydra-refused": kind})

    return handler


def forwarding(upstreams: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Handler:
    """Lets out what is for `upstreams`, addresses by name, with `headers` put in."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        name = request.raw_path.split("/")[1]
        assert request.headers["oxydra-token"] == TOKEN
        sent = {
            key: value
            for key, value in request.headers.items()
            if key.lower() not in ("host", "authorization") and not key.startswith("oxydra-")
        }
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method,
                upstreams[name] + request.raw_path.removeprefix(f"/{name}"),
                data=await request.read(),
                headers={**sent, **(headers or {})},
                allow_redirects=False,
            ) as answer,
        ):
            hop = ("transfer-encoding", "connection", "content-length")
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in hop}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    return handler
