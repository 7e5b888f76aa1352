"""What goes out by the client, and what is understood of its answers."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from pydantic_ai import Agent
from wire.errors import Code
from wire.settings import AgentSettings

from guest.agent.models import errors
from guest.agent.models.providers import build_model
from guest.egress_client import NO_KEY, EgressClient, on_behalf_of, refusal_in, url_of
from guest.errors import GuestError, StorageError
from guest.memory.models import RemoteConfig
from guest.memory.storage.remote import RemoteDatabase
from tests.support.servers.egress_listener import egress_at, refusing, served
from tests.support.settings import EGRESS_TOKEN as TOKEN

PROVIDERS = ("openai", "anthropic", "google")


def settings_of(provider: Any, base_url: str = "") -> AgentSettings:
    return AgentSettings.model_construct(provider=provider, model="m", base_url=base_url)


async def ask(client: EgressClient, provider: str, base_url: str = "") -> str:
    agent = Agent(build_model(settings_of(provider, base_url), NO_KEY, egress=client))
    async with agent.run_stream("hello") as answer:
        return await answer.get_output()


async def failure(client: EgressClient, provider: str) -> Any:
    """What a person is told of a request that was kept from being answered."""
    try:
        await ask(client, provider)
    except Exception as error:
        return errors.from_model(error, provider, "m")
    raise AssertionError("it was answered")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("base_url", ["", "http://127.0.0.1:9/v1"])
async def test_a_provider_is_asked_by_its_name_with_token_session_and_turn(
    tmp_path: Path, provider: str, base_url: str
) -> None:
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        return web.Response(status=404)

    async with served(tmp_path / "d", handler) as client:
        with on_behalf_of("s1", "t1"), pytest.raises(Exception, match=r".*"):
            await ask(client, provider, base_url)
    assert seen[0].path.startswith(f"/{provider}/")
    assert seen[0].headers["oxydra-token"] == TOKEN
    assert (seen[0].headers["oxydra-session"], seen[0].headers["oxydra-turn"]) == ("s1", "t1")
    assert seen[0].host == "egress"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("status", "kind", "code", "said", "fix"),
    [
        (403, "missing", Code.FAILED_PRECONDITION, "no API key", "runner credentials set --prov"),
        (403, "rule", Code.PERMISSION_DENIED, "no API key", "runner egress log"),
        (429, "limit", Code.RESOURCE_EXHAUSTED, "no API key", "runner egress log"),
        (502, "unreachable", Code.UNAVAILABLE, "no API key", "runner egress log"),
        (503, "not-ready", Code.UNAVAILABLE, "no API key", "runner status"),
    ],
)
async def test_a_refusal_is_told_as_what_it_is(
    tmp_path: Path, provider: str, status: int, kind: str, code: Code, said: str, fix: str
) -> None:
    async with served(tmp_path / "d", refusing(status, kind, "there is no API key")) as client:
        failed = await failure(client, provider)
    assert failed.code == code
    assert said in failed.message
    assert provider in failed.message
    assert failed.resolution.startswith(fix)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_of_the_provider_is_no_refusal(tmp_path: Path, provider: str) -> None:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"error": {"message": "bad key", "code": 401}}, status=401)

    async with served(tmp_path / "d", handler) as client:
        failed = await failure(client, provider)
    assert failed.resolution.startswith(f"runner credentials set --provider {provider}")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_listener_that_nobody_serves_is_told(tmp_path: Path, provider: str) -> None:
    failed = await failure(egress_at(tmp_path / "nobody"), provider)
    assert failed.code == Code.UNAVAILABLE
    assert "the egress guest does not answer" in failed.message
    assert "runner status" in failed.resolution


async def test_another_server_at_the_place_of_the_listener_is_told_nothing(tmp_path: Path) -> None:
    heard = bytearray()

    async def impostor(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(100_000))

    async with await asyncio.start_unix_server(impostor, tmp_path / "d"):
        client = egress_at(tmp_path / "d")
        request = asyncio.ensure_future(client.http.get(url_of("openai")))
        await asyncio.sleep(0.2)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await client.close()
    assert TOKEN.encode() not in heard


async def test_pieces_of_an_answer_arrive_before_the_next_is_sent(tmp_path: Path) -> None:
    may_go_on = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await may_go_on.wait()
        await response.write(b"two")
        return response

    async def pieces(client: EgressClient) -> AsyncIterator[bytes]:
        async with client.http.stream("GET", url_of("openai")) as response:
            async for piece in response.aiter_raw():
                yield piece

    async with served(tmp_path / "d", handler) as client, asyncio.timeout(60):
        got = []
        async for piece in pieces(client):
            got.append(piece)
            may_go_on.set()
    assert got == [b"one", b"two"]


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (503, "not-ready", "cannot be reached"),
        (502, "untrusted", "is not trusted"),
        (502, "unreachable", "cannot be reached"),
    ],
)
async def test_a_memory_that_is_kept_away_says_why(
    tmp_path: Path, status: int, kind: str, said: str
) -> None:
    async with served(tmp_path / "d", refusing(status, kind, "egress says so")) as client:
        config = RemoteConfig(
            "https://memory.example", timeout_s=1, first_wait_s=0.01, egress=client
        )
        database = await RemoteDatabase.open(config)
        with pytest.raises(StorageError) as raised:
            await database.execute("SELECT 1")
        await database.close()
    assert said in raised.value.brief
    assert "memory.example" in raised.value.brief
    assert "egress says so" in raised.value.details


async def test_a_memory_is_asked_by_its_name_and_without_a_token(tmp_path: Path) -> None:
    seen: list[web.BaseRequest] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        return web.Response(status=401)

    async with served(tmp_path / "d", handler) as client:
        config = RemoteConfig("https://memory.example", "secret", timeout_s=1, egress=client)
        database = await RemoteDatabase.open(config)
        for asking in (database.execute("SELECT 1"), database.set_token("")):
            with pytest.raises(StorageError, match="refuses the token"):
                await asking
        await database.close()
    assert [each.path for each in seen] == ["/memory/v2/pipeline", "/memory-next/v2/pipeline"]
    assert all("Authorization" not in each.headers for each in seen)
    assert all(each.headers["oxydra-token"] == TOKEN for each in seen)


def test_a_key_behind_a_listener_is_not_sent_where_there_is_none() -> None:
    with pytest.raises(GuestError, match="no egress guest leads"):
        build_model(settings_of("openai"), NO_KEY)


def test_other_errors_are_no_refusals() -> None:
    assert refusal_in(ValueError("x")) is None
    assert refusal_in(None) is None


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"data: x\n" * 8_192, b"\n" * 3 + b"x" * 65_536])
async def test_an_event_that_does_not_end_is_not_held(tmp_path: Path, piece: bytes) -> None:
    sent = 0

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: {}\n\n")
        while sent < 40 * 2**20:
            await response.write(piece)
            sent += len(piece)
        return response

    async with served(tmp_path / "d", handler) as client:
        if piece.startswith(b"\n"):
            assert len((await client.http.get(url_of("openai"))).content) > 40 * 2**20
            return
        with pytest.raises(httpx2.RemoteProtocolError, match="longer than 8 MiB"):
            await client.http.get(url_of("openai"))
    assert sent < 20 * 2**20


async def test_an_answer_that_is_compressed_is_refused(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["accept-encoding"] == "identity"
        return web.Response(body=gzip.compress(b"x"), headers={"content-encoding": "gzip"})

    async with served(tmp_path / "d", handler) as client:
        with pytest.raises(httpx2.RemoteProtocolError, match="compressed"):
            await client.http.get(url_of("openai"))
