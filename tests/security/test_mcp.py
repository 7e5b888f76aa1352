"""What MCP clients with a token try over HTTP, at a real gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import mcp_types as types
import pytest
import pytest_asyncio
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from guest.tools.base import Safety, ToolContext, ToolOutput
from runner.access.scopes import Scope
from runner.serve.server import HttpServer
from tests.support.gateway.front import FakeHost, Front, open_front
from tests.support.gateway.gateways import Client, open_gateways
from tests.support.gateway.http_front import open_http
from tests.support.tools.pipelines import EchoArguments, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCOPES = "the scopes of the token, checked for each tool"
STATE = "state that is sealed, and approvals that the gateway keeps"
VERSION = "2026-07-28"


@dataclass
class World:
    """Alice's agent behind the HTTP server, with two tools that tests watch."""

    front: Front
    server: HttpServer
    alice: Client
    went_off: list[str] = field(default_factory=list)
    slow: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def detonate(self, _: ToolContext, arguments: EchoArguments) -> ToolOutput:
        self.went_off.append(arguments.text)
        return ToolOutput({"text": arguments.text})

    async def wait(self, _: ToolContext, __: EchoArguments) -> ToolOutput:
        self.slow.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ToolOutput({})

    def http(self, *scopes: Scope) -> httpx2.AsyncClient:
        """Somebody with a token of these scopes; of all, where none is named."""
        name = "-".join(sorted(scopes)) or "all"
        self.front.tokens.revoke("alice", name)
        token = self.front.access("alice", name, *scopes).token
        return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})

    @asynccontextmanager
    async def client(self, *scopes: Scope, **options: Any) -> AsyncIterator[McpClient]:
        async with self.http(*scopes) as http:
            transport = streamable_http_client(f"{self.server.url}/mcp", http_client=http)
            async with McpClient(transport, **options) as client:
                yield client

    async def post(
        self, http: httpx2.AsyncClient, method: str, params: dict[str, Any], **headers: str
    ) -> httpx2.Response:
        """A request as no SDK makes it."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        }
        name = {"Mcp-Name": params["name"]} if "name" in params else {}
        return await http.post(
            f"{self.server.url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}},
            headers={
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": VERSION,
                "Mcp-Method": method,
                **name,
                **headers,
            },
        )


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world() -> AsyncIterator[World]:
    made = World(None, None, None)  # type: ignore[arg-type]
    tools = [
        tool("detonate", lambda *each: made.detonate(*each), Safety.PRIVILEGED),
        tool("wait", lambda *each: made.wait(*each), timeout=600),
    ]
    async with open_gateways(tools=tools, approval="ask") as gateways, open_front() as front:
        made.front, made.alice = front, await gateways.serve("alice")
        await front.hosts["alice"].stop()
        front.hosts["alice"] = FakeHost(front.config, "alice", made.alice)
        await front.hosts["alice"].start()
        async with open_http(front) as made.server:
            yield made
        await front.hosts["alice"].stop()


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.attempt("an MCP client for memory calls other tools", stopped_by=SCOPES)
async def test_a_token_for_memory_opens_memory_alone(world: World) -> None:
    async with world.client(Scope.MEMORY) as client:
        names = {each.name for each in (await client.list_tools()).tools}
        assert {"memory_search", "memory_save"} <= names
        assert not names & {"file_read", "file_write", "detonate", "wait"}
        refused = await client.call_tool("file_list", {"path": "/shared"})
        assert "needs a token with the scope chat" in text_of(refused)
        saved = await client.call_tool("memory_save", {"content": "the kettle is blue"})
        uri = f"oxydra://notes/{saved.structured_content['note_id']}"
        assert (await client.read_resource(uri)).contents
        assert (await client.list_prompts()).prompts
    (note,) = await world.alice.notes(tag="", limit=1)
    assert note.origin.channel == "access-memory"


@pytest.mark.attempt("an MCP client for conversations reads notes", stopped_by=SCOPES)
async def test_a_token_for_chat_opens_no_notes(world: World) -> None:
    note_id = await world.alice.save("only for who may read notes")
    async with world.client(Scope.CHAT) as client:
        names = {each.name for each in (await client.list_tools()).tools}
        assert "file_read" in names
        assert not [name for name in names if name.startswith("memory")]
        refused = await client.call_tool("memory_search", {"query": "notes"})
        assert "needs a token with the scope memory" in text_of(refused)
        assert (await client.list_resources()).resources == []
        assert (await client.list_resource_templates()).resource_templates == []
        assert (await client.list_prompts()).prompts == []
        for asked in (
            client.read_resource(f"oxydra://notes/{note_id}"),
            client.get_prompt("about-me"),
            client.get_prompt("about-me", {"topic": "notes"}),
        ):
            with pytest.raises(MCPError, match="needs a token with the scope memory"):
                await asked


@pytest.mark.attempt("an MCP client without either scope calls tools", stopped_by=SCOPES)
async def test_a_token_for_neither_opens_nothing(world: World) -> None:
    async with world.client(Scope.ADMIN) as client:
        assert (await client.list_tools()).tools == []
        assert (await client.list_resources()).resources == []
        assert (await client.call_tool("detonate", {"text": "now"})).is_error
    assert world.went_off == []


@pytest.mark.attempt("an MCP client without a token, or with a wrong one", stopped_by="the token")
async def test_nobody_gets_in_without_a_token(world: World) -> None:
    async with httpx2.AsyncClient() as http:
        for headers, status in (
            ({}, 403),
            ({"X-Oxydra": "1"}, 401),
            ({"Authorization": "Bearer oxa_wrong"}, 401),
        ):
            reply = await world.post(http, "tools/list", {}, **headers)
            assert reply.status_code == status
            assert "tools" not in reply.text


@pytest.mark.attempt("a page of another site calls /mcp in a browser", stopped_by="Host and Origin")
async def test_other_sites_are_refused(world: World) -> None:
    async with world.http() as http:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            reply = await world.post(http, "tools/list", {}, **headers)
            assert reply.status_code in (403, 421)


@pytest.mark.attempt("an MCP client makes up the state of an approval", stopped_by=STATE)
async def test_made_up_state(world: World) -> None:
    call = {"name": "detonate", "arguments": {"text": "forged"}}
    accepted = {"approval": {"action": "accept", "content": {}}}
    async with world.http() as http:
        for state in ("", "approval-made-up", "v1.AAAA"):
            params = {**call, "requestState": state, "inputResponses": accepted}
            reply = (await world.post(http, "tools/call", params)).json()
            assert reply["error"]["message"] == "Invalid or expired requestState"
        reply = (await world.post(http, "tools/call", {**call, "inputResponses": accepted})).json()
        assert reply["result"]["resultType"] == "input_required"
    assert world.went_off == []


@pytest.mark.attempt("an MCP client uses the state of an approval elsewhere", stopped_by=STATE)
async def test_state_of_another_call(world: World) -> None:
    """For other arguments, with another token, or a second time."""
    call = {"name": "detonate", "arguments": {"text": "a little"}}
    accepted = {"approval": {"action": "accept", "content": {}}}
    async with world.http() as http, world.http(Scope.CHAT) as other:
        asked = (await world.post(http, "tools/call", call)).json()["result"]
        assert "a little" in asked["inputRequests"]["approval"]["params"]["message"]
        back = {"requestState": asked["requestState"], "inputResponses": accepted}
        more = {"name": "detonate", "arguments": {"text": "everything"}}
        reply = (await world.post(http, "tools/call", {**more, **back})).json()
        assert reply["error"]["message"] == "Invalid or expired requestState"
        reply = (await world.post(other, "tools/call", {**call, **back})).json()
        assert reply["result"]["isError"]
        assert world.went_off == []
        reply = (await world.post(http, "tools/call", {**call, **back})).json()
        assert reply["result"]["structuredContent"] == {"text": "a little"}
        reply = (await world.post(http, "tools/call", {**call, **back})).json()
        assert reply["result"]["isError"]
    assert world.went_off == ["a little"]


async def test_an_older_client_over_http_cannot_be_asked(world: World) -> None:
    """There is no way back to it; so the call is refused."""

    async def accept(_: Any, __: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={})

    before = list(world.went_off)
    async with world.client(mode="legacy", elicitation_callback=accept) as client:
        refused = await client.call_tool("detonate", {"text": "now"})
    assert "nobody is here to give it" in text_of(refused)
    assert world.went_off == before


@pytest.mark.attempt("an MCP client sends more than is read", stopped_by="limits of size")
async def test_what_is_too_large_is_refused(world: World) -> None:
    async with world.http() as http:
        large = {"name": "memory_save", "arguments": {"content": "x" * 1_000_001}}
        reply = (await world.post(http, "tools/call", large)).json()
        assert reply["result"]["isError"]
        assert "arguments_json" in json.dumps(reply)
        huge = {"name": "memory_save", "arguments": {"content": "x" * 30_000_000}}
        assert (await world.post(http, "tools/call", huge)).status_code == 413


@pytest.mark.attempt("an MCP client reads files outside the roots", stopped_by="the pipeline")
async def test_paths_out_of_the_roots(world: World) -> None:
    async with world.client() as client:
        for path in ("/etc/passwd", "/shared/../.oxydra/memory.db", "/proc/self/root/etc/passwd"):
            refused = await client.call_tool("file_read", {"path": path})
            assert "outside /shared, /tmp and /vault" in text_of(refused)


@pytest.mark.attempt("an MCP client asks for another user's note", stopped_by="the token's user")
async def test_another_users_notes_do_not_exist(world: World) -> None:
    world.front.bob.holds("note-of-bob")
    async with world.client() as client:
        with pytest.raises(MCPError, match="note not found"):
            await client.read_resource("oxydra://notes/note-of-bob")


async def test_a_save_that_two_clients_repeat_makes_one_note(world: World) -> None:
    async with world.client(Scope.MEMORY) as one, world.client() as other:
        saves = [
            client.call_tool("memory_save", {"content": "the ladder is in the shed"})
            for client in (one, other, one, other)
        ]
        ids = {each.structured_content["note_id"] for each in await asyncio.gather(*saves)}
    assert len(ids) == 1


@pytest.mark.parametrize("mode", [VERSION, "legacy"])
async def test_who_leaves_ends_the_call(world: World, mode: str) -> None:
    world.slow.clear()
    world.cancelled.clear()
    async with world.client(mode=mode) as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await world.slow.wait()
        call.cancel()
        await asyncio.wait_for(world.cancelled.wait(), 60)


async def test_a_revoked_token_ends_its_calls(world: World) -> None:
    world.slow.clear()
    world.cancelled.clear()
    async with world.client() as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await world.slow.wait()
        world.front.tokens.revoke("alice", "all")
        assert "this access token was revoked" in text_of(await call)
        await asyncio.wait_for(world.cancelled.wait(), 60)
