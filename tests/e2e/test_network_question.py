"""A person is asked whether a command may reach a host, and what leaves is in the record."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from runner.audit.log import LogLocation
from runner.audit.reading import verify
from tests.clients.test_acp_client import Editor, opened, say
from tests.support.commands.household import COMMAND, Household
from tests.support.commands.terminal import Terminal
from tests.support.egress.origins import SETTINGS, Origin, names, origin
from tests.support.egress.recorded import newest

pytestmark = pytest.mark.bubblewrap

HOST = "files.example.org"


@dataclass
class Outside:
    """A server outside, and the household that has a name server which knows it."""

    household: Household
    server: Origin

    @property
    def place(self) -> str:
        return f"{HOST}:{self.server.port}"

    @property
    def fetch(self) -> str:
        return f"run curl -sS http://{self.place}/release-notes"


@pytest.fixture
async def outside(household: Household) -> AsyncIterator[Outside]:
    async with names({HOST: ["127.0.0.1"]}) as (name_server, _), origin() as server:
        household.environment["OXYDRA_AGENT__PROVIDER"] = "offline"  # so nobody is asked
        (household.working_directory / "runner.toml").write_text(
            SETTINGS.format(name_server=name_server, shell="ask = true")
        )
        yield Outside(household, server)


async def test_a_yes_in_the_chat_lets_the_session_reach_the_host(outside: Outside) -> None:
    household = outside.household
    command, here = [*COMMAND, "chat"], household.working_directory
    async with Terminal(command, household.environment, here) as terminal:
        await terminal.expect("· /help")
        terminal.type(f"{outside.fetch}\r")
        await terminal.expect(f"allow http://{outside.place} for this session?")
        assert outside.server.requests == []
        terminal.type("y\r")
        await terminal.expect("to /release-notes")
        terminal.type(f"{outside.fetch}-of-today\r")
        await terminal.expect("to /release-notes-of-today")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert terminal.text.count("for this session?") == 1
    assert len(outside.server.requests) == 2


async def test_a_no_is_told_to_the_command_and_counts_for_the_turn(outside: Outside) -> None:
    household = outside.household
    command, here = [*COMMAND, "chat"], household.working_directory
    async with Terminal(command, household.environment, here) as terminal:
        await terminal.expect("· /help")
        terminal.type(f"{outside.fetch}; curl -sS http://{outside.place}/again\r")
        await terminal.expect(f"allow http://{outside.place} for this session?")
        terminal.type("n\r")
        await terminal.expect("a person said no")
        await terminal.expect("exit code")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert terminal.text.count("for this session?") == 1
    assert outside.server.requests == []


async def test_where_nobody_can_be_asked_the_answer_is_no(outside: Outside) -> None:
    done = await asyncio.to_thread(outside.household.run, "ask", outside.fetch)
    assert f"allow http://{outside.place} for this session?" in done.stderr
    assert "no: standard input is not a terminal" in done.stderr
    assert "a person said no" in done.stdout
    assert outside.server.requests == []


async def test_an_editor_asks_its_person(outside: Outside) -> None:
    editor = Editor()
    await asyncio.to_thread(outside.household.works, "start", "--detach")
    async with opened(outside.household, editor) as agent:
        session = (await agent.new_session(cwd="/", mcp_servers=[])).session_id
        await say(agent, session, outside.fetch)
    await asyncio.to_thread(outside.household.works, "stop")
    (asked,) = editor.asked
    told = f"allow http://{outside.place} for this session? ⏎ host ⏎ │ files.example.org ⏎ port "
    assert (asked.title or "").startswith(told)
    assert asked.kind == "fetch"
    assert "to /release-notes" in editor.said()
    assert len(outside.server.requests) == 1


async def test_what_was_on_its_way_when_the_runner_was_killed_is_recorded(
    outside: Outside,
) -> None:
    household = outside.household
    settings = household.working_directory / "runner.toml"
    settings.write_text(f'{settings.read_text()}allow = ["{outside.place}"]\n')
    await asyncio.to_thread(household.works, "start", "--detach")
    log = LogLocation(household.workspaces, "default")
    asking = subprocess.Popen(
        [*COMMAND, "ask", f"run curl -s http://{outside.place}/forever >/dev/null"],
        env=household.environment,
        cwd=household.working_directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await newest(log, HOST, "running")
        status = json.loads(await asyncio.to_thread(household.works, "status", "--json"))
        os.kill(status["pid"], signal.SIGKILL)
    finally:
        asking.kill()
        asking.wait()
    assert await asyncio.to_thread(household.gone)
    await asyncio.to_thread(household.works, "start", "--detach")
    assert (await newest(log, HOST, "cut")).path == "/forever"
    assert verify(log).findings == ()
    await asyncio.to_thread(household.works, "stop")
