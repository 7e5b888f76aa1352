"""Clients of the Model Context Protocol, over standard input and output and over HTTP."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import psutil
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.commands.household import Household

pytestmark = [pytest.mark.xdist_group("mcp_clients"), pytest.mark.bubblewrap]

INSPECTOR = (
    Path(__file__).parents[1] / "support" / "node" / "node_modules" / ".bin" / "mcp-inspector"
)
PYTHON = "MCP Python SDK"
INSPECTOR_NAME = "MCP inspector"
VERSIONS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    """An agent whose commands a person has to allow."""
    made = Household()
    made.environment |= {"OXYDRA_EMBEDDER__BACKEND": "none", "OXYDRA_TOOLS__APPROVAL": "ask"}
    made.works("start", "--detach")
    yield made
    made.run("stop")
    made.remove()


class Person:
    """Who sits at the client, and what they were asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, _: Any, question: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(question.message)
        return types.ElicitResult(action=self.answers.pop(0))  # type: ignore[arg-type]


@asynccontextmanager
async def by_stdio(house: Household, **options: Any) -> AsyncIterator[Client]:
    command, *words = house.command
    server = StdioServerParameters(
        command=command,
        args=[*words, "mcp"],
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
        await asyncio.wait_for(told.wait(), 30)
        assert sleeping(seconds)
        call.cancel()
        await asyncio.wait([call])
        for _ in range(100):
            if not sleeping(seconds):
                break
            await asyncio.sleep(0.1)
        assert not sleeping(seconds)


def sleeping(seconds: str) -> bool:
    return any(
        process.info["cmdline"] == ["sleep", seconds]
        for process in psutil.process_iter(["cmdline"])
    )


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
