"""The sums of a user's requests, as the gateway reports them."""

from typing import cast

from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Limits
from guest.gateway.usage import UsageReport
from guest.memory.usage import UNITS_PER_DOLLAR, Sum, Usage


class _Stored:
    async def sums(self, *_: object) -> list[Sum]:
        return [Sum(f"2026-11-0{i}", 1, 2, 0, 3, i * UNITS_PER_DOLLAR // 10, 0, 1) for i in (1, 2)]


async def test_the_total_is_as_exact_as_its_sums() -> None:
    report = UsageReport(cast(Usage, _Stored()), Limits(AgentSettings()))
    found = await report.get(pb.GetUsageRequest())
    assert [each.cost_usd for each in found.sums] == [0.1, 0.2]
    total = found.total
    assert (total.requests, total.output_tokens, total.cost_usd) == (2, 6, 0.3)
