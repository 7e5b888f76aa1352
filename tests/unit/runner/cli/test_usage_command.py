"""`runner usage`: tables for people, figures for programs, and what is said about them."""

import json
from datetime import datetime, timedelta

import pytest
from wire.v1 import gateway_pb2 as pb

from runner.cli.usage import turn_line
from tests.support.gateway.fake_gateway import FakeGateway
from tests.unit.runner.cli.conftest import RunCommand


def took(key: str, cost: float, unpriced: int = 0, uncertain: int = 0, **more: str) -> pb.UsageSum:
    return pb.UsageSum(
        key=key,
        requests=3,
        input_tokens=12_345,
        cached_tokens=2_000,
        output_tokens=678,
        cost_usd=cost,
        unpriced_requests=unpriced,
        uncertain_requests=uncertain,
        **more,
    )


def test_days_their_sum_and_budgets(
    memory: FakeGateway, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    budget = pb.Budget(
        setting="day_usd", used=0.0123, limit=0.5, resets_at="2026-11-23T00:00:00.000000Z"
    )
    tokens = pb.Budget(setting="session_tokens", used=1000, limit=5000)
    memory.usage = pb.GetUsageReply(
        sums=[took("2026-11-21", 0.0042), took("2026-11-22", 1.5, unpriced=1)],
        total=took("", 1.5042, unpriced=1, uncertain=2),
        budgets=[budget, tokens],
    )
    shown = run_command("usage")
    assert (shown.code, shown.err) == (0, "")
    heading, first, second, total, *rest = shown.out.splitlines()
    assert heading.split() == ["day", "requests", "input", "cached", "output", "cost"]
    assert first.split() == ["2026-11-21", "3", "12,345", "2,000", "678", "$0.0042"]
    assert second.endswith("$1.50 and more")
    assert total.split()[0] == "all"
    assert rest[0].startswith("1 requests are of models without a known price: set [agent.prices]")
    assert rest[1].startswith("2 requests are estimated, or counted with the most")
    assert rest[2].startswith("day_usd: $0.0123 of $0.50 used; begins anew on 2026-11-2")
    assert rest[3] == "session_tokens: 1,000 of 5,000 used"
    (asked,) = memory.seen_usage
    today = datetime.now().astimezone().date()
    assert (asked.by, asked.since) == ("day", str(today - timedelta(days=29)))


def test_for_programs(memory: FakeGateway, run_command: RunCommand) -> None:
    memory.usage = pb.GetUsageReply(
        sums=[took("s1", 0.5, title="about \x9btea"), took("", 0.0, unpriced=3)],
        total=took("", 0.5, unpriced=3),
        budgets=[pb.Budget(setting="day_usd", used=0.5, limit=1)],
    )
    told = json.loads(run_command("usage", "--by", "session", "--since", "all", "--json").out)
    assert (told["by"], told["since"]) == ("session", None)
    first = told["sums"][0]
    assert (first["session"], first["title"], first["cost_usd"]) == ("s1", "about \x9btea", 0.5)
    assert told["sums"][1]["session"] is None
    assert [each["setting"] for each in told["budgets"]] == ["day_usd"]
    assert "\x9b" not in run_command("usage", "--by", "session").out
    assert "(forgotten)" in run_command("usage", "--by", "session").out


def test_no_requests_and_a_bad_day(memory: FakeGateway, run_command: RunCommand) -> None:
    assert run_command("usage", "--since", "2026-11-01").out == (
        "no requests to a model since 2026-11-01\n"
    )
    for bad in ("yesterday", "2026-13-01", "999999d", "0.5d", ""):
        refused = run_command("usage", "--since", bad)
        assert refused.code == 2
        assert "is not accepted; write a day such as 2026-11-22, 7d or all" in refused.err


def test_the_line_at_the_end_of_a_turn() -> None:
    assert turn_line(pb.TurnCompleted(text="help")) == ""
    free = pb.TurnCompleted(input_tokens=1234, output_tokens=5)
    assert turn_line(free) == "1,234 tokens in, 5 out"
    paid = pb.TurnCompleted(input_tokens=1234, cached_tokens=1000, output_tokens=5, cost_usd=0.0123)
    assert turn_line(paid) == "1,234 tokens in (1,000 cached), 5 out, $0.0123"
