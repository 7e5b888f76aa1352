"""What a user's requests to models took, behind the gateway."""

from dataclasses import fields
from datetime import UTC
from typing import cast

from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Limits, local_time, resets_at
from guest.gateway import convert
from guest.memory.models import at
from guest.memory.usage import UNITS_PER_DOLLAR, By, Cap, Sum, Usage


class UsageReport:
    """Sums of one user's requests, and the state of the budgets."""

    def __init__(self, usage: Usage, limits: Limits) -> None:
        self._usage = usage
        self._limits = limits

    async def get(self, request: pb.GetUsageRequest) -> pb.GetUsageReply:
        by = cast("By", request.by or "day")
        found = await self._usage.sums(by, request.since, request.session_id)
        names = {each.name for each in fields(Sum)} - {"key", "title"}
        total = Sum("", **{name: sum(getattr(each, name) for each in found) for name in names})
        budgets = await self._budgets(request.session_id)
        return pb.GetUsageReply(sums=map(_sum, found), total=_sum(total), budgets=budgets)

    async def _budgets(self, session_id: str) -> list[pb.Budget]:
        """Those of the day and the month, and of the session if there is one."""
        return [
            await self._budget(setting, cap, session_id)
            for setting, cap in self._limits.all.items()
            if session_id or cap.scope != "session"
        ]

    async def _budget(self, setting: str, cap: Cap, session_id: str) -> pb.Budget:
        now = local_time()
        used = await self._usage.used(cap, session_id, now.date().isoformat())
        unit = UNITS_PER_DOLLAR if cap.unit == "usd" else 1
        again = resets_at(cap.scope, now)
        return pb.Budget(
            setting=setting,
            used=used / unit,
            limit=cap.most / unit,
            resets_at=at(again.astimezone(UTC)) if again else "",
        )


def _sum(found: Sum) -> pb.UsageSum:
    return convert.message(
        pb.UsageSum,
        found,
        cost_usd=found.cost / UNITS_PER_DOLLAR,
        unpriced_requests=found.unpriced,
        uncertain_requests=found.uncertain,
    )
