"""The providers of models: all that differs between them but the call of their libraries, which is
in `guest/agent/models/providers.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal


@dataclass(frozen=True)
class KeyedProvider:
    """A provider whose requests bear a key. Its packages are the extra of its name.

    Attributes:
        library: The module that its packages install.
        url: The address of its API.
        key_variable: The environment variable of the key in its own documentation.
        key_header: The header that bears the key.
        key_form: The value of that header; {} is the key.
        compatible_servers: Whether other servers speak its protocol. Some of them need no key, and
            some give no reason for the end of an answer.
    """

    library: str
    url: str
    key_variable: str
    key_header: str
    key_form: str = "{}"
    compatible_servers: bool = False


PROVIDERS: Final[Mapping[str, KeyedProvider]] = {
    "openai": KeyedProvider(
        library="openai",
        url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        key_header="Authorization",
        key_form="Bearer {}",
        compatible_servers=True,
    ),
    "anthropic": KeyedProvider(
        library="anthropic",
        url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        key_header="x-api-key",
    ),
    "google": KeyedProvider(
        library="google.genai",
        url="https://generativelanguage.googleapis.com",
        key_variable="GEMINI_API_KEY",
        key_header="x-goog-api-key",
    ),
}
"""By the name that settings, keys and extras of pyproject.toml use."""
OFFLINE: Final = "offline"
"""The provider that is built in and needs neither key nor network."""
NAMES: Final = (OFFLINE, *PROVIDERS)

if TYPE_CHECKING:
    KeyedName = str
    ProviderName = str
else:
    KeyedName = Literal[tuple(PROVIDERS)]
    ProviderName = Literal[NAMES]
