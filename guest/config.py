"""The envelope's settings, checked once, before anything is opened.

The runner has checked its own file already; the guest checks again because the
envelope is its only input and may come from another orchestrator. A field that
is absent or zero where zero means nothing takes its default.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, cast, get_args

from wire.errors import Code, WireError
from wire.limits import TOOL_OUTPUT_MAX_BYTES, USER_ID_PATTERN
from wire.paths import VIRTUAL_ROOTS
from wire.tools import FAMILIES, NAMES, TOOLS, offered
from wire.transport import grpc_target
from wire.v1 import bootstrap_pb2

from guest.agent.settings import PROVIDERS, AgentSettings, Provider
from guest.errors import GuestError
from guest.memory.models import MemoryConfig, RemoteConfig, Scope
from guest.tools.command_policy.policy import CommandPolicy
from guest.tools.pipeline import APPROVALS, Approval
from guest.tools.shell.limits import TIMEOUT_DEFAULT_S, TIMEOUT_MAX_S

TIERS: Final = ("process", "container", "micro_vm")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
SECRET_MIN_CHARS: Final = 12
WINDOW_TOKENS: Final = (8_000, 10_000_000)
CONTEXT_TOKENS_MAX: Final = 16_000
_RESOLUTION = "correct the setting in runner.toml, then: runner restart"


@dataclass(frozen=True)
class Link:
    """Where another part of the house listens. No endpoint: there is none, and why."""

    endpoint: str = ""
    token: str = field(default="", repr=False)
    unavailable_reason: str = ""


@dataclass(frozen=True)
class Paths:
    """The guest's directories, as it sees them."""

    internal: Path
    shared: Path
    tmp: Path
    vault: Path
    ipc: Path
    logs: Path

    @property
    def virtual(self) -> dict[str, Path]:
        """What file tools may enter, by the name of the virtual root."""
        return {root.name: getattr(self, root.name) for root in VIRTUAL_ROOTS}

    @property
    def private(self) -> tuple[Path, ...]:
        """What no tool may reach."""
        return (self.internal, self.ipc, self.logs)


@dataclass(frozen=True)
class ToolSettings:
    """Which tools are on or off, who approves Privileged ones, how long a result may be,
    which commands may run and for how many seconds unless they say otherwise."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    approval: Approval = "auto"
    max_output_bytes: int = TOOL_OUTPUT_MAX_BYTES
    commands: CommandPolicy = field(default_factory=CommandPolicy)
    command_timeout_s: float = TIMEOUT_DEFAULT_S

    @property
    def off(self) -> frozenset[str]:
        """The tools that are not offered."""
        return frozenset(TOOLS) - offered(self.enabled, self.disabled)


@dataclass(frozen=True)
class GuestConfig:
    """Everything one agent guest needs."""

    user_id: str
    tier: str
    launch_id: str
    token: str = field(repr=False)
    endpoint: str
    paths: Paths
    memory: MemoryConfig
    tools: ToolSettings
    agent: AgentSettings
    embedder: Link
    shell: Link
    log_level: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must appear in no log, event, tool result or file.

        A shorter key is the placeholder that some local servers want ("ollama",
        "none"): redacting it would only damage ordinary text.
        """
        remote = self.memory.remote
        candidates = (
            self.token,
            self.agent.api_key,
            self.embedder.token,
            self.shell.token,
            self.memory.encryption_key,
            remote.auth_token if remote else "",
        )
        return tuple(secret for secret in candidates if len(secret) >= SECRET_MIN_CHARS)


def load(envelope: bootstrap_pb2.BootstrapEnvelope) -> GuestConfig:
    """Check `envelope`; raises `GuestError` (INVALID_ARGUMENT) naming the field
    and what it accepts."""
    if not re.fullmatch(USER_ID_PATTERN, envelope.user_id):
        raise _bad("user_id", repr(envelope.user_id), f"accepted is {USER_ID_PATTERN}")
    if len(envelope.token) < SECRET_MIN_CHARS:
        raise _bad(
            "token", "too short", f"at least {SECRET_MIN_CHARS} characters, new every launch"
        )
    return GuestConfig(
        user_id=envelope.user_id,
        tier=_one_of("tier", envelope.tier, TIERS),
        launch_id=envelope.launch_id,
        token=envelope.token,
        endpoint=_endpoint("gateway", envelope.gateway.address),
        paths=_paths(envelope.paths),
        memory=_memory(envelope.memory),
        tools=_tools(envelope.tools),
        agent=_agent(envelope.agent),
        embedder=_link("embedder", envelope.embedder),
        shell=_link("shell", envelope.shell),
        log_level=_one_of("log_level", envelope.log_level or "info", LOG_LEVELS),
    )


def _paths(paths: bootstrap_pb2.GuestPaths) -> Paths:
    return Paths(
        **{
            field.name: _directory(f"paths.{field.name}", getattr(paths, field.name))
            for field in fields(Paths)
        }
    )


def _memory(settings: bootstrap_pb2.MemorySettings) -> MemoryConfig:
    if not settings.db_path:
        raise _bad("memory.db_path", "empty", "it names the database file")
    defaults = MemoryConfig(db_path=settings.db_path)
    vector = _fraction("memory.vector_weight", settings.vector_weight)
    keyword = _fraction("memory.keyword_weight", settings.keyword_weight)
    if vector == keyword == 0:
        vector, keyword = defaults.vector_weight, defaults.keyword_weight
    chunk_chars = settings.chunk_chars or defaults.chunk_chars
    chunk_overlap = settings.chunk_overlap or defaults.chunk_overlap
    if chunk_overlap >= chunk_chars:
        raise _bad("memory.chunk_overlap", str(chunk_overlap), f"less than {chunk_chars}")
    return MemoryConfig(
        db_path=settings.db_path,
        vector_weight=vector,
        keyword_weight=keyword,
        min_similarity=_fraction("memory.min_similarity", settings.min_similarity),
        chunk_chars=chunk_chars,
        chunk_overlap=chunk_overlap,
        embed_wait_s=settings.embed_wait_ms / 1000,
        recency_weight=_fraction("memory.recency_weight", settings.recency_weight),
        retention_days=settings.retention_days,
        max_notes=settings.max_notes or defaults.max_notes,
        max_text_bytes=settings.max_text_bytes or defaults.max_text_bytes,
        typed_scope=cast(
            Scope, _one_of("memory.typed_scope", settings.typed_scope or "user", get_args(Scope))
        ),
        context_tokens=_at_most(
            "memory.context_tokens", settings.context_tokens, CONTEXT_TOKENS_MAX
        ),
        encryption_key=settings.encryption_key,
        remote=_remote(settings.remote) if settings.HasField("remote") else None,
    )


def _remote(settings: bootstrap_pb2.RemoteMemory) -> RemoteConfig:
    if not re.match(r"https?://[^/\s@?]", settings.url):
        raise _bad("memory.remote.url", repr(settings.url), "http://… or https://…")
    timeout_s = settings.timeout_ms / 1000 or RemoteConfig.timeout_s
    return RemoteConfig(settings.url, settings.auth_token, settings.ca_pem, timeout_s)


def _tools(settings: bootstrap_pb2.ToolSettings) -> ToolSettings:
    timeout = settings.shell.timeout_s or TIMEOUT_DEFAULT_S
    if not 1 <= timeout <= TIMEOUT_MAX_S:
        raise _bad("tools.shell.timeout_s", str(timeout), f"seconds from 1 to {TIMEOUT_MAX_S:g}")
    return ToolSettings(
        enabled=_names("tools.enabled", settings.enabled),
        disabled=_names("tools.disabled", settings.disabled),
        approval=cast(Approval, _one_of("tools.approval", settings.approval or "auto", APPROVALS)),
        max_output_bytes=settings.max_output_bytes or TOOL_OUTPUT_MAX_BYTES,
        commands=CommandPolicy(
            allow=_globs("tools.shell.allow", settings.shell.allow),
            deny=_globs("tools.shell.deny", settings.shell.deny),
            operators=not settings.shell.operators_off,
        ),
        command_timeout_s=timeout,
    )


def _names(name: str, values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        if value not in NAMES:
            raise _bad(name, repr(value), ", ".join((*FAMILIES, *TOOLS)))
    return tuple(values)


def _globs(name: str, patterns: Sequence[str]) -> tuple[str, ...]:
    for pattern in patterns:
        if not pattern.strip():
            raise _bad(name, repr(pattern), "globs over commands, such as 'git *'")
    return tuple(patterns)


def _agent(settings: bootstrap_pb2.AgentSettings) -> AgentSettings:
    defaults = AgentSettings()
    timeout = settings.turn_timeout_s or defaults.turn_timeout_s
    if not (math.isfinite(timeout) and timeout > 0):
        raise _bad("agent.turn_timeout_s", str(timeout), "a positive number of seconds")
    if settings.base_url and not re.match(r"https?://[^/]", settings.base_url):
        raise _bad("agent.base_url", repr(settings.base_url), "http://… or https://…")
    window = settings.context_window or defaults.context_window
    if not WINDOW_TOKENS[0] <= window <= WINDOW_TOKENS[1]:
        accepted = "tokens from {} to {}".format(*WINDOW_TOKENS)
        raise _bad("agent.context_window", str(window), accepted)
    trigger = settings.summary_trigger or defaults.summary_trigger
    target = settings.summary_target or defaults.summary_target
    if not 0 < target < trigger < 1:
        raise _bad(
            "agent.summary_target",
            f"{target} with agent.summary_trigger {trigger}",
            "shares of the window, summary_target less than summary_trigger",
        )
    return AgentSettings(
        provider=cast(
            Provider, _one_of("agent.provider", settings.provider or "offline", PROVIDERS)
        ),
        model=settings.model,
        base_url=settings.base_url,
        api_key=settings.api_key,
        instructions=settings.instructions,
        max_steps=settings.max_steps or defaults.max_steps,
        max_tokens=settings.max_tokens or defaults.max_tokens,
        turn_timeout_s=timeout,
        history_turns=settings.history_turns or defaults.history_turns,
        context_window=window,
        summary_trigger=trigger,
        summary_target=target,
        summary_min_turns=settings.summary_min_turns or defaults.summary_min_turns,
    )


def _link(name: str, link: bootstrap_pb2.EmbedderLink | bootstrap_pb2.ShellLink) -> Link:
    if not link.endpoint.address:
        return Link(unavailable_reason=link.unavailable_reason or f"no {name} was configured")
    return Link(endpoint=_endpoint(name, link.endpoint.address), token=link.token)


def _endpoint(name: str, address: str) -> str:
    try:
        grpc_target(address)
    except WireError as error:
        raise _bad(f"{name}.endpoint", repr(address), error.details) from None
    return address


def _directory(name: str, path: str) -> Path:
    if not path.startswith("/") or "\0" in path:
        raise _bad(name, repr(path), "an absolute path")
    return Path(path)


def _one_of(name: str, value: str, accepted: Sequence[str]) -> str:
    if value not in accepted:
        raise _bad(name, repr(value), "one of " + ", ".join(accepted))
    return value


def _at_most(name: str, value: int, maximum: int) -> int:
    if value > maximum:
        raise _bad(name, str(value), f"at most {maximum}")
    return value


def _fraction(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise _bad(name, str(value), "a number from 0 to 1")
    return value


def _bad(name: str, value: str, accepted: str) -> GuestError:
    return GuestError(
        Code.INVALID_ARGUMENT,
        f"bad setting {name}: {value}",
        details=f"accepted: {accepted}",
        resolution=_RESOLUTION,
    )
