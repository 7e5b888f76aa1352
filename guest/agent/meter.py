"""Counts every request to a model: reserves what it may take before it is sent, and settles that
with what it took. What that costs says the configuration, or else genai-prices: the prices of its
release, for nothing is fetched."""

import logging
import math
import uuid
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

from genai_prices import calc_price
from genai_prices.types import PriceCalculation
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage
from wire.limits import SEQUENCE_MAX
from wire.providers import NAMES
from wire.settings import AgentSettings, PriceSettings

from guest.agent.budget import Account, AccountReached, Limits, local_time
from guest.agent.models.offline import OfflineModel
from guest.agent.prompt.window import of_messages, of_part, of_tools
from guest.egress_client import name_in
from guest.errors import BudgetError, StorageError
from guest.memory.models import at, is_temporary
from guest.memory.search.tokens import tokens_of
from guest.memory.usage import (
    UNITS_PER_DOLLAR,
    Amount,
    CapReached,
    Kind,
    Measure,
    ModelRequest,
    Usage,
)
from guest.tools.base import ToolContext

log = logging.getLogger(__name__)

_TOKENS = 10**6


class Prices:
    """The prices of models; `own` ones, by the model's name, come first.

    `urls` are the addresses of providers whose own is not known by their names.
    """

    def __init__(
        self, own: Mapping[str, PriceSettings], urls: Mapping[str, str] | None = None
    ) -> None:
        self._own = own
        self._urls = urls or {}

    def most(self, model: Model, input_tokens: int, output_tokens: int) -> int | None:
        """The most that a request to `model` may cost, in billionths of a US dollar; None if no
        price is known. Some providers charge more for input that they put into their cache."""
        usages = (
            RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens),
            RequestUsage(
                input_tokens=input_tokens,
                cache_write_tokens=input_tokens,
                output_tokens=output_tokens,
            ),
        )
        costs = [self._cost(model, model.model_name, usage) for usage in usages]
        return max((cost for cost in costs if cost is not None), default=None)

    def of_answer(self, model: Model, response: ModelResponse) -> int | None:
        """What the answer of `model` costs, in the same unit; by the name that the provider gives
        the model, if it has a price."""
        name = response.model_name or model.model_name
        cost = self._cost(model, name, response.usage)
        return self._cost(model, model.model_name, response.usage) if cost is None else cost

    def _cost(self, model: Model, name: str, usage: RequestUsage) -> int | None:
        if (own := self._own.get(model.model_name)) is not None:
            cached = own.input if own.cached_input is None else own.cached_input
            fresh = usage.input_tokens - usage.cache_read_tokens
            millions = (
                fresh * Decimal(str(own.input))
                + usage.cache_read_tokens * Decimal(str(cached))
                + usage.output_tokens * Decimal(str(own.output))
            )
            return _units(millions / _TOKENS)
        found = self._documented(model, name, usage)
        return None if found is None else _units(found.total_price)

    def window(self, model: Model) -> int:
        """The model's window as its provider documents it; 0 if that is not known."""
        found = self._documented(model, model.model_name, RequestUsage())
        return (found.model.context_window or 0) if found is not None else 0

    def _documented(self, model: Model, name: str, usage: RequestUsage) -> PriceCalculation | None:
        places: list[dict[str, str]] = [{"provider_id": model.system}]
        url = model.base_url or ""
        if upstream := name_in(url):
            url = self._urls.get(upstream, "")
        if url:
            places.insert(0, {"provider_api_url": url})
        for place in places:
            try:
                return calc_price(usage, name, **place)  # type: ignore[call-overload,no-any-return]
            except LookupError:
                continue
            except ValueError as error:  # figures that contradict each other
                log.info("the cost of a request is not known: %s", error)
        return None


def candidates(model: Model) -> Sequence[Model]:
    """The models that may answer a request to `model`."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    if isinstance(model, FallbackModel):
        return [each for one in model.models for each in candidates(one)]
    return [model]


def countable(tokens: int) -> int:
    """A number that a provider reports, within what clients can show."""
    return min(max(tokens, 0), SEQUENCE_MAX)


def provider_of(model: Model) -> str:
    """The provider of a model, as settings name it."""
    system = model.system
    return next((each for each in NAMES if system.startswith(each)), system)


def answering(model: Model, response: ModelResponse) -> Model:
    """Which of the candidates has answered: the one after those that failed."""
    among = candidates(model)
    return among[min(len(response.failed_attempts or ()), len(among) - 1)]


def _units(dollars: Decimal) -> int:
    return math.ceil(dollars * UNITS_PER_DOLLAR)


_FRAME_TOKENS: Final = 400
"""What providers add to a request by themselves, such as how to call tools."""
SEARCHES, _SEARCH_TOKENS = 5, 100_000
"""A provider's searches in a turn, and the most tokens that it adds for one."""

_ESTIMATE_MAX_ERROR: Final = 4
"""How many times the estimated input a request may take: estimates are rather too high, but images
and other tokenizers are not known."""

OUTPUT_MAX_TOKENS: Final = 10_000_000
"""The most output that is believed where no limit was set: that of `max_output_tokens`."""

_T = TypeVar("_T")


class Meter:
    """Counts the requests of one user."""

    def __init__(self, usage: Usage, settings: AgentSettings) -> None:
        self.usage = usage
        self.limits = Limits(settings)
        self.prices = Prices(settings.prices, {settings.provider: settings.url})

    def unpriced(self, model: Model, account: Account | None = None) -> BudgetError | None:
        """Why no request to `model` may be sent: money is limited, and a price is not known."""
        if self.limits.in_money or (account is not None and account.in_money):
            for each in candidates(model):
                if self.prices.most(each, 0, 0) is None and not isinstance(each, OfflineModel):
                    return self.limits.unpriced(each.model_name)
        return None

    def bill(self, context: ToolContext, account: Account | None = None) -> "Bill":
        """The bill of a turn that begins, whose requests `account` counts, too. That of a temporary
        conversation names neither."""
        if is_temporary(context.session_id):
            context = replace(context, session_id="", turn_id="")
        return Bill(self, context, account or Account())


@dataclass(frozen=True)
class Reserved:
    """A request that may be sent, and the settings to send it with."""

    request: ModelRequest
    most: Amount
    settings: ModelSettings | None


class Bill:
    """What the requests of one turn take, with those that prepare it."""

    def __init__(self, meter: Meter, context: ToolContext, account: Account) -> None:
        self._meter = meter
        self._context = context
        self._account = account
        account.turn = meter.limits.turn
        account.session_id = account.above.session_id if account.above else context.session_id

    @property
    def cost_usd(self) -> float:
        """The known cost so far, in US dollars."""
        return sum(amount.cost or 0 for amount in self._account.amounts.values()) / UNITS_PER_DOLLAR

    @property
    def cached_tokens(self) -> int:
        return sum(amount.cached_tokens for amount in self._account.amounts.values())

    def counting(self, kind: Kind) -> "Counting":
        """What counts the requests of an agent that runs for this turn."""
        return Counting(self, kind)

    async def reserve(
        self,
        kind: Kind,
        model: Model,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> Reserved:
        """Count a request with the most that it may take. Raises `BudgetError` if it must not be
        sent."""
        meter = self._meter
        if limit := meter.limits.output:
            settings = cast(ModelSettings, {"max_tokens": limit, **(settings or {})})
        output = (settings or {}).get("max_tokens") or 0
        size = size_of(messages, parameters)
        may_answer = candidates(model)
        costs = [meter.prices.most(each, size, output) for each in may_answer]
        known = [cost for cost in costs if cost is not None]
        if refused := meter.unpriced(model, self._account):
            raise refused
        most = Amount(size, output, cost=max(known) if len(known) == len(costs) else None)
        now = local_time()
        request = ModelRequest(
            request_id=uuid.uuid4().hex,
            session_id=self._context.session_id,
            turn_id=self._context.turn_id,
            kind=kind,
            provider=provider_of(may_answer[0]),
            model=may_answer[0].model_name,
            sent_at=at(now.astimezone(UTC)),
            day=now.date().isoformat(),
        )
        user_id, account = self._context.user_id, self._account
        try:
            with account.taking(request.request_id, most):
                caps = meter.limits.of(kind)
                await meter.usage.reserve(request, most, caps, account.session_id)
        except AccountReached as reached:
            raise meter.limits.turn_reached(reached, user_id, output) from None
        except CapReached as reached:
            refused = meter.limits.reached(reached, now, user_id, output)
            if meter.usage.on_reached is not None:
                await meter.usage.on_reached(reached, request, refused)
            raise refused from None
        except StorageError as error:
            raise BudgetError(
                error.code,
                f"usage cannot be recorded, so the request was not sent: {error.brief}",
                details=error.details,
                resolution=error.resolution,
            ) from error
        return Reserved(request, most, settings)

    async def settle(self, reserved: Reserved, model: Model, response: ModelResponse) -> None:
        """Count a request with what its answer took.

        Without the provider's figures, those of a whole answer are estimated; one that was cut
        short counts as reserved. Figures beyond what the request can have taken are cut to that,
        and count as estimated, too.
        """
        answered = answering(model, response)
        usage = response.usage
        for name, figure in vars(usage).items():
            if isinstance(figure, float):
                setattr(usage, name, int(figure) if math.isfinite(figure) else 0)
        measure: Measure = "estimated"
        if usage.has_values():
            reported = Amount(
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                self._meter.prices.of_answer(answered, response),
            )
            amount = self._possible(reported, reserved.most, answered, response)
            measure = "reported" if amount == reported else "estimated"
            usage.input_tokens, usage.output_tokens = amount.input_tokens, amount.output_tokens
            usage.cache_read_tokens = amount.cached_tokens
        elif response.finish_reason is not None:
            output = sum(map(of_part, response.parts))
            cost = self._meter.prices.most(answered, reserved.most.input_tokens, output)
            amount = Amount(reserved.most.input_tokens, output, cost=cost)
        else:
            return
        request = replace(
            reserved.request,
            provider=provider_of(answered),
            model=answered.model_name,
        )
        self._account.amounts[request.request_id] = amount
        await self._meter.usage.settle(request, amount, measure)

    def _possible(
        self, reported: Amount, most: Amount, answered: Model, response: ModelResponse
    ) -> Amount:
        """What a provider `reported`, at most what the request can have taken."""
        written = sum(map(of_part, response.parts))
        found = _SEARCH_TOKENS * min(SEARCHES, len(response.native_tool_calls))
        given = min(max(reported.input_tokens, 0), _ESTIMATE_MAX_ERROR * most.input_tokens + found)
        taken = min(
            max(reported.output_tokens, 0),
            max(most.output_tokens, written) if most.output_tokens else OUTPUT_MAX_TOKENS,
        )
        cost = reported.cost
        dearest = self._meter.prices.most(answered, given + found, taken)  # found again: the fees
        if cost is not None and dearest is not None:
            cost = min(max(cost, 0), dearest)
        amount = Amount(given, taken, min(max(reported.cached_tokens, 0), given), cost)
        if amount != reported:
            log.warning(
                "%s reports more than a request can have taken: %s input and %s output tokens; "
                "%s and %s are counted",
                *(answered.model_name, reported.input_tokens, reported.output_tokens, given, taken),
            )
        return amount

    async def release(self, reserved: Reserved) -> None:
        """Do not count a request, which the provider has refused."""
        self._account.amounts.pop(reserved.request.request_id, None)
        await self._meter.usage.release(reserved.request)


class Counting(AbstractCapability[Any]):
    """Counts the requests of an agent's run on a bill; those to the built-in model are free."""

    def __init__(self, bill: Bill, kind: Kind) -> None:
        self._bill = bill
        self._kind: Kind = kind

    def get_wrapper_model(self, model: Model) -> Model | None:
        if all(isinstance(each, OfflineModel) for each in candidates(model)):
            return None
        return _Counted(model, self._bill, self._kind)


class _Counted(WrapperModel):
    """Reserves before each request, and settles after it.

    A request without an answer to the end, because the connection broke, the turn was cancelled or
    the guest was killed, stays counted as reserved. One that the provider answered with an error
    before it began does not count.
    """

    def __init__(self, wrapped: Model, bill: Bill, kind: Kind) -> None:
        super().__init__(wrapped)
        self._bill = bill
        self._kind: Kind = kind

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        reserved = await self._bill.reserve(
            self._kind, self.wrapped, messages, model_settings, model_request_parameters
        )
        sending = super().request(messages, reserved.settings, model_request_parameters)
        response = await self._unless_refused(reserved, sending)
        await self._bill.settle(reserved, self.wrapped, response)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        reserved = await self._bill.reserve(
            self._kind, self.wrapped, messages, model_settings, model_request_parameters
        )
        async with AsyncExitStack() as stack:
            opening = stack.enter_async_context(
                self.wrapped.request_stream(
                    messages, reserved.settings, model_request_parameters, run_context
                )
            )
            stream = await self._unless_refused(reserved, opening)
            yield stream
            await self._bill.settle(reserved, self.wrapped, stream.get())

    async def _unless_refused(self, reserved: Reserved, sending: Awaitable[_T]) -> _T:
        try:
            return await sending
        except Exception as error:
            if _refused(error):
                await self._bill.release(reserved)
            raise


def _refused(error: BaseException) -> bool:
    """Whether every provider that was asked answered with an error, and so did no work."""
    if isinstance(error, FallbackExceptionGroup):
        return all(map(_refused, error.exceptions))
    return isinstance(error, ModelHTTPError) and not error.in_stream


def size_of(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """The size of a request in tokens, by an estimate that is rather too high."""
    told = sum(tokens_of(part.content) for part in parameters.instruction_parts or ())
    tools = of_tools([*parameters.function_tools, *parameters.output_tools])
    return of_messages(messages) + told + tools + _FRAME_TOKENS
