"""What the agent asks of its provider, by the real program: as it is said, as long as it is wanted,
and again after the program was killed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from wire.identity import Party, Peer
from wire.settings import AgentSettings
from wire.v1 import egress_pb2 as pb

from guest.agent.models import errors
from guest.agent.models.providers import build_model
from guest.egress_client import NO_KEY, EgressClient, on_behalf_of
from tests.support import parties
from tests.support.egress.program import AGENT_TOKEN, Egress, running
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import OpenAIServer, Request, openai_server

KEY = "sk-0123456789abcdef0123"
GUARD_S = 30


@asynccontextmanager
async def opened(egress: Egress, server: OpenAIServer) -> AsyncIterator[EgressClient]:
    """The agent's client, with the server behind it."""
    headers = {"Authorization": f"Bearer {KEY}"}
    upstream = pb.EgressUpstream(name="openai", url=server.base_url, headers=headers)
    await egress.configure(upstreams=[upstream])
    identity = parties.identity(Party.AGENT)
    client = EgressClient(
        Peer(f"unix:{egress.agent_listener}", Party.EGRESS, AGENT_TOKEN, identity)
    )
    try:
        yield client
    finally:
        await client.close()


def agent(client: EgressClient) -> Agent[None, str]:
    settings = AgentSettings.model_construct(provider="openai", model="m", base_url="http://x/v1")
    return Agent(build_model(settings, NO_KEY, egress=client))


class Gated:
    """Says the words one by one; each waits until the one before it has arrived."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.arrived = asyncio.Semaphore(1)
        self.left = asyncio.Event()

    async def __call__(self, _: Request, writer: asyncio.StreamWriter) -> None:
        await provider.head(writer, "200 OK", "text/event-stream")
        for word in self.words:
            await self.arrived.acquire()
            delta = {"choices": [{"index": 0, "delta": {"content": word}}]}
            writer.write(provider_event(delta))
            await writer.drain()
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        writer.write(provider_event(last) + b"data: [DONE]\n\n")
        await writer.drain()


def provider_event(event: dict[str, Any]) -> bytes:
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **event}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


async def test_each_word_arrives_before_the_next_is_said(egress: Egress) -> None:
    said = Gated("one ", "two ", "three ", "four")
    got = []
    async with openai_server(said) as server, opened(egress, server) as client:
        async with asyncio.timeout(GUARD_S), agent(client).run_stream("count") as answer:
            async for piece in answer.stream_text(delta=True, debounce_by=None):
                got.append(piece)
                said.arrived.release()
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert got == ["one ", "two ", "three ", "four"]


async def test_its_session_and_turn_are_recorded(egress: Egress) -> None:
    async with openai_server(provider.says("hi")) as server, opened(egress, server) as client:
        with on_behalf_of("session-7", "turn-7"):
            await ask(client)
        assert not [name for name in server.requests[0].headers if name.startswith("oxydra")]
    (begun,) = egress.begun
    assert (begun.upstream, begun.session_id, begun.turn_id) == ("openai", "session-7", "turn-7")
    assert begun.path == "/v1/chat/completions"


async def ask(client: EgressClient) -> str:
    async with asyncio.timeout(GUARD_S), agent(client).run_stream("hello") as answer:
        return await answer.get_output()


async def test_a_cancelled_turn_ends_the_request_outside(egress: Egress) -> None:
    left = asyncio.Event()

    async def endless(_: Request, writer: asyncio.StreamWriter) -> None:
        await provider.head(writer, "200 OK", "text/event-stream")
        delta = {"choices": [{"index": 0, "delta": {"content": "x"}}]}
        try:
            while True:
                writer.write(provider_event(delta))
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            left.set()

    async with openai_server(endless) as server, opened(egress, server) as client:
        asking = asyncio.create_task(ask(client))
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(left.wait(), GUARD_S)


async def test_a_kill_in_mid_stream_is_told_and_the_next_request_works(tmp_path: Path) -> None:
    hanging, works = provider.stream({"content": "half"}, then="hang"), provider.says("whole")
    async with openai_server(hanging, works) as server:
        async with running(tmp_path) as first, opened(first, server) as client:
            asking = asyncio.create_task(ask(client))
            await server.asked.wait()
            await asyncio.sleep(0.2)
            await first.kill()
            with pytest.raises(Exception, match=r".") as raised:
                await asyncio.wait_for(asking, GUARD_S)
            told = errors.from_model(raised.value, "openai", "m")
            assert told is not None
            assert "broke off" in told.message or "does not answer" in told.message
            with pytest.raises(Exception, match=r".") as raised:
                await ask(client)
            told = errors.from_model(raised.value, "openai", "m")
            assert told is not None
            assert "the egress guest does not answer" in told.message
        async with running(tmp_path) as second, opened(second, server) as client:
            assert await ask(client) == "whole"
