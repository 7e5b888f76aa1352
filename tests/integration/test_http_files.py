"""Files of the shared directory over HTTP, before real agents."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from pydantic_ai.models.test import TestModel

from runner.access.scopes import Scope
from runner.serve.bridge import picture
from tests.support.gateway.http_agents import HttpAgents, open_http_agents

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def agents() -> AsyncIterator[HttpAgents]:
    async with open_http_agents(TestModel()) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def alice(agents: HttpAgents) -> AsyncIterator[httpx.AsyncClient]:
    bearer = {"Authorization": f"Bearer {agents.token()}"}
    url = f"{agents.server.url}/api/users/alice/files/"
    async with httpx.AsyncClient(base_url=url, headers=bearer, timeout=60) as client:
        yield client


async def test_a_file_goes_in_and_out_as_it_is(alice: httpx.AsyncClient) -> None:
    content = os.urandom(700_001)
    put = await alice.put("reports/für Anna.bin", content=content)
    assert (put.status_code, put.json()["path"]) == (200, "/shared/reports/für Anna.bin")
    reply = await alice.get("reports/für Anna.bin")
    assert reply.content == content
    assert reply.headers["content-type"] == "application/octet-stream"
    told = "attachment; filename*=UTF-8''f%C3%BCr%20Anna.bin"
    assert reply.headers["content-disposition"] == told
    again = await alice.put("reports/für Anna.bin", content=b"other")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "already_exists")
    assert (await alice.put("reports/für Anna.bin?overwrite=true", content=b"")).status_code == 200
    assert (await alice.get("reports/für Anna.bin")).content == b""
    assert (await alice.get("nothing")).status_code == 404
    other = await alice.get("../projects/site/x")
    assert (other.status_code, other.json()["error"]["code"]) == (400, "invalid_argument")
    assert "path is outside /shared, /tmp and /vault: /projects/site/x" in other.text


@pytest.mark.attempt(
    "letting a file of the agent's run as a page of the server",
    stopped_by="files are saved, not shown, but for pictures by their content, in a sandbox",
)
async def test_a_file_is_never_a_page(alice: httpx.AsyncClient) -> None:
    page = b"<script>alert(1)</script>"
    for name, content in (
        ("a.html", page),
        ("a.svg", b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'),
        ("a.png", page),
        ('x";filename="a.html', page),
        ("a\r\nContent-Type: text/html", page),
    ):
        path = quote(name, safe="")
        put = await alice.put(path, content=content)
        if put.status_code != 200:  # a name that no file has
            assert (name, put.status_code) == ("a\r\nContent-Type: text/html", 404)
            continue
        reply = await alice.get(path)
        assert reply.headers["content-type"] == "application/octet-stream", name
        assert reply.headers["content-disposition"].startswith("attachment; filename*="), name
        assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert reply.headers["x-content-type-options"] == "nosniff"
    await alice.put("pixel.html", content=PIXEL)
    reply = await alice.get("pixel.html")
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["content-disposition"].startswith("inline")
    assert "sandbox" in reply.headers["content-security-policy"]


@pytest.mark.attempt(
    "reading or writing outside the shared directory over HTTP",
    stopped_by="the path guards of the file tools",
)
async def test_paths_lead_nowhere_else(agents: HttpAgents, alice: httpx.AsyncClient) -> None:
    secret = Path(agents.config.workspace_root) / "secret"
    secret.write_text("nobody's")
    for path in (
        "%2e%2e/vault/x",
        "a/%2e%2e/%2e%2e/tmp/x",
        "..%2f..%2fetc%2fpasswd",
        f"..%2f..{secret}".replace("/", "%2f"),
        "a%00b",
    ):
        reply = await alice.get(path)
        assert reply.status_code in (400, 403, 404), path
        assert b"nobody's" not in reply.content
        assert (await alice.put(path, content=b"x")).status_code in (400, 403, 404), path


async def test_only_who_may_chat_has_files(agents: HttpAgents) -> None:
    few = {"Authorization": f"Bearer {agents.token('alice', 'few', Scope.MEMORY)}"}
    bob = {"Authorization": f"Bearer {agents.token('bob')}"}
    async with httpx.AsyncClient(base_url=f"{agents.server.url}/api/users/alice/") as client:
        for headers, status in ((few, 403), (bob, 403), ({"X-Oxydra": "1"}, 401)):
            assert (await client.get("files/x", headers=headers)).status_code == status
            assert (await client.put("files/x", content=b"", headers=headers)).status_code == status


async def test_pictures_are_known_by_their_beginning() -> None:
    assert picture(PIXEL) == "image/png"
    assert picture(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert picture(b"GIF89a...") == "image/gif"
    assert picture(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    for other in (b"", b"<svg", b"RIFF\0\0\0\0WAVE", b" GIF89a", b"BM"):
        assert picture(other) == ""
