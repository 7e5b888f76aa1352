"""Builds the configured model, and tries it.

Importing pydantic-ai takes more than half a second, and a provider's library up to a second and
50 MB. So both are imported when a model is built, and only the library of its provider. Nothing is
read from the environment.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from wire.errors import Code
from wire.installation import adding
from wire.providers import OFFLINE, PROVIDERS
from wire.settings import AgentSettings

from guest.egress_client import NO_KEY, EgressClient, url_of
from guest.errors import GuestError
from guest.tools.redaction.scrubber import Scrubber

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.settings import ModelSettings

_TRIAL_S: Final = 60.0
_ANY_SERVER: Final["OpenAIModelProfile"] = {
    "openai_chat_supports_multiple_system_messages": False,
    "tool_call_id_length": 9,
}
"""What every server's chat template takes: one system message, and ids as long as Mistral's."""
_QUESTION: Final = "Call the tool ready with the word yes."


def request_settings(settings: AgentSettings) -> "ModelSettings":
    """What every request of a turn asks of its provider, as far as the provider knows of it."""
    asked = always(settings)
    if settings.thinking != "default":
        asked["thinking"] = False if settings.thinking == "off" else settings.thinking
    if settings.prompt_cache:
        asked["cache"] = True
    return asked


def always(settings: AgentSettings) -> "ModelSettings":
    """What every request asks, also one for a summary."""
    return {} if settings.temperature is None else {"temperature": settings.temperature}


def build_model(
    settings: AgentSettings,
    api_key: str = "",
    *,
    no_shell_reason: str = "",
    egress: EgressClient | None = None,
    in_vm: bool = False,
) -> "Model":
    """The configured model, asked through `egress`, which adds its key; without it directly.

    `api_key` is empty for a server without one. `no_shell_reason` is what the built-in model says
    if it is told to run a command and there is no shell. `in_vm` says that this guest has not the
    memory of the machine where models run. Raises `GuestError` FAILED_PRECONDITION if the key or
    the provider's package is missing.
    """
    if settings.provider == OFFLINE:
        from guest.agent.models.offline import OfflineModel

        return OfflineModel(no_shell_reason=no_shell_reason)
    if settings.needs_key and not api_key:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"no API key for provider {settings.provider!r}",
            details="the configuration names no variable that holds one, or it was cleared",
            resolution=f"runner credentials set --provider {settings.provider}",
        )
    try:
        url, client = _place(settings, api_key, egress)
        build = _BUILDERS[PROVIDERS[settings.provider].protocol]
        asked = {"in_vm": in_vm} if settings.provider == "ollama" else {}
        return build(settings, base_url=url, api_key=api_key, http_client=client, **asked)
    except ImportError as error:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"the packages of provider {settings.provider!r} are not installed",
            details=str(error),
            resolution=adding(PROVIDERS[settings.provider].protocol),
        ) from error


def _openai(settings: AgentSettings, **asked: Any) -> "Model":
    if settings.provider == "ollama":
        from guest.agent.models.ollama import OllamaModel

        return OllamaModel(settings, _ANY_SERVER, **asked)
    from guest.agent.models.openai_model import OpenAIModel, PlainSchemas

    if settings.base_url or settings.provider != "openai":
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        name = "openai-compatible" if settings.provider == "openai" else settings.provider
        asked["api_key"] = asked["api_key"] or None
        extra: dict[str, Any] = {}
        if not settings.needs_key and settings.provider != "azure":  # a server of somebody's own
            extra["max_tokens"] = 0
            if settings.thinking == "off":
                extra["chat_template_kwargs"] = {"enable_thinking": False}
        provider = OpenAICompatibleProvider(name, **asked)
        profile = _ANY_SERVER | {"json_schema_transformer": PlainSchemas}
        return OpenAIModel(settings.model, provider=provider, profile=profile, extra=extra)
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIModel(settings.model, provider=OpenAIProvider(**asked))


def _anthropic(settings: AgentSettings, **asked: Any) -> "Model":
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    plain: Any = {"anthropic_supports_dynamic_filtering": False}  # searches without running code
    return AnthropicModel(settings.model, provider=AnthropicProvider(**asked), profile=plain)


def _google(settings: AgentSettings, **asked: Any) -> "Model":
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(settings.model, provider=GoogleProvider(**asked))


def _place(
    settings: AgentSettings, api_key: str, egress: EgressClient | None
) -> "tuple[str, httpx2.AsyncClient | None]":
    """The address to ask, and the client to do it with; None: the library's own."""
    if egress is None:
        if api_key == NO_KEY:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                f"no egress guest leads to provider {settings.provider!r}",
                details="this guest was started without a connection to the egress guest",
                resolution="runner restart",
            )
        return settings.url, None
    return url_of(settings.provider), egress.http


_BUILDERS = {"openai": _openai, "anthropic": _anthropic, "google": _google}


async def try_model(
    settings: AgentSettings,
    api_key: str,
    *,
    until: str = "tool",
    egress: EgressClient | None = None,
    in_vm: bool = False,
) -> None:
    """Ask the model to call a tool, over a stream, as turns do, until it has, or has answered at
    all (see `TRIALS`): through `egress`, or without it directly.

    The settings are being chosen, and are in no file yet. Raises `GuestError` that says what the
    operator can do if there is no answer, or no call.
    """
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest, PartStartEvent, ToolCallPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    from guest.agent.models import errors

    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    tool = ToolDefinition(
        name="ready", description="Says that you are ready.", parameters_json_schema=schema
    )
    try:
        async with (
            asyncio.timeout(_TRIAL_S),
            model_request_stream(
                build_model(settings, api_key, egress=egress, in_vm=in_vm),
                [ModelRequest.user_text_prompt(_QUESTION)],
                model_settings=request_settings(settings),
                model_request_parameters=ModelRequestParameters(function_tools=[tool]),
            ) as answer,
        ):
            async for event in answer:
                called = isinstance(event, PartStartEvent) and isinstance(event.part, ToolCallPart)
                if called or until == "answer":
                    return
    except TimeoutError:
        raise GuestError(
            Code.TIMEOUT,
            f"provider {settings.provider!r} has not answered for {_TRIAL_S:g} seconds",
            details=f"asked was {settings.url}",
            resolution="check that it is not busy and that base_url is right; then try again",
        ) from None
    except Exception as error:
        if (
            failed := errors.from_model(
                error,
                settings.provider,
                settings.model,
                settings.base_url,
                Scrubber([api_key]).scrub,
            )
        ) is None:
            raise
        raise GuestError(
            Code(failed.code),
            failed.message,
            details=failed.details,
            resolution=failed.resolution.partition(errors.SET_UP)[0],
        ) from error
    raise GuestError(
        Code.FAILED_PRECONDITION,
        f"model {settings.model!r} answered, but did not call the tool that it was asked to call",
        details="without tools an agent can save, find and run nothing",
        resolution="choose a model that can call tools, such as qwen3:4b",
    )
