"""OpenAI's SDK for Node and curl before a scripted model, and the guide's example before a host."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agent.repeating_model import RepeatingModel
from tests.support.commands.household import Household
from tests.support.gateway.http_agents import HttpAgents, open_http_agents

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = "OpenAI SDK for Node"
PYTHON = "OpenAI SDK for Python"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "openai.md"
PACKAGES = Path(__file__).parents[1] / "support" / "node" / "node_modules"
SCRIPT = """
import OpenAI from "openai";
const agent = new OpenAI({ baseURL: process.argv[2], apiKey: process.env.TOKEN });
const model = "oxydra";
const weather = {
  type: "function", name: "weather", description: "The weather.", strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } } },
};
const told = {};
const stream = agent.responses.stream({ model, input: "hello" });
told.deltas = "";
stream.on("response.output_text.delta", (event) => { told.deltas += event.delta; });
told.streamed = (await stream.finalResponse()).output_text;
const first = await agent.responses.create({
  model, input: 'call weather {"city": "Ulm"}', tools: [weather],
});
const call = first.output.at(-1);
told.called = [call.type, call.name, JSON.parse(call.arguments).city];
const second = await agent.responses.create({
  model, previous_response_id: first.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
});
told.answered = second.output_text;
const runner = agent.chat.completions.runTools({
  model, stream: true, messages: [{ role: "user", content: 'call weather {"city": "Bonn"}' }],
  tools: [{ type: "function", function: {
    name: "weather", description: "The weather.", parse: JSON.parse,
    parameters: { type: "object", properties: { city: { type: "string" } } },
    function: ({ city }) => `rain in ${city}`,
  } }],
});
told.ran = await runner.finalContent();
const own = await agent.responses.create({
  model, input: 'call memory_save {"content": "I like tea"}',
});
told.own = own.output.map((item) => item.type);
told.models = (await agent.models.list()).data.map((each) => each.id).slice(0, 1);
console.log(JSON.stringify(told));
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def agents() -> AsyncIterator[HttpAgents]:
    async with open_http_agents(RepeatingModel().made) as made:
        yield made


async def run(*command: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
    )
    out, error = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, error.decode()
    return out.decode()


@pytest.mark.node
@pytest.mark.client(NODE, "streams, calls its own functions (also by `runTools`), sees the agent's")
async def test_the_sdk_for_node(agents: HttpAgents, tmp_path: Path) -> None:
    script = tmp_path / "client.mjs"
    script.write_text(SCRIPT)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    url = f"{agents.server.url}/v1"
    told = json.loads(await run("node", str(script), url, TOKEN=agents.token()))
    assert told["deltas"] == told["streamed"] == "You said: hello"
    assert told["called"] == ["function_call", "weather", "Ulm"]
    assert told["answered"] == "It gave: sunny"
    assert told["ran"] == "It gave: rain in Bonn"
    assert told["own"] == ["message", "mcp_call", "message"]
    assert told["models"] == ["oxydra"]


@pytest.mark.client("curl", "chats, whole and as a stream")
async def test_curl(agents: HttpAgents, tmp_path: Path) -> None:
    headers = tmp_path / "headers"  # a secret is no argument
    headers.write_text(f"Authorization: Bearer {agents.token('alice', 'curl')}\n")
    headers.chmod(0o600)

    async def chat(**more: object) -> str:
        asked = {"messages": [{"role": "user", "content": "hello"}], **more}
        return await run(
            *("curl", "-sS", "-H", f"@{headers}", "-H", "Content-Type: application/json"),
            *("-d", json.dumps(asked), f"{agents.server.url}/v1/chat/completions"),
        )

    whole = json.loads(await chat())
    assert whole["choices"][0]["message"]["content"] == "You said: hello"
    lines = (await chat(stream=True)).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    said = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
    assert said == "You said: hello"


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    made = Household()
    made.environment |= {
        "OXYDRA_EMBEDDER__BACKEND": "none",
        "OXYDRA_SHELL__ENABLED": "false",
        "OXYDRA_ACCESS__SOCKET": str(made.path / "a.sock"),
        "OXYDRA_SERVE__LISTEN": "127.0.0.1:0",
    }
    made.works("start", "--detach")
    yield made
    made.run("stop")
    made.remove()


@pytest.mark.bubblewrap
@pytest.mark.client(PYTHON, "saves what the terminal finds, word by word as the guide says")
async def test_the_guides_example_and_the_terminal_have_one_memory(house: Household) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    serving = house.begin("serve")
    try:
        assert serving.stdout is not None
        url = serving.stdout.readline().removeprefix("serving at ").strip()
        token = house.works("access", "create", "sdk", "--scope", "chat").strip()
        code = example.replace("http://127.0.0.1:7480", url).replace("oxa_…", token)
        assert code.count(url) == code.count(token) == 1
        shown = await run(sys.executable, "-c", code)
        assert "Saved: my boat is called Albatross" in shown
        assert shown.count("Albatross") == 2
    finally:
        serving.terminate()
        serving.wait(30)
    assert "Albatross" in house.said("what do you know about my boat?")
