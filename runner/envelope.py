"""The bootstrap envelope of one launch, made from settings, places and links."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wire import transport
from wire.errors import Code
from wire.limits import ENVELOPE_VERSION
from wire.v1 import bootstrap_pb2, common_pb2

from runner.config import AgentSection, LogLevel, UserSection
from runner.errors import ConfigError
from runner.mounts import Role
from runner.view import View
from runner.workspace import Workspace

CHUNK_CHARS: Final = 640
CHUNK_OVERLAP: Final = 96


def read_credential(agent: AgentSection, environ: Mapping[str, str]) -> str:
    """The provider's key from the variable that the configuration names; empty for none.

    Raises `ConfigError` that names the variable where it is missing or cannot be a key.
    """
    if not agent.api_key_env:
        return ""
    if not (value := environ.get(agent.api_key_env, "").strip()):
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the environment variable {agent.api_key_env} is not set",
            details=f"agent.api_key_env names it as the key of provider {agent.provider!r}",
            resolution=f"export {agent.api_key_env}=…, then start again",
        )
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"the environment variable {agent.api_key_env} holds something that is no key",
            details="a key is one line of printable ASCII characters; the value is not shown",
            resolution=f"set {agent.api_key_env} to the key alone",
        )
    return value


def build_envelope(
    workspace: Workspace,
    settings: UserSection,
    *,
    view: View,
    tier: str,
    launch_id: str,
    db_path: Path,
    api_key: str,
    embedder: bootstrap_pb2.EmbedderLink,
    shell: bootstrap_pb2.ShellLink,
    log_level: LogLevel,
    canary: str,
) -> bootstrap_pb2.BootstrapEnvelope:
    """Everything one agent guest needs, with a token that no other launch has."""
    mounts = workspace.mounts(Role.AGENT)
    paths = {bound.mount.name: str(view.path(bound.host_path)) for bound in mounts}
    memory, tools, agent, commands = settings.memory, settings.tools, settings.agent, settings.shell
    return bootstrap_pb2.BootstrapEnvelope(
        version=ENVELOPE_VERSION,
        launch_id=launch_id,
        user_id=workspace.user_id,
        tier=tier,
        token=transport.new_token(),
        gateway=common_pb2.Endpoint(address=view.endpoint(workspace.gateway_socket)),
        paths=bootstrap_pb2.GuestPaths(**paths),
        memory=bootstrap_pb2.MemorySettings(
            db_path=str(view.path(db_path)),
            vector_weight=memory.vector_weight,
            keyword_weight=memory.keyword_weight,
            min_similarity=memory.min_similarity,
            chunk_chars=CHUNK_CHARS,
            chunk_overlap=CHUNK_OVERLAP,
            embed_wait_ms=memory.embed_wait_ms,
        ),
        tools=bootstrap_pb2.ToolSettings(
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
            api_key=api_key,
            instructions=agent.instructions,
            max_steps=agent.max_steps,
            max_tokens=agent.max_tokens,
            turn_timeout_s=agent.turn_timeout_s,
            history_turns=agent.history_turns,
        ),
        embedder=embedder,
        shell=shell,
        log_level=log_level,
        canary=canary,
    )
