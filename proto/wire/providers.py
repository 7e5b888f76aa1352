"""The providers of models: all that differs between them but the call of their libraries, which is
in `guest/agent/models/providers.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal


@dataclass(frozen=True)
class Provider:
    """A provider, or a program that serves models. What is not said is as in OpenAI's API.

    Attributes:
        url: The address of its API; empty if everybody has another one.
        key_variable: The environment variable of the key in its own documentation.
        protocol: How it is spoken to: the extra of pyproject.toml that does.
        library: The module that this extra installs.
        key_header: The header that bears the key.
        key_form: The value of that header; {} is the key.
        needs_key: Whether it answers nobody without a key at its own address.
        compatible_servers: Whether other servers speak its protocol. Some of them need no key, and
            some give no reason for the end of an answer.
        path: What follows the host in an address that somebody gives without it.
        list_path: Where it lists its models; empty if it has no list of what can be asked.
        list_headers: What the request for this list must have besides the key.
        key_begins: How its keys begin, where that tells them from others.
        usual: A model that is offered first, if the provider lists it.
    """

    url: str = ""
    key_variable: str = ""
    protocol: str = "openai"
    library: str = "openai"
    key_header: str = "Authorization"
    key_form: str = "Bearer {}"
    needs_key: bool = True
    compatible_servers: bool = True
    path: str = "/v1"
    list_path: str = "/models"
    list_headers: Mapping[str, str] = field(default_factory=dict)
    key_begins: str = ""
    usual: str = ""


_GOOGLE: Final = Provider(
    url="https://generativelanguage.googleapis.com",
    key_variable="GEMINI_API_KEY",
    protocol="google",
    library="google.genai",
    key_header="x-goog-api-key",
    key_form="{}",
    compatible_servers=False,
    path="",
    list_path="/v1beta/models?pageSize=1000",
    key_begins="AIza",
    usual="gemini-2.5-flash",
)
COMPATIBLE: Final = "compatible"
"""The provider that is any server of OpenAI's API."""
PROVIDERS: Final[Mapping[str, Provider]] = {
    "ollama": Provider("http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", needs_key=False),
    "lmstudio": Provider("http://127.0.0.1:1234/v1", "LM_API_TOKEN", needs_key=False),
    "openai": Provider(
        "https://api.openai.com/v1", "OPENAI_API_KEY", key_begins="sk-", usual="gpt-5-mini"
    ),
    "anthropic": Provider(
        url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        protocol="anthropic",
        library="anthropic",
        key_header="x-api-key",
        key_form="{}",
        compatible_servers=False,
        path="",
        list_path="/v1/models?limit=1000",
        list_headers={"anthropic-version": "2023-06-01"},
        key_begins="sk-ant-",
        usual="claude-sonnet-4-5",
    ),
    "google": _GOOGLE,
    "gemini": _GOOGLE,
    "openrouter": Provider(
        "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", key_begins="sk-or-"
    ),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY", key_begins="gsk_"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "azure": Provider("", "AZURE_OPENAI_API_KEY", path="/openai/v1", list_path=""),
    COMPATIBLE: Provider(needs_key=False),
}
"""By the name that settings and keys use. A new provider of a known protocol is one row."""
KEYED: Final = tuple(name for name, row in PROVIDERS.items() if row.url and row.needs_key)
"""The providers that can answer beside the configured one, if they have a key."""
AT_THE_ROOT: Final[Mapping[str, tuple[str, ...]]] = {
    "ollama": ("POST /api/chat", "POST /api/show", "GET /api/ps"),
    "lmstudio": ("GET /api/v0/models", "POST /api/show"),
    **dict.fromkeys(("openai", COMPATIBLE), ("POST /api/show",)),
}
"""What these answer beside OpenAI's API below /v1, and no more harmful than that. At other
addresses there they load and delete models. Any may be an Ollama, and says what it passes on."""
_LARGER: Final = {
    "ollama": "update Ollama, which cuts although it is asked not to",
    "lmstudio": "lms load {model} --context-length 16384",
}
TRIALS: Final = ("tool", "answer")
"""What one request that tries a model waits for: that it has called a tool, or any answer."""
OFFLINE: Final = "offline"
"""The provider that is built in and needs neither key nor network."""
NAMES: Final = (OFFLINE, *PROVIDERS)


def larger_window(label: str) -> str:
    """What to do about a server that cuts requests to the model of a label, as "ollama:qwen3"."""
    provider, _, model = label.partition(":")
    start = 'start it with a larger window (an Ollama gets it from provider = "ollama")'
    told = _LARGER.get(provider, start).format(model=model)
    return f"{told}; or set [agent] context_window to what it takes"


if TYPE_CHECKING:
    KeyedName = str
    ProviderName = str
    NameOrDemo = str
else:
    KeyedName = Literal[tuple(PROVIDERS)]
    ProviderName = Literal[NAMES]
    NameOrDemo = Literal[("demo", *NAMES)]  # as the menu of init calls it
