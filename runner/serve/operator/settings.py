"""Settings as the operator sees and changes them in the console: which model answers, with which
key, what it may cost, who approves calls of tools, and which tools there are.

They are those of everybody (an empty `user_id`) or of one user alone. A key is only ever written.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from wire.errors import Code, WireError
from wire.providers import NAMES, OFFLINE, PROVIDERS
from wire.settings import KEY_SETTINGS, AgentSettings, Key, UserSettings, dotted
from wire.tools import FAMILIES, TOOLS

from runner.config.loading import LoadedSettings
from runner.config.models import Config
from runner.config.user_id import DEFAULT_USER_ID
from runner.config.users import known_users
from runner.doctor.provider import try_as_agent
from runner.host.runtime import LastStart, is_running
from runner.providers.servers import Server, local_servers, server_at
from runner.serve.operator.record import Asked, text_in, user_in
from runner.tiers.drivers import driver_for
from runner.tools.blocks import read_block
from runner.tools.drafts import add, told
from runner.workspace.configuration_file import Changes
from runner.workspace.keys import key_source, read_api_key, store_key

_UNITS: Final = ("usd", "tokens")
_MODEL: Final[tuple[Key, ...]] = (("agent", "provider"), ("agent", "model"), ("agent", "base_url"))
SETTINGS: Final[Mapping[str, Key]] = {
    dotted(key): key
    for key in (
        *_MODEL,
        *(("agent", "budget", f"{span}_{unit}") for span in ("day", "month") for unit in _UNITS),
        ("tools", "approval"),
        ("egress", "host_loopback"),
    )
} | {"tools.off": ("tools", "disabled")}
"""What can be changed here, by how it is written."""


@dataclass(frozen=True)
class SettingsFile:
    """The configuration file, as commands read and change it. Each raises `WireError`.

    Attributes:
        load: The settings as they are now.
        change: Makes changes if they are accepted, or, if the second argument is false, only finds
            out whether they are. Returns the settings with them.
    """

    load: Callable[[], LoadedSettings]
    change: Callable[[Changes, bool], LoadedSettings]


class SettingsApi:
    """Answers what the operator asks about settings.

    Args:
        config: What the server was started with, whose users it shares.
        file: The configuration file.
    """

    def __init__(self, config: Config, file: SettingsFile) -> None:
        self._config = config
        self._file = file
        self._trying = asyncio.Lock()

    async def get(self, asked: Asked) -> dict[str, Any]:
        """`GetSettings`: the values with where each comes from, and what can be chosen."""
        user_id = self._whose(asked)
        loaded = await asyncio.to_thread(self._file.load)
        held = loaded.config.for_user(user_id)
        return {
            "values": {
                name: {"value": _value(held, key), "source": source, "fixed": bool(fixed)}
                for name, key in SETTINGS.items()
                for source, fixed in [_source(loaded, key, user_id)]
            },
            "key": key_source(held.agent),
            "hands_loopback": await asyncio.to_thread(self._hands_loopback, user_id),
            "families": FAMILIES,
            "providers": [
                {"name": name, "url": row.url, "needs_key": row.needs_key}
                for name, row in PROVIDERS.items()
            ],
        }

    async def set(self, asked: Asked) -> dict[str, Any]:
        """`SetSettings`: writes `values` (null: as before anybody had set it) and stores a `key`.

        Returns whose agents run with the old settings now.
        """
        user_id, key = self._whose(asked), text_in(asked, "key")
        changes, after = await asyncio.to_thread(self._drafted, asked)
        agent = after.config.for_user(user_id).agent
        if key:
            _check_keyed(agent)
            found = store_key(agent.provider, agent.base_url, key, user_id)
            section = _of(user_id, ("agent",))
            changes |= {(*section, name): value for name, value in found.items()}
        return self._taken(await asyncio.to_thread(self._file.change, changes, True), user_id)

    def _taken(self, changed: LoadedSettings, user_id: str) -> dict[str, Any]:
        self._config.users.update(changed.config.users)  # of all parts of the server
        affected = [user_id] if user_id else known_users(self._config)
        return {"restart": [each for each in affected if is_running(self._config, each)]}

    async def plan_tools(self, asked: Asked) -> dict[str, Any]:
        """`PlanTools`: what the servers of a pasted `block` may reach, see and be given."""
        drafts, user_id = read_block(text_in(asked, "block")), self._whose(asked)
        return {"told": await asyncio.to_thread(told, drafts, user_id, _ask, self._file.change)}

    async def add_tools(self, asked: Asked) -> dict[str, Any]:
        """`AddTools`: adds them. Returns what `SetSettings` does."""
        drafts, user_id = read_block(text_in(asked, "block")), self._whose(asked)
        changed = await asyncio.to_thread(add, drafts, user_id, _ask, self._file.change)
        return self._taken(changed, user_id)

    async def list_models(self, asked: Asked) -> dict[str, Any]:
        """`ListModels`: what a provider has at an address, by a `key` or the one that is set; or
        without a provider what answers on this machine."""
        provider, base_url = text_in(asked, "provider"), text_in(asked, "base_url")
        if not provider:
            return {"servers": [_shown(each) for each in await local_servers(os.environ)]}
        if provider not in PROVIDERS:
            raise _unaccepted("provider", ", ".join(PROVIDERS))
        loaded = await asyncio.to_thread(self._file.load)
        agent = loaded.config.for_user(self._whose(asked)).agent
        wanted = AgentSettings.model_construct(provider=provider, base_url=base_url)
        key = text_in(asked, "key")
        if not key and wanted.origin(provider) == agent.origin(agent.provider):
            key = await asyncio.to_thread(read_api_key, agent, os.environ)
        return {"servers": [_shown(await server_at(base_url, key, provider))]}

    async def try_model(self, asked: Asked) -> dict[str, Any]:
        """`TryModel`: asks the model one thing, with the settings as they would be, by the way that
        the agent takes; `why_from_here` says why, where this server has asked itself."""
        if self._trying.locked():
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "a model is being tried already",
                resolution="wait until that has answered",
            )
        async with self._trying:
            _, after = await asyncio.to_thread(self._drafted, asked)
            user_id, config = self._whose(asked), after.config
            _check_keyed(config.for_user(user_id).agent)
            if not user_id:  # the user who asks it may have others
                config = config.model_copy(update={"users": {}})
            whose = user_id or DEFAULT_USER_ID
            config = self._in_tier(config, whose)
            trial = await asyncio.to_thread(try_as_agent, config, whose, text_in(asked, "key"))
        return {"took_s": round(trial.took_s, 1), "why_from_here": trial.why_from_here}

    def _hands_loopback(self, user_id: str) -> bool:
        """Whether egress needs, and can get, leave to reach this machine's loopback."""
        config = self._in_tier(self._config, user_id or DEFAULT_USER_ID)
        return driver_for(config).capabilities.host_loopback

    def _in_tier(self, config: Config, user_id: str) -> Config:
        """`config`, in the tier in which a user's host is started."""
        return config.model_copy(update={"tier": LastStart.tier_of(self._config, user_id)})

    def _whose(self, asked: Asked) -> str:
        return user_in(asked, self._config) if text_in(asked, "user_id") else ""

    def _drafted(self, asked: Asked) -> tuple[dict[Key, object], LoadedSettings]:
        """What changes in the file, and the settings then."""
        user_id, values = self._whose(asked), asked.get("values", {})
        if not isinstance(values, dict) or values.keys() - SETTINGS.keys():
            raise _unaccepted("values", f"an object of {', '.join(SETTINGS)}")
        before = self._file.load()
        for name in values:
            source, fixed = _source(before, SETTINGS[name], user_id)
            if fixed:
                raise WireError(
                    Code.FAILED_PRECONDITION,
                    f"{name} cannot be changed here",
                    details=f"it is set by the {source}",
                    resolution=f"end the server, take away the {source}, and serve again",
                )
        changes: dict[Key, object] = {}
        for name, value in values.items():
            changes |= _tools(user_id, value) if name == "tools.off" else {SETTINGS[name]: value}
        changes = {_of(user_id, key): value for key, value in changes.items()}
        after = self._file.change(changes, False)
        was, would = before.config.for_user(user_id).agent, after.config.for_user(user_id).agent
        key = text_in(asked, "key")
        if key or was.origin(was.provider) != would.origin(would.provider):
            changes |= {_of(user_id, ("agent", name)): None for name in KEY_SETTINGS}
            after = self._file.change(changes, False)  # a key belongs to one address
        return changes, after


def _of(user_id: str, key: Key) -> Key:
    return ("users", user_id, *key) if user_id else key


def _tools(user_id: str, off: Any) -> dict[Key, object]:
    """The settings with which the tools `off` are off, and all others on; None: as without them.
    What is enabled stays, for small models; a tool that is disabled by its name is off anyway."""
    if off is None:
        return {("tools", "enabled"): None, ("tools", "disabled"): None}
    if not isinstance(off, list) or any(each not in TOOLS for each in off):
        raise _unaccepted("tools.off", f"a list of {', '.join(TOOLS)}")
    return {("tools", "disabled"): sorted(off) if off or user_id else None}


def _value(held: UserSettings, key: Key) -> Any:
    if key == SETTINGS["tools.off"]:
        return sorted(held.tools.off)
    value: Any = held
    for name in key:
        value = getattr(value, name)
    return value


def _source(loaded: LoadedSettings, key: Key, user_id: str) -> tuple[str, bool]:
    """Its source, "default", "everybody", "file" or what has fixed it; and whether it is fixed."""
    if (origin := loaded.origin(key, user_id)) is None:
        return "default", False
    source = loaded.sources[origin]
    if source != str(loaded.file):
        return source, True
    return ("everybody" if user_id and origin == key else "file"), False


def _check_keyed(agent: AgentSettings) -> None:
    if agent.provider == OFFLINE:
        raise _unaccepted("agent.provider", f"{', '.join(NAMES[1:])}; the demo has no key")


def _ask(key: str, question: str) -> str:
    raise _unaccepted("block", f"one with the value of {key} in it: {question}")


def _unaccepted(field: str, accepted: str) -> WireError:
    return WireError(
        Code.INVALID_ARGUMENT, f"{field} is not accepted as it is", details=f"accepted: {accepted}"
    )


def _shown(server: Server) -> dict[str, Any]:
    return {**asdict(server), "is_local": server.is_local}
