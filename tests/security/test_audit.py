"""A real agent's calls are recorded by its host, before they run and without what they say; no
guest and no client can keep a call out of the record, or write one into it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from wire.errors import Code, WireError
from wire.settings import EmbedderSettings, ToolsSettings
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.audit.calls import Call, Calls
from runner.audit.log import LogLocation
from runner.audit.reading import verify
from runner.config.models import Config
from runner.host.control import ControlClient, connect_control
from runner.host.host import Host
from tests.support.gateway.gateways import run_turn

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
WORDS = "the walrus keeps its pearls under the third step"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def host() -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory(prefix="oxw", dir="/tmp") as root:
        config = Config(
            workspace_root=Path(root) / "w",
            runtime_dir=Path(root) / "r",
            tier="process",
            embedder=EmbedderSettings(backend="none"),
            tools=ToolsSettings(enabled=("typed_memory",)),
        )
        async with Host(config, "alice") as made:
            yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def control(host: Host) -> AsyncIterator[ControlClient]:
    made = await connect_control(host.config, "alice")
    assert made is not None
    async with made:
        yield made


@contextlib.asynccontextmanager
async def agent_of(control: ControlClient) -> AsyncIterator[Any]:
    """The agent's gateway as commands reach it, as soon as it answers."""
    peer = None
    while peer is None:
        try:
            peer = await control.gateway()
        except WireError as error:
            if "backing_off" not in error.brief:
                raise
            await asyncio.sleep(0.05)
    async with open_channel(peer) as channel:
        yield gateway_pb2_grpc.GatewayStub(channel)


async def call(agent: Any, name: str, **arguments: Any) -> pb.CallToolReply:
    reply: pb.CallToolReply = await agent.CallTool(
        pb.CallToolRequest(name=name, arguments_json=json.dumps(arguments), channel="mcp")
    )
    return reply


def recorded(host: Host) -> list[Call]:
    """All calls, oldest first."""
    return list(reversed(Calls.locate(host.config, "alice").list(limit=1000).calls))


async def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.05)
    return found


def everything(host: Host) -> str:
    place = LogLocation.locate(host.config, "alice")
    return "".join(path.read_text() for path in (*place.files(), place.head))


async def test_calls_through_every_surface_are_recorded_and_nothing_that_they_say(
    host: Host, control: ControlClient
) -> None:
    async with agent_of(control) as agent:
        saved = await call(agent, "memory_save", content=f"{WORDS} {SECRET}")
        note_id = json.loads(saved.text.split("\nNote: ")[0])["note_id"]
        await call(agent, "remember", content=WORDS, type="fact")
        await call(agent, "memory_search", query=WORDS)
        await call(agent, "memory_update", note_id=note_id, content=f"{WORDS}!")
        await call(agent, "file_write", path="/shared/plan.md", content=WORDS)
        await call(agent, "shell_exec", command=f"echo {SECRET} # a\nid")
        await call(agent, "file_read", path=WORDS)
        await call(agent, WORDS.replace(" ", "_"))
        session = await agent.CreateSession(pb.CreateSessionRequest(channel="chat"))
        turn = run_turn(
            agent,
            pb.StartTurnRequest(
                session_id=session.session_id, text=f"remember {WORDS}", channel="chat"
            ),
        )
        async for _ in turn:
            pass
    calls = await until(lambda: [c for c in recorded(host) if c.outcome != "running"][8:])
    found = {each.tool: each for each in recorded(host)}
    assert found["file_write"].about == "/shared/plan.md"
    assert found["memory_update"].about == note_id
    assert found["memory_update"].notes == (note_id,)
    assert re.fullmatch(r"echo \S+ # a ⏎ id", found["shell_exec"].about)
    assert found["unknown"].outcome == "refused"
    assert found["file_read"].outcome == "refused"
    of_the_turn = [each for each in recorded(host) if each.turn_id]
    assert {each.session_id for each in of_the_turn} == {session.session_id}
    assert {each.channel for each in of_the_turn} == {"chat"}
    assert {each.outcome for each in calls} <= {"ok", "refused"}
    for planted in (*WORDS.split(" ", 1), SECRET, WORDS.replace(" ", "_")):
        if len(planted) > 8:
            assert planted not in everything(host)
    assert verify(LogLocation.locate(host.config, "alice")).findings == ()


@pytest.mark.attempt(
    "watching calls, or taking them from the runner, with a command's own certificate",
    stopped_by="the stream of calls is for the role `runner` alone",
)
async def test_only_the_runner_hears_of_calls(host: Host, control: ControlClient) -> None:
    async with open_channel(peer := await control.gateway()) as channel:
        stub: Any = gateway_pb2_grpc.GatewayStub(channel)
        stream = stub.ReportCalls(iter(()), metadata=(("oxydra-token", peer.token),))
        with pytest.raises(grpc.RpcError) as raised:
            async for _ in stream:
                pass
        assert from_rpc_error(raised.value).code is Code.PERMISSION_DENIED


@pytest.mark.attempt(
    "reaching the record of calls from a command in the shell",
    stopped_by="no guest mounts it, and the boundary self-test looks for it",
)
async def test_no_command_reaches_the_record(host: Host, control: ControlClient) -> None:
    directory = LogLocation.locate(host.config, "alice").directory
    async with agent_of(control) as agent:
        seen = await call(agent, "shell_exec", command=f"ls -la {directory} {directory.parent}")
        assert json.loads(seen.text.split("\nNote: ")[0])["exit_code"] != 0
        read = await call(agent, "file_read", path=f"{directory}/head.json")
        assert read.is_error
    report = await host.check_boundary()
    assert report.passed


@pytest.mark.attempt(
    "killing the agent in the middle of a call, so that the call leaves no trace",
    stopped_by="its beginning is recorded before it runs; the host closes it as interrupted",
)
async def test_a_call_of_a_killed_agent_is_recorded_as_interrupted(
    host: Host, control: ControlClient
) -> None:
    (agent_status,) = [each for each in (await host.status()).guests if each.role == "agent"]
    async with agent_of(control) as agent:
        waiting = asyncio.ensure_future(call(agent, "shell_exec", command="sleep 61"))
        await until(lambda: [each for each in recorded(host) if each.about == "sleep 61"])
        assert recorded(host)[-1].outcome == "running"
        os.kill(agent_status.pid, signal.SIGKILL)
        with pytest.raises(grpc.RpcError):
            await waiting
    await until(lambda: recorded(host)[-1].outcome == "interrupted")
    async with agent_of(control) as agent:
        await until(lambda: recorded(host)[-1].outcome == "interrupted")
        assert not (await call(agent, "memory_save", content="after")).is_error
    assert verify(LogLocation.locate(host.config, "alice")).findings == ()


async def test_while_nothing_can_be_recorded_nothing_is_changed(
    host: Host, control: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    audit_files = LogLocation.locate(host.config, "alice").directory

    def full(fd: int, content: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(audit_files)):
            raise OSError(28, "No space left on device")
        return real(fd, content)

    monkeypatch.setattr(os, "write", full)
    async with agent_of(control) as agent:
        with pytest.raises(grpc.RpcError) as raised:
            await call(agent, "shell_exec", command="touch /shared/unrecorded")
        error = from_rpc_error(raised.value)
        assert error.code is Code.UNAVAILABLE
        assert "cannot be recorded" in error.brief
        assert "No space left" in error.details
        assert not (host.workspace.path / "shared" / "unrecorded").exists()
        assert not (await call(agent, "memory_search", query="walrus")).is_error
        monkeypatch.undo()
        assert not (await call(agent, "memory_save", content="room again")).is_error
