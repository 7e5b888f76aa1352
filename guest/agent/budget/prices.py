"""What a request to a model costs: from the configuration, else from the prices in genai-prices.

The prices in that package are those of its release; nothing is fetched.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

from genai_prices import calc_price
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage
from wire.providers import NAMES
from wire.settings import PriceSettings

from guest.door import name_in
from guest.memory.usage import UNITS_PER_DOLLAR

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
        places: list[dict[str, str]] = [{"provider_id": model.system}]
        url = model.base_url or ""
        if behind_door := name_in(url):
            url = self._urls.get(behind_door, "")
        if url:
            places.insert(0, {"provider_api_url": url})
        for place in places:
            try:
                return _units(calc_price(usage, name, **place).total_price)  # type: ignore[call-overload]
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
