"""Gateways of any number of users over one store, on real sockets."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo
from wire.errors import WireError
from wire.identity import Party, Peer
from wire.settings import AgentSettings
from wire.status import from_rpc_error
from wire.tools import FAMILIES, TOOLS, offered
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc
from wire.v1.bootstrap_pb2 import Project

from guest import composition
from guest.agent.budget import Limits
from guest.agent.models.models import Models
from guest.agent.turn_loop import TurnLoop
from guest.embedding.backends import Embedder
from guest.gateway.delegation import Delegation
from guest.gateway.files import Files
from guest.gateway.service import GatewayService
from guest.gateway.sessions import Temporary
from guest.memory.memory import Memory
from guest.memory.models import Details, Note, Origin
from guest.memory.storage.files.backup import Backups
from guest.notices.outbox import Outbox
from guest.projects.changes import Changes
from guest.projects.rules import ProjectRules
from guest.schedules.book import ScheduleBook
from guest.schedules.scheduler import Scheduler
from guest.schedules.store import Schedules
from guest.tools.base import Tool
from guest.tools.command_policy import CommandPolicy
from guest.tools.files import file_tools
from guest.tools.files.exchange import SharedFiles
from guest.tools.files.restore import Restorer
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.background import BackgroundCommands
from guest.tools.shell.client import ShellClient
from guest.tools.shell.tool import shell_tools
from guest.watch import CallReporter
from tests.support import parties
from tests.support.agent.turn_fakes import only
from tests.support.memory.store import HashingEmbedder
from tests.support.scratch import SCRATCH
from tests.support.settings import memory_config

INFO = gateway_pb2.HelloReply(
    tier="process",
    provider="offline",
    model="offline",
    shell="no shell in this test",
    version="0",
    notices=["a notice"],
)
LAUNCH_SECRET = "s3cret-t0ken"
READ = Origin(actor="agent", session_id="work", link="/shared/page.md", material=True)


async def goes_on(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
    """A model that does not come to an end."""
    yield "so far"
    await asyncio.sleep(60)


async def run_turn(
    stub: Any, request: gateway_pb2.StartTurnRequest, *context: Any
) -> AsyncIterator[gateway_pb2.TurnEvent]:
    """Start a turn and follow it to its end."""
    started = await stub.StartTurn(request, *context)
    following = gateway_pb2.FollowTurnRequest(turn_id=started.turn_id)
    async for event in stub.FollowTurn(following, *context):
        yield event


@dataclass
class Client:
    """One user's end of the line."""

    stub: "gateway_pb2_grpc.GatewayAsyncStub"
    address: str
    token: str

    @property
    def peer(self) -> Peer:
        return parties.gateway(self.address, self.token)

    async def say(
        self, session_id: str, text: str, turn_id: str = "", **fields: Any
    ) -> list[gateway_pb2.TurnEvent]:
        request = gateway_pb2.StartTurnRequest(
            session_id=session_id, text=text, turn_id=turn_id, channel="test", **fields
        )
        return [event async for event in run_turn(self.stub, request)]

    async def begin(
        self, session_id: str, turn_id: str = ""
    ) -> "grpc.aio.UnaryStreamCall[gateway_pb2.FollowTurnRequest, gateway_pb2.TurnEvent]":
        """A turn that has begun, and of which a first text has come."""
        request = gateway_pb2.StartTurnRequest(session_id=session_id, text="hi", turn_id=turn_id)
        started = await self.stub.StartTurn(request)
        call = self.stub.FollowTurn(gateway_pb2.FollowTurnRequest(turn_id=started.turn_id))
        events = aiter(call)
        assert (await anext(events)).WhichOneof("event") == "started"
        assert (await anext(events)).WhichOneof("event") == "text"
        return call

    async def answer(self, session_id: str, text: str) -> str:
        last = (await self.say(session_id, text))[-1]
        assert last.WhichOneof("event") == "completed", last
        return last.completed.text

    async def session(self, session_id: str = "") -> str:
        request = gateway_pb2.CreateSessionRequest(session_id=session_id, channel="test")
        created = await self.stub.CreateSession(request)
        return created.session_id

    async def save(self, text: str, *tags: str) -> str:
        """Keep a note as a person does; its id."""
        saved = await self.stub.SaveNote(gateway_pb2.SaveNoteRequest(text=text, tags=tags))
        return saved.note_id

    async def note(self, note_id: str) -> gateway_pb2.Note:
        return await self.stub.GetNote(gateway_pb2.GetNoteRequest(note_id=note_id))

    async def notes(self, **only: Any) -> list[gateway_pb2.Note]:
        listed = await self.stub.ListNotes(gateway_pb2.ListNotesRequest(**only))
        return list(listed.notes)

    async def texts(self, **only: Any) -> list[str]:
        return [note.text for note in await self.notes(**only)]

    async def changes(self, **only: Any) -> list[gateway_pb2.Change]:
        listed = await self.stub.ListChanges(gateway_pb2.ListChangesRequest(**only))
        return list(listed.changes)

    async def call(self, tool: str, session_id: str = "", **arguments: Any) -> Any:
        """What a tool answers to a call by its name, as an MCP client makes it."""
        reply = await self.stub.CallTool(
            gateway_pb2.CallToolRequest(
                name=tool,
                arguments_json=json.dumps(arguments),
                session_id=session_id,
                channel="mcp",
            )
        )
        assert not reply.is_error, reply.text
        return json.loads(reply.text.split("\nNote: ")[0])


async def refusal(call: Any) -> WireError:
    """What the other side says of a call, of one reply or of many, that must fail."""
    with pytest.raises(grpc.RpcError) as raised:
        await _drain(call)
    return from_rpc_error(raised.value)


async def _drain(call: Any) -> None:
    if not hasattr(call, "__aiter__"):
        await call
        return
    async for _ in call:
        pass


ALICE = "alice"


@dataclass
class Gateways:
    """`serve` adds a gateway for a user; everything else is shared."""

    path: Path
    memory: Memory
    models: Models
    agent: AgentSettings
    pipeline_of: Callable[..., ToolPipeline]
    loop_of: Callable[[Memory, ToolPipeline], TurnLoop]
    temporary_loop_of: Callable[[Memory, ToolPipeline], TurnLoop]
    scrubber: Scrubber
    stack: AsyncExitStack
    roots: Roots
    changes: Changes
    shell: ShellClient | None = None
    background: BackgroundCommands | None = None
    witness: CallReporter | None = None
    services: dict[str, GatewayService] = field(default_factory=dict)

    async def serve(
        self, user_id: str, info: gateway_pb2.HelloReply = INFO, **limits: Any
    ) -> Client:
        memory = self.memory if user_id == ALICE else Memory(self.memory.store, user_id)
        delegation = Delegation(memory.conversations, memory.work)
        pipeline = self.pipeline_of(memory, [delegation.tool()])
        conversations = Memory.temporary(memory.store.config, memory.user_id)
        passing = memory.with_conversations_in(conversations)
        reading = pipeline.reading()
        store = memory.store
        outbox = Outbox(store.database, user_id)
        schedules = Schedules(store.database, store.eraser, user_id, "agent")
        limits.setdefault(
            "book",
            ScheduleBook(
                Scheduler(schedules, outbox), lambda: [each.name for each in pipeline.tools()]
            ),
        )
        service = GatewayService(
            temporary=Temporary(conversations, reading),
            delegation=delegation,
            outbox=outbox,
            info=info,
            memory=memory,
            pipeline=pipeline,
            models=self.models,
            make_loops=lambda _: (
                self.loop_of(memory, pipeline),
                self.temporary_loop_of(passing, reading),
            ),
            backups=Backups(
                self.path / "backups",
                memory.store.config.encryption_key,
                memory.copy_to,
            ),
            files=Files(SharedFiles(self.roots, 2**20)),
            scrubber=self.scrubber,
            limits=Limits(self.agent),
            shell_state=self.shell.state if self.shell else None,
            background=self.background,
            witness=self.witness,
            restorer=Restorer(self.roots, self.changes),
            **limits,
        )
        self.services[user_id] = service
        address = f"unix:{self.path}/{user_id}{len(limits)}.sock"
        token = f"token-of-{user_id}"
        server = parties.server(address, token, Party.AGENT)
        gateway_pb2_grpc.add_GatewayServicer_to_server(service, server.grpc)
        await server.start()
        self.stack.push_async_callback(server.stop, 0)
        self.stack.push_async_callback(service.close)
        channel = await self.stack.enter_async_context(
            open_channel(parties.gateway(address, token))
        )
        return Client(gateway_pb2_grpc.GatewayStub(channel), address, token)


@asynccontextmanager
async def open_gateways(
    *,
    path: Path | None = None,
    with_model: Model | None = None,
    api_key: str = "",
    embedder: Embedder | None = None,
    tools: Sequence[Tool] = (),
    approval: Any = "auto",
    shell: ShellClient | None = None,
    commands: CommandPolicy | None = None,
    disabled: Sequence[str] = (),
    keeping: Mapping[str, Any] | None = None,
    projects: Sequence[Project] = (),
    owner: str = "",
    **settings: Any,
) -> AsyncIterator[Gateways]:
    """A gateways at `path` (a fresh one, removed afterwards, where none is given).

    `disabled` are families and tools, `keeping` settings of its memory and `settings` those of its
    agent. `projects` are open. `owner` is the host that it is on.
    """
    async with AsyncExitStack() as stack:
        if path is None:
            path = Path(tempfile.mkdtemp(dir=SCRATCH))
            stack.callback(shutil.rmtree, path)
        for name in ("shared", "tmp", "vault"):
            (path / name).mkdir(exist_ok=True)
        agent = AgentSettings.model_construct(**settings)
        kept = {"embed_wait_s": 60.0, **(keeping or {})}
        config = memory_config(path / "memory.db", **kept)
        memory = await Memory.open(config, embedder, ALICE)
        stack.push_async_callback(memory.close)
        memory.work.owner = owner
        scrubber = Scrubber([LAUNCH_SECRET])
        directories = {name: path / name for name in ("shared", "tmp", "vault")}
        roots = Roots(directories, projects=projects)
        stack.callback(roots.close)
        watching = composition.watch_of(roots)
        changes = composition.changes_of(roots, path, watching)
        stack.callback(changes.close)
        background = None
        if shell is not None:
            outbox = Outbox(memory.store.database, ALICE)
            background = BackgroundCommands(
                *(shell, memory.state_of, scrubber.scrub, watching, outbox), owner
            )
        models = only(with_model, agent) if with_model else Models(agent, {agent.provider: api_key})

        def pipeline_of(memory: Memory, others: Sequence[Tool] = ()) -> ToolPipeline:
            own = [
                *composition.tools_of_memory(memory, config.settings.typed_scope),
                *file_tools(roots),
                *tools,
                *commands_of(shell, background),
                *others,
            ]
            if watching is not None:
                own = [composition.watched(each, watching, changes) for each in own]
            if background is not None:
                own = [composition.telling(each, background) for each in own]
            return ToolPipeline(
                Registry(
                    own,
                    {**FAMILIES, "test": [tool.name for tool in tools]},
                ),
                disabled=set(TOOLS) - offered((), disabled),
                approval=approval,
                max_output_bytes=16_384,
                scrubber=scrubber,
                commands=commands,
                paths=roots.paths,
                rules=ProjectRules(roots.text, path / "rules.json") if projects else None,
            )

        def loop_of(
            memory: Memory, pipeline: ToolPipeline, settings: AgentSettings = agent
        ) -> TurnLoop:
            tokens = config.settings.context_tokens
            end = watching.end if watching else None
            return TurnLoop(
                *(models, memory, pipeline, settings, tokens, scrubber.scrub, end, changes),
                background,
            )

        temporary_loop_of = partial(loop_of, settings=composition.for_temporary(agent))
        loops = (loop_of, temporary_loop_of)
        yield Gateways(
            *(path, memory, models, agent, pipeline_of, *loops, scrubber, stack, roots),
            *(changes, shell, background),
        )


def commands_of(shell: ShellClient | None, background: BackgroundCommands | None) -> list[Tool]:
    return [] if shell is None or background is None else shell_tools(shell, background)


def hashing() -> Embedder:
    return HashingEmbedder()


async def keep(gateways: Gateways, text: str, origin: Origin = READ, **details: Any) -> Note:
    """Alice's agent keeps what it has read."""
    return (await gateways.memory.save(text, (), origin, Details(**details))).note
