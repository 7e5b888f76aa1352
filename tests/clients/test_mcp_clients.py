"""Clients of the Model Context Protocol, over standard input and output and over HTTP."""

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import psutil
import pytest
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.commands.household import Household

pytestmark = [pytest.mark.xdist_group("mcp_clients"), pytest.mark.bubblewrap]

ROOT = Path(__file__).parents[2]
INSPECTOR = (
    Path(__file__).parents[1] / "support" / "node" / "node_modules" / ".bin" / "mcp-inspector"
)
PYTHON = "MCP Python SDK"
PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
INSPECTOR_NAME = "MCP inspector"
VERSIONS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


@dataclass
class Served:
    """The HTTP server before that agent, and a token for it."""

    url: str
    token: str


@pytest.fixture(scope="module")
def served(house: Household) -> Iterator[Served]:
    house.environment |= {
        "OXYDRA_SERVE__LISTEN": "127.0.0.1:0",
        "OXYDRA_ACCESS__SOCKET": str(house.path / "a.sock"),
    }
    process = house.begin("serve")
    assert process.stdout is not None
    url = process.stdout.readline().removeprefix("serving at ").strip()
    yield Served(f"{url}/mcp", house.works("access", "create", "mcp").strip())
    process.terminate()
    process.wait(30)


class Person:
    """Who sits at the client, and what they were asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action=self.answers.pop(0))  # type: ignore[arg-type]


@asynccontextmanager
async def by_stdio(house: Household, *more: str, **options: Any) -> AsyncIterator[Client]:
    command, *words = house.command
    server = StdioServerParameters(
        command=command,
        args=[*words, *more, "mcp"],
        env=house.environment,
        cwd=house.working_directory,
    )
    async with Client(stdio_client(server), **options) as client:
        yield client


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.client(
    PYTHON, "saves notes, once also if it repeats itself, and finds what others saved"
)
async def test_the_memory_is_shared_with_the_agent(house: Household) -> None:
    house.works("memory", "save", "the boat is called Albatross")
    async with by_stdio(house) as client:
        assert client.protocol_version == "2026-07-28"
        assert "one person's agent" in (client.instructions or "")
        found = await client.call_tool("memory_search", {"query": "boat"})
        (boat,) = found.structured_content["results"]
        assert boat["text"] == "the boat is called Albatross"
        saved = await client.call_tool("memory_save", {"content": "the mooring is number nine"})
        again = await client.call_tool("memory_save", {"content": "the mooring is number nine"})
        assert saved.structured_content["note_id"] == again.structured_content["note_id"]
    (note,) = [
        each
        for each in json.loads(house.works("memory", "list", "--json"))["notes"]
        if "mooring" in each["text"]
    ]
    assert note["origin"]["channel"] == "mcp"
    assert note["origin"]["actor"] == "agent"


@pytest.mark.client(PYTHON, "reads notes as resources, and the prompt about a topic")
async def test_notes_are_resources_and_a_prompt(house: Household) -> None:
    house.works("memory", "save", "the cat is called Miro")
    async with by_stdio(house) as client:
        listed = (await client.list_resources()).resources
        (cat,) = [each for each in listed if "Miro" in (each.title or "")]
        (content,) = (await client.read_resource(cat.uri)).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "the cat is called Miro"
        prompt = await client.get_prompt("about-me", {"topic": "cat"})
        (message,) = prompt.messages
        assert isinstance(message.content, types.TextContent)
        assert f"- the cat is called Miro [id: {cat.name}]" in message.content.text


@VERSIONS
@pytest.mark.client(PYTHON, "asks the person before a command runs, in this protocol and the last")
async def test_a_command_runs_once_its_person_has_allowed_it(house: Household, mode: str) -> None:
    person = Person("accept", "decline")
    command = {"command": "echo $((6 * 7))"}
    async with by_stdio(house, mode=mode, elicitation_callback=person) as client:
        allowed = await client.call_tool("shell_exec", command)
        assert allowed.structured_content["stdout"] == "42\n"
        refused = await client.call_tool("shell_exec", command)
        assert refused.is_error
        assert "not approved by the user" in text_of(refused)
    assert len(person.asked) == 2
    assert "echo $((6 * 7))" in person.asked[0]


@VERSIONS
@pytest.mark.client(PYTHON, "is told that nobody can allow a command where it shows no questions")
async def test_without_elicitation_a_command_is_refused(house: Household, mode: str) -> None:
    async with by_stdio(house, mode=mode) as client:
        refused = await client.call_tool("shell_exec", {"command": "true"})
        assert refused.is_error
        assert "nobody is here to give it" in text_of(refused)


@VERSIONS
@pytest.mark.client(PYTHON, "is told that a call still runs, and ends it with all it had started")
async def test_a_cancelled_command_leaves_no_process(house: Household, mode: str) -> None:
    told = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.set()

    person = Person("accept")
    seconds = "86399" if mode == "legacy" else "86398"
    async with by_stdio(house, mode=mode, elicitation_callback=person) as client:
        call = asyncio.create_task(
            client.call_tool(
                "shell_exec",
                {"command": f"sleep {seconds} & wait", "timeout_s": 600},
                progress_callback=on_progress,
            )
        )
        await asyncio.wait_for(told.wait(), 60)
        async with asyncio.timeout(60):
            while not sleeping(seconds):
                await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.wait([call])
            while sleeping(seconds):
                await asyncio.sleep(0.1)


def sleeping(seconds: str) -> bool:
    return any(
        process.info["cmdline"] == ["sleep", seconds]
        for process in psutil.process_iter(["cmdline"])
    )


@pytest.mark.client(PYTHON, "goes on where the agent was started again meanwhile")
async def test_a_restart_of_the_agent_ends_no_connection(house: Household) -> None:
    async with by_stdio(house) as client:
        await client.call_tool("memory_save", {"content": "the anchor weighs ten kilos"})
        await asyncio.to_thread(house.works, "restart")
        found = await client.call_tool("memory_search", {"query": "anchor"})
        assert found.structured_content["results"]


@pytest.mark.client(PYTHON, "reaches the agent of another account with an access file")
async def test_with_an_access_file(house: Household, served: Served) -> None:
    file = house.path / "laptop.json"
    house.works("access", "create", "laptop", "--scope", "memory", "--access-file", str(file))
    async with by_stdio(house, "--connect", str(file)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "memory_search" in names
        assert "file_read" not in names
        await client.call_tool("memory_save", {"content": "the pump needs oil"})
    (note,) = found(house, "pump")["notes"]
    assert note["origin"]["channel"] == "access-laptop"


@pytest.mark.client(PYTHON, "does the same over HTTP with an access token: saves, and asks")
async def test_over_http_with_a_token(house: Household, served: Served) -> None:
    person = Person("accept")
    headers = {"Authorization": f"Bearer {served.token}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        transport = streamable_http_client(served.url, http_client=http)
        async with Client(transport, elicitation_callback=person) as client:
            await client.call_tool("memory_save", {"content": "the tent is in the attic"})
            done = await client.call_tool("shell_exec", {"command": "echo $((6 * 7))"})
            assert done.structured_content["stdout"] == "42\n"
    (note,) = (await asyncio.to_thread(found, house, "tent"))["notes"]
    assert note["origin"]["channel"] == "access-mcp"


def found(house: Household, words: str) -> Any:
    return json.loads(house.works("memory", "search", words, "--json"))


@pytest.mark.client(PYTHON, "runs the client of the guide")
def test_the_client_of_the_guide_runs(house: Household, served: Served) -> None:
    guide = (ROOT / "docs" / "guide" / "mcp.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    house.works("memory", "save", "the rope is ten metres long")
    done = subprocess.run(
        [sys.executable, "-c", code, served.url, "rope"],
        input=served.token,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the rope is ten metres long" in done.stdout


@pytest.mark.client("curl", "lists the tools over HTTP")
def test_curl_lists_the_tools(house: Household, served: Served) -> None:
    guide = (ROOT / "docs" / "guide" / "mcp.md").read_text()
    (command,) = re.findall(r"^```sh\n(curl .*?)^```", guide, re.MULTILINE | re.DOTALL)
    token = house.path / "token"
    token.write_text(f"Authorization: Bearer {served.token}\n")
    command = command.replace("http://127.0.0.1:7480/mcp", served.url)
    done = subprocess.run(
        ["bash", "-c", command.replace("header.txt", str(token))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (data,) = re.findall(r"^data: (.*)$", done.stdout, re.MULTILINE) or [done.stdout]
    assert "memory_search" in {tool["name"] for tool in json.loads(data)["result"]["tools"]}


def test_it_ends_with_its_client_and_with_a_signal(house: Household) -> None:
    assert house.works("mcp", stdin="") == ""
    silent = subprocess.run(
        ["/bin/sh", "-c", f"{shlex.join([*house.command, 'mcp'])} <<'E' >&-\n{PING}E\n"],
        env=house.environment,
        capture_output=True,
        check=True,
    )
    left = house.begin("mcp")
    assert left.stdout is not None
    left.stdout.close()
    assert (silent.stderr, left.communicate(PING)[1], left.returncode) == (b"", "", 0)
    process = house.begin("mcp")
    assert process.stdin is not None
    assert process.stdout is not None
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    process.stdin.write(f"{json.dumps(request)}\n")
    process.stdin.flush()
    assert "protocolVersion" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT


@pytest.mark.node
@pytest.mark.client(INSPECTOR_NAME, "lists tools, calls them, reads a note and the prompt")
def test_the_inspector_finds_all_there_is(house: Household) -> None:
    house.works("memory", "save", "the bicycle is green")
    tools = inspected(house, "tools/list")["tools"]
    save = next(tool for tool in tools if tool["name"] == "memory_save")
    assert save["annotations"]["readOnlyHint"] is False
    assert save["outputSchema"]["required"]
    found = inspected(
        house, "tools/call", "--tool-name", "memory_search", "--tool-arg", "query=bicycle"
    )
    (note,) = found["structuredContent"]["results"]
    uri = f"oxydra://notes/{note['note_id']}"
    read = inspected(house, "resources/read", "--uri", uri)
    assert read["contents"][0]["text"] == "the bicycle is green"
    asked = inspected(
        house, "prompts/get", "--prompt-name", "about-me", "--prompt-args", "topic=bicycle"
    )
    assert "the bicycle is green" in asked["messages"][0]["content"]["text"]


@pytest.mark.node
@pytest.mark.client(INSPECTOR_NAME, "does the same over HTTP with an access token")
def test_the_inspector_over_http(house: Household, served: Served) -> None:
    done = subprocess.run(
        [
            *(str(INSPECTOR), "--cli", served.url, "--transport", "http"),
            *("--header", f"Authorization: Bearer {served.token}"),
            *("--method", "tools/call", "--tool-name", "memory_save"),
            *("--tool-arg", "content=the oars are new"),
        ],
        capture_output=True,
        text=True,
        env=house.environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["structuredContent"]["note_id"]
    assert found(house, "oars")["notes"]


def inspected(house: Household, method: str, *options: str) -> Any:
    settings = [each for pair in house.environment.items() for each in ("-e", "=".join(pair))]
    server = [*house.command, "mcp"]
    done = subprocess.run(
        [str(INSPECTOR), "--cli", *settings, *server, "--method", method, *options],
        capture_output=True,
        text=True,
        env=house.environment,
        cwd=house.working_directory,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
