"""Settings as the operator sees and changes them over HTTP, in a real file."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runner.config.loading import LoadedSettings, load_settings
from runner.config.models import Config
from runner.doctor.provider import Trial
from runner.serve.operator import settings as settings_api
from runner.serve.operator.host import Commands
from runner.serve.operator.settings import SETTINGS, SettingsFile
from runner.tiers.container.host_address import has_network
from runner.workspace.configuration_file import Changes, change_file
from runner.workspace.credentials import read_server_secrets
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import ask, open_http, operator
from tests.support.servers.model_servers import ModelServer, ollama, serving, tag

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-of-the-operator-0123456789"
FILE = """\
# ours
[agent] # who answers
provider = "openai" # for now
model = "m"
api_key_env = "THE_KEY"

[users.alice.tools]
approval = "ask"
[serve]
idle_hours = 5
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made:
        for user in ("alice", "bob"):
            (made.config.workspace_root / user).mkdir(mode=0o700)
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(
    front: Front, file: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """The operator's page of a server whose settings are in `file`."""

    def load(draft: str | None = None) -> LoadedSettings:
        return load_settings(file, draft=draft)

    def change(changes: Changes, write: bool) -> LoadedSettings:
        return change_file(file, changes, load, write=write)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(file.parent))
    monkeypatch.setenv("THE_KEY", KEY)
    commands = Commands(lambda: front.config, lambda *_: [], SettingsFile(load, change))
    users = dict(load().config.users)
    config = front.config.model_copy(update={"users": users})
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_http(replace(front, config=config), commands))
        yield await stack.enter_async_context(operator(front, server))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "runner.toml"
    path.write_text(FILE)
    return path


async def refused(client: httpx.AsyncClient, method: str, **asked: Any) -> str:
    reply = await client.post(f"/api/host/{method}", json=asked)
    assert 400 <= reply.status_code < 500, reply.text
    return reply.text


async def test_values_are_shown_with_where_they_come_from_and_the_key_is_not(
    client: httpx.AsyncClient,
) -> None:
    everybody = await ask(client, "GetSettings")
    assert set(everybody["values"]) == set(SETTINGS)
    assert everybody["values"]["agent.model"] == {"value": "m", "source": "file", "fixed": False}
    assert everybody["values"]["tools.approval"]["source"] == "default"
    assert everybody["values"]["tools.off"]["value"] == []
    assert everybody["hands_loopback"] == has_network()  # in the container tier
    assert everybody["key"] == "the environment variable THE_KEY"
    alices = (await ask(client, "GetSettings", user_id="alice"))["values"]
    assert (alices["agent.model"]["source"], alices["tools.approval"]["source"]) == (
        "everybody",
        "file",
    )
    assert KEY not in str([everybody, alices])


async def test_only_what_was_changed_is_written(client: httpx.AsyncClient, file: Path) -> None:
    values = {"agent.model": "other", "agent.budget.day_usd": 2, "tools.off": ["shell_exec"]}
    reply = await ask(client, "SetSettings", values=values)
    assert reply == {"restart": ["alice", "bob"]}
    text = file.read_text()
    assert set(FILE.splitlines()) - set(text.splitlines()) == {'model = "m"'}
    config = load_settings(file).config
    assert config.agent.budget.day_usd == 2
    assert config.tools.off == {"shell_exec"}
    assert await ask(client, "SetSettings", user_id="bob", values={"tools.off": []}) == {
        "restart": ["bob"]
    }
    found = load_settings(file).config
    assert not found.for_user("bob").tools.off
    assert found.tools.off == {"shell_exec"}
    await ask(client, "SetSettings", values={"tools.off": None, "agent.budget.day_usd": None})
    assert not load_settings(file).config.tools.off


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"agent.instructions": "x"}, "agent.base_url"),
        ({"serve.listen": "0.0.0.0:1"}, "tools.approval"),
        ({"agent.provider": "nobody"}, "agent.provider"),
        ({"agent.model": ["m"]}, "agent.model"),
        ({"agent.budget.day_usd": -1}, "agent.budget.day_usd"),
        ({"agent.base_url": "file:///etc/passwd"}, "http://… or https://…"),
        ({"tools.approval": "never"}, "tools.approval"),
        ({"tools.off": ["sudo"]}, "tools.off is not accepted"),
        ({"tools.off": [{}]}, "tools.off is not accepted"),
        ({"egress.host_loopback": ["http://10.0.0.1:80/"]}, "egress.host_loopback"),
        ("agent.model", "values is not accepted"),
    ],
)
async def test_bad_values_are_refused_by_name_with_what_is_accepted(
    client: httpx.AsyncClient, file: Path, values: Any, said: str
) -> None:
    for user_id in ("", "alice"):
        text = await refused(client, "SetSettings", user_id=user_id, values=values)
        assert "accepted" in text
        assert said in text
    assert file.read_text() == FILE


async def test_what_the_environment_sets_is_shown_as_fixed_and_not_changed(
    client: httpx.AsyncClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXYDRA_AGENT__MODEL", "forced")
    held = (await ask(client, "GetSettings"))["values"]["agent.model"]
    assert held == {
        "value": "forced",
        "source": "environment variable OXYDRA_AGENT__MODEL",
        "fixed": True,
    }
    text = await refused(client, "SetSettings", values={"agent.model": "x"})
    assert "environment variable OXYDRA_AGENT__MODEL" in text
    assert file.read_text() == FILE


async def test_a_key_is_stored_for_its_address_and_goes_with_it(
    client: httpx.AsyncClient, file: Path
) -> None:
    await ask(client, "SetSettings", values={"agent.base_url": "https://one.example/v1"}, key=KEY)
    agent = load_settings(file).config.agent
    assert (agent.api_key_env, agent.api_key_file is None) == ("", False)
    assert KEY in Path(str(agent.api_key_file)).read_text()
    held = await ask(client, "GetSettings")
    assert held["key"] == f"the file {agent.api_key_file}"
    assert KEY not in str(held)
    assert KEY not in file.read_text()
    await ask(client, "SetSettings", values={"agent.base_url": "https://two.example/v1"})
    assert load_settings(file).config.agent.api_key_file is None
    text = await refused(client, "SetSettings", values={"agent.provider": "offline"}, key=KEY)
    assert "the demo has no key" in text


async def test_a_refused_value_stores_no_key(client: httpx.AsyncClient, file: Path) -> None:
    text = await refused(client, "SetSettings", values={"agent.base_url": "nowhere"}, key=KEY)
    assert KEY not in text
    assert not (file.parent / "oxydra").exists()


@pytest.fixture
def models() -> Any:
    with serving(ollama(tag("qwen3:4b", "completion", "tools"))) as running:
        yield running


async def test_models_are_listed_by_the_provider_and_a_set_key_goes_to_its_own_address_alone(
    client: httpx.AsyncClient, models: ModelServer
) -> None:
    address = f"127.0.0.1:{models.port}"
    asked = {"provider": "ollama", "base_url": address}
    (server,) = (await ask(client, "ListModels", **asked))["servers"]
    assert (server["base_url"], server["is_local"]) == (f"http://{address}/v1", True)
    assert [(each["name"], each["tools"]) for each in server["models"]] == [("qwen3:4b", True)]
    assert KEY not in str(models.headers)
    await ask(client, "ListModels", **asked, key="typed-key-0123456789")
    assert "typed-key-0123456789" in str(models.headers)
    text = await refused(client, "ListModels", provider="nobody")
    assert "provider is not accepted" in text


async def test_one_model_is_tried_at_a_time(
    client: httpx.AsyncClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f"{FILE}[users.default.agent]\nmodel = 'of one user alone'\n")
    begun, end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def attempt(config: Config, user_id: str, _: str) -> Trial:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(end.wait(), loop).result()
        agent = config.for_user(user_id).agent
        return Trial(0.5 if agent.model == "tried" else 0.0, "an agent runs")

    monkeypatch.setattr(settings_api, "try_as_agent", attempt)
    first = asyncio.create_task(ask(client, "TryModel", values={"agent.model": "tried"}))
    await begun.wait()
    reply = await client.post("/api/host/TryModel", json={"values": {}})
    assert (reply.status_code, "being tried already" in reply.text) == (429, True)
    end.set()
    assert await first == {"took_s": 0.5, "why_from_here": "an agent runs"}


async def test_a_pasted_block_of_servers_is_told_and_then_added(
    client: httpx.AsyncClient, file: Path
) -> None:
    token = "ghp_0123456789abcdef"
    server = {"command": "npx", "args": ["it@1.0.0"], "env": {"IT_TOKEN": token}}
    block = json.dumps({"mcpServers": {"it": server}})
    told = (await ask(client, "PlanTools", block=block))["told"]
    assert "it: may reach npm (https://registry.npmjs.org)" in told
    assert token not in str(told)
    assert file.read_text() == FILE
    text = await refused(client, "AddTools", block=block.replace(token, "<YOUR_TOKEN>"))
    assert "one with the value of IT_TOKEN in it" in text
    assert "no block of MCP servers" in await refused(client, "PlanTools", block="{")
    assert file.read_text() == FILE
    assert await ask(client, "AddTools", user_id="alice", block=block) == {"restart": ["alice"]}
    config = load_settings(file).config
    assert (config.mcp.servers, [*config.users["alice"].mcp.servers]) == ({}, ["it"])
    assert token not in file.read_text()
    assert read_server_secrets(config.users["alice"].mcp, {}) == {"it/IT_TOKEN": token}
