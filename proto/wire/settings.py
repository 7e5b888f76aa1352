"""The settings of users' guests and of the host's containers: each with its name, default, bounds
and what it accepts, declared only here.

`runner.config` builds the configuration file from these models. The settings of one user
(`UserSettings`) travel in the bootstrap envelope, one JSON document per section, and the guest
validates them with the same models. Secrets are separate: a setting only names where a key is
found, and `wire.envelope.Secrets` carries the key itself.
"""

import ipaddress
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, Self, TypeGuard, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from wire import zones
from wire.egress import hosts
from wire.egress.loopback import LoopbackServer
from wire.egress.rules import PRESETS, Rule
from wire.errors import Code, WireError
from wire.limits import (
    BACKGROUND_MAX_S,
    BACKGROUND_S,
    COMMAND_TIMEOUT_MAX_S,
    COMMAND_TIMEOUT_S,
    GIT_IDENTITY,
    TOOL_OUTPUT_MAX_BYTES,
)
from wire.providers import KEYED, OFFLINE, PROVIDERS, ProviderName
from wire.text import parsed_json, shortened
from wire.tools import CORE, FAMILIES, NAMES, TOOLS, offered

INT64_MAX: Final = 2**63 - 1
UID_MAX: Final = 2**31 - 2
GUEST_UID_COUNT_MAX: Final = 1_000_000
REQUEST_TOKENS: Final = 5_000
"""About what the smallest request takes: instructions, tools and a message."""
OUTPUT_TOKENS: Final = 8_192
THINKING_TOKENS: Final = {"low": 2_048, "medium": 10_000, "high": 16_384}
"""The most tokens of an answer, and of thinking before it, where a budget is set and
`max_output_tokens` is not."""


def conflict(message: Any, **shown: Any) -> PydanticCustomError:
    """A problem of several settings together; {names} in `message` are those of `shown`."""
    return PydanticCustomError("conflict", message, shown)


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise PydanticCustomError("path", "is not a path below the project")
    return str(path)


def _absolute(value: Path) -> Path:
    if "\0" in str(value) or not value.is_absolute():
        raise ValueError
    return value


def _expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise PydanticCustomError(
            "expression",
            "{value} is not a regular expression: {why}",
            {"value": repr(value[:80]), "why": str(error)},
        ) from None
    return value


def _rule(value: str) -> str:
    try:
        Rule.parse(value)
    except ValueError as error:
        raise PydanticCustomError("rule", "is not a rule: {why}", {"why": str(error)}) from None
    return value


def _named_host(value: str) -> str:
    name, _, port = value.partition(":")
    if port and not 0 < int(port) < 65536:
        raise PydanticCustomError("host", "has no port from 1 to 65535")
    try:
        host = hosts.canonical(name)
    except ValueError as error:
        raise PydanticCustomError("host", "is not a host: {why}", {"why": str(error)}) from None
    if hosts.is_address(host):
        raise PydanticCustomError("host", "is an address; certificates are issued for names")
    return f"{host}:{port}" if port else host


def _proxy(value: str) -> str:
    if value and not urlsplit(value).port:
        raise ValueError
    return value


def _server_address(value: str) -> str:
    """An IP address, and a port behind it if need be; with a port, IPv6 has brackets."""
    found = re.fullmatch(r"(\[(?P<six>[^]]+)\]|(?P<four>[^:]+))(:(?P<port>[0-9]{1,5}))?", value)
    if found is None:
        ipaddress.IPv6Address(value)
        return value
    if found["six"]:
        ipaddress.IPv6Address(found["six"])
    else:
        ipaddress.IPv4Address(found["four"])
    if found["port"] and not 1 <= int(found["port"]) <= 65_535:
        raise ValueError
    return value


def _one_of(names: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError
        return value

    return AfterValidator(check)


def _read_by(parse: Callable[[str], object]) -> AfterValidator:
    """Texts for which `parse` raises no `ValueError`."""

    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


_IsAddress: Final = _read_by(lambda value: urlsplit(value).port)
"""With a host and a port as they can be, if any."""


def count(low: int, high: int) -> Any:
    return Field(strict=True, ge=low, le=high, description=f"a whole number from {low} to {high}")


def number(low: float, high: float, unit: str = "") -> Any:
    return Field(
        strict=True,
        ge=low,
        le=high,
        allow_inf_nan=False,
        description=f"a number {unit}from {low:g} to {high:g}",
    )


def text(
    description: str,
    pattern: str = r"^[^\x00]*$",
    *,
    min_length: int = 0,
    max_length: int | None = None,
) -> Any:
    """Text that matches `pattern`; by default, any without NUL."""
    return Field(
        strict=True,
        pattern=pattern,
        min_length=min_length,
        max_length=max_length,
        description=description,
    )


Switch = Annotated[bool, Field(strict=True, description="true or false")]
EnvName = Annotated[
    str,
    text(
        "the NAME of an environment variable, not the secret itself",
        r"^([A-Za-z_][A-Za-z0-9_]*)?$",
    ),
]
ToolNames = Annotated[
    tuple[Annotated[str, Field(strict=True), _one_of(NAMES)], ...],
    Field(
        description=f"a list of tool names ({', '.join(TOOLS)}) or families ({', '.join(FAMILIES)})"
    ),
]
Globs = Annotated[
    tuple[Annotated[str, text("a glob", r"^[^\x00]*[^\s\x00][^\x00]*$")], ...],
    Field(description="a list of globs over commands, such as 'git *'"),
]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Rules = Annotated[
    tuple[Annotated[str, Field(strict=True), AfterValidator(_rule)], ...],
    Field(max_length=1000, description='a list of rules as "GET https://example.org/public/*"'),
]
OptionalPath = Annotated[
    AbsolutePath | None, BeforeValidator(lambda value: None if value == "" else value)
]
PemFile = Annotated[OptionalPath, Field(description="a path of a PEM file")]
SocketPath = Annotated[OptionalPath, Field(description="a path of a socket")]
GroupName = Annotated[str, text("the name of a group", r"^([A-Za-z_][A-Za-z0-9_.-]{0,31})?$")]
Fraction = Annotated[float, number(0, 1)]
Dollars = Annotated[float, number(0, 100_000, "of US dollars ")]
Tokens = Annotated[int, count(0, 10**12)]
WindowShare = Annotated[float, number(0.1, 0.95)]
Cpus = Annotated[float, number(0.1, 1024)]

RelativePaths = Annotated[
    tuple[Annotated[str, text("a path", max_length=1000), AfterValidator(_relative)], ...],
    Field(max_length=100, description="a list of paths below the project"),
]

PROJECT_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The name of a project."""
TIER_PATTERN: Final = "[a-z][a-z0-9_]{0,31}"
"""The name of a tier. The runner knows which there are."""
LogLevel = Literal["debug", "info", "warning", "error"]
TypedScope = Literal["user", "session"]
"""Who sees what `remember` stores: all of a user's sessions, or the one it was said in."""
Approval = Literal["auto", "ask", "deny"]
Thinking = Literal["default", "off", "low", "medium", "high"]
"""How much a model thinks before it answers; "default" is the provider's own choice."""
Profile = Literal["auto", "small", "full"]
Fallbacks = Annotated[
    tuple[Annotated[str, text("provider:model", rf"^({'|'.join(KEYED)}):[!-~]{{1,200}}$")], ...],
    Field(description=f"a list of models as {', '.join(f'{name}:MODEL' for name in KEYED)}"),
]
EmbedderBackend = Literal["sentence-transformers", "hashing", "none"]


class Section(BaseModel):
    """A table of settings. Immutable; undeclared keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


if typing.TYPE_CHECKING:
    _Keys = Section
else:
    _Keys = create_model(
        "_Keys", __base__=Section, **{f"{name}_env": (EnvName, "") for name in KEYED}
    )


class EncryptionSettings(Section):
    """`[memory.encryption]`: where the key of the database files is found; without one they are not
    encrypted. The key itself never stands in the configuration."""

    key_env: EnvName = ""
    key_file: Annotated[OptionalPath, Field(description="a path of a file that holds the key")] = (
        None
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.key_env and self.key_file:
            raise conflict("key_env and key_file are both set; keep one of them")
        return self


class MemorySettings(Section):
    """`[memory]`: where notes are stored, how many there may be, how search weighs vectors and
    keywords, and how many tokens of notes are added to each prompt."""

    db_path: Annotated[str, text('"auto" or a path of a file', min_length=1)] = "auto"
    vector_weight: Fraction = 0.6
    keyword_weight: Fraction = 0.4
    min_similarity: Fraction = 0.2
    embed_wait_ms: Annotated[int, count(0, 10_000)] = 500
    recency_weight: Fraction = 0.05
    retention_days: Annotated[int, count(0, 36_500)] = 0
    remote_url: Annotated[
        str,
        text(
            "libsql://…, https://… or http://…, with {user_id} where it belongs and without "
            "credentials or options",
            r"^((libsql|https?)://([^/\s{}\x00]|\{user_id\})([^\s{}\x00]|\{user_id\})*)?$",
        ),
    ] = ""
    server_holds_one_user: bool = False
    auth_token_env: EnvName = ""
    ca_file: PemFile = None
    remote_timeout_s: Annotated[float, number(1, 300, "of seconds ")] = 10.0
    max_notes: Annotated[int, count(1, 10_000_000)] = 100_000
    max_text_mb: Annotated[int, count(1, 1024 * 1024)] = 256
    typed_scope: TypedScope = "user"
    context_tokens: Annotated[int, count(0, 16_000)] = 1000
    encryption: EncryptionSettings = EncryptionSettings()

    @field_validator("remote_url", mode="before")
    @classmethod
    def _without_secrets(cls, value: Any) -> Any:
        if isinstance(value, str) and ("@" in value or "?" in value):
            raise PydanticCustomError("secret_in_url", "may hold no credentials and no options")
        if isinstance(value, str):
            _ = urlsplit(value).port  # raises ValueError where that is no number of a port
        return value

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if self.vector_weight + self.keyword_weight == 0:
            raise conflict(
                "vector_weight and keyword_weight are both 0; at least one must be above 0"
            )
        return self

    def server_of(self, user_id: str) -> str:
        """The https:// or http:// address of the server with this user's memory; empty if the
        memory is a file."""
        return re.sub(r"^libsql://", "https://", self.remote_url.replace("{user_id}", user_id))


class ToolsSettings(Section):
    """`[tools]`: which tools are on or off, who approves Privileged ones, how long a result may be.
    The name of a tool overrides that of its family; see `wire.tools`. A call that nobody has
    approved after `approval_wait_s` is refused. A file that a person brings into /shared has at
    most `upload_max_mb`. `web_search` is a SearXNG server for the shell guest, or "provider"."""

    enabled: ToolNames = ()
    disabled: ToolNames = ()
    approval: Approval = "auto"
    approval_wait_s: Annotated[float, number(1, 604_800, "of seconds ")] = 3600
    upload_max_mb: Annotated[int, count(1, 100_000)] = 100
    max_output_bytes: Annotated[int, count(256, 1024 * 1024)] = TOOL_OUTPUT_MAX_BYTES
    web_search: Annotated[
        str,
        text("provider, http(s)://…", r"^(provider|https?://[^\s@?#\x00]+)?$", max_length=1024),
    ] = ""

    @property
    def off(self) -> frozenset[str]:
        """The tools that are not offered."""
        return frozenset(TOOLS) - offered(self.enabled, self.disabled)

    @property
    def for_small(self) -> frozenset[str]:
        """The tools that a small model is offered: the core, and those that somebody enabled."""
        named = {tool for name in self.enabled for tool in FAMILIES.get(name, (name,))}
        return offered(self.enabled, self.disabled) & (CORE | named)


class KeySettings(_Keys):
    """`[agent.keys]`: the environment variables of the runner that hold the keys of further
    providers, for models that turns ask for and for fallbacks."""


class BudgetSettings(Section):
    """`[agent.budget]`: the most that requests to models may take, in US dollars or in tokens, in
    and out together; 0 sets no limit. A request that could exceed a limit is not sent.

    A day and a month are those of the user's time zone. `background` is what nobody has asked for,
    such as the summaries of long sessions; it counts in the other limits, too. The limit of a turn
    in tokens is `max_tokens` in `[agent]`.
    """

    turn_usd: Dollars = 0.0
    session_usd: Dollars = 0.0
    session_tokens: Tokens = 0
    day_usd: Dollars = 0.0
    day_tokens: Tokens = 0
    month_usd: Dollars = 0.0
    month_tokens: Tokens = 0
    background_day_usd: Dollars = 0.0
    background_day_tokens: Tokens = 0

    @property
    def in_money(self) -> tuple[str, ...]:
        """The limits in US dollars that are set."""
        return tuple(name for name, most in self if most and name.endswith("_usd"))

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(most for _, most in self)


class PriceSettings(Section):
    """`[agent.prices."<model>"]`: what a model costs, in US dollars for a million tokens.

    `cached_input` is the price of input that the provider's cache had; it is at most that of other
    input, and the same if it is not set.
    """

    input: Dollars
    output: Dollars
    cached_input: Annotated[
        float | None, Field(ge=0, description="a number of US dollars, at most that of input")
    ] = None

    @model_validator(mode="after")
    def _cached_is_not_dearer(self) -> Self:
        if self.cached_input is not None and self.cached_input > self.input:
            raise conflict("cached_input is higher than input")
        return self


KEY_SETTINGS: Final = ("api_key_env", "api_key_file", "api_key_command", "api_key_keyring")
"""Where the key of the configured provider may be. At most one of them is set."""


SMALL_WINDOW: Final = 16_000
SMALL: Final[Mapping[str, float]] = {
    "max_output_tokens": 1_024,
    "summary_min_turns": 1,
    "temperature": 0.0,
    "turn_timeout_s": 1_800.0,
}
"""The profile for small models: below which window it counts by itself, and settings of it."""
SMALL_RECALL: Final = 400
"""`context_tokens` in it."""


class AgentSettings(Section):
    """`[agent]`: which model answers, what it may take, and what its prices are.

    One of `KEY_SETTINGS` says where the runner finds the provider's key: an environment variable, a
    file, a command that prints it, or the system's keyring. The key belongs to the address of the
    same section. One turn may make `max_steps` model requests, with `max_tokens` tokens in and out,
    and take `turn_timeout_s` seconds. The model sees the last `history_turns` turns of the session
    word by word. An answer has at most `max_output_tokens`; 0 leaves that to the provider where no
    budget is set.

    `context_window` is how many tokens fit into one request. When the turns shown take more than
    the share `summary_trigger` of it, the oldest are summarised until the others take at most the
    share `summary_target`. The last `summary_min_turns` turns stay as long as they fit. `profile`
    says how much a model is given: "small" is for small models, and "auto" takes it where the
    window is below `SMALL_WINDOW`.

    `temperature` is how freely a model chooses its words; without one the provider decides.
    `images` says whether the models can see: attached images are shown to them. `time_zone` is the
    user's; "auto" is that of the host. `second_chance` says whether a model is asked once more
    where words and receipts do not agree.
    """

    provider: ProviderName = OFFLINE
    model: Annotated[
        str, text("the provider's model name", r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=1000)
    ] = ""
    base_url: Annotated[
        str,
        text("http://… or https://…", r"^(https?://[^/\s\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*)?$"),
        _IsAddress,
    ] = ""
    api_key_env: EnvName = ""
    api_key_file: Annotated[
        OptionalPath, Field(exclude=True, description="a path of a file that holds it")
    ] = None
    api_key_command: Annotated[
        tuple[Annotated[str, text("a text", max_length=4096)], ...],
        Field(
            exclude=True,
            max_length=32,
            description='a list of words, such as ["pass", "show", "openai"]',
        ),
    ] = ()
    api_key_keyring: Annotated[Switch, Field(exclude=True)] = False
    instructions: Annotated[str, text("at most 100000 characters of text", max_length=100_000)] = ""
    max_steps: Annotated[int, count(1, 1000)] = 20
    max_tokens: Annotated[int, count(1, INT64_MAX)] = 200_000
    max_output_tokens: Annotated[int, count(0, 10_000_000)] = 0
    turn_timeout_s: Annotated[float, number(1, 86_400, "of seconds ")] = 300
    history_turns: Annotated[int, count(1, 10_000)] = 20
    context_window: Annotated[int, count(4_096, 10_000_000)] = 64_000
    profile: Profile = "auto"
    summary_trigger: WindowShare = 0.7
    summary_target: WindowShare = 0.4
    summary_min_turns: Annotated[int, count(1, 1_000)] = 4
    thinking: Thinking = "default"
    temperature: Annotated[
        Annotated[float, number(0, 2)] | None,
        BeforeValidator(lambda value: None if value == "" else value),
        Field(description="a number from 0 to 2"),
    ] = None
    prompt_cache: Switch = True
    images: Switch = True
    time_zone: Annotated[
        Annotated[str, Field(strict=True, min_length=1, description=f'"auto" or {zones.ACCEPTED}')],
        _read_by(zones.zone),
    ] = zones.AUTO
    second_chance: Switch = True
    fallbacks: Fallbacks = ()
    keys: KeySettings = KeySettings()
    budget: BudgetSettings = BudgetSettings()
    prices: Annotated[
        dict[Annotated[str, Field(min_length=1)], PriceSettings],
        Field(description="tables of prices by the name of a model"),
    ] = Field(default_factory=dict)

    def is_small(self, window: int) -> bool:
        """Whether a model with this window gets the profile for small models."""
        by_window = self.provider != OFFLINE and window < SMALL_WINDOW
        return self.profile == "small" or (self.profile == "auto" and by_window)

    @property
    def output_limit(self) -> int:
        """The most tokens of one answer, with which it is asked for; 0 if none is set."""
        if self.max_output_tokens or not self.budget.is_set:
            return self.max_output_tokens
        return OUTPUT_TOKENS + THINKING_TOKENS.get(self.thinking, 0)

    @property
    def small_budgets(self) -> list[str]:
        """Why each limit that does not cover one request with its answer is too small."""
        limits = {"max_tokens": self.max_tokens}
        for name in ("session_tokens", "day_tokens", "month_tokens"):
            limits[f"budget.{name}"] = getattr(self.budget, name)
        return [
            f"agent.{name} = {most} does not cover one answer: {self.output_limit:,} tokens are "
            f"set aside for it, and what is sent takes about {REQUEST_TOKENS:,}"
            for name, most in limits.items()
            if 0 < most < self.output_limit + REQUEST_TOKENS
        ]

    @model_validator(mode="after")
    def _summaries_shorten(self) -> Self:
        if self.summary_target >= self.summary_trigger:
            raise conflict(
                "summary_target {target} must be less than summary_trigger {trigger}",
                target=self.summary_target,
                trigger=self.summary_trigger,
            )
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider == OFFLINE:
            return self
        if not self.model:
            raise conflict('provider "{provider}" needs a model: set model', provider=self.provider)
        if not self.url:
            raise conflict(
                'provider "{provider}" needs an address: set base_url', provider=self.provider
            )
        needs_key = PROVIDERS[self.provider].needs_key and not self.base_url
        if needs_key and not self.key_setting(self.provider):
            raise conflict(
                'provider "{provider}" needs a credential: set api_key_env to the name of the '
                "environment variable that holds it, or api_key_file, api_key_command or "
                "api_key_keyring (or base_url for a server without one)",
                provider=self.provider,
            )
        return self

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if len(named := [name for name in KEY_SETTINGS if getattr(self, name)]) > 1:
            raise conflict("{names} are both set; keep one of them", names=" and ".join(named))
        return self

    @model_validator(mode="after")
    def _fallbacks_can_answer(self) -> Self:
        for name in self.fallbacks:
            provider: Any = name.partition(":")[0]
            if self.provider == OFFLINE or not self.key_setting(provider):
                raise conflict(
                    'fallbacks: "{name}" cannot answer: set keys.{provider}_env to the name of the '
                    "environment variable that holds its key"
                    if self.provider != OFFLINE
                    else "fallbacks: the built-in model never fails; set provider and model",
                    name=name,
                    provider=provider,
                )
        return self

    @property
    def needs_key(self) -> bool:
        """Whether the provider answers no request without a key."""
        keyed = PROVIDERS.get(self.provider)
        if keyed is None or not keyed.needs_key:
            return False
        return not (self.base_url and keyed.compatible_servers)

    @property
    def url(self) -> str:
        """The address of the provider's API; empty for the built-in model."""
        keyed = PROVIDERS.get(self.provider)
        return self.base_url or (keyed.url if keyed else "")

    def key_setting(self, provider: str) -> str:
        """The setting that says where the key of `provider` is; empty if none does. The keys of
        `[agent.keys]` belong to the providers' own addresses."""
        if provider == self.provider:
            own = next((name for name in KEY_SETTINGS if getattr(self, name)), "")
            if own or self.base_url:
                return own
        return f"keys.{provider}_env" if getattr(self.keys, f"{provider}_env", "") else ""

    def for_guests(self) -> Self:
        """The settings, as if a variable held the key: guests do not learn where else it is."""
        if self.key_setting(self.provider) in ("", "api_key_env"):
            return self
        return self.model_copy(update={"api_key_env": PROVIDERS[self.provider].key_variable})

    def key_env(self, provider: str) -> str:
        """The environment variable with the key of `provider`; empty if none is named."""
        setting = self.key_setting(provider)
        named: str = self.api_key_env if setting == "api_key_env" else ""
        return getattr(self.keys, setting.partition(".")[2], named)

    def origin(self, provider: str) -> str:
        """The server to which a key of `provider` belongs: scheme, host and port."""
        keyed = PROVIDERS.get(provider)
        return origin_of(self.url if provider == self.provider else keyed.url if keyed else "")


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, as two addresses of one server have them alike; one that
    cannot be read is returned as it is."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url
    shown = "" if port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{shown}" if host else ""


def plain_address(url: str) -> str:
    """An address without the user, password and options that it may hold, and without a slash at
    its end."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")


def shown_address(url: str) -> str:
    """An address for people: that there is a user, a password or a query shows, but not which."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    shown = host if host == parts.netloc else f"…@{host}"
    return parts._replace(netloc=shown, query="…" if parts.query else "").geturl()


class ShellSettings(Section):
    """`[shell]`: whether commands run at all, which, and what they may use.

    `allow` and `deny` are globs such as "git *". They are compared with each simple command: its
    words, without quotes, joined by single spaces. An empty `allow` allows everything that is not
    denied. With `operators` false, a command is a program and its arguments, without a shell.
    `timeout_s` applies to commands that name no timeout. `background_s` is how long a command
    may run in the background; with 0 there are none. `git_identity` is who commits.
    """

    enabled: Switch = True
    allow: Globs = ()
    deny: Globs = ()
    operators: Switch = True
    timeout_s: Annotated[float, number(1, COMMAND_TIMEOUT_MAX_S, "of seconds ")] = COMMAND_TIMEOUT_S
    memory_mb: Annotated[int, count(128, 1024 * 1024)] = 1024
    processes: Annotated[int, count(32, 32_768)] = 256
    cpus: Cpus = 2.0
    background_s: Annotated[float, number(0, BACKGROUND_MAX_S, "of seconds ")] = BACKGROUND_S
    git_identity: Annotated[str, text("Name <mail>", f"^{GIT_IDENTITY}$", max_length=200)] = ""


NamedHost = Annotated[
    str,
    text("a host", r"^[a-z0-9.-]{1,253}(:[0-9]{1,5})?$"),
    AfterValidator(_named_host),
]


class EgressRoleSettings(Section):
    """`[egress.shell]` and `[egress.agent]`: what commands, and what the agent's own tools, may
    reach. What the settings name as a server, such as the model's provider, the agent reaches
    besides.

    A rule is `[METHODS ][scheme://]host[:port][/path]`, as "files.example.org", "*.example.org",
    "GET,HEAD https://api.example.org:8443/v1/*". A preset opens all that its name needs. What is
    denied counts more than what is allowed. With `ask`, a person is asked about what no rule names.
    """

    presets: Annotated[
        tuple[Annotated[str, Field(strict=True), _one_of(PRESETS)], ...],
        Field(description=f"a list of presets: {', '.join(PRESETS)}"),
    ] = ()
    allow: Rules = ()
    deny: Rules = ()
    ask: Switch = False

    @property
    def is_open(self) -> bool:
        """Whether anything may leave at all, if only after a question."""
        return bool(self.presets or self.allow or self.ask)


class EgressLimitSettings(Section):
    """`[egress.limits]`: how much may leave and come in; 0 sets no limit. A day is one of the
    host's time zone. Servers that the settings name, such as the memory's, are not counted."""

    connections: Annotated[int, count(1, 10_000)] = 256
    turn_requests: Annotated[int, count(0, 10**9)] = 2_000
    turn_mb: Annotated[int, count(0, 10**9)] = 2_000
    host_day_requests: Annotated[int, count(0, 10**9)] = 20_000
    host_day_mb: Annotated[int, count(0, 10**9)] = 10_000
    day_requests: Annotated[int, count(0, 10**9)] = 100_000
    day_mb: Annotated[int, count(0, 10**9)] = 50_000


class EgressCredentialSettings(Section):
    """`[egress.credentials.NAME]`: a key that commands use without having it.

    Commands have a placeholder, in the environment variable `variable` or in the `file` of their
    home directory whose `content` has {placeholder} in its place. On the way to one of `hosts`, by
    one of `methods` (none: all), at its `place`, it becomes the value of the runner's own variable
    `env`; anywhere else it stops the request. `place` is "bearer" (an Authorization header),
    "basic" (its user or password), "header:NAME" or "query:NAME".
    """

    env: EnvName
    hosts: Annotated[
        tuple[NamedHost, ...],
        Field(min_length=1, max_length=32, description="a list of hosts without wildcards"),
    ]
    methods: Annotated[
        tuple[Annotated[str, text("a method", r"^[A-Z]{1,20}$")], ...],
        Field(description="a list of methods in capitals"),
    ] = ()
    place: Annotated[
        str,
        text(
            '"bearer", "basic", "header:NAME" or "query:NAME"',
            r"^(bearer|basic|header:[A-Za-z][A-Za-z0-9-]{0,63}|query:[A-Za-z0-9_.-]{1,64})$",
        ),
    ] = "bearer"
    variable: EnvName = ""
    file: Annotated[
        str,
        text(
            "a path below the home directory",
            r"^([A-Za-z0-9._-]{1,64}(/[A-Za-z0-9._-]{1,64}){0,3})?$",
        ),
    ] = ""
    content: Annotated[str, text("a text with {placeholder}", max_length=4096)] = "{placeholder}"

    @model_validator(mode="after")
    def _reaches_commands(self) -> Self:
        if not self.env:
            raise conflict("env names no variable that holds its value")
        if not (self.variable or self.file):
            raise conflict("commands would not have it; set variable or file")
        if {".", ".."} & set(self.file.split("/")):
            raise conflict("file leads out of the home directory")
        if "{placeholder}" not in self.content:
            raise conflict("content has no {mark} in it", mark="{placeholder}")
        return self


def _apart(
    credentials: dict[str, EgressCredentialSettings],
) -> dict[str, EgressCredentialSettings]:
    for key in ("variable", "file"):
        named = [found for each in credentials.values() if (found := getattr(each, key))]
        if twice := sorted({each for each in named if named.count(each) > 1}):
            raise conflict("two credentials have the {key} {name}", key=key, name=twice[0])
    return credentials


Credentials = Annotated[
    dict[Annotated[str, text("a name", r"^[a-z][a-z0-9-]{0,23}$")], EgressCredentialSettings],
    Field(max_length=32, description="tables of credentials by name"),
    AfterValidator(_apart),
]


class EgressSettings(Section):
    """`[egress]`: what may leave the guests, and by which way.

    `private_networks` are networks, such as "10.1.0.0/16", in which the hosts of rules may lie
    besides public addresses; a cloud's metadata address is never reached. `inspect` are hosts to
    which commands' requests are read, so that rules with methods and paths count there.
    `name_servers` are asked instead of the system's. `proxy` is a proxy that everything goes on
    to, with the user:password of the runner's variable `proxy_auth_env`, and `ca_file` holds
    authorities to trust besides the world's. `host_loopback` are servers on the loopback of the
    runner's machine that the agent's egress may reach from its container, each by a socket of the
    runner's for that host, port and path alone.
    """

    agent: EgressRoleSettings = EgressRoleSettings()
    shell: EgressRoleSettings = EgressRoleSettings()
    limits: EgressLimitSettings = EgressLimitSettings()
    credentials: Credentials = Field(default_factory=dict)
    inspect: Annotated[
        tuple[NamedHost, ...],
        Field(max_length=64, description="a list of hosts without wildcards"),
    ] = ()
    private_networks: Annotated[
        tuple[Annotated[str, text("a network"), _read_by(ipaddress.ip_network)], ...],
        Field(description="a list of networks as 10.1.0.0/16 or fd00:1::/32"),
    ] = ()
    host_loopback: Annotated[
        tuple[
            Annotated[
                str, text("an address"), AfterValidator(lambda value: str(LoopbackServer.of(value)))
            ],
            ...,
        ],
        Field(max_length=16, description="a list of addresses as http://127.0.0.1:11434/v1"),
    ] = ()
    name_servers: Annotated[
        tuple[
            Annotated[
                str,
                text("an address", r"^[0-9A-Fa-f:.\[\]]{2,60}$"),
                AfterValidator(_server_address),
            ],
            ...,
        ],
        Field(description="a list of addresses as 10.0.0.53 or 10.0.0.53:5353"),
    ] = ()
    proxy: Annotated[
        str,
        text("http://HOST:PORT", r"^(http://[A-Za-z0-9.\[\]:-]+:[0-9]{1,5})?$"),
        AfterValidator(_proxy),
    ] = ""
    proxy_auth_env: EnvName = ""
    ca_file: PemFile = None

    @property
    def is_wanted(self) -> bool:
        """Whether commands or tools may reach anything."""
        return self.agent.is_open or self.shell.is_open


def _server_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,23}", value):
        raise PydanticCustomError(
            "server", "is not a server's name: a small letter, then up to 23 of a-z, 0-9 and -"
        )
    if value in FAMILIES or any(tool.startswith(f"{value}_") for tool in TOOLS):
        raise PydanticCustomError("server", "would hide tools of our own; choose another name")
    return value


_SEEN: Final = {"none": "/tmp", "downloads": "/shared/downloads"}  # noqa: S108
"""What a guest of its own sees besides /tmp, by `shared`, if not /shared."""


class McpServerSettings(Section):
    """`[mcp.servers.NAME]`: a server of the Model Context Protocol, whose tools the agent has as
    `NAME_tool`. Either `command` is started with `args` in the shell guest, without a shell, and
    spoken to over its standard streams, or `url` is an address where it serves HTTP.

    `client_id` (or the address of a Client ID Metadata Document) and `client_secret_env` are the
    operator's client for logins at an address; only its `issuer` is told the secret.
    `secret_env` gives a command variables with values of the runner's own environment, and
    `headers_env` the requests to an address headers, which no guest sees. `tools` are globs
    over the names of its tools; without any, all are offered. Each call of those in `ask` is
    asked. `approved` is the digest of a list of tools that the operator accepts in the place of the
    first one.

    A command that is `isolated`, or is given a secret, runs in a guest of its own. That sees
    `shared` as far as it is granted and no project, reaches what its own `egress` says, and has
    `credentials` as commands have those of `[egress.credentials]`.
    """

    command: Annotated[str, text("a program", max_length=4096)] = ""
    url: Annotated[
        str,
        text(
            "http://… or https://… without credentials and options",
            r"^(https?://[^/\s@?#\x00]+[^\s@?#\x00]*)?$",
        ),
        _IsAddress,
    ] = ""
    client_id: Annotated[str, Field(exclude=True), text("an id", r"^[!-~]*$", max_length=1000)] = ""
    client_secret_env: Annotated[EnvName, Field(exclude=True)] = ""
    issuer: Annotated[str, Field(exclude=True), text("https://…", r"^(https?://[!-~]+)?$")] = ""
    headers_env: Annotated[
        dict[
            Annotated[str, text("the name of a header", r"^[A-Za-z][A-Za-z0-9-]{0,63}$")], EnvName
        ],
        Field(max_length=16, description="a table: a header = the NAME of the runner's variable"),
    ] = Field(default_factory=dict)
    args: Annotated[
        tuple[Annotated[str, text("a text", max_length=16_000)], ...],
        Field(max_length=100, description="a list of texts"),
    ] = ()
    cwd: Annotated[
        str,
        text(
            "a directory under /shared, /tmp or /projects/NAME",
            rf"^/(shared|tmp|projects/{PROJECT_PATTERN})(/[^\x00]*)?$",
        ),
    ] = "/shared"
    env: Annotated[
        dict[EnvName, Annotated[str, text("a text", max_length=4096)]],
        Field(description="a table of texts by the name of a variable"),
    ] = Field(default_factory=dict)
    secret_env: Annotated[
        dict[EnvName, EnvName],
        Field(description="a table: the server's variable = the NAME of the runner's variable"),
    ] = Field(default_factory=dict)
    tools: Globs = ()
    safety: Literal["read_only", "side_effecting", "privileged"] = "privileged"
    approval: Annotated[Approval | None, Field(description="one of auto, ask, deny")] = None
    ask: Globs = ()
    timeout_s: Annotated[float, number(1, COMMAND_TIMEOUT_MAX_S, "of seconds ")] = COMMAND_TIMEOUT_S
    start_timeout_s: Annotated[float, number(1, 600, "of seconds ")] = 30
    approved: Annotated[str, text("a digest of 16 characters", r"^([0-9a-f]{16})?$")] = ""
    isolated: Switch = False
    shared: Literal["none", "ro", "rw", "downloads"] = "none"
    egress: EgressRoleSettings = EgressRoleSettings()
    credentials: Credentials = Field(default_factory=dict)

    @property
    def has_guest(self) -> bool:
        """Whether it runs in a guest of its own."""
        return bool(self.isolated or self.secret_env or self.credentials)

    @property
    def directory(self) -> str:
        """Where it starts: in a guest of its own where no command has left `npx` a program."""
        chosen = "cwd" in self.model_fields_set or not self.has_guest
        return self.cwd if chosen else "/tmp"  # noqa: S108

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise conflict("set either command or url")
        if self.url and (self.args or self.env or self.has_guest):
            raise conflict("args, env, secret_env, isolated and credentials go with command")
        client = self.client_id or self.client_secret_env or self.issuer
        if self.command and (self.headers_env or client):
            raise conflict("headers_env, client_id, client_secret_env and issuer go with url")
        if self.client_secret_env and not (self.client_id and self.issuer):
            raise conflict("client_secret_env goes with client_id and issuer, who is told it")
        if not self.has_guest and (self.shared != "none" or self.egress != EgressRoleSettings()):
            raise conflict("shared and egress are those of a guest of its own; set isolated")
        return self

    @model_validator(mode="after")
    def _alone(self) -> Self:
        if not self.has_guest:
            return self
        if self.egress.ask:
            raise conflict("egress.ask needs a session, and a server has none; set egress.allow")
        seen = ("/tmp/", f"{_SEEN.get(self.shared, '/shared')}/")  # noqa: S108
        if not f"{self.directory}/".startswith(seen):
            raise conflict("cwd is where its guest sees nothing; set shared, or another cwd")
        return self


class McpSettings(Section):
    """`[mcp]`: the servers whose tools the agent has besides its own."""

    servers: Annotated[
        dict[Annotated[str, AfterValidator(_server_name)], McpServerSettings],
        Field(max_length=64, description="tables of servers by name"),
    ] = Field(default_factory=dict)

    @property
    def guests(self) -> tuple[str, ...]:
        """The servers that run in a guest of their own."""
        return tuple(name for name, server in self.servers.items() if server.has_guest)

    def secrets_of(self, name: str, secrets: Mapping[str, str]) -> dict[str, str]:
        """The variables of server `name` that `secrets` holds as `name/VARIABLE`."""
        wanted = self.servers[name].secret_env
        return {each: secrets[key] for each in wanted if (key := f"{name}/{each}") in secrets}


class ProjectSettings(Section):
    """`[workspace.projects.NAME]`: a directory of the operator's that agent and commands see as
    `/projects/NAME`, read-only unless `write`. `hide` names files below it that nobody reads,
    `lift` directories such as ".git" that may be written, too. `notes`: whether what is kept in its
    sessions is kept for it."""

    path: AbsolutePath
    write: Switch = False
    hide: RelativePaths = ()
    lift: RelativePaths = ()
    notes: Literal["general", "project"] = "general"


class WorkspaceSettings(Section):
    """`[workspace]`: what a user's guests see besides the workspace."""

    projects: Annotated[
        dict[
            Annotated[str, text("a name of letters, digits, . _ and -", rf"^{PROJECT_PATTERN}$")],
            ProjectSettings,
        ],
        Field(max_length=16, description="a table of settings"),
    ] = Field(default_factory=dict)


class NoticesSettings(Section):
    """`[notices]`: where else a person's notices go. Each of `urls_env` is a variable of the
    runner's with an address of ntfy, mail or a chat service, which no guest sees."""

    urls_env: Annotated[
        tuple[EnvName, ...],
        Field(max_length=8, description="a list of NAMES of environment variables"),
    ] = ()


class UserSettings(Section):
    """The settings of one user; their agent guest gets these and no others."""

    memory: MemorySettings = MemorySettings()
    tools: ToolsSettings = ToolsSettings()
    agent: AgentSettings = AgentSettings()
    shell: ShellSettings = ShellSettings()
    mcp: McpSettings = McpSettings()
    egress: EgressSettings = EgressSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    notices: NoticesSettings = NoticesSettings()

    @model_validator(mode="after")
    def _can_search(self) -> Self:
        if self.tools.web_search == "provider" and self.agent.provider != "anthropic":
            raise conflict('tools.web_search: only "anthropic" has a search; name a SearXNG server')
        return self

    def for_model(self, window: int, fits: int) -> Self:
        """The settings for a model with this window, of which a request may take what `fits`.
        What somebody has set stays as it is in the profile for small models, too."""
        agent: dict[str, Any] = {"context_window": fits}
        memory: dict[str, Any] = {}
        if self.agent.is_small(window):
            known = AgentSettings.model_fields.keys() - self.agent.model_fields_set
            agent |= {name: value for name, value in SMALL.items() if name in known}
            if "context_tokens" not in self.memory.model_fields_set:
                memory["context_tokens"] = SMALL_RECALL
        return self.model_copy(
            update={
                "agent": self.agent.model_copy(update=agent),
                "memory": self.memory.model_copy(update=memory),
            }
        )


class EmbedderSettings(Section):
    """`[embedder]`: what turns text into vectors, in one process for all users of this host.

    There, `reranker`, a cross-encoder, reads the first results of a search once more together with
    the question; without one, none does.
    """

    backend: EmbedderBackend = "sentence-transformers"
    model: Annotated[
        str, text("multilingual, a model id or a local path", min_length=1, max_length=1000)
    ] = "all-MiniLM-L6-v2"
    reranker: Annotated[
        str,
        text(
            "a model id with its organisation, or a local path; empty for none",
            r"^(|[^/\x00]+/[^/\x00]+|[~./][^\x00]*)$",
        ),
    ] = ""


def _listening(port: int) -> Any:
    """Where a server listens, at `port` for example; empty if nowhere."""
    return text(
        f"an address and a port: 127.0.0.1:{port}, [::1]:{port} or 0.0.0.0:{port}",
        r"^((\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5})?$",
    )


class AccessSettings(Section):
    """`[access]`: where people with access tokens are let in; without an address nobody is.

    The socket is opened to the members of `socket_group`, or only to the account itself. Without
    `certificate` and `key`, the server proves itself by an authority of its own, whose certificate
    lies in every access file; with them, `authority` is what access files hold instead, and without
    that clients trust the authorities that the world trusts.
    """

    socket: SocketPath = None
    socket_group: GroupName = ""
    listen: Annotated[str, _listening(7443)] = ""
    certificate: PemFile = None
    key: PemFile = None
    authority: PemFile = None

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise conflict("certificate and key go together; set both")
        if self.authority is not None and self.certificate is None:
            raise conflict("authority goes with certificate and key; set them")
        if self.socket_group and self.socket is None:
            raise conflict("socket_group goes with socket; set it")
        return self


class OpenAISettings(Section):
    """`[serve.openai]`: how programs that speak OpenAI's API are understood.

    A request whose question or system message begins like one of `untraced` (regular expressions,
    in any case) is a program's own, such as one for a title: it is answered without memory and
    leaves no trace. The first of `session_headers` that a request has names its session.
    """

    untraced: Annotated[
        tuple[Annotated[str, AfterValidator(_expression)], ...],
        Field(description="a list of regular expressions"),
    ] = (
        r"### Task:\s",
        r"(please )?[a-z]+ a concise\b[^.\n]{0,60} title\b[^.\n]{0,30} conversation\b",
    )
    session_headers: Annotated[
        tuple[Annotated[str, text("the name of a header", r"^[A-Za-z][A-Za-z0-9-]{2,63}$")], ...],
        Field(description="a list of names of headers"),
    ] = ("X-Oxydra-Session", "X-OpenWebUI-Chat-Id")


class ServeSettings(Section):
    """`[serve]`: where the HTTP server of all users listens, and whom it believes.

    Without TLS it listens on addresses of this machine alone. `url` is what browsers call it by
    where a reverse proxy stands before it; `hosts` are more names that it is called by. A reverse
    proxy that has found out itself who calls says so in `user_header`, which is believed from the
    address `user_header_from` only ("socket": whoever may use the socket). `listen_beside_proxy`
    lets the server listen beside a socket whose users are believed so.
    """

    listen: Annotated[str, _listening(7480)] = "127.0.0.1:7480"
    socket: SocketPath = None
    socket_group: GroupName = ""
    certificate: PemFile = None
    key: PemFile = None
    url: Annotated[
        str,
        text(
            "an address without a path: https://agents.example.org",
            r"^(https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?)?$",
        ),
    ] = ""
    hosts: Annotated[
        tuple[Annotated[str, text("a name", r"^(\[[0-9a-f:]+\]|[a-z0-9.-]{1,253})$")], ...],
        Field(description="a list of names or addresses without ports, in small letters"),
    ] = ()
    user_header: Annotated[
        str, text("the name of a header: X-Remote-User", r"^([A-Za-z][A-Za-z0-9-]{2,63})?$")
    ] = ""
    user_header_from: Annotated[
        str, text('an IP address, or "socket"', r"^(socket|[0-9A-Fa-f:.]{2,45})?$")
    ] = ""
    listen_beside_proxy: bool = False
    session_hours: Annotated[int, count(1, 24 * 90)] = 24 * 30
    idle_hours: Annotated[int, count(1, 24 * 90)] = 24 * 7
    openai: OpenAISettings = OpenAISettings()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        for one, other in (("certificate", "key"), ("user_header", "user_header_from")):
            if bool(getattr(self, one)) != bool(getattr(self, other)):
                raise conflict(f"{one} and {other} go together; set both")
        if self.socket_group and self.socket is None:
            raise conflict("socket_group goes with socket; set it")
        if self.user_header_from == "socket" and self.socket is None:
            raise conflict('user_header_from = "socket" needs socket; set it')
        return self


class AuditSettings(Section):
    """`[audit]`: for how many days the record of tool calls is kept."""

    keep_days: Annotated[int, count(1, 36_500)] = 365


class TelemetrySettings(Section):
    """`[telemetry]`: where traces and metrics go; nowhere, unless an address is set.

    `sample_ratio` is the share of traces that are exported; metrics count all. `otlp_headers_env`
    names a variable with headers for the collector, as name=value pairs with commas between them.
    """

    otlp_endpoint: Annotated[
        str,
        text("http://… or https://…", r"^(https?://[^/\s@?#\x00][^\s@?#\x00]*)?$"),
        _IsAddress,
    ] = ""
    otlp_headers_env: EnvName = ""
    sample_ratio: Fraction = 1.0
    prometheus: Annotated[
        str,
        text(
            "an address of this machine and a port: 127.0.0.1:9464",
            r"^((127(\.[0-9]{1,3}){3}|\[::1\]|localhost):[0-9]{1,5})?$",
        ),
    ] = ""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody looks."""
        return bool(self.otlp_endpoint or self.prometheus)


class ContainerSettings(Section):
    """`[container]`: the engine, the images and the agent guest's limits in the container and
    micro_vm tiers.

    If the runner is root, guests run as one of the `guest_uid_count` uids from `guest_uid`: the
    embedder as the first, and the guests of each user as another one. Otherwise they run as the
    runner's own user. `runtime` is the OCI runtime of the micro_vm tier.
    """

    engine: Annotated[
        str, text('"auto" or unix:///path/of/the.sock', r"^(auto|unix:///[^\x00\n]+)$")
    ] = "auto"
    images: Annotated[
        str, text("a prefix of image names: oxydra", r"^[a-z0-9][a-z0-9._/:-]{0,99}$")
    ] = "oxydra"
    runtime: Annotated[str, text("an OCI runtime", r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "kata"
    guest_uid: Annotated[int, count(1, UID_MAX - 1)] = 10_001
    guest_uid_count: Annotated[int, count(2, GUEST_UID_COUNT_MAX)] = 10_000
    agent_memory_mb: Annotated[int, count(128, 1024 * 1024)] = 1024
    agent_processes: Annotated[int, count(32, 32_768)] = 256
    agent_cpus: Cpus = 2.0

    @model_validator(mode="after")
    def _uids_exist(self) -> Self:
        if self.guest_uid + self.guest_uid_count - 1 > UID_MAX:
            raise conflict(
                "guest_uid {first} with guest_uid_count {count} leads to uids above {highest}; "
                "lower one of them",
                first=self.guest_uid,
                count=self.guest_uid_count,
                highest=UID_MAX,
            )
        return self


def to_json(settings: UserSettings) -> dict[str, str]:
    """One JSON document per section, as the envelope carries them: what somebody has set. How the
    runner finds the key is not in it."""
    agent = settings.agent.for_guests()
    return {
        name: section.model_dump_json(exclude_unset=True)
        for name, section in settings.model_copy(update={"agent": agent})
    }


def from_json(sections: Mapping[str, str]) -> UserSettings:
    """The validated settings of an envelope; absent sections and settings have their defaults.

    Raises `WireError` that names the setting as an operator writes it, its value and what is
    accepted.
    """
    try:
        return UserSettings.model_validate(
            {name: parsed_json(document) for name, document in sections.items()}
        )
    except ValidationError as error:
        first, *more = (
            f"{dotted(key)}: {problem}" for key, problem in problems(UserSettings, error)
        )
        brief, details = f"bad setting {first}", "; ".join(more)
    except ValueError as error:
        brief, details = "a section of settings is not JSON", str(error)
    raise WireError(
        Code.INVALID_ARGUMENT,
        brief,
        details=details,
        resolution="correct the setting in runner.toml, then: runner restart",
    )


Key = tuple[str, ...]
"""A setting's name, section by section."""

_TABLE: Final = "a table of settings"
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN_CHARS: Final = 80
_MAY_HOLD_SECRETS: Final = ("args", "command", "endpoint", "env", "keyring", "keys", "proxy", "url")
"""The ends of names of settings in whose place people write keys, or addresses with passwords."""


def dotted(key: Key) -> str:
    """How TOML writes a key."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part) for part in key)


def lookup(model: type[BaseModel], key: Key) -> type[BaseModel] | FieldInfo | None:
    """The section or the setting that `key` names in `model`; None if there is none.

    A field that maps names to sections (`users`) is a setting, and every name in it is a section.
    In a free table, which maps names to values, every name is a setting.
    """
    found: type[BaseModel] | FieldInfo | None = model
    for name in key:
        if isinstance(found, FieldInfo):
            if get_origin(found.annotation) is not dict:
                return None
            value = get_args(found.annotation)[1]
            found = value if _is_section(value) else FieldInfo.from_annotation(value)
        elif found is not None and (field := found.model_fields.get(name)) is not None:
            found = field.annotation if _is_section(field.annotation) else field
        else:
            return None
    return found


def keys_of(model: type[BaseModel]) -> Iterator[tuple[Key, FieldInfo]]:
    """Every setting of `model` with its key."""
    for name, field in model.model_fields.items():
        if _is_section(field.annotation):
            yield from (((name, *key), inner) for key, inner in keys_of(field.annotation))
        else:
            yield (name,), field


def types_of(field: FieldInfo) -> frozenset[Any]:
    """The plain types that a setting may have: int, str, tuple, Path, …"""
    union = get_origin(field.annotation) in (Union, types.UnionType)
    members = get_args(field.annotation) if union else (field.annotation,)
    bare = [get_args(each)[0] if get_origin(each) is Annotated else each for each in members]
    return frozenset(get_origin(each) or each for each in bare)


def problems(model: type[BaseModel], error: ValidationError) -> list[tuple[Key, str]]:
    """What was refused, by key: the value and what is accepted. A value that may be a secret is not
    shown."""
    return [_problem(model, item) for item in error.errors(include_url=False)]


def _problem(model: type[BaseModel], item: ErrorDetails) -> tuple[Key, str]:
    key: Key = ()
    for part in item["loc"]:  # pydantic appends the names of validators and members of unions
        if isinstance(part, int) or lookup(model, (*key, part)) is None:
            break
        key = (*key, part)
    found = lookup(model, key)
    if item["type"] == "extra_forbidden" and isinstance(found, type):
        name = str(item["loc"][-1])
        known = ", ".join(found.model_fields)
        return (*key, name), f"no such setting; accepted: {known}"
    if isinstance(item["input"], Mapping) and item["type"] == "conflict":
        return key, item["msg"]
    if item["type"] in ("user_id", "server", "host", "rule"):
        return key, f"{_shown(item['input'])} {item['msg']}"
    accepted = _accepted(found) or item["msg"]
    if item["type"] == "missing":
        return key, f"is not set; accepted: {accepted}"
    is_whole = isinstance(item["input"], Mapping | list)  # and may hold all that is below it
    if is_whole or any(name.endswith(_MAY_HOLD_SECRETS) for name in key[-2:]):
        return key, f"the value is not shown; accepted: {accepted}"
    return key, f"{_shown(item['input'])}; accepted: {accepted}"


def _accepted(found: type[BaseModel] | FieldInfo | None) -> str:
    """What a setting accepts, in words; empty if there is nothing to add."""
    if not isinstance(found, FieldInfo) or _maps_to_sections(found):
        return _TABLE
    if found.description:
        return found.description
    choices = [value for value in get_args(found.annotation) if isinstance(value, str)]
    return "one of " + ", ".join(choices) if choices else ""


def is_free(found: type[BaseModel] | FieldInfo | None) -> bool:
    """Whether it is a table whose names the operator chooses, and whose values are no sections."""
    if not isinstance(found, FieldInfo) or get_origin(found.annotation) is not dict:
        return False
    return not _maps_to_sections(found)


def _maps_to_sections(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict and _is_section(get_args(field.annotation)[1])


def _is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return shortened(text, _SHOWN_CHARS)
