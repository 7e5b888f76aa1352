"""The packages that agent and egress need in the process tier, where they run in the runner's own
Python."""

from importlib.util import find_spec
from typing import Final

from wire.errors import Code
from wire.installation import adding
from wire.providers import PROVIDERS
from wire.settings import UserSettings

from runner.errors import TierError

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "guest": ("libsql", "numpy", "pydantic_ai"),
    "remote": ("aiohttp",),
    **{provider.protocol: (provider.library,) for provider in PROVIDERS.values()},
    "egress": ("aiodns", "aiohttp"),
}
"""What tells that an extra of pyproject.toml is installed."""


def check_packages(settings: UserSettings) -> None:
    """Raise `TierError` (FAILED_PRECONDITION) if guests with `settings` lack packages."""
    wanted = ["guest"]
    if settings.memory.remote_url:
        wanted.append("remote")
    if settings.agent.provider in PROVIDERS:
        wanted.append(PROVIDERS[settings.agent.provider].protocol)
    servers = any(server.url for server in settings.mcp.servers.values())
    if len(wanted) > 1 or servers or settings.egress.is_wanted:
        wanted.append("egress")
    missing = {
        module: extra for extra in wanted for module in _MODULES[extra] if not _installed(module)
    }
    if missing:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"packages of the guests are not installed: {', '.join(missing)}",
            details="in the process tier they run in the runner's own Python",
            resolution=adding(*dict.fromkeys(missing.values())),
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
