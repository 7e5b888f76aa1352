"""The bootstrap envelope of one launch, made from settings, places and links."""

import re
from pathlib import Path
from typing import Final

from wire import transport
from wire.limits import ENVELOPE_VERSION
from wire.v1 import bootstrap_pb2, common_pb2

from runner.config import LogLevel, UserSection
from runner.config_memory import MemorySection
from runner.credentials import Credentials
from runner.mounts import Role
from runner.view import View
from runner.workspace import Workspace

CHUNK_CHARS: Final = 640
CHUNK_OVERLAP: Final = 96


def build_envelope(
    workspace: Workspace,
    settings: UserSection,
    *,
    view: View,
    tier: str,
    launch_id: str,
    db_path: Path,
    credentials: Credentials,
    embedder: bootstrap_pb2.EmbedderLink,
    shell: bootstrap_pb2.ShellLink,
    log_level: LogLevel,
    canary: str,
    maintenance: bootstrap_pb2.MaintenanceJob | None = None,
) -> bootstrap_pb2.BootstrapEnvelope:
    """Everything one agent guest needs, with a token that no other launch has."""
    mounts = workspace.mounts(Role.AGENT)
    paths = {bound.mount.name: str(view.path(bound.host_path)) for bound in mounts}
    tools, agent, commands = settings.tools, settings.agent, settings.shell
    return bootstrap_pb2.BootstrapEnvelope(
        version=ENVELOPE_VERSION,
        launch_id=launch_id,
        user_id=workspace.user_id,
        tier=tier,
        token=transport.new_token(),
        gateway=common_pb2.Endpoint(address=view.endpoint(workspace.gateway_socket)),
        paths=bootstrap_pb2.GuestPaths(**paths),
        memory=_memory(settings.memory, workspace.user_id, view.path(db_path), credentials),
        tools=bootstrap_pb2.ToolSettings(
            enabled=tools.enabled,
            disabled=tools.disabled,
            approval=tools.approval,
            max_output_bytes=tools.max_output_bytes,
            shell=bootstrap_pb2.ShellPolicy(
                allow=commands.allow,
                deny=commands.deny,
                operators_off=not commands.operators,
                timeout_s=commands.timeout_s,
            ),
        ),
        agent=bootstrap_pb2.AgentSettings(
            provider=agent.provider,
            model=agent.model,
            base_url=agent.base_url,
            api_key=credentials.api_key,
            instructions=agent.instructions,
            max_steps=agent.max_steps,
            max_tokens=agent.max_tokens,
            turn_timeout_s=agent.turn_timeout_s,
            history_turns=agent.history_turns,
            context_window=agent.context_window,
            summary_trigger=agent.summary_trigger,
            summary_target=agent.summary_target,
            summary_min_turns=agent.summary_min_turns,
        ),
        embedder=embedder,
        shell=shell,
        log_level=log_level,
        canary=canary,
        maintenance=maintenance,
    )


def remote_url(template: str, user_id: str) -> str:
    """Where the memory of `user_id` lies: what `memory.remote_url` means for them."""
    url = template.replace("{user_id}", user_id)
    return re.sub(r"^libsql://", "https://", url)


def _memory(
    memory: MemorySection, user_id: str, db_path: Path, credentials: Credentials
) -> bootstrap_pb2.MemorySettings:
    remote = None
    if memory.remote_url:
        remote = bootstrap_pb2.RemoteMemory(
            url=remote_url(memory.remote_url, user_id),
            auth_token=credentials.memory_token,
            ca_pem=credentials.ca_pem,
            timeout_ms=round(memory.remote_timeout_s * 1000),
        )
    return bootstrap_pb2.MemorySettings(
        db_path=str(db_path),
        vector_weight=memory.vector_weight,
        keyword_weight=memory.keyword_weight,
        min_similarity=memory.min_similarity,
        chunk_chars=CHUNK_CHARS,
        chunk_overlap=CHUNK_OVERLAP,
        embed_wait_ms=memory.embed_wait_ms,
        remote=remote,
        encryption_key=credentials.memory_key,
        retention_days=memory.retention_days,
        recency_weight=memory.recency_weight,
        max_notes=memory.max_notes,
        max_text_bytes=memory.max_text_mb * 1024 * 1024,
        typed_scope=memory.typed_scope,
        context_tokens=memory.context_tokens,
    )
