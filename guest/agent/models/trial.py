"""One request to the configured model, to see whether it answers."""

import asyncio
from typing import Final

from pydantic_ai import Agent
from wire.errors import Code
from wire.settings import AgentSettings

from guest.agent.models import errors
from guest.agent.models.providers import build_model, request_settings
from guest.errors import GuestError

_WITHIN_S: Final = 60.0
_QUESTION: Final = "Answer with the one word: ready"


async def try_model(settings: AgentSettings, api_key: str) -> None:
    """Ask the model for one word, over a stream, as turns do.

    Raises `GuestError` that says what the operator can do if there is no answer.
    """
    agent = Agent(build_model(settings, api_key), model_settings=request_settings(settings))
    try:
        async with asyncio.timeout(_WITHIN_S), agent.run_stream(_QUESTION) as answer:
            await answer.get_output()
    except TimeoutError:
        raise GuestError(
            Code.TIMEOUT,
            f"provider {settings.provider!r} has not answered for {_WITHIN_S:g} seconds",
            resolution="check the network and base_url",
        ) from None
    except Exception as error:
        if (failed := errors.from_model(error, settings.provider, settings.model)) is None:
            raise
        raise GuestError(Code(failed.code), failed.message, resolution=failed.resolution) from error
