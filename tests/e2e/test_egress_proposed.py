"""After a refusal the model proposes what to open, and a person decides for how long."""

import json
import tomllib
from pathlib import Path

import pytest

from tests.support.commands.household import COMMAND, Household
from tests.support.commands.terminal import Terminal
from tests.support.egress.origins import SETTINGS, Certificates, names, origin
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import Reply

pytestmark = pytest.mark.bubblewrap

HOST = "files.example.org"


def runs(command: str) -> Reply:
    return provider.calls(("c1", "shell_exec", json.dumps({"command": command})))


def proposes(*hosts: str) -> Reply:
    asked = {"hosts": hosts, "reason": "the notes"}
    return provider.calls(("c2", "egress_propose", json.dumps(asked)))


async def test_a_refused_host_is_opened_for_a_turn_a_session_and_always(
    household: Household, tmp_path: Path
) -> None:
    context = Certificates(tmp_path).server(HOST)
    async with names({HOST: ["127.0.0.1"]}) as (name_server, _), origin(context) as server:
        place, here = f"{HOST}:{server.port}", household.working_directory
        settings = here / "runner.toml"
        settings.write_text(
            SETTINGS.format(name_server=name_server, shell='allow = ["open.example.org"]')
        )
        fetch, says = f"curl -sSk https://{place}/a", provider.says
        turn = [runs(fetch), proposes(place), runs(fetch), says("Done.")]
        replies = [runs(fetch), proposes("evil.example", place), says("Not opened."), *turn * 2]
        replies += [runs(fetch), says("Fetched."), *turn]
        async with provider.openai_server(*replies) as model:
            household.environment |= {
                "OXYDRA_AGENT__PROVIDER": "openai",
                "OXYDRA_AGENT__MODEL": "test-model",
                "OXYDRA_AGENT__BASE_URL": model.base_url,
                "OXYDRA_AGENT__API_KEY_ENV": "A_KEY",
                "A_KEY": "sk-0123456789",
            }
            async with Terminal([*COMMAND, "chat"], household.environment, here) as terminal:
                at = await terminal.expect("· /help")
                terminal.type("fetch it\r")
                at = await terminal.expect("Not opened.", after=at)
                told = model.requests[-1].body["messages"][-1]["content"]
                assert "no command of this session was refused evil.example" in told

                async def is_opened(answer: str, how: str) -> None:
                    at, before = len(terminal.text), len(server.requests)
                    terminal.type("fetch it\r")
                    at = await terminal.expect(f"commands https://{place} for this turn?", after=at)
                    at = await terminal.expect(f"new: {HOST}", after=at)
                    at = await terminal.expect("[y/N/1/2]", after=at)
                    assert len(server.requests) == before
                    terminal.type(f"{answer}\r")
                    at = await terminal.expect(f"opened {how}: https://{place}", after=at)
                    await terminal.expect("Done.", after=at)
                    assert len(server.requests) == before + 1

                await is_opened("y", "for this turn")
                await is_opened("1", "for this session")
                terminal.type("fetch it\r")
                await terminal.expect("Fetched.", after=len(terminal.text))
                terminal.type("/new\r")
                await is_opened("2", "always")
                terminal.type("\x04")
                assert await terminal.ended() == 0
    kept = tomllib.loads(settings.read_text())["users"]["default"]["egress"]["shell"]["allow"]
    assert kept == ["open.example.org", f"https://{place}"]
    assert len(server.requests) == 4
