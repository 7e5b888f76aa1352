"""All settings of one runner: the sections of `wire.settings`, where it keeps its files, and the
settings of each user."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import platformdirs
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError
from wire.providers import PROVIDERS
from wire.settings import (
    KEY_SETTINGS,
    AbsolutePath,
    AccessSettings,
    AuditSettings,
    ContainerSettings,
    EmbedderSettings,
    LogLevel,
    Section,
    ServeSettings,
    TelemetrySettings,
    UserSettings,
    origin_of,
)

from runner.config.tiers import DEFAULT, TierName, tables
from runner.config.user_id import check_user_id
from runner.errors import WorkspaceError


def _auto(value: object) -> object:
    return None if value == "auto" else value


def _known_user(value: str) -> str:
    try:
        return check_user_id(value)
    except WorkspaceError as error:
        raise PydanticCustomError("user_id", "is not a user id: " + error.details) from None


if TYPE_CHECKING:
    _Settings = UserSettings
else:
    _Settings = create_model(
        "_Settings",
        __base__=UserSettings,
        **{name: (model, model()) for name, model in tables().items()},
    )

SMALL_BUDGET: Final = (
    "lower max_output_tokens in [agent], or raise that limit: runner config edit, then: "
    "runner restart"
)
"""What mends one of `AgentSettings.small_budgets`."""


class Config(_Settings):
    """All settings of one runner, immutable. `Config()` holds the defaults."""

    workspace_root: Annotated[AbsolutePath, Field(description="a path of a directory")] = Field(
        default_factory=lambda: platformdirs.user_data_path("oxydra") / "workspaces"
    )
    runtime_dir: Annotated[
        AbsolutePath | None,
        BeforeValidator(_auto),
        Field(description='"auto" or a path of a directory'),
    ] = None
    """None ("auto"): the platform's directory for sockets and locks."""
    tier: TierName = DEFAULT
    log_level: LogLevel = "info"
    embedder: EmbedderSettings = EmbedderSettings()
    container: ContainerSettings = ContainerSettings()
    access: AccessSettings = AccessSettings()
    serve: ServeSettings = ServeSettings()
    audit: AuditSettings = AuditSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    users: dict[Annotated[str, AfterValidator(_known_user)], UserSettings] = Field(
        default_factory=dict
    )

    _file: Path | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        """From which these settings were read, if from one."""
        return self._file

    def read_from(self, file: Path | None) -> Self:
        """Note the file. Returns the same settings."""
        self._file = file
        return self

    @model_validator(mode="before")
    @classmethod
    def _lay_users_over_the_general_sections(cls, data: Any) -> Any:
        users = data.get("users") if isinstance(data, dict) else None
        if not isinstance(users, dict):
            return data
        return {**data, "users": {user: _laid_over(data, own) for user, own in users.items()}}

    def table(self, tier: str) -> Any:
        """The settings in the table of a tier that has one."""
        return getattr(self, tier)

    def for_user(self, user_id: str) -> UserSettings:
        """The settings of `user_id`: the general sections, overridden by the user's own keys."""
        general = {name: getattr(self, name) for name in UserSettings.model_fields}
        return self.users.get(user_id) or UserSettings(**general)


def _laid_over(general: dict[str, Any], own: Any) -> Any:
    if not isinstance(own, dict):
        return own
    merged = dict(own)
    for name in UserSettings.model_fields:
        merged[name] = _merged(general.get(name, {}), own.get(name, {}))
    _switch_on(merged["tools"], own.get("tools"))
    _keep_keys_apart(merged["agent"], general.get("agent", {}), own.get("agent"))
    return merged


def _keep_keys_apart(agent: Any, general: Any, own: Any) -> None:
    """Take the general key from a user with their own, or another server: it is for one address."""
    if not (isinstance(agent, dict) and isinstance(own, dict)):
        return
    if any(map(own.get, KEY_SETTINGS)) or _server(agent) != _server(_plain(general)):
        for name in set(KEY_SETTINGS) - own.keys():
            agent.pop(name, None)


def _server(agent: Any) -> tuple[str, str]:
    """Which provider is asked, and where, by settings that may be wrong."""
    found = agent if isinstance(agent, dict) else {}
    provider, url = (str(found.get(name) or "") for name in ("provider", "base_url"))
    keyed = PROVIDERS.get(provider)
    return provider, origin_of(url or (keyed.url if keyed else ""))


def _switch_on(tools: Any, own: Any) -> None:
    """Let a tool that the user's own section enables win over the general `disabled`."""
    match tools, own:
        case {"disabled": list(disabled)}, {"enabled": list(enabled), **others}:
            if "disabled" not in others:
                tools["disabled"] = [name for name in disabled if name not in enabled]


def _merged(base: Any, top: Any) -> Any:
    """Merge `top` over `base`, section by section."""
    base = _plain(base)
    if not (isinstance(base, dict) and isinstance(top, dict)):
        return top
    common = {name: _merged(base[name], value) for name, value in top.items() if name in base}
    return {**base, **top, **common}


def _plain(section: Any) -> Any:
    return dict(iter(section)) if isinstance(section, Section) else section
