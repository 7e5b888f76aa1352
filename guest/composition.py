"""Assembles the gateway of one agent guest from opened parts.

Nothing is opened here, so nothing has to be closed. The model library takes longer to import than
everything else together: only what runs turns needs it, and is imported inside functions.
"""

import gc
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wire.identity import Party
from wire.settings import AgentSettings, TypedScope
from wire.tools import FAMILIES, MEMORY_TOOLS, TOOLS
from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Limits
from guest.agent.models.models import Models
from guest.config import GuestConfig
from guest.errors import BudgetError, GuestError, ToolError
from guest.gateway.delegation import Delegation
from guest.gateway.files import Files
from guest.gateway.service import GatewayService
from guest.gateway.sessions import Temporary
from guest.memory.memory import Memory
from guest.memory.storage.files.backup import Backups
from guest.notices.outbox import Outbox
from guest.peers import PeerAddresses, PeerClient
from guest.projects.changes import Changes
from guest.projects.rules import ProjectRules
from guest.schedules.book import ScheduleBook
from guest.schedules.scheduler import Scheduler
from guest.schedules.store import Schedules, owner_of
from guest.tools.base import Safety, Tool, ToolContext, ToolOutput
from guest.tools.command_policy import CommandPolicy
from guest.tools.egress import proposing_tool
from guest.tools.files import file_tools
from guest.tools.files.documents import Documents
from guest.tools.files.exchange import SharedFiles
from guest.tools.files.restore import Restorer
from guest.tools.files.roots import Roots
from guest.tools.grants import Grants
from guest.tools.memory.notes import memory_tools
from guest.tools.memory.reminders import reminder_tools
from guest.tools.memory.typed import typed_memory_tools
from guest.tools.memory.working import working_memory_tools
from guest.tools.output import HostPaths
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.schedules import schedule_tools
from guest.tools.shell.background import BackgroundCommands
from guest.tools.shell.client import ShellClient
from guest.tools.shell.tool import shell_tools
from guest.tools.web import web_tools
from guest.watch import CallReporter

if TYPE_CHECKING:
    from guest.agent.turn_loop import TurnLoop
    from guest.projects.watch import Watch
    from guest.tools.mcp.server import McpServers


log = logging.getLogger(__name__)

_OFFLINE_NOTICE: Final = (
    "the built-in offline model answers: it understands only a few commands (say help); "
    "`runner init` sets up a real one"
)

_PASSING: Final = (
    "this agent ends with its chat; what is due later is done in time only if `runner serve` runs, "
    "which starts it again, or after the chat's end `runner start --detach`; else it is told late, "
    "or as missed"
)
_TEMPORARY: Final = (
    "This conversation is temporary: you can read what is remembered, nothing of the conversation "
    "is kept, and it is erased at its end."
)


def gateway(
    config: GuestConfig,
    *,
    models: Models,
    memory: Memory,
    roots: Roots,
    shell: ShellClient | None,
    servers: "McpServers | None" = None,
    peers: Mapping[Party, PeerClient] | None = None,
) -> GatewayService:
    """The gateway service; `close` it before the parts passed in. `peers` are the clients of other
    guests, who may move."""
    settings = config.settings
    scrubber = Scrubber(config.redacted)
    witness = servers.witness if servers else CallReporter(required=config.witnessed)
    if servers is not None:
        servers.guests.learn = scrubber.learn
    watching, background = watch_of(roots), None
    owner = memory.work.owner = owner_of(config.paths.internal)
    outbox = Outbox(memory.store.database, memory.user_id)
    changes = changes_of(roots, config.paths.internal, watching)
    if shell is not None:
        background = BackgroundCommands(
            *(shell, memory.state_of, scrubber.scrub, watching, outbox), owner
        )
    delegation = Delegation(memory.conversations, memory.work)
    schedules = Schedules(memory.store.database, memory.store.eraser, memory.user_id, owner)
    book = ScheduleBook(
        Scheduler(schedules, outbox, shared=config.memory.remote is not None),
        lambda: [each.name for each in pipeline.tools()],
    )
    documents = Documents(roots, shell, config.shell.unavailable_reason)
    tools = [
        *tools_of_memory(memory, settings.memory.typed_scope),
        *file_tools(roots, roots.paths.told, documents),
        *web_tools(shell, config.shell.unavailable_reason, settings.tools.web_search),
        delegation.tool(),
        *schedule_tools(book),
    ]
    if shell is not None and background is not None:
        tools.append(proposing_tool(witness))
        tools += shell_tools(
            shell,
            background,
            policy=CommandPolicy(settings.shell),
            seen=roots.paths.in_shell,
            timeout_s=settings.shell.timeout_s,
            max_output_bytes=settings.tools.max_output_bytes,
            background_max_s=settings.shell.background_s,
        )
    wraps: list[Callable[[Tool], Tool]] = []
    if watching is not None:
        wraps.append(partial(watched, watching=watching, changes=changes))
    if config.passing:
        wraps.append(_passing)
    if background is not None:
        wraps.append(partial(telling, background=background))

    def wrapped(tool: Tool) -> Tool:
        return reduce(lambda made, wrap: wrap(made), wraps, tool)

    def foreign() -> dict[str, Tool]:
        of_servers = servers.tools() if servers else {}
        return {name: wrapped(tool) for name, tool in of_servers.items()}

    registry = Registry(list(map(wrapped, tools)), foreign=foreign)
    pipeline = offered(config, registry, scrubber, witness, roots)
    limits = Limits(settings.agent)
    notices = [_OFFLINE_NOTICE] if settings.agent.provider == "offline" else []
    if limits.in_money and (refused := _unpriced(models, memory, settings.agent)):
        notices.append(f"no request is sent: {refused.brief}; {refused.resolution}")
    if shell is None and any(
        each.command and not each.has_guest for each in settings.mcp.servers.values()
    ):
        notices.append(
            f"no MCP server with a command runs without a shell: {config.shell.unavailable_reason}"
        )
    conversations = Memory.temporary(config.memory, config.user_id)
    passing, reading = memory.with_conversations_in(conversations), pipeline.reading()

    def make_loops(label: str) -> "tuple[TurnLoop, TurnLoop]":
        gc.disable()  # of what these imports make, nothing is garbage and all of it stays
        try:
            from guest.agent.turn_loop import TurnLoop

            window = models.windows.whole(label)
            chosen = settings.for_model(window, models.windows.of(label))
            few = settings.tools.for_small if settings.agent.is_small(window) else None
            own, read = (each if few is None else each.only(few) for each in (pipeline, reading))
            agent, rest = chosen.agent, (chosen.memory.context_tokens, scrubber.scrub)
            end = watching.end if watching else None
            loops = (
                TurnLoop(models, memory, own, agent, *rest, end, changes, background),
                TurnLoop(models, passing, read, for_temporary(agent), *rest, end),
            )
            with suppress(GuestError):  # every turn reports it
                models.choose()
            log.debug("ready for turns")
            return loops
        finally:
            gc.freeze()
            gc.enable()

    return GatewayService(
        info=pb.HelloReply(
            tier=config.tier,
            provider=settings.agent.provider,
            model=models.name,
            shell=config.shell.unavailable_reason,
            version=metadata.version("oxydra"),
            passing=_PASSING if config.passing else "",
            notices=notices,
        ),
        memory=memory,
        pipeline=pipeline,
        models=models,
        make_loops=make_loops,
        backups=Backups(
            config.paths.internal / "backups", config.memory.encryption_key, memory.copy_to
        ),
        files=Files(SharedFiles(roots, settings.tools.upload_max_mb * 2**20)),
        scrubber=scrubber,
        limits=limits,
        witness=witness,
        shell_state=shell.state if shell else None,
        background=background,
        approval_wait_s=settings.tools.approval_wait_s,
        notices=servers.notices if servers else list,
        peers=PeerAddresses(peers or {}, scrubber.learn),
        temporary=Temporary(conversations, reading),
        outbox=outbox,
        delegation=delegation,
        restorer=Restorer(roots, changes),
        book=book,
    )


def for_temporary(agent: AgentSettings) -> AgentSettings:
    """The settings of temporary turns: the model is told, and not asked once more to save."""
    told = f"{agent.instructions.strip()}\n\n{_TEMPORARY}".strip()
    return agent.model_copy(update={"instructions": told, "second_chance": False})


def _unpriced(models: Models, memory: Memory, agent: AgentSettings) -> BudgetError | None:
    from guest.agent.meter import Meter

    return Meter(memory.usage, agent).unpriced(models.choose().model)


def _passing(tool: Tool) -> Tool:
    """`tool`; one that sets a time tells what becomes of it in an agent that ends with a chat."""
    if tool.name not in ("schedule_create", "reminder_set"):
        return tool

    async def run(context: ToolContext, arguments: Any) -> ToolOutput:
        output = await tool.run(context, arguments)
        ends = getattr(arguments, "due", "") == "done"
        return output if ends else replace(output, notes=(*output.notes, _PASSING))

    return replace(tool, run=run)


def telling(tool: Tool, background: BackgroundCommands) -> Tool:
    """`tool`; its answers in a turn tell what has ended in the background."""

    async def run(context: ToolContext, arguments: Any) -> ToolOutput:
        output: ToolOutput | ToolError
        try:
            output = await tool.run(context, arguments)
        except ToolError as error:
            output = error
        if context.reply is not None:
            for told in await background.to_tell(context.session_id, context.turn_id):
                notes = (told.text, *output.notes)
                material = (*output.material, told.source)
                if isinstance(output, ToolError):
                    output.notes, output.material = notes, material
                else:
                    output = replace(output, notes=notes, material=material)
        if isinstance(output, ToolError):
            raise output
        return output

    return replace(tool, run=run)


def watched(tool: Tool, watching: "Watch", changes: Changes | None = None) -> Tool:
    """`tool`; what its calls may run in a project is moved aside, and told with their answer. What
    those of a turn change is counted."""
    reads = tool.name in TOOLS and tool.safety is Safety.READ_ONLY
    if reads or tool.name in MEMORY_TOOLS or tool.in_turn:
        return tool

    async def run(context: ToolContext, arguments: Any) -> ToolOutput:
        told: list[str] = []
        turn = context.turn if context.reply else ""
        try:
            async with watching.call(turn, told):
                if changes is not None and turn:
                    files = tool.name in FAMILIES["files"]
                    await changes.begin(turn, arguments.path if files else "")
                output = await tool.run(context, arguments)
                if changes is not None and tool.name in FAMILIES["files"]:
                    changes.touched(turn, arguments.path)
        except ToolError as error:
            error.notes = (*told, *error.notes)
            raise
        return replace(output, notes=(*told, *output.notes))

    return replace(tool, run=run)


def watch_of(roots: Roots) -> "Watch | None":
    """The watch of the projects, where there is one to be written."""
    if not any(project.writable for _, project in roots.open_projects):
        return None
    from guest.projects.watch import Watch

    return Watch(roots.open_projects)


def changes_of(roots: Roots, directory: Path, watching: "Watch | None") -> Changes:
    """What turns change in projects, kept in a file of this directory; it has begun to look."""
    path = directory / "changed-files.db"
    changes = Changes(roots.open_projects, path, watching.moved if watching else ())
    changes.start()
    return changes


def tools_of_memory(memory: Memory, scope: TypedScope) -> list[Tool]:
    return [
        *memory_tools(memory),
        *typed_memory_tools(memory, scope),
        *reminder_tools(memory),
        *working_memory_tools(memory),
    ]


def offered(
    config: GuestConfig,
    tools: Registry,
    scrubber: Scrubber,
    witness: CallReporter | None = None,
    roots: Roots | None = None,
) -> ToolPipeline:
    """The pipeline of the enabled tools, for the model and for callers by name."""
    settings = config.settings
    sees_host = config.tier == "process"
    rules = None
    if roots is not None and roots.paths.projects:
        rules = ProjectRules(roots.text, config.paths.internal / "project-rules.json")
    return ToolPipeline(
        tools,
        disabled=settings.tools.off,
        approval=settings.tools.approval,
        max_output_bytes=settings.tools.max_output_bytes,
        scrubber=scrubber,
        host_paths=(HostPaths(config.paths.shown, config.paths.private) if sees_host else None),
        commands=CommandPolicy(settings.shell),
        witness=witness,
        paths=roots.paths if roots else None,
        rules=rules,
        grants=Grants(config.paths.internal / "grants.json", witness),
    )
