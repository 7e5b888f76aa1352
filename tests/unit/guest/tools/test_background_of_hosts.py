"""Commands in the background that are started at once, also by agents of several hosts."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from guest.errors import ToolError
from guest.tools.base import ToolContext
from guest.tools.shell import background
from guest.tools.shell.background import COMMANDS_MAX, BackgroundCommands
from guest.tools.shell.client import Command, ShellClient
from tests.support.memory.store import opened

HOSTS = "ab"
COMMAND = Command("sleep 9", "/shared", 9.0)


class Shell:
    """Begins commands, none of which ends."""

    def __init__(self) -> None:
        self.followed: list[str] = []

    async def start(self, *_: Any) -> None:
        await asyncio.sleep(0)

    async def wait(self, exec_id: str) -> None:
        self.followed.append(exec_id)
        await asyncio.Event().wait()


async def test_each_has_a_number_of_its_own_and_is_known_to_its_host(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        session = (await memory.conversations.create()).session_id
        context = ToolContext("alice", session, "t", "test")
        shell = cast(ShellClient, Shell())
        hosts = [BackgroundCommands(shell, memory.state_of, str, owner=each) for each in HOSTS]
        starts = [each.start(context, COMMAND, "c") for each in hosts for _ in range(4)]
        assert sorted(await asyncio.gather(*starts)) == list(range(1, 9))
        assert [len(await each.running()) for each in hosts] == [4] * len(HOSTS)
        stored = [json.loads(each[2]) for each in await memory.state_of.named("command %")]
        assert sorted(each["owner"] for each in stored) == sorted(HOSTS * 4)
        for each in hosts:
            await each.close()


async def test_one_reply_starts_no_more_than_may_run(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        session = (await memory.conversations.create()).session_id
        commands = BackgroundCommands(cast(ShellClient, Shell()), memory.state_of, str, owner="a")
        context = ToolContext("alice", session, "t", "test")
        starts = [commands.start(context, COMMAND, "c") for _ in range(COMMANDS_MAX + 3)]
        made = await asyncio.gather(*starts, return_exceptions=True)
        refused = [each for each in made if isinstance(each, ToolError)]
        assert len(refused) == 3
        assert "8 commands run in the background already: 1 `sleep 9`" in str(refused[0])
        assert len(await memory.state_of.named("command %")) == COMMANDS_MAX
        await commands.close()


async def test_one_that_begins_while_others_are_looked_for_is_followed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOAD_AGAIN_S", 0.0)
    async with opened(tmp_path / "memory.db") as memory:
        session = (await memory.conversations.create()).session_id
        shell = Shell()
        commands = BackgroundCommands(cast(ShellClient, shell), memory.state_of, str, owner="a")
        update = memory.state_of.update

        async def looked_for(*given: Any) -> bool:
            done = await update(*given)
            await commands.running()
            return done

        context = ToolContext("alice", session, "t", "test")
        await commands.start(context, COMMAND, "c")
        monkeypatch.setattr(memory.state_of, "update", looked_for)
        await asyncio.wait_for(commands.start(context, COMMAND, "c"), 5)
        await asyncio.sleep(0.05)
        assert len(shell.followed) == 2
        await commands.close()
