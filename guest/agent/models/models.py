"""The models that may answer a turn, and whether their providers have keys."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from wire.errors import Code
from wire.providers import NAMES, OFFLINE, PROVIDERS
from wire.settings import SMALL_WINDOW, AgentSettings

from guest.agent.models.providers import build_model
from guest.agent.models.windows import Windows
from guest.errors import GuestError
from guest.memory.models import now

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

_BUILT_MAX: Final = 16

Build = Callable[[AgentSettings, str], "Model"]
"""Builds the model that settings name, with a key; see `providers.build_model`."""


@dataclass(frozen=True)
class Choice:
    """A model that can answer, with its provider and its name there.

    `chain` are the labels of a model with fallbacks, in the order in which they are asked.
    """

    provider: str
    name: str
    model: "Model"
    chain: tuple[str, ...] = ()

    def answered_by(self, response: "ModelResponse") -> str:
        """The label of the model that gave `response`. Where the whole chain was asked again, the
        attempts before that do not count."""
        failed = 0
        for attempt in response.failed_attempts or ():
            failed = 0 if attempt.model_name == self.model.model_name else failed + 1
        return self.chain[failed] if failed else self.label

    @property
    def label(self) -> str:
        """How a turn asks for it."""
        return labelled(self.provider, self.name)


@dataclass
class ProviderStatus:
    """When a provider has answered and failed last, and why it failed. Times are in RFC 3339."""

    answered_at: str = ""
    failed_at: str = ""
    failure: str = ""

    def answered(self) -> None:
        self.answered_at = now()

    def failed(self, why: str) -> None:
        self.failed_at, self.failure = now(), why


@dataclass(repr=False, eq=False)
class Models:
    """The configured model, and every other one that a turn may ask for.

    Models are built when they are first asked for, because that imports the provider's library.
    `base_url` belongs to the configured provider alone: another provider's key must not go there.

    Args:
        settings: Which model answers unless another one is asked for.
        keys: The keys by provider; behind egress, a placeholder for each.

    Attributes:
        uses: How each provider has done since the guest started.
        windows: How much a request to each model may hold.
    """

    settings: AgentSettings
    keys: InitVar[Mapping[str, str] | None] = None
    _: KW_ONLY
    build: Build = build_model

    def __post_init__(self, keys: Mapping[str, str] | None) -> None:
        self._keys = dict(keys or {})
        self._built: dict[tuple[str, str], Choice] = {}
        self.uses = {provider: ProviderStatus() for provider in NAMES}
        self.windows = Windows(self.settings.context_window)

    def choose(self, asked: str = "") -> Choice:
        """The model that `asked` names: `provider:model`, or a model of the configured provider;
        the configured one if it is empty.

        Raises:
            GuestError: INVALID_ARGUMENT if it names no model, FAILED_PRECONDITION if the key or the
                library of its provider is missing. Both say what can be asked for.
        """
        provider, name = self._parsed(asked)
        if (provider, name) not in self._built:
            if asked and (reason := self.unusable(provider)):
                raise GuestError(
                    Code.FAILED_PRECONDITION,
                    f"{asked!r} cannot answer: {reason}; {self._accepted()}",
                    resolution=f"runner credentials set --provider {provider}",
                )
            if len(self._built) >= _BUILT_MAX:
                self._built.clear()
            settings = self.settings
            if provider != settings.provider:
                settings = settings.model_copy(update={"provider": provider, "base_url": ""})
            settings = settings.model_copy(update={"model": name})
            from guest.agent.models.at_home import AtHome, is_home  # imports the model library

            is_here = provider == OFFLINE or is_home(settings.url)
            model = AtHome(self.build(settings, self._keys.get(provider, "")), is_here=is_here)
            self._built[provider, name] = self._with_fallbacks(provider, name, model)
        return self._built[provider, name]

    @property
    def certain(self) -> bool:
        """Whether the settings alone show that the configured model can be built.

        If they do not, `choose` has to say so; that imports the model library.
        """
        return not self.settings.fallbacks and not self.unusable(self.settings.provider)

    @property
    def name(self) -> str:
        """What the configured model is called; a chain is called by all its models."""
        if self.certain:
            offline = self.settings.provider == OFFLINE
            return self.settings.provider if offline else self.settings.model
        return self.choose().model.model_name

    def _with_fallbacks(self, provider: str, name: str, model: "Model") -> Choice:
        """The configured model with its fallbacks; every other one by itself."""
        label = labelled(provider, name)
        if label != self.configured or not self.settings.fallbacks:
            return Choice(provider, name, model)
        from pydantic_ai.models.fallback import FallbackModel

        others = [self.choose(each) for each in self.settings.fallbacks if each != label]
        chain = FallbackModel(model, *(each.model for each in others))
        return Choice(provider, name, chain, (label, *(each.label for each in others)))

    def set_key(self, provider: str, key: str) -> None:
        """Use `key` for every request to `provider` from now on; none if it is empty.

        Raises `GuestError` INVALID_ARGUMENT for an unknown provider.
        """
        if provider not in PROVIDERS:
            raise GuestError(
                Code.INVALID_ARGUMENT,
                f"bad provider: {provider!r}; accepted: {', '.join(PROVIDERS)}",
            )
        self._keys[provider] = key
        self._built.clear()

    @property
    def configured(self) -> str:
        """The label of the model that answers unless a turn asks for another."""
        return labelled(self.settings.provider, self.settings.model)

    def notices(self) -> list[str]:
        """What a person should know of the configured model's window."""
        label = self.configured
        known, whole = self.windows.known(label), self.windows.whole(label)
        window = f"the window of {label} is {whole:,} tokens"
        if self.settings.is_small(whole):
            why = "" if whole < SMALL_WINDOW else ", and you have set the profile"
            return [
                f"small profile: {window}{why}; it gets the tools for notes, files and commands, "
                'and those in [tools] enabled; [agent] profile = "full" gives it everything'
            ]
        return [f"{window}, as its server says"] if 0 < known < self.windows.configured else []

    def unusable(self, provider: str) -> str:
        """Why models of `provider` cannot answer; empty if they can."""
        if provider == OFFLINE:
            return ""
        configured = provider == self.settings.provider
        if not self._keys.get(provider) and (self.settings.needs_key or not configured):
            return f"there is no API key for provider {provider!r}"
        if find_spec(PROVIDERS[provider].library) is None:
            return f"the packages of provider {provider!r} are not installed"
        return ""

    def _parsed(self, asked: str) -> tuple[str, str]:
        if not asked:
            return self.settings.provider, self.settings.model
        for provider in NAMES:
            if asked == provider == OFFLINE:
                return provider, ""
            if asked.startswith(f"{provider}:"):
                name = asked.removeprefix(f"{provider}:")
                if name and provider != OFFLINE:
                    return provider, name
                raise self._unknown(asked)
        if self.settings.provider == OFFLINE or asked in NAMES:
            raise self._unknown(asked)
        return self.settings.provider, asked

    def _unknown(self, asked: str) -> GuestError:
        return GuestError(
            Code.INVALID_ARGUMENT, f"bad model: {asked!r} names none; {self._accepted()}"
        )

    def _accepted(self) -> str:
        usable = [each for each in NAMES if not self.unusable(each)]
        named = [each if each == OFFLINE else f"{each}:MODEL" for each in usable]
        if self.settings.provider != OFFLINE:
            named.append(f"a model of {self.settings.provider}")
        return f"accepted: {', '.join(named)}"


def labelled(provider: str, name: str) -> str:
    """`provider:name`, or the provider alone for the built-in model."""
    return f"{provider}:{name}" if name else provider
