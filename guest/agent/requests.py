"""What pieces of a turn do with its requests to the model."""

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext


class RequestHooks(AbstractCapability[Any]):
    """pydantic-ai's hooks around one request. A piece overrides those that it needs."""

    async def prepare(self, request: ModelRequestContext) -> None:
        """Change a request before it is sent."""

    async def mend(self, request: ModelRequestContext, error: Exception, /) -> None:
        """Raises `RetryModelRequest` or `ModelRetry` for a request that is to be made again, or an
        error of its own; otherwise `error` goes on."""

    async def read(self, _: ModelRequestContext, response: ModelResponse, /) -> ModelResponse:
        """The answer as it goes on."""
        return response

    async def prepare_model_request(
        self, _: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        await self.prepare(request_context)
        return request_context

    async def on_model_request_error(
        self, _: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        await self.mend(request_context, error)
        raise error

    async def after_model_request(
        self, _: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        return await self.read(request_context, response)
