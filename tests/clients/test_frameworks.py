"""Frameworks for programs with models, before an agent: structured output, and tools."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from wire.v1 import gateway_pb2 as pb

from tests.support.agent.repeating_model import RepeatingModel
from tests.support.gateway.http_agents import HttpAgents, open_http_agents

pytestmark = pytest.mark.asyncio(loop_scope="module")

PYTHON = Path(sys.prefix) / "clients" / "bin" / "python"
PACKAGES = Path(__file__).parents[1] / "support" / "node" / "node_modules"
BOAT = {"name": "Nina", "metres": 9}
HEAD = """
import asyncio, json, os, sys
from pydantic import BaseModel
class Boat(BaseModel):
    "A boat."
    name: str
    metres: int
asked = 'say {"name": "Nina", "metres": 9}'
url, token, told = sys.argv[1], os.environ["TOKEN"], []
"""
LANGCHAIN = """
from langchain_openai import ChatOpenAI
for responses in (False, True):
    model = ChatOpenAI(
        model="oxydra", base_url=url, api_key=token, use_responses_api=responses,
        extra_body={"top_k": 3},
    )
    for method in ("json_schema", "function_calling", "json_mode"):
        told.append(model.with_structured_output(Boat, method=method).invoke(asked).model_dump())
"""
OPENAI_AGENTS = """
from agents import (
    Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
set_tracing_disabled(True)
client = AsyncOpenAI(base_url=url, api_key=token)
@function_tool
def length(boat: str) -> str:
    "How long a boat is."
    return "nine metres"
async def ask():
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        model = kind(model="oxydra", openai_client=client)
        agent = Agent(name="boats", output_type=Boat, model=model, tools=[length])
        told.append((await Runner.run(agent, asked)).final_output.model_dump())
asyncio.run(ask())
"""
PYDANTIC_AI = """
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
provider = OpenAIProvider(base_url=url, api_key=token)
for model in (OpenAIChatModel, OpenAIResponsesModel):
    for kind in (NativeOutput, PromptedOutput, ToolOutput):
        agent = Agent(model("oxydra", provider=provider), output_type=kind(Boat))
        told.append(agent.run_sync(asked).output.model_dump())
"""
SMOLAGENTS = """
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool
model = OpenAIModel(model_id="oxydra", api_base=url, api_key=token)
@tool
def weather(city: str) -> str:
    '''The weather.

    Args:
        city: Where.
    '''
    return 'call final_answer {"answer": "sunny in ' + city + '"}'
agent = ToolCallingAgent(tools=[weather], model=model, verbosity_level=0, max_steps=3)
told.append(agent.run('How is it?\\ncall weather {"city": "Ulm"}'))
agent = CodeAgent(tools=[], model=model, verbosity_level=0, max_steps=2)
told.append(agent.run('Which boat?\\nsay <code>final_answer("Nina")</code>'))
"""
AI_SDK = """
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, Output, streamText, tool } from "ai";
import { z } from "zod";
const options = { baseURL: process.argv[2], apiKey: process.env.TOKEN };
const openai = createOpenAI(options);
const compatible = createOpenAICompatible(
  { ...options, name: "oxydra", supportsStructuredOutputs: true },
);
const schema = z.object({ name: z.string(), metres: z.number() });
const prompt = 'say {"name": "Nina", "metres": 9}';
const output = Output.object({ schema });
const weather = tool({ description: "The weather.", inputSchema: schema });
const told = [];
for (const model of [openai("oxydra"), openai.chat("oxydra"), compatible("oxydra")]) {
  told.push((await generateObject({ model, schema, prompt })).object);
  told.push((await generateText({ model, prompt, output })).output);
  told.push(await streamText({ model, prompt, output }).output);
  const tools = { weather };
  const called = await generateText({ model, prompt, tools, toolChoice: "required" });
  told.push(called.toolCalls[0].input);
}
console.log(JSON.stringify(told));
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def agents() -> AsyncIterator[HttpAgents]:
    async with open_http_agents(RepeatingModel().made) as made:
        yield made


async def run(agents: HttpAgents, name: str, *command: str) -> list[object]:
    """What a program writes as JSON, run with a token of its own."""
    process = await asyncio.create_subprocess_exec(
        *command,
        f"{agents.server.url}/v1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "TOKEN": agents.token("alice", name[:40])},
    )
    out, error = await asyncio.wait_for(process.communicate(), 180)
    assert process.returncode == 0, error.decode()
    told: list[object] = json.loads(out.decode().splitlines()[-1])
    return told


async def run_python(agents: HttpAgents, script: str, place: Path) -> list[object]:
    program = place / "client.py"
    program.write_text(f"{HEAD}{script}\nprint(json.dumps(told))\n")
    return await run(agents, place.name, str(PYTHON), str(program))


@pytest.mark.frameworks
@pytest.mark.client("LangChain", "has answers as classes: by schema, by a function and as JSON")
async def test_langchain(agents: HttpAgents, tmp_path: Path) -> None:
    assert await run_python(agents, LANGCHAIN, tmp_path) == [BOAT] * 6


@pytest.mark.frameworks
@pytest.mark.client("OpenAI Agents SDK", "has answers as classes, by chats and by responses")
async def test_openai_agents(agents: HttpAgents, tmp_path: Path) -> None:
    assert await run_python(agents, OPENAI_AGENTS, tmp_path) == [BOAT] * 2


@pytest.mark.frameworks
@pytest.mark.client("Pydantic AI", "has answers as classes: native, prompted and by a tool")
async def test_pydantic_ai(agents: HttpAgents, tmp_path: Path) -> None:
    assert await run_python(agents, PYDANTIC_AI, tmp_path) == [BOAT] * 6


@pytest.mark.frameworks
@pytest.mark.client("smolagents", "calls tools step by step in one session, and writes code")
async def test_smolagents(agents: HttpAgents, tmp_path: Path) -> None:
    listing = pb.ListSessionsRequest(limit=1000)
    before = len((await agents.alice.stub.ListSessions(listing)).sessions)
    assert await run_python(agents, SMOLAGENTS, tmp_path) == ["sunny in Ulm", "Nina"]
    assert len((await agents.alice.stub.ListSessions(listing)).sessions) == before + 2


@pytest.mark.node
@pytest.mark.client("AI SDK", "has answers as objects, whole and streamed; demands calls")
async def test_the_ai_sdk(agents: HttpAgents, tmp_path: Path) -> None:
    script = tmp_path / "client.mjs"
    script.write_text(AI_SDK)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    assert await run(agents, "ai-sdk", "node", str(script)) == [BOAT] * 12
