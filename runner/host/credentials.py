"""Keys of models' providers that were given to a running host, which keeps them in memory only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from wire.errors import Code
from wire.providers import KEYED, PROVIDERS
from wire.settings import AgentSettings
from wire.v1 import control_pb2, gateway_pb2

from runner.errors import HostError
from runner.workspace.keys import key_source


@dataclass(frozen=True)
class Given:
    """A key, where it was read, the only server that it is for, and when it was given (RFC 3339,
    UTC)."""

    key: str = field(repr=False)
    source: str
    origin: str
    set_at: str


class Credentials:
    """The given keys by provider. They count more than those that the configuration names."""

    def __init__(self) -> None:
        self._given: dict[str, Given] = {}

    def keys(self, agent: AgentSettings) -> dict[str, str]:
        """The keys by provider, without those of other servers than `agent` names."""
        return {
            provider: given.key
            for provider, given in self._given.items()
            if given.origin == agent.origin(provider)
        }

    def give(self, provider: str, key: str, source: str, origin: str) -> None:
        """Keep a key. Raises `HostError` INVALID_ARGUMENT for an unknown provider or no key."""
        check_provider(provider)
        if not key:
            raise HostError(Code.INVALID_ARGUMENT, "the key is empty")
        set_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._given[provider] = Given(key, source, origin, set_at)

    def clear(self, provider: str) -> bool:
        """Forget a key; false if none was given. Raises `HostError` for an unknown provider."""
        check_provider(provider)
        return self._given.pop(provider, None) is not None

    def listed(
        self, agent: AgentSettings, states: Mapping[str, gateway_pb2.ModelProvider]
    ) -> list[control_pb2.Credential]:
        """Where each provider's key is from. `states` say how they do, as far as an agent tells."""
        found = []
        for provider in PROVIDERS:
            credential = control_pb2.Credential(provider=provider)
            if given := self._given.get(provider):
                credential.source, credential.set_at = given.source, given.set_at
                if given.origin != agent.origin(provider):
                    credential.source += f", for {given.origin} and so not used"
            else:
                credential.source = key_source(agent, provider)
            if provider in states:
                credential.state.CopyFrom(states[provider])
            found.append(credential)
        return found


def check_provider(provider: str) -> None:
    if provider not in PROVIDERS:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"there are no keys for provider {provider!r}",
            details=f"accepted: {', '.join(PROVIDERS)}",
            resolution=f"runner credentials set --provider {KEYED[0]}",
        )
