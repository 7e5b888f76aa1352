"""Families of tools from the configuration file to what each user's model is offered."""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire import envelope
from wire.tools import FAMILIES, TOOLS
from wire.v1 import bootstrap_pb2
from wire.v1 import gateway_pb2 as pb

from guest import composition
from guest.agent.models.models import Models
from guest.agent.models.providers import build_model
from guest.config import load
from guest.gateway.service import Context, GatewayService
from guest.memory.factory import Store, open_store
from guest.memory.memory import Memory
from guest.notices.outbox import Outbox
from guest.tools.files.roots import Roots
from guest.tools.shell.client import ShellClient
from runner.config.models import Config
from runner.host.launch import AgentLauncher
from runner.tiers.base import Capabilities
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.gateway.gateways import run_turn

TIER = Capabilities(tier="process", unsupported={})
WITHOUT_SHELL = set(TOOLS) - {*FAMILIES["shell"], *FAMILIES["egress"], "delegate", "web_search"}
"""A `delegate` is of turns alone, and a search needs a server."""
NOBODY = cast("Context", None)


class Hosts:
    """Several users' guests, composed as their launches say, over one memory."""

    def __init__(self, place: Path, settings: Mapping[str, Any], stack: AsyncExitStack) -> None:
        self.config = Config.model_validate(settings)
        self._place = place
        self._stack = stack
        self._store: Store | None = None

    async def guest(
        self, user: str, *, shell: bool = False, model: Model | None = None
    ) -> GatewayService:
        config = load(self._envelope(user))
        if self._store is None:
            one = replace(config.memory, db_path=str(self._place / "memory.db"))
            self._store = await open_store(one, None)
            self._stack.push_async_callback(self._store.close)
        for directory in config.paths.virtual.values():
            directory.mkdir(parents=True, exist_ok=True)
        roots = Roots(config.paths.virtual)
        self._stack.callback(roots.close)
        client = (
            ShellClient(parties.shell(f"unix:{self._place}/none.sock", "shell-t0ken-1234"))
            if shell
            else None
        )
        if client is not None:
            self._stack.push_async_callback(client.close)
        service = composition.gateway(
            config,
            models=Models(
                config.settings.agent,
                build=lambda settings, key: (
                    model or build_model(settings, key, no_shell_reason="no shell in this test")
                ),
            ),
            memory=Memory(self._store, user),
            roots=roots,
            shell=client,
        )
        self._stack.push_async_callback(service.close)
        return service

    def _envelope(self, user: str) -> bootstrap_pb2.BootstrapEnvelope:
        workspace = Workspace(self._place / "ws", user)
        launcher = AgentLauncher(self.config, workspace, TIER, parties.AUTHORITY, environ={})
        launch = launcher.prepare(
            bootstrap_pb2.Link(), bootstrap_pb2.Link(unavailable_reason="none here")
        )
        return envelope.read(io.BytesIO(launch.spec.envelope))


@asynccontextmanager
async def hosts(place: Path, **settings: Any) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(place, {"embedder": {"backend": "none"}, **settings}, stack)


async def tools_of(guest: GatewayService) -> set[str]:
    listed = await guest.ListTools(pb.ListToolsRequest(), NOBODY)
    return {tool.name for tool in listed.tools}


async def call(guest: GatewayService, tool: str, **arguments: Any) -> pb.CallToolReply:
    request = pb.CallToolRequest(name=tool, arguments_json=json.dumps(arguments))
    return await guest.CallTool(request, NOBODY)


async def test_whoever_follows_one_outbox_is_woken_by_all_who_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(wraps=Outbox)
    monkeypatch.setattr(composition, "Outbox", made)
    async with hosts(tmp_path) as served:
        await served.guest("alice", shell=True)
    assert made.call_count == 1


async def test_each_user_has_the_families_that_their_section_names(tmp_path: Path) -> None:
    tools = {"disabled": ["forget", "files", "working_memory"]}
    users = {
        "bob": {"tools": {"enabled": ["working_memory", "file_read"]}},
        "carol": {"tools": {"disabled": [name for name in FAMILIES if name != "files"]}},
        "dave": {"tools": {"enabled": list(FAMILIES), "disabled": []}},
    }
    async with hosts(tmp_path, tools=tools, users=users) as served:
        files = set(FAMILIES["files"])
        assert await tools_of(await served.guest("alice")) == (
            WITHOUT_SHELL - files - {"forget", *FAMILIES["working_memory"]}
        )
        assert await tools_of(await served.guest("bob")) == (
            WITHOUT_SHELL - files - {"forget"} | {"file_read"}
        )
        assert await tools_of(await served.guest("carol")) == files
        assert await tools_of(await served.guest("dave")) == WITHOUT_SHELL


@pytest.mark.parametrize("tool", ["recall", "memory_context", "write_memory"])
async def test_a_tool_that_is_off_cannot_be_called_by_its_name(tmp_path: Path, tool: str) -> None:
    off, users = {"disabled": [tool]}, {"bob": {"tools": {"enabled": [tool]}}}
    async with hosts(tmp_path, tools=off, users=users) as served:
        alice, bob = await served.guest("alice"), await served.guest("bob")
        arguments = {"recall": {}, "memory_context": {"query": "tea"}}.get(
            tool, {"key": "k", "content": "tea"}
        )
        refused = await call(alice, tool, **arguments)
        assert (refused.is_error, refused.text) == (True, f"{tool} is switched off by the operator")
        assert not (await call(bob, tool, **arguments)).is_error


async def test_users_with_other_families_share_one_memory_and_see_only_their_own(
    tmp_path: Path,
) -> None:
    users = {
        "alice": {"tools": {"disabled": ["working_memory"]}},
        "bob": {"tools": {"disabled": ["typed_memory"]}},
    }
    async with hosts(tmp_path, users=users) as served:
        alice, bob = await served.guest("alice"), await served.guest("bob")
        assert not (await call(alice, "remember", content="the heron nests at the weir")).is_error
        written = await call(bob, "write_memory", key="herons", content="herons return in March")
        assert not written.is_error
        for guest, own in ((alice, "the heron nests at the weir"), (bob, "herons return in March")):
            listed = await guest.ListNotes(pb.ListNotesRequest(), NOBODY)
            assert [note.text for note in listed.notes] == [own]
            answer = (await call(guest, "memory_search", query="heron herons")).text
            found = json.loads(answer.split("\nNote: ")[0])
            assert [hit["text"] for hit in found] == [own]


class Caller:
    """A caller of the service who stays until the end."""

    def add_done_callback(self, _: object) -> None: ...


async def test_no_path_of_the_host_is_in_a_prompt(tmp_path: Path) -> None:
    told: list[str] = []

    async def answer(messages: object, info: AgentInfo) -> AsyncIterator[str]:
        told.append(f"{info.instructions}{messages}")
        yield "It is there."

    async with hosts(tmp_path) as served:
        guest = await served.guest("alice", model=FunctionModel(stream_function=answer))
        path = f"{tmp_path}/ws/alice/shared/report.md"
        for text in (f"the report lies in {path}", f"so it begins: {path}"):
            await guest.SaveNote(pb.SaveNoteRequest(text=text), NOBODY)
        assert not (await call(guest, "scratch_note", mode="replace", content=path)).is_error
        await guest.CreateSession(pb.CreateSessionRequest(session_id="s"), NOBODY)
        request = pb.StartTurnRequest(session_id="s", text="where does the report lie?")
        events = [event async for event in run_turn(guest, request, cast("Context", Caller()))]
    assert events[-1].WhichOneof("event") == "completed"
    assert "the report lies in /shared/report.md" in told[0]
    assert "> /shared/report.md" in told[0]
    assert str(tmp_path) not in told[0]
