"""Prices, and when budgets begin anew."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage
from wire.settings import AgentSettings, PriceSettings
from wire.text import dollars

from guest.agent.budget import Account, resets_at
from guest.agent.meter import Prices, candidates
from guest.agent.models.providers import build_model
from guest.memory.usage import Amount

MILLION = 10**6
KEY = "sk-0123456789abcdef"


def model(provider: Any, name: str, base_url: str = "") -> Model:
    return build_model(
        AgentSettings.model_construct(provider=provider, model=name, base_url=base_url), KEY
    )


def answer(model: Model, name: str, usage: RequestUsage) -> ModelResponse:
    return ModelResponse(parts=[], usage=usage, model_name=name, provider_name=model.system)


def test_known_prices_come_from_the_package() -> None:
    openai, anthropic = model("openai", "gpt-4o"), model("anthropic", "claude-sonnet-4-5")
    prices = Prices({})
    for each in (openai, anthropic):
        fresh = RequestUsage(input_tokens=MILLION, output_tokens=1000)
        cached = RequestUsage(input_tokens=MILLION, cache_read_tokens=MILLION, output_tokens=1000)
        first = prices.of_answer(each, answer(each, each.model_name, fresh))
        again = prices.of_answer(each, answer(each, each.model_name, cached))
        most = prices.most(each, MILLION, 1000)
        assert again is not None
        assert first is not None
        assert most is not None
        assert again < first <= most
    written = RequestUsage(input_tokens=MILLION, cache_write_tokens=MILLION)
    told = answer(anthropic, "claude-sonnet-4-5", written)
    assert prices.most(anthropic, MILLION, 0) == prices.of_answer(anthropic, told)


def test_a_dated_name_of_the_provider_has_the_price_of_that_date() -> None:
    openai = model("openai", "gpt-4o")
    usage = RequestUsage(input_tokens=MILLION, output_tokens=MILLION)
    earlier = Prices({}).of_answer(openai, answer(openai, "gpt-4o-2024-05-13", usage))
    assert earlier != Prices({}).of_answer(openai, answer(openai, "gpt-4o", usage))
    unknown = Prices({}).of_answer(openai, answer(openai, "something-else", usage))
    assert unknown == Prices({}).of_answer(openai, answer(openai, "gpt-4o", usage))


def test_own_prices_come_first() -> None:
    own = PriceSettings(input=2.0, output=10.0)
    local = model("openai", "my-model", "http://127.0.0.1:9/v1")
    assert Prices({}).most(local, MILLION, 0) is None
    hosted = model("openai", "gpt-4o")
    assert Prices({"gpt-4o": own}).most(hosted, MILLION, 0) == 2 * 10**9
    assert Prices({"my-model": own}).most(local, MILLION, MILLION) == 12 * 10**9
    usage = RequestUsage(input_tokens=1000, cache_read_tokens=400, output_tokens=100)
    assert Prices({"my-model": own}).of_answer(local, answer(local, "x", usage)) == 3_000_000
    cached = own.model_copy(update={"cached_input": 0.5})
    assert Prices({"my-model": cached}).of_answer(local, answer(local, "x", usage)) == 2_400_000
    free = PriceSettings(input=0.0, output=0.0)
    assert Prices({"my-model": free}).most(local, MILLION, MILLION) == 0


def test_every_model_of_a_chain_may_answer() -> None:
    first, second = model("openai", "gpt-4o"), model("anthropic", "claude-sonnet-4-5")
    chain = WrapperModel(FallbackModel(first, second))
    assert [each.model_name for each in candidates(chain)] == ["gpt-4o", "claude-sonnet-4-5"]
    assert candidates(first) == [first]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def set_to(rule: str) -> None:
        monkeypatch.setenv("TZ", rule)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("scope", "now", "again"),
    [
        ("day", "2026-11-22T22:59:00", "2026-11-22T23:00:00"),
        ("day", "2026-11-22T23:00:00", "2026-11-23T23:00:00"),
        ("background_day", "2026-03-28T23:30:00", "2026-03-29T22:00:00"),  # the day of 23 hours
        ("month", "2026-11-30T22:59:00", "2026-11-30T23:00:00"),
        ("month", "2026-11-30T23:00:00", "2026-12-31T23:00:00"),
    ],
)
def test_budgets_begin_anew_at_midnight_of_the_zone(
    zone: Any, scope: Any, now: str, again: str
) -> None:
    zone("CET-1CEST,M3.5.0,M10.5.0/3")
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC).astimezone()
    found = resets_at(scope, moment)
    assert found is not None
    assert found.astimezone(UTC).isoformat() == f"{again}+00:00"
    assert resets_at("session", moment) is None


def test_dollars() -> None:
    amounts = (0, 0.1, 0.0912, 0.00421, 0.000042, 1.5, 12345.678, 1e-7)
    assert [dollars(each) for each in amounts] == [
        *("$0.00", "$0.10", "$0.0912", "$0.004210", "$0.000042", "$1.50", "$12,345.68"),
        "$0.0000001",
    ]


def test_a_request_that_is_not_sent_is_not_counted() -> None:
    above = Account()
    account = Account(above=above)
    with suppress(KeyboardInterrupt), account.taking("r1", Amount(10, 5)):
        assert above.of("tokens") == 15
        raise KeyboardInterrupt
    assert above.of("tokens") == account.of("tokens") == 0
