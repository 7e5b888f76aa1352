"""Budgets against a provider that counts the requests that arrive: a model that calls a tool for
ever, five turns at once, restarts, a guest that is killed, answers that nobody saw the end of."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from wire.settings import BudgetSettings, PriceSettings
from wire.text import dollars
from wire.v1 import gateway_pb2 as pb

from tests.support.crashing import asking
from tests.support.gateway.gateways import Client, open_gateways
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import OpenAIServer, Reply, openai_server

CAP = 0.10
PRICE = PriceSettings(input=5.0, cached_input=1.0, output=10.0)
TAKEN = (2_000, 200, 1_000)
COST = (1_000 * 5.0 + 1_000 * 1.0 + 200 * 10.0) / 1e6
LOOPING = [
    wire.calls(("c1", "memory_search", f'{{"query": "{n}"}}'), usage=TAKEN) for n in range(100, 160)
]


@asynccontextmanager
async def guest(
    server: OpenAIServer, path: Path, sessions: int = 1, **settings: Any
) -> AsyncIterator[Client]:
    """Alice's agent; it may be ended and started again at the same `path`."""
    async with open_gateways(
        path=path,
        provider="openai",
        model="test-model",
        base_url=server.base_url,
        api_key="sk-test-0123456789abcdef",
        max_output_tokens=500,
        **{"prices": {"test-model": PRICE}, **settings},
    ) as gateways:
        alice = await gateways.serve("alice")
        for number in range(sessions):
            await alice.session(f"s{number}")
        yield alice


async def failure(alice: Client, session_id: str = "s0") -> pb.TurnFailed:
    last = (await alice.say(session_id, "go on and on"))[-1]
    assert last.WhichOneof("event") == "failed", last
    return last.failed


async def usage(alice: Client, **asked: Any) -> pb.GetUsageReply:
    return await alice.stub.GetUsage(pb.GetUsageRequest(**asked))


async def test_five_turns_at_once_and_a_restart_stay_within_a_day(tmp_path: Path) -> None:
    async with openai_server(*LOOPING) as server:
        settings: dict[str, Any] = {"budget": BudgetSettings(day_usd=CAP), "max_steps": 100}
        async with guest(server, tmp_path, sessions=5, **settings) as alice:
            failed = await asyncio.gather(*(failure(alice, f"s{n}") for n in range(5)))
            assert {each.code for each in failed} == {"resource_exhausted"}
            arrived = len(server.requests)
            assert 2 <= arrived <= CAP / COST
            total = (await usage(alice)).total
            assert total.requests == arrived
            assert total.cost_usd == pytest.approx(arrived * COST)
            assert (total.input_tokens, total.cached_tokens) == (
                arrived * TAKEN[0],
                arrived * TAKEN[2],
            )
        async with guest(server, tmp_path, **settings) as alice:
            again = await failure(alice)
            assert again.message.startswith(
                "the budget of the day does not cover the next request: "
                f"{dollars(arrived * COST)} of $0.10 is used, and it may cost $0.0"
            )
            assert "; a new one begins on " in again.message
            assert again.resolution == (
                "wait until then, lower max_output_tokens in [agent], or raise day_usd in "
                "[agent.budget] (in [users.alice.agent.budget] if it stands there): "
                "runner config edit, then: runner restart"
            )
            assert len(server.requests) == arrived, "a request was sent"
            (budget,) = (await usage(alice)).budgets
            assert (budget.setting, budget.limit) == ("day_usd", CAP)
            assert budget.used == pytest.approx(arrived * COST)
        raised: dict[str, Any] = {"budget": BudgetSettings(day_usd=1.0), "max_steps": 1}
        async with guest(server, tmp_path, **raised) as alice:
            await failure(alice)
            assert len(server.requests) == arrived + 1


@pytest.mark.parametrize(
    ("setting", "most"), [("turn_usd", CAP), ("session_usd", CAP), ("session_tokens", 20_000)]
)
async def test_a_looping_model_stays_within(setting: str, most: float, tmp_path: Path) -> None:
    budget = BudgetSettings.model_validate({setting: most})
    async with (
        openai_server(*LOOPING) as server,
        guest(server, tmp_path, sessions=2, budget=budget, max_steps=100) as alice,
    ):
        failed = await failure(alice)
        assert f"raise {setting} in" in failed.resolution
        arrived = len(server.requests)
        each = COST if setting.endswith("_usd") else TAKEN[0] + TAKEN[1]
        assert 2 <= arrived <= most / each
        await failure(alice)
        assert (len(server.requests) > arrived) is (setting == "turn_usd")
        before = len(server.requests)
        await failure(alice, "s1")
        assert len(server.requests) > before, "another session has a budget of its own"


async def test_a_request_whose_end_was_not_seen_counts_with_the_most_it_could_take(
    tmp_path: Path,
) -> None:
    refused = wire.error("401 Unauthorized")
    replies: list[Reply] = [refused, wire.says("Half an", then="abort"), wire.says("Well.")]
    async with openai_server(*replies) as server:
        async with guest(server, tmp_path, budget=BudgetSettings(day_usd=1.0)) as alice:
            await failure(alice)
            assert (await usage(alice)).total.requests == 0
            assert (await alice.say("s0", "go on"))[-1].HasField("incomplete")
            broken = (await usage(alice)).total
            assert (broken.requests, broken.uncertain_requests) == (1, 1)
            assert broken.output_tokens == 500
            assert server.requests[-1].body["max_completion_tokens"] == 500
        async with guest(server, tmp_path) as alice:
            assert await alice.answer("s0", "hello") == "Well."
            (day,) = (await usage(alice, by="day")).sums
            assert (day.requests, day.uncertain_requests) == (2, 1)
            assert day.input_tokens == broken.input_tokens + 11
            completed = (await alice.say("s0", "hello"))[-1].completed
            assert completed.cost_usd == pytest.approx((11 * 5 + 7 * 10) / 1e6)


async def test_a_request_of_a_killed_guest_counts(tmp_path: Path) -> None:
    async with openai_server(wire.never()) as server:
        program = (sys.executable, "-m", asking.__name__, str(tmp_path), server.base_url)
        asked = await asyncio.create_subprocess_exec(*program)
        async with asyncio.timeout(60):
            await server.asked.wait()
        asked.kill()
        await asked.wait()
        async with guest(server, tmp_path) as alice:
            total = (await usage(alice)).total
            assert (total.requests, total.uncertain_requests, total.output_tokens) == (1, 1, 500)
            assert total.input_tokens > 1000


async def test_money_without_a_price_is_refused_and_tokens_are_not(tmp_path: Path) -> None:
    async with openai_server(wire.says("Well.")) as server:
        in_money = BudgetSettings(month_usd=1.0, day_tokens=10**6)
        async with guest(server, tmp_path, budget=in_money, prices={}) as alice:
            failed = await failure(alice)
            assert failed.code == "failed_precondition"
            assert failed.message == (
                "the price of model 'test-model' is not known, so month_usd cannot be kept"
            )
            assert '[agent.prices."test-model"]' in failed.resolution
            assert not server.requests
        in_tokens = BudgetSettings(day_tokens=10**6)
        async with guest(server, tmp_path, budget=in_tokens, prices={}) as alice:
            assert await alice.answer("s0", "hello") == "Well."
            total = (await usage(alice)).total
            assert (total.requests, total.unpriced_requests, total.cost_usd) == (1, 1, 0)


async def test_each_model_of_a_chain_has_its_price(tmp_path: Path) -> None:
    dear, cheap = PriceSettings(input=1000, output=1000), PriceSettings(input=1, output=1)
    prices = {"test-model": dear, "cheap": cheap}
    settings: dict[str, Any] = {"fallbacks": ("openai:cheap",)}
    async with openai_server(wire.error("401 Unauthorized"), wire.says("Well.")) as server:
        enough = BudgetSettings(day_usd=100.0)
        async with guest(server, tmp_path, **settings, prices=prices, budget=enough) as alice:
            assert await alice.answer("s0", "hello") == "Well."
            assert [each.body["model"] for each in server.requests] == ["test-model", "cheap"]
            (model,) = (await usage(alice, by="model")).sums
            assert (model.key, model.requests) == ("openai:cheap", 1)
            assert model.cost_usd == pytest.approx(18 / 1e6)
        enough_for_the_cheap = BudgetSettings(day_usd=1.0)
        async with guest(
            server, tmp_path, **settings, prices=prices, budget=enough_for_the_cheap
        ) as alice:
            assert (await failure(alice)).code == "resource_exhausted"
        for without in prices:
            known = {name: price for name, price in prices.items() if name != without}
            async with guest(server, tmp_path, **settings, prices=known, budget=enough) as alice:
                failed = await failure(alice)
                assert f"the price of model '{without}' is not known" in failed.message
        assert len(server.requests) == 2


async def test_a_forgotten_session_leaves_sums_without_its_id(tmp_path: Path) -> None:
    async with openai_server(wire.says("Well.")) as server, guest(server, tmp_path) as alice:
        await alice.answer("s0", "hello")
        (own,) = (await usage(alice, by="session", session_id="s0")).sums
        assert (own.key, own.output_tokens) == ("s0", 7)
        await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s0"))
        assert not (await usage(alice, session_id="s0")).sums
        (left,) = (await usage(alice, by="session")).sums
        assert (left.key, left.output_tokens) == ("", 7)


async def test_summaries_count_and_have_limits_of_their_own(tmp_path: Path) -> None:
    short: dict[str, Any] = {"history_turns": 1, "summary_min_turns": 1}
    async with openai_server(wire.says("- Well, that is what was said.")) as server:
        async with guest(server, tmp_path, **short) as alice:
            for answers in range(1, 4):
                await alice.answer("s0", "hello")
                counts = {"answer": answers, **({"summary": answers - 1} if answers > 1 else {})}
                while True:  # it is made after the answer
                    counted = await usage(alice, by="kind")
                    total = counted.total  # of a request under way, what it may take
                    has_ended = total.output_tokens == 7 * total.requests
                    if has_ended and {each.key: each.requests for each in counted.sums} == counts:
                        break
            assert total.requests == 5
            (model,) = (await usage(alice, by="model")).sums
            assert (model.key, model.requests) == ("openai:test-model", 5)
            assert len(server.requests) == 5
        capped: dict[str, Any] = {"budget": BudgetSettings(background_day_tokens=20)}
        async with guest(server, tmp_path, **short, **capped) as alice:
            await alice.answer("s0", "hello")
            asked, why = len(server.requests), ""
            while not why:  # it was tried after the answer
                events, asked = await alice.say("s0", "hello"), asked + 1
                why = "".join(event.notice.text for event in events)
            assert "without a summary: the budget" in why
            assert len(server.requests) == asked, "a summary was asked for"
            (budget,) = (await usage(alice)).budgets
            assert budget.used == 36


async def test_the_built_in_model_takes_nothing() -> None:
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s0")
        completed = (await alice.say("s0", "help"))[-1].completed
        assert completed.text
        assert not completed.input_tokens
        assert (await usage(alice)).total == pb.UsageSum()


@pytest.mark.parametrize("reported", [2**53, 2**70, 10**9, 2e9, 1e30])
async def test_what_a_provider_cannot_have_taken_is_not_believed(
    tmp_path: Path, reported: int | float
) -> None:
    """One of several providers must not fill the day's budget for all, or break what is stored."""
    delta = {"role": "assistant", "content": "Well."}
    lie = wire.stream(delta, finish="stop", usage=(reported, reported, reported))
    async with (
        openai_server(lie, wire.says("Fine.")) as server,
        guest(server, tmp_path, budget=BudgetSettings(day_usd=1.0)) as alice,
    ):
        first = (await alice.say("s0", "hello"))[-1]
        assert 0 < first.completed.output_tokens <= 500, first
        assert await alice.answer("s0", "hello") == "Fine."
        total = (await usage(alice)).total
        assert (total.requests, total.uncertain_requests) == (2, 1)
        assert total.output_tokens <= 500 + 7
        assert 0 <= total.input_tokens < 100_000
        assert 0 <= total.cost_usd < 0.5
