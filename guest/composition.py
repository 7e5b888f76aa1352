"""From opened parts to the gateway of one agent guest: which tools, behind which pipelines.

Nothing is opened here, so nothing has to be closed.
"""

from functools import partial
from importlib import metadata
from typing import Final

from pydantic_ai.models import Model

from guest.agent.prompt.builder import ContextBuilder
from guest.agent.settings import AgentSettings
from guest.agent.turn_loop import TurnLoop
from guest.config import GuestConfig
from guest.gateway.service import GatewayService, GuestInfo
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.storage.backup import Backups
from guest.tools.base import Tool
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.memory.notes import memory_tools
from guest.tools.memory.typed import typed_memory_tools
from guest.tools.memory.working import working_memory_tools
from guest.tools.output import HostPaths
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.client import ShellClient
from guest.tools.shell.tool import shell_tools

_OFFLINE_NOTICE: Final = (
    "the built-in offline model answers: it understands only a few commands (say help); for a "
    "real one set provider, model and api_key_env in the [agent] section of runner.toml"
)


def gateway(
    settings: GuestConfig,
    *,
    model: Model,
    memory: Memory,
    roots: Roots,
    shell: ShellClient | None,
) -> GatewayService:
    """What serves the user; `close` it before the parts that it was given."""
    scrubber = Scrubber(settings.secrets)
    pipeline = offered(settings, registry(settings, memory, roots, shell), scrubber)
    offline = settings.agent.provider == "offline"
    return GatewayService(
        user_id=settings.user_id,
        info=GuestInfo(
            tier=settings.tier,
            provider=settings.agent.provider,
            model=model.model_name,
            shell=settings.shell.unavailable_reason,
            version=metadata.version("oxydra"),
            embedder_reason=settings.embedder.unavailable_reason,
            notices=[_OFFLINE_NOTICE] if offline else [],
        ),
        memory=memory,
        pipeline=pipeline,
        loop=turn_loop(model, memory, pipeline, settings.agent, settings.memory, scrubber),
        backups=Backups(
            settings.paths.internal / "backups",
            settings.memory.encryption_key,
            partial(memory.copy_to, settings.user_id),
        ),
        scrubber=scrubber,
        shell_state=shell.state if shell else None,
    )


def turn_loop(
    model: Model,
    memory: Memory,
    pipeline: ToolPipeline,
    agent: AgentSettings,
    config: MemoryConfig,
    scrubber: Scrubber,
) -> TurnLoop:
    """What runs turns, with prompts made from `memory`."""
    context = ContextBuilder(
        memory=memory,
        pipeline=pipeline,
        settings=agent,
        model=model,
        context_tokens=config.context_tokens,
        redact=pipeline.shown,
    )
    return TurnLoop(
        model=model,
        pipeline=pipeline,
        store=memory.conversations,
        context=context,
        settings=agent,
        redact=scrubber.scrub,
    )


def registry(
    settings: GuestConfig, memory: Memory, roots: Roots, shell: ShellClient | None
) -> Registry:
    """Every tool that this guest could offer: those that run commands only with a `shell`."""
    tools = [*tools_of_memory(memory, settings.memory), *file_tools(roots)]
    if shell is not None:
        tools += shell_tools(
            shell,
            timeout_s=settings.tools.command_timeout_s,
            max_output_bytes=settings.tools.max_output_bytes,
        )
    return Registry(tools)


def tools_of_memory(memory: Memory, config: MemoryConfig) -> list[Tool]:
    """All families that work on notes."""
    return [
        *memory_tools(memory),
        *typed_memory_tools(memory, config.typed_scope),
        *working_memory_tools(memory),
    ]


def offered(settings: GuestConfig, tools: Registry, scrubber: Scrubber) -> ToolPipeline:
    """The tools that are on, for the model and for whoever calls tools by name."""
    sees_host = settings.tier == "process"
    return ToolPipeline(
        tools,
        disabled=settings.tools.off,
        approval=settings.tools.approval,
        max_output_bytes=settings.tools.max_output_bytes,
        scrubber=scrubber,
        host_paths=(
            HostPaths(settings.paths.virtual, settings.paths.private) if sees_host else None
        ),
        commands=settings.tools.commands,
    )
