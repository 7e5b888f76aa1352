"""The ACP SDK's own client, as an editor that starts `runner acp`."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from tests.support.commands.household import Household

pytestmark = [pytest.mark.xdist_group("acp_client"), pytest.mark.bubblewrap]
EDITOR = "ACP Python SDK"
NOWHERE = "/"


@dataclass
class Editor:
    """What an editor shows, and what its person answers."""

    allow: bool = True
    always: str = ""
    updates: list[Any] = field(default_factory=list)
    asked: list[schema.ToolCallUpdate] = field(default_factory=list)
    asking: asyncio.Event = field(default_factory=asyncio.Event)
    answers: bool = True

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        assert session_id
        self.updates.append(update)

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        assert session_id
        self.asked.append(tool_call)
        self.asking.set()
        if not self.answers:
            await asyncio.sleep(60)
        kind = "allow_once" if self.allow else "reject_once"
        kind = "allow_always" if self.always else kind
        chosen = next(e.option_id for e in options if e.kind == kind and self.always in e.name)
        outcome = schema.AllowedOutcome(option_id=chosen, outcome="selected")
        return schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn: Any) -> None:
        """It needs nothing of the connection."""

    def said(self) -> str:
        return "".join(
            each.content.text for each in self.updates if isinstance(each, schema.AgentMessageChunk)
        )

    def differences(self) -> list[tuple[str, str | None, str]]:
        """Path, old and new text of each."""
        content = [part for e in self.updates if _is_call(e) for part in e.content or ()]
        return [(d.path, d.old_text, d.new_text) for d in content if d.type == "diff"]

    def calls(self) -> list[tuple[str, str]]:
        """The calls with their last status."""
        titles = {e.tool_call_id: e.title for e in self.updates if _is_call(e) and e.title}
        states = {e.tool_call_id: e.status for e in self.updates if _is_call(e) and e.status}
        return [(titles[call_id], states[call_id]) for call_id in titles]


def _is_call(update: Any) -> bool:
    return isinstance(update, schema.ToolCallStart | schema.ToolCallProgress)


@asynccontextmanager
async def opened(
    house: Household, editor: Editor, *before: str, after: tuple[str, ...] = ()
) -> AsyncIterator[Any]:
    command, *words = house.command
    async with acp.spawn_agent_process(
        editor,  # type: ignore[arg-type]  # the methods that agents call
        command,
        *words,
        *before,
        "acp",
        *after,
        env=house.environment,
        cwd=house.working_directory,
    ) as (agent, _):
        told = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert told.agent_capabilities is not None
        assert told.agent_capabilities.load_session
        yield agent


async def say(agent: Any, session_id: str, *blocks: Any) -> schema.PromptResponse:
    async with asyncio.timeout(60):
        done: schema.PromptResponse = await agent.prompt(
            session_id=session_id,
            prompt=[acp.text_block(b) if isinstance(b, str) else b for b in blocks],
        )
    return done


@pytest.mark.client(EDITOR, "talks to the agent, sees its tool calls, and opens a session again")
async def test_an_editor_talks_and_opens_what_was_said_again(house: Household) -> None:
    editor = Editor()
    async with opened(house, editor) as agent:
        session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        done = await say(agent, session, "remember that my boat is called Albatross")
        assert done.stop_reason == "end_turn"
        assert "Saved: my boat is called Albatross" in editor.said()
        ((title, status),) = editor.calls()
        assert (title.split()[0], status) == ("memory_save", "completed")
    again = Editor()
    async with opened(house, again) as agent:
        await agent.load_session(cwd=NOWHERE, session_id=session, mcp_servers=[])
        assert "Saved: my boat is called Albatross" in again.said()
        asked = [e for e in again.updates if isinstance(e, schema.UserMessageChunk)]
        assert asked[0].content.text == "remember that my boat is called Albatross"
        await say(agent, session, "what do you know about my boat?")
        assert "Albatross" in again.said()
        with pytest.raises(acp.RequestError):
            await agent.load_session(cwd=NOWHERE, session_id="nowhere", mcp_servers=[])


@pytest.mark.client(EDITOR, "asks the person before a command runs, with the exact command")
@pytest.mark.parametrize("allow", [True, False])
async def test_a_command_waits_for_the_person_at_the_editor(house: Household, allow: bool) -> None:
    editor = Editor(allow)
    async with opened(house, editor) as agent:
        session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        await say(agent, session, "run echo one && echo two")
        (asked,) = editor.asked
        assert asked.title == (
            "allow shell_exec? ⏎ command ⏎ │ echo one && echo two ⏎ cwd ⏎ │ /shared"
        )
        assert "\\n  │ echo one && echo two\\n" in str(asked.content)
        ((title, status),) = editor.calls()
        assert title == "echo one && echo two"
        assert status == ("completed" if allow else "failed")
        assert ("one\ntwo" in editor.said()) == allow


@pytest.mark.client(EDITOR, "allows commands that begin alike for a session, once")
async def test_an_editor_allows_more_than_one_command(house: Household) -> None:
    editor = Editor(always="commands that begin with `ls` in /shared")
    async with opened(house, editor) as agent:
        session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        await say(agent, session, "run ls -l")
        await say(agent, session, "run ls -a")
        assert len(editor.asked) == 1
        assert [status for _, status in editor.calls()] == ["completed"] * 2
        elsewhere = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        await say(agent, elsewhere, "run ls -a")
        assert len(editor.asked) == 2


@pytest.mark.client(EDITOR, "stops what it asked for")
async def test_an_editor_cancels(house: Household) -> None:
    editor = Editor(answers=False)
    async with opened(house, editor) as agent:
        session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        asking = asyncio.create_task(say(agent, session, "run sleep 600"))
        async with asyncio.timeout(60):
            await editor.asking.wait()
        await agent.cancel(session_id=session)
        assert (await asking).stop_reason == "cancelled"


@pytest.mark.client(
    EDITOR, "is told that the agent died in the middle, and goes on with its successor"
)
async def test_an_agent_that_dies_says_so_to_the_editor(house: Household) -> None:
    editor = Editor(answers=False)
    async with opened(house, editor) as agent:
        session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        asking = asyncio.create_task(say(agent, session, "run sleep 600"))
        async with asyncio.timeout(60):
            await editor.asking.wait()
        for pid in house.guest_pids("guest.app"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(acp.RequestError, match="stopped in the middle"):
            await asking
        await say(agent, session, "help")
        assert "remember that TEXT" in editor.said()


async def test_a_file_of_the_editor_is_shown_and_images_are_refused(house: Household) -> None:
    editor = Editor()
    file = acp.resource_block(
        acp.embedded_text_resource("file:///plan.md", "the launch is on May 2")
    )
    async with opened(house, editor) as agent:
        session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
        assert (await say(agent, session, "hello", file)).stop_reason == "end_turn"
        with pytest.raises(acp.RequestError, match="shared directory"):
            await say(agent, session, acp.image_block("aGk=", "image/png"))


@pytest.mark.client(EDITOR, "reaches the agent of another account or machine with an access file")
async def test_an_editor_reaches_an_agent_elsewhere(house: Household) -> None:
    file = house.path / "editor.json"
    socket = house.path / "access.sock"
    house.environment["OXYDRA_ACCESS__SOCKET"] = str(socket)
    house.works("access", "create", "editor", "--access-file", str(file))
    house.environment["OXYDRA_SERVE__LISTEN"] = ""
    serving = house.begin("serve")
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline() == f"serving at {socket}\n"
        editor = Editor()
        async with opened(house, editor, "--connect", str(file)) as agent:
            session = (await agent.new_session(cwd=NOWHERE, mcp_servers=[])).session_id
            await say(agent, session, "help")
            assert "remember that TEXT" in editor.said()
    finally:
        serving.terminate()
        serving.wait()


@pytest.mark.client(EDITOR, "works in the folder that is open, where it was told to")
async def test_an_editor_opens_its_folder(house: Household) -> None:
    place = tempfile.mkdtemp(dir="/var/tmp")
    folder = Path(place) / "opened"
    folder.mkdir(mode=0o755)
    (folder / "a.txt").write_text("one\n")
    editor = Editor()
    async with opened(house, editor, after=("--with-folder",)) as agent:
        session = (await agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
        await say(agent, session, "read /projects/opened/a.txt")
        assert "one" in editor.said()
        await say(agent, session, "write /projects/opened/b.txt: two")
        assert (folder / "b.txt").read_text().strip() == "two"
        with pytest.raises(acp.RequestError):
            await agent.new_session(
                cwd=str(folder), additional_directories=[NOWHERE], mcp_servers=[]
            )
        with pytest.raises(acp.RequestError):
            await agent.new_session(cwd=NOWHERE, mcp_servers=[])
    house.works("projects", "close", "opened")
    shutil.rmtree(place)


async def test_an_editor_reads_its_folder_and_goes_on_there_while_no_turn_runs(
    house: Household,
) -> None:
    place = tempfile.mkdtemp(dir="/var/tmp")
    folder, other = Path(place) / "looked-at", Path(place) / "other"
    for each in (folder, other):
        each.mkdir(mode=0o755)
        (each / "a.txt").write_text("one\n")
    editor = Editor()
    async with opened(house, editor, after=("--with-folder=ro",)) as agent:
        session = (await agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
        await say(agent, session, "write /projects/looked-at/b.txt: two")
        assert "read-only" in editor.said()
        assert not (folder / "b.txt").exists()
        editor.answers = False
        asking = asyncio.create_task(say(agent, session, "run sleep 600"))
        async with asyncio.timeout(60):
            await editor.asking.wait()
        with pytest.raises(acp.RequestError, match="turn"):
            await agent.new_session(cwd=str(other), mcp_servers=[])
        await agent.cancel(session_id=session)
        await asking
    editor = Editor()
    async with opened(house, editor, after=("--with-folder=ro",)) as agent:
        await agent.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
        assert any(isinstance(each, schema.UserMessageChunk) for each in editor.updates)
        await say(agent, session, "read /projects/looked-at/a.txt")
        assert "one" in editor.said()
        await agent.load_session(cwd=str(other), session_id=session, mcp_servers=[])
        editor.updates.clear()
        await say(agent, session, "read /projects/other/a.txt")
        assert "one" in editor.said()
    for each in (folder, other):
        house.works("projects", "close", each.name)
    shutil.rmtree(place)


def test_an_agent_elsewhere_opens_no_folder(house: Household) -> None:
    done = house.run("--connect", "nowhere.json", "acp", "--with-folder")
    assert done.returncode == 1
    assert "only to an agent of this account" in done.stderr


@pytest.mark.client(EDITOR, "shows what a turn changed as differences, and takes it back")
async def test_an_editor_shows_differences_and_takes_them_back(house: Household) -> None:
    await changed_and_taken_back(house)


@pytest.mark.docker
async def test_an_editor_takes_changes_of_containers_back() -> None:
    made = Household(containers=True)
    made.environment |= {"OXYDRA_EMBEDDER__BACKEND": "none", "OXYDRA_TOOLS__APPROVAL": "ask"}
    try:
        made.works("start", "--detach")
        await changed_and_taken_back(made)
    finally:
        made.stop()
        made.remove()


async def changed_and_taken_back(house: Household) -> None:
    """An editor's real flow: open a folder, ask for changes, see them, take them back."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        folder = Path(place) / "opened"
        folder.mkdir(mode=0o755)
        for name, mode in (("a.txt", 0o640), ("run.sh", 0o755)):
            (folder / name).write_text("one\n")
            (folder / name).chmod(mode)
        before = standing(folder)
        editor = Editor()
        async with opened(house, editor, after=("--with-folder",)) as agent:
            session = (await agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
            await say(agent, session, "write /projects/opened/a.txt: two")
            assert editor.differences() == [(f"{folder}/a.txt", "one\n", "two")]
            assert len(editor.calls()) == 1
            offered = [e for e in editor.updates if isinstance(e, schema.AvailableCommandsUpdate)]
            assert [each.name for each in offered[0].available_commands] == ["undo"]
            editor.allow = False
            assert (await say(agent, session, "/undo files")).stop_reason == "end_turn"
            assert "a.txt put back" in editor.said()
            assert standing(folder) == before
            editor.allow = True
            editor.updates.clear()
            command = "cd /projects/opened && echo new > new.txt && echo two >> run.sh && rm a.txt"
            await say(agent, session, f"run {command}")
            assert editor.differences() == [
                (f"{folder}/a.txt", "one\n", ""),
                (f"{folder}/new.txt", None, "new\n"),
                (f"{folder}/run.sh", "one\n", "one\ntwo\n"),
            ]
            editor.asked.clear()
            await say(agent, session, "/undo files")
            assert "opened/run.sh" in str(editor.asked[0].content)
            assert standing(folder) == before


def standing(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Owner, group, mode and content of each file."""
    found = {}
    for path in folder.iterdir():
        its = path.stat()
        found[path.name] = (its.st_uid, its.st_gid, its.st_mode, path.read_text())
    return found
