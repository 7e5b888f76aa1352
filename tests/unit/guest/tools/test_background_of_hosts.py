"""Commands in the background that agents of several hosts start in one session at once."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

from guest.tools.base import ToolContext
from guest.tools.shell.background import BackgroundCommands
from guest.tools.shell.client import Command, ShellClient
from tests.support.memory.store import opened

HOSTS = "ab"
COMMAND = Command("sleep 9", "/shared", 9.0)


class Shell:
    """Begins commands, none of which ends."""

    async def start(self, *_: Any) -> None:
        await asyncio.sleep(0)

    async def wait(self, _: str) -> None:
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
