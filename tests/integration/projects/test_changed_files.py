"""What a turn changes in a project is told, shown, kept, and taken back: from the gateway."""

import inspect
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb
from wire.v1.bootstrap_pb2 import Project

from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from runner.client.gateway import GatewayClient
from tests.support.agent.scripted_turns import calls
from tests.support.gateway.gateways import ALICE, Client, Gateways, open_gateways, refusal


class Nothing(Arguments):
    """No arguments."""


class World:
    """Alice's gateway with a project, and a tool that does what a test says, as a command would."""

    def __init__(self, base: Path) -> None:
        self.base, self.site = base / "gateway", base / "site"
        self.base.mkdir()
        (self.site / "src").mkdir(parents=True)
        (self.site / "src" / "app.py").write_text("one\ntwo\nthree\n")
        (self.site / "README").write_text("hello\n")
        (self.site / ".gitignore").write_text("*.log\nbuild/\n")
        self.replies: list[Any] = []
        self.does: Callable[[], object] = lambda: None
        self.gateways: Gateways
        self.alice: Client

    async def _answer(self, *_: Any) -> AsyncIterator[Any]:
        yield self.replies.pop(0) if self.replies else "ok"

    async def _command(self, _: ToolContext, __: Arguments) -> ToolOutput:
        if inspect.isawaitable(made := self.does()):
            await made
        return ToolOutput({})

    @asynccontextmanager
    async def opened(self, **project: Any) -> AsyncIterator["World"]:
        command = Tool("command", "Does it.", Nothing, Safety.SIDE_EFFECTING, 10, self._command)
        given = {"name": "site", "path": str(self.site), "writable": True, **project}
        async with open_gateways(
            path=self.base,
            with_model=FunctionModel(stream_function=self._answer),
            projects=[Project(**given)],
            tools=[command],
            second_chance=False,
        ) as self.gateways:
            self.alice = await self.gateways.serve(ALICE)
            assert self.gateways.changes.ready.wait(10)
            await self.alice.stub.CreateSession(
                pb.CreateSessionRequest(session_id="s", project="site")
            )
            yield self

    async def turn(self, *made: tuple[str, dict[str, Any]], turn_id: str = "") -> pb.FileChanges:
        self.replies = [calls(each) for each in made]
        events = await self.alice.say("s", "do it", turn_id)
        assert events[-1].WhichOneof("event") == "completed", events[-1]
        return events[-1].completed.files

    async def command(self, does: Callable[[], object], turn_id: str = "") -> pb.FileChanges:
        self.does = does
        return await self.turn(("command", {}), turn_id=turn_id)

    async def diff(self, **fields: Any) -> pb.TurnDiffReply:
        return await self.alice.stub.TurnDiff(pb.TurnDiffRequest(session_id="s", **fields))

    async def undo(self, **fields: Any) -> pb.UndoFilesReply:
        return await self.alice.stub.UndoFiles(pb.UndoFilesRequest(session_id="s", **fields))

    def files(self) -> dict[str, tuple[int, bytes]]:
        """All of the project: modes, and what the files say."""
        return {
            str(path.relative_to(self.site)): (
                path.lstat().st_mode,
                os.fsencode(path.readlink())
                if path.is_symlink()
                else path.read_bytes()
                if path.is_file()
                else b"",
            )
            for path in sorted(self.site.rglob("*"))
        }


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path).opened() as made:
        yield made


def told(files: pb.FileChanges) -> dict[str, tuple[str, int, int, bool]]:
    return {
        each.path.removeprefix("/projects/site/"): (
            each.kind,
            each.added,
            each.removed,
            each.by_tool,
        )
        for each in files.changes
    }


async def test_a_file_tools_change_is_told_exactly_and_taken_back(world: World) -> None:
    before = world.files()
    files = await world.turn(
        ("file_edit", {"path": "src/app.py", "old": "two", "new": "2\n2b"}),
        ("file_write", {"path": "new/deep/x.txt", "content": "x\n", "create_parents": True}),
        ("file_delete", {"path": "README"}),
        turn_id="t",
    )
    assert told(files) == {
        "README": ("deleted", 0, 1, True),
        "new/deep/x.txt": ("added", 1, 0, True),
        "src/app.py": ("changed", 2, 1, True),
    }
    assert (files.files, files.added, files.removed, files.uncounted) == (3, 3, 2, "")
    assert all(each.undoable for each in files.changes)
    shown = await world.diff()
    assert shown.turn_id == "t"
    assert "-two\n+2\n+2b\n" in shown.diff
    one = await world.diff(path="/projects/site/src/app.py")
    assert (one.before, one.after) == ("one\ntwo\nthree\n", "one\n2\n2b\nthree\n")
    after = world.files()
    undone = await world.undo()
    assert not undone.asks
    assert undone.files == files
    assert world.files() == before
    again = await world.undo(turn_id=undone.turn_id)  # an undo can be taken back
    assert not again.asks
    assert world.files() == after


async def test_of_a_turn_whose_agent_was_killed_it_is_said_that_nothing_was_counted(
    world: World,
) -> None:
    conversations = world.gateways.memory.conversations
    await conversations.append("s", turn_id="cut", role="user", text="x", payload="[]")
    follow = pb.FollowTurnRequest(turn_id="cut")
    events = [event async for event in world.alice.stub.FollowTurn(follow)]
    assert events[-1].failed.code == "interrupted"
    assert events[-1].failed.files.uncounted.startswith("the agent was stopped before")


async def test_what_a_command_changes_is_asked_for(world: World) -> None:
    def change() -> None:
        (world.site / "src" / "app.py").write_text("one\n")
        (world.site / "src" / "app.py").chmod(0o755)
        (world.site / "README").chmod(0o600)
        (world.site / "made").mkdir()
        (world.site / "made" / "a b\n").write_bytes(b"\0\1")
        (world.site / "link").symlink_to("src/app.py")
        (world.site / "debug.log").write_text("ignored")
        os.mkfifo(world.site / "pipe")

    before = world.files()
    files = await world.command(change, "t")
    assert told(files) == {
        "README": ("mode", 0, 0, False),
        "link": ("added", 1, 0, False),
        "made/a b\\n": ("added", 0, 0, False),
        "src/app.py": ("changed", 0, 2, False),
    }
    assert files.ignored
    asked = await world.undo()
    assert not asked.restored
    assert not asked.turn_id
    assert {each.path for each in asked.asks} == {each.path for each in files.changes}
    assert set(asked.reasons) == {"it changed during the turn, by a command or by somebody else"}
    (world.site / "README").write_text("the operator's\n")
    paths = [each.path for each in asked.asks]
    undone = await world.undo(not_only_tools=True, paths=paths)
    assert [each.path for each in undone.asks] == ["/projects/site/README"]
    assert undone.reasons == ["it has changed since that turn"]
    assert (world.site / "README").read_text() == "the operator's\n"
    forced = await world.undo(turn_id="t", not_only_tools=True, overwrite=True)
    assert [each.path for each in forced.restored] == ["/projects/site/README"]
    (world.site / "debug.log").unlink()
    (world.site / "pipe").unlink()
    assert world.files() == before


async def test_a_receipt_is_kept_with_the_turn_and_forgotten_with_the_session(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    async with world.opened():
        files = await world.command((world.site / "secret-plan").touch, "t")
    async with world.opened():
        request = pb.GetSessionRequest(session_id="s")
        history = await world.alice.stub.GetSession(request)
        assert [(each.turn_id, each.files) for each in history.files] == [("t", files)]
        follow = world.alice.stub.FollowTurn(pb.FollowTurnRequest(turn_id="t"))
        assert [event async for event in follow][-1].completed.files == files
        assert (await world.undo(not_only_tools=True)).restored
        await world.alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s"))
        await world.alice.session("s")
        assert (await refusal(world.diff())).code is Code.NOT_FOUND
    kept = b"".join(path.read_bytes() for path in world.base.glob("changed-files.db*"))
    assert b"secret-plan" not in kept


async def test_receipts_come_with_each_page_of_a_long_conversation(world: World) -> None:
    """Its last events are larger than a message of gRPC can be; one turn lies on the seam."""
    for turn_id in ("t1", "t2", "t3"):
        await world.command((world.site / turn_id).touch, turn_id)
        for _ in range(14):
            await world.gateways.memory.conversations.append(
                "s", turn_id=turn_id, role="tool", text="x" * 500_000, payload="[]"
            )
    page = await world.alice.stub.GetSession(pb.GetSessionRequest(session_id="s", limit=1000))
    assert page.before
    async with await GatewayClient.open(world.alice.peer, channel_name="test") as client:
        history = await client.get_session("s", 1000)
    assert [each.turn_id for each in history.files] == ["t1", "t2", "t3"]


async def test_nothing_is_said_where_nothing_can_have_changed(world: World) -> None:
    events = await world.alice.say("s", "hello")
    assert not events[-1].completed.HasField("files")
    files = await world.command(lambda: None)
    assert (files.files, files.uncounted) == (0, "")
    assert (await refusal(world.diff())).code is Code.NOT_FOUND


async def test_nothing_is_taken_back_while_a_turn_changes_files(world: World) -> None:
    await world.turn(("file_write", {"path": "x", "content": "x"}))
    refused = []

    async def undo() -> None:
        refused.append(await refusal(world.undo()))

    await world.command(undo)
    assert refused[0].code is Code.FAILED_PRECONDITION
    assert "in the session s" in refused[0].details
    assert (await world.undo()).restored


async def test_what_a_command_changes_after_a_file_tool_is_not_only_the_tools(world: World) -> None:
    world.does = lambda: (world.site / "x").write_text("another\n")
    files = await world.turn(("file_write", {"path": "x", "content": "x\n"}), ("command", {}))
    assert told(files) == {"x": ("added", 1, 0, False)}


async def test_what_the_operator_does_between_turns_is_nobodys(world: World) -> None:
    await world.command(lambda: None)
    (world.site / "README").write_text("mine\n")
    files = await world.command((world.site / "src" / "app.py").unlink)
    assert list(told(files)) == ["src/app.py"]


async def test_what_the_watch_moves_aside_is_no_change_of_the_model(world: World) -> None:
    files = await world.command(lambda: (world.site / ".envrc").write_text("evil"))
    assert list(world.site.glob(".envrc.aside-*"))
    assert files.files == 0


async def test_an_ignore_rule_that_a_command_adds_hides_nothing(world: World) -> None:
    def change() -> None:
        with (world.site / ".gitignore").open("a") as file:
            file.write("*.py\n")
        (world.site / "new.py").touch()

    assert list(told(await world.command(change))) == [".gitignore", "new.py"]


async def test_undo_writes_over_no_link_and_over_no_wall(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.site / ".git").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("precious")
    async with world.opened(walls=[".git"]):
        await world.turn(("file_edit", {"path": "src/app.py", "old": "two", "new": "2"}))
        shutil.move(world.site / "src", world.site / "old")
        for target in (outside, world.site / "old"):
            (world.site / "src").symlink_to(target)
            undone = await world.undo(overwrite=True, not_only_tools=True)
            assert undone.reasons == [
                "a link, a file or another file system is where its directory was"
            ]
            (world.site / "src").unlink()
        (world.site / "src").mkdir()
        (world.site / "src" / "app.py").symlink_to(outside / "app.py")
        assert (await world.undo(overwrite=True)).restored
        assert (world.site / "src" / "app.py").read_text() == "one\ntwo\nthree\n"
        (world.site / "src" / "app.py").unlink()
        os.mkfifo(world.site / "src" / "app.py")
        undone = await world.undo(overwrite=True)
        assert undone.reasons == ["something else than a file is there now"]
    assert (outside / "app.py").read_text() == "precious"
    assert (world.site / "old" / "app.py").read_text() == "one\n2\nthree\n"


async def test_a_file_tools_change_of_an_ignored_file_is_exact_too(world: World) -> None:
    (world.site / "old.log").write_text("old\n")
    (world.site / "build" / "in").mkdir(parents=True)
    (world.site / "build" / "in" / "x.o").write_text("x\n")
    (world.site / "build" / "in" / "y.o").write_text("y\n")
    before = world.files()
    files = await world.turn(
        ("command", {}),
        ("file_write", {"path": "old.log", "content": "new\n"}),
        ("file_write", {"path": "build/in/x.o", "content": "z\n"}),
        ("file_write", {"path": "build/far/n.o", "content": "n\n", "create_parents": True}),
    )
    assert told(files) == {
        "build/far/n.o": ("added", 1, 0, True),
        "build/in/x.o": ("changed", 1, 1, True),
        "old.log": ("changed", 1, 1, True),
    }
    assert files.ignored
    assert not (await world.undo()).asks
    assert world.files() == before
    quiet = await world.command(lambda: (world.site / "build" / "in" / "y.o").write_text("1\n"))
    assert told(quiet) == {}
