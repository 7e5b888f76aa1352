"""Commands in the background, from a model's call to what it is told of their end."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.v1 import gateway_pb2 as pb
from wire.v1.bootstrap_pb2 import Project

from guest.notices.outbox import Notice, Outbox
from guest.tools.shell import background
from guest.tools.shell.client import ShellClient
from tests.support import parties
from tests.support.agent.scripted_turns import calls
from tests.support.gateway.gateways import ALICE, LAUNCH_SECRET, Client, Gateways, open_gateways
from tests.support.guests.shell_backends import TOKEN, Daemon, left_behind, ready_daemon

GUARD_S = 60


class World:
    """Alice's gateway over a real shell daemon, with a model that does as it is told."""

    def __init__(self, base: Path, daemon: Daemon) -> None:
        self.base, self.daemon = base, daemon
        self.replies: list[Any] = []
        self.seen: list[str] = []
        self.gateways: Gateways
        self.alice: Client

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[None]:
        client = ShellClient(parties.shell(self.daemon.endpoint, TOKEN))
        model = FunctionModel(stream_function=self._answer)
        async with open_gateways(
            path=self.base, with_model=model, shell=client, **options
        ) as self.gateways:
            self.alice = await self.gateways.serve(ALICE)
            await self.alice.session("s")
            yield
        await client.close()

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        self.seen = [
            str(part.content)
            for each in messages
            if isinstance(each, ModelRequest)
            for part in each.parts
            if isinstance(part, UserPromptPart | ToolReturnPart)
        ]
        reply = self.replies.pop(0) if self.replies else "ok"
        if callable(reply):
            reply = await reply()
        yield reply

    async def turn(self, *replies: Any, session: str = "s") -> list[pb.TurnEvent]:
        self.replies = list(replies)
        events = await self.alice.say(session, "go on")
        assert events[-1].WhichOneof("event") == "completed", events[-1]
        return events

    async def start(self, command: str, session: str = "s") -> dict[str, Any]:
        await self.turn(run(command), session=session)
        told: dict[str, Any] = json.loads(self.seen[-1].split("\nNote: ")[0])
        return told

    async def running(self) -> list[str]:
        hello = await self.alice.stub.Hello(pb.HelloRequest())
        return [each for each in hello.notices if each.startswith("background command")]

    async def ended(self, session: str = "s") -> None:
        """Wait until the end of all that run is stored."""
        await until(lambda: self._stored(session))

    async def _stored(self, session: str) -> bool:
        stored = await self.gateways.memory.state_of.named("command %")
        return all(json.loads(each[2])["ended"] for each in stored if each[0] == session)

    def told(self, number: int) -> list[str]:
        return [each for each in self.seen if f"the background command {number} `" in each]


def run(command: str) -> Any:
    return calls(("shell_exec", {"command": command, "background": True}))


async def until(true: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(GUARD_S):
        while not await true():
            await asyncio.sleep(0.02)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with ready_daemon() as daemon:
        yield World(tmp_path, daemon)


async def test_what_another_host_runs_is_its_own(world: World) -> None:
    async with world.opened(owner="a"):
        await world.start("sleep 60")
    async with world.opened(owner="b"):
        assert await world.running() == []
        await world.start("sleep 61")
        assert len(await world.running()) == 1
        assert world.told(1) == []
    async with world.opened(owner="a"):
        (line,) = await world.running()
        assert "background command 1 `sleep 60`" in line
        assert (await world.start("sleep 62"))["id"] == "3"


async def test_another_host_tells_of_one_that_does_not_come_back(world: World) -> None:
    async with world.opened(owner="a"):
        await world.start("sleep 60")
        old = "UPDATE session_state SET updated_at = '2026-01-01T00:00:00.000000Z'"
        await world.gateways.memory.store.database.execute(old)
    for owner in "bc":
        async with world.opened(owner=owner):
            await world.turn()
            await world.turn()
            (told,) = world.told(1)
            assert "`sleep 60` has not been heard of for ten minutes: the host that" in told
            assert await world.running() == []


async def test_one_of_a_session_that_is_forgotten_elsewhere_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOOK_S", 0.05)
    monkeypatch.setattr(background, "RENEW_S", 0.05)
    async with world.opened():
        await world.start("sleep 1000")
        await asyncio.sleep(0.2)
        assert len(await world.running()) == 1
        await world.gateways.memory.sessions.forget("s")

        async def gone() -> bool:
            return left_behind(world.daemon.root) == []

        await until(gone)


async def test_a_command_outlives_its_turn_and_its_end_is_told_once(world: World) -> None:
    async with world.opened():
        (world.daemon.root / "shared/wait").touch()
        command = f"echo up {LAUNCH_SECRET}; while [ -e wait ]; do sleep 0.02; done; exit 3"
        assert await world.start(command) == {"id": "1", "running": True}
        (line,) = await world.running()
        assert line.startswith("background command 1 `echo up [redacted]; while")
        assert line.endswith("in conversation s")

        async def printed() -> Any:
            await world.turn(calls(("shell_output", {"id": 1})))
            return answered()["output"]

        def answered() -> Any:
            return json.loads(world.seen[-1].split("\nNote: ")[0])

        await until(printed)
        answer = answered()
        assert (answer["running"], answer["output"]) == (True, "up [redacted]\n")
        offset = answer["next_offset"]
        (world.daemon.root / "shared/wait").unlink()
        await world.ended()
        events = await world.turn()
        (told,) = world.told(1)
        assert "` ended with code 3 after" in told
        assert "last lines: up [redacted]" in told
        assert LAUNCH_SECRET not in "".join(world.seen)
        assert any("ended with code 3" in each.notice.text for each in events)
        await world.turn(calls(("shell_output", {"id": 1, "offset": offset})))
        answer = json.loads(world.seen[-1].split("\nNote: ")[0])
        assert (answer["running"], answer["exit_code"], answer["output"]) == (False, 3, "")
        assert len(world.told(1)) == 1
        assert await world.running() == []


async def test_the_next_tool_result_tells_it_as_material(world: World) -> None:
    async with world.opened():

        async def once_ended() -> Any:
            await world.ended()
            return calls(("file_list", {}))

        await world.turn(run("echo done"), once_ended, calls(("file_list", {})))
        (told,) = world.told(1)
        assert "Note: the background command 1 `echo done` ended with code 0 after 0 s" in told
        assert "; last lines: done" in told
        events = await world.gateways.memory.conversations.history("s", 20)
        assert any(
            "shell: echo done" in each.payload
            for each in events
            if "ended with code" in each.payload
        )
        await world.turn()
        assert len(world.told(1)) == 1


async def test_a_turn_that_ended_before_the_words_were_kept_has_not_told_them(
    world: World,
) -> None:
    async with world.opened():
        await world.start("echo done")
        await world.ended()
        assert world.gateways.background is not None
        assert await world.gateways.background.to_tell("s", "killed", [])
    async with world.opened():
        await world.turn()
        await world.turn()
        assert len(world.told(1)) == 1


async def test_a_session_has_its_own_commands_and_ends_them(world: World) -> None:
    async with world.opened():
        await world.start("sleep 1000")
        await world.alice.session("other")
        for tool in ("shell_output", "shell_stop"):
            await world.turn(calls((tool, {"id": 1})), session="other")
            assert "this conversation has no background command 1; there is none" in world.seen[-1]
        assert (await world.start("sleep 1001", "other"))["id"] == "1"
        await world.turn(calls(("shell_stop", {"id": 1})), session="other")
        assert '"message": "was stopped with all it had started"' in world.seen[-1]
        await world.turn(session="other")
        assert world.told(1) == []
        assert len(await world.running()) == 1
        await world.alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s"))

        async def gone() -> bool:
            return left_behind(world.daemon.root) == []

        await until(gone)
        assert await world.running() == []


async def test_they_are_few_and_need_a_conversation(world: World) -> None:
    async with world.opened():
        for number in range(background.COMMANDS_MAX):
            assert (await world.start("sleep 1000"))["id"] == str(number + 1)
        await world.turn(run("true"))
        assert "8 commands run in the background already: 1 `sleep 1000`" in world.seen[-1]
        await world.turn(calls(("shell_exec", {"command": "sleep 100 & true"})))
        assert "the command left processes running, and they were stopped" in world.seen[-1]
        assert "background=true keeps a server running" in world.seen[-1]


async def test_another_agent_finds_them_and_a_shell_that_is_gone_is_told(world: World) -> None:
    async with world.opened():
        await world.start("sleep 1000")
        await world.start("while [ ! -e go ]; do sleep 0.02; done; echo gone on")
    (world.daemon.root / "shared/go").touch()
    async with world.opened():
        await until(world.running)

        async def one() -> bool:
            return len(await world.running()) == 1

        await until(one)
        await world.turn()
        assert "last lines: gone on" in world.told(2)[0]
        world.daemon.process.kill()
        world.daemon.process.wait()
    async with ready_daemon() as world.daemon, world.opened():

        async def none() -> bool:
            return await world.running() == []

        await until(none)
        await world.turn()
        (told,) = world.told(1)
        assert "was ended because the shell guest started anew" in told


async def test_what_it_plants_in_a_project_is_not_the_operators(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOOK_S", 0.05)
    site = world.base / "site"
    site.mkdir()
    projects = [Project(name="site", path=str(site), writable=True)]
    async with world.opened(projects=projects):
        await world.start(f"sleep 0.5; echo x > {site}/.envrc; sleep 1000")

        async def moved() -> bool:
            return any(each.name != ".envrc" for each in site.iterdir())

        await until(moved)
        assert not (site / ".envrc").exists()
        await world.turn(calls(("shell_stop", {"id": 1})))
        (site / ".envrc").write_text("the operator's")
        await world.turn(calls(("shell_exec", {"command": "true"})))
        assert (site / ".envrc").exists()


async def test_long_output_is_read_in_parts_that_join(world: World) -> None:
    async with world.opened():
        await world.start("seq 3000000; echo ümlaut")
        await world.ended()
        await world.turn(calls(("shell_output", {"id": 1, "offset": 0})))
        assert "bytes were dropped: only the newest part of the output is kept" in world.seen[-1]
        answer = json.loads(world.seen[-1].split("\nNote: ")[0])
        joined, places = "", [answer["next_offset"]]
        for _ in range(3):
            await world.turn(calls(("shell_output", {"id": 1, "offset": places[-1]})))
            answer = json.loads(world.seen[-1].split("\nNote: ")[0])
            joined += answer["output"]
            places.append(answer["next_offset"])
        whole = "".join(f"{each}\n" for each in range(1, 3_000_001))
        assert joined in whole
        assert places == sorted(set(places))
        await world.turn(calls(("shell_output", {"id": 1})))
        answer = json.loads(world.seen[-1].split("\nNote: ")[0])
        assert answer["output"].endswith("3000000\nümlaut\n")
        assert answer["total_bytes"] == answer["next_offset"] == len(whole) + len("ümlaut\n") + 1


async def test_a_person_gets_a_notice_where_no_turn_tells_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "NOTICE_S", 0.2)
    async with world.opened():
        outbox = Outbox(world.gateways.memory.store.database, ALICE)
        await world.start("echo done")

        async def told() -> list[Notice]:
            return await outbox.newest(10)

        await until(told)
        (notice,) = await told()
        assert (notice.kind, notice.session_id) == ("command", "s")
        assert "the background command 1 `echo done` ended with code 0" in notice.text
        await world.turn()
        assert len(world.told(1)) == 1

        async def once_ended() -> Any:
            await world.ended()
            return calls(("file_list", {}))

        await world.turn(run("echo more"), once_ended)
        await asyncio.sleep(0.4)
        assert len(await told()) == 1
