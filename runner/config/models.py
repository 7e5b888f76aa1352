"""Every setting of the runner: its name, default and accepted values."""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import platformdirs
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from wire.tools import FAMILIES, NAMES, TOOLS

from runner.errors import WorkspaceError
from runner.workspace.user_id import check_user_id

INT64_MAX: Final = 2**63 - 1


def _plain(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("nul", "holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise PydanticCustomError("unicode", "is not UTF-8 text")
    return value


def _absolute(value: Path) -> Path:
    if "\0" in str(value) or not value.is_absolute():
        raise PydanticCustomError("path", "is not an absolute path")
    return value


def _env_name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise PydanticCustomError("env_name", "is not a name of an environment variable")
    return value


def _tool_name(value: str) -> str:
    if value not in NAMES:
        raise PydanticCustomError("tool_name", "is neither a tool nor a family of tools")
    return value


Text = Annotated[str, AfterValidator(_plain), Field(strict=True)]
EnvName = Annotated[
    Text,
    AfterValidator(_env_name),
    Field(description="the NAME of an environment variable, not the secret itself"),
]
ToolNames = Annotated[
    tuple[Annotated[Text, AfterValidator(_tool_name)], ...],
    Field(
        description=f"a list of tool names ({', '.join(TOOLS)}) or families ({', '.join(FAMILIES)})"
    ),
]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
OptionalPath = Annotated[
    AbsolutePath | None, BeforeValidator(lambda value: None if value == "" else value)
]
Fraction = Annotated[
    float,
    Field(strict=True, ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1"),
]


def count(low: int, high: int) -> Any:
    return Field(strict=True, ge=low, le=high, description=f"a whole number from {low} to {high}")


Cpus = Annotated[
    float,
    Field(strict=True, ge=0.1, le=1024, allow_inf_nan=False, description="a number from 0.1 up"),
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


TypedScope = Literal["user", "session"]


class EncryptionSection(Section):
    """`[memory.encryption]`: where the key of the database files comes from, if they
    are encrypted. The key itself is in no configuration."""

    key_env: EnvName = ""
    key_file: Annotated[OptionalPath, Field(description="a path of a file that holds the key")] = (
        None
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.key_env and self.key_file:
            raise PydanticCustomError("key", "key_env and key_file are both set; keep one of them")
        return self


class MemorySection(Section):
    """`[memory]`: where notes live, how many there may be, how search weighs its two sides
    and how much of them comes into a prompt by itself."""

    db_path: Annotated[Text, Field(min_length=1, description='"auto" or a path of a file')] = "auto"
    vector_weight: Fraction = 0.5
    keyword_weight: Fraction = 0.5
    min_similarity: Fraction = 0.2
    embed_wait_ms: Annotated[int, count(0, 10_000)] = 500
    recency_weight: Fraction = 0.05
    retention_days: Annotated[int, count(0, 36_500)] = 0
    remote_url: Annotated[
        Text,
        Field(
            description="libsql://…, https://… or http://…, with {user_id} where it belongs and "
            "without credentials or options"
        ),
    ] = ""
    auth_token_env: EnvName = ""
    ca_file: Annotated[OptionalPath, Field(description="a path of a PEM file")] = None
    remote_timeout_s: Annotated[
        float, Field(strict=True, ge=1, le=300, description="a number of seconds from 1 to 300")
    ] = 10.0
    max_notes: Annotated[int, count(1, 10_000_000)] = 100_000
    max_text_mb: Annotated[int, count(1, 1024 * 1024)] = 256
    typed_scope: TypedScope = "user"
    context_tokens: Annotated[int, count(0, 16_000)] = 1000
    encryption: EncryptionSection = EncryptionSection()

    @field_validator("remote_url")
    @classmethod
    def _is_store(cls, value: str) -> str:
        if value and not re.match(r"(libsql|https?)://[^/\s]+", value):
            raise PydanticCustomError("url", "is not a URL of a libSQL server")
        rest = value.replace("{user_id}", "")
        if "{" in rest or "}" in rest:
            raise PydanticCustomError("url", "may hold no braces but {{user_id}}")
        if "@" in value or "?" in value:
            raise PydanticCustomError("secret_in_url", "may hold no credentials and no options")
        return value

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if self.vector_weight + self.keyword_weight == 0:
            raise PydanticCustomError(
                "weights",
                "vector_weight and keyword_weight are both 0; at least one must be above 0",
            )
        return self


Tier = Literal["process", "container", "micro_vm"]
Approval = Literal["auto", "ask", "deny"]
ShellNetwork = Literal["none", "outbound"]
AgentNetwork = Literal["auto", "internal", "outbound"]
Provider = Literal["offline", "openai", "anthropic", "google"]
WindowShare = Annotated[
    float, Field(strict=True, ge=0.1, le=0.95, description="a number from 0.1 to 0.95")
]
EmbedderBackend = Literal["sentence-transformers", "hashing", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]


class EmbedderSection(Section):
    """`[embedder]`: what turns text into vectors, one process for all users of this host."""

    backend: EmbedderBackend = "sentence-transformers"
    model: Annotated[
        Text, Field(min_length=1, max_length=1000, description="a model id or a local path")
    ] = "all-MiniLM-L6-v2"


class ToolsSection(Section):
    """`[tools]`: which tools are on or off, who approves Privileged ones, how long a result
    may be. A tool's own name counts more than that of its family; see `wire.tools`."""

    enabled: ToolNames = ()
    disabled: ToolNames = ()
    approval: Approval = "auto"
    max_output_bytes: Annotated[int, count(256, 1024 * 1024)] = 16 * 1024


class ShellSection(Section):
    """`[shell]`: whether commands run at all, which, and what they may use.

    `allow` and `deny` are globs over one simple command ("git *"); an empty
    `allow` means everything that is not denied. `operators` false refuses pipes,
    lists, redirections and substitutions.
    """

    enabled: Annotated[bool, Field(strict=True, description="true or false")] = True
    network: ShellNetwork = "none"
    allow: Annotated[tuple[Text, ...], Field(description="a list of globs")] = ()
    deny: Annotated[tuple[Text, ...], Field(description="a list of globs")] = ()
    operators: Annotated[bool, Field(strict=True, description="true or false")] = True
    timeout_s: Annotated[
        float,
        Field(strict=True, ge=1, le=3600, description="a number of seconds from 1 to 3600"),
    ] = 60
    memory_mb: Annotated[int, count(128, 1024 * 1024)] = 1024
    processes: Annotated[int, count(32, 32_768)] = 256
    cpus: Cpus = 2.0


class ContainerSection(Section):
    """`[container]`: the engine, the images and the agent guest's limits in the
    container and micro_vm tiers.

    `guest_uid` is whom guests run as where the runner is root; otherwise they
    run as the runner's own user. `agent_network` "auto" opens a way out only
    where a model provider or a memory server is configured. `runtime` is the OCI runtime of the
    micro_vm tier.
    """

    engine: Annotated[
        Text,
        Field(pattern=r"^(auto|unix:///.+)$", description='"auto" or unix:///path/of/the.sock'),
    ] = "auto"
    images: Annotated[
        Text,
        Field(
            pattern=r"^[a-z0-9][a-z0-9._/:-]{0,99}$", description="a prefix of image names: oxydra"
        ),
    ] = "oxydra"
    runtime: Annotated[
        Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="an OCI runtime")
    ] = "kata"
    guest_uid: Annotated[int, count(1, 2**31 - 2)] = 10_001
    agent_network: AgentNetwork = "auto"
    agent_memory_mb: Annotated[int, count(128, 1024 * 1024)] = 1024
    agent_processes: Annotated[int, count(32, 32_768)] = 256
    agent_cpus: Cpus = 2.0


class AgentSection(Section):
    """`[agent]`: which model answers, and the budgets of one turn.

    `api_key_env` names an environment variable of the runner; the key itself
    is in no file and reaches the guest in its envelope only. `summary_trigger` and
    `summary_target` are shares of `context_window`.
    """

    provider: Provider = "offline"
    model: Annotated[Text, Field(max_length=1000, description="the provider's model name")] = ""
    base_url: Annotated[Text, Field(description="http://… or https://…")] = ""
    api_key_env: EnvName = ""
    instructions: Annotated[
        Text, Field(max_length=100_000, description="at most 100000 characters of text")
    ] = ""
    max_steps: Annotated[int, count(1, 1000)] = 20
    max_tokens: Annotated[int, count(1, INT64_MAX)] = 200_000
    turn_timeout_s: Annotated[
        float,
        Field(strict=True, ge=1, le=86_400, description="a number of seconds from 1 to 86400"),
    ] = 300
    history_turns: Annotated[int, count(1, 10_000)] = 20
    context_window: Annotated[int, count(8_000, 10_000_000)] = 64_000
    summary_trigger: WindowShare = 0.7
    summary_target: WindowShare = 0.4
    summary_min_turns: Annotated[int, count(1, 1_000)] = 4

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if value and not re.match(r"https?://[^/\s]+", value):
            raise PydanticCustomError("url", "is not a URL")
        return value

    @model_validator(mode="after")
    def _summaries_shorten(self) -> Self:
        if self.summary_target >= self.summary_trigger:
            raise PydanticCustomError(
                "summary",
                "summary_target {target} must be less than summary_trigger {trigger}",
                {"target": self.summary_target, "trigger": self.summary_trigger},
            )
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider == "offline":
            return self
        if not self.model:
            raise PydanticCustomError(
                "model",
                'provider "{provider}" needs a model: set model',
                {"provider": self.provider},
            )
        if not self.api_key_env and not self.base_url:
            raise PydanticCustomError(
                "credential",
                'provider "{provider}" needs a credential: set api_key_env to the name of the '
                "environment variable that holds it (or base_url for a server without one)",
                {"provider": self.provider},
            )
        return self


class UserSection(Section):
    """What holds for one user: the general sections with that user's own keys on top."""

    memory: MemorySection = MemorySection()
    tools: ToolsSection = ToolsSection()
    agent: AgentSection = AgentSection()
    shell: ShellSection = ShellSection()


def default_workspace_root() -> Path:
    """The platform's place for a user's data."""
    return platformdirs.user_data_path("oxydra") / "workspaces"


def _auto(value: object) -> object:
    return None if value == "auto" else value


def _known_user(value: str) -> str:
    try:
        return check_user_id(value)
    except WorkspaceError as error:
        raise PydanticCustomError("user_id", "is not a user id: " + error.details) from None


class Config(Section):
    """All settings of one runner, immutable. `Config()` is what runs without any file."""

    workspace_root: Annotated[AbsolutePath, Field(description="a path of a directory")] = Field(
        default_factory=default_workspace_root
    )
    runtime_dir: Annotated[
        AbsolutePath | None,
        BeforeValidator(_auto),
        Field(description='"auto" or a path of a directory'),
    ] = None
    """None ("auto"): the platform's directory for sockets and locks."""
    tier: Tier = "container"
    log_level: LogLevel = "info"
    memory: MemorySection = MemorySection()
    embedder: EmbedderSection = EmbedderSection()
    tools: ToolsSection = ToolsSection()
    agent: AgentSection = AgentSection()
    shell: ShellSection = ShellSection()
    container: ContainerSection = ContainerSection()
    users: dict[Annotated[str, AfterValidator(_known_user)], UserSection] = Field(
        default_factory=dict
    )

    @model_validator(mode="before")
    @classmethod
    def _lay_users_over_the_general_sections(cls, data: Any) -> Any:
        users = data.get("users") if isinstance(data, dict) else None
        if not isinstance(users, dict):
            return data
        return {**data, "users": {user: _laid_over(data, own) for user, own in users.items()}}

    def for_user(self, user_id: str) -> UserSection:
        """The settings of `user_id`, its own section included."""
        if user_id in self.users:
            return self.users[user_id]
        return UserSection(memory=self.memory, tools=self.tools, agent=self.agent, shell=self.shell)


def _laid_over(general: dict[str, Any], own: Any) -> Any:
    if not isinstance(own, dict):
        return own
    merged = dict(own)
    for name in UserSection.model_fields:
        merged[name] = _merged(general.get(name, {}), own.get(name, {}))
    _switch_on(merged["tools"], own.get("tools"))
    return merged


def _switch_on(tools: Any, own: Any) -> None:
    """What a user's own section enables is not kept off by the general `disabled`."""
    match tools, own:
        case {"disabled": list(disabled)}, {"enabled": list(enabled), **rest}:
            if "disabled" not in rest:
                tools["disabled"] = [name for name in disabled if name not in enabled]


def _merged(base: Any, top: Any) -> Any:
    """`top` over `base`, section by section."""
    if isinstance(base, BaseModel):
        base = base.model_dump()
    if not (isinstance(base, dict) and isinstance(top, dict)):
        return top
    common = {name: _merged(base[name], value) for name, value in top.items() if name in base}
    return {**base, **top, **common}
