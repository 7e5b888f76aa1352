"""The packages that the agent needs in the process tier, where it runs in the runner's own
Python."""

from importlib.util import find_spec
from typing import Final

from wire.errors import Code
from wire.installation import adding
from wire.settings import UserSettings

from runner.errors import TierError

_MODULES: Final = {
    "guest": ("libsql", "numpy", "pydantic_ai"),
    "remote": ("aiohttp",),
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "google": ("google.genai",),
}
"""What tells that an extra of pyproject.toml is installed."""


def check_packages(settings: UserSettings) -> None:
    """Raise `TierError` (FAILED_PRECONDITION) if an agent with `settings` lacks packages."""
    wanted = ["guest"]
    if settings.memory.remote_url:
        wanted.append("remote")
    if settings.agent.provider in _MODULES:
        wanted.append(settings.agent.provider)
    missing = {
        module: extra for extra in wanted for module in _MODULES[extra] if not _installed(module)
    }
    if missing:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"the packages of the agent are not installed: {', '.join(missing)}",
            details="in the process tier the agent runs in the runner's own Python",
            resolution=adding(*dict.fromkeys(missing.values())),
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
