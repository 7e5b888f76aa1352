"""What a user's requests to models took, behind the gateway."""

from collections.abc import Sequence
from datetime import UTC

from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Clock, Limits, local_time, resets_at
from guest.gateway import validation
from guest.memory.models import at
from guest.memory.usage import UNITS_PER_DOLLAR, Cap, Sum, Usage


class UsageReport:
    """Sums of one user's requests, and the state of the budgets."""

    def __init__(self, usage: Usage, limits: Limits, *, clock: Clock = local_time) -> None:
        self._usage = usage
        self._limits = limits
        self._clock = clock

    async def get(self, request: pb.GetUsageRequest) -> pb.GetUsageReply:
        session_id = validation.identifier("session_id", request.session_id, optional=True)
        since = validation.day("since", request.since)
        sums = await self._usage.sums(validation.grouping(request.by), since, session_id)
        return pb.GetUsageReply(
            sums=map(_sum, sums), total=_total(sums), budgets=await self._budgets(session_id)
        )

    async def _budgets(self, session_id: str) -> list[pb.Budget]:
        """Those of the day and the month, and of the session if there is one."""
        return [
            await self._budget(setting, cap, session_id)
            for setting, cap in self._limits.all.items()
            if session_id or cap.scope != "session"
        ]

    async def _budget(self, setting: str, cap: Cap, session_id: str) -> pb.Budget:
        now = self._clock()
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
    return pb.UsageSum(
        key=found.key,
        title=found.title,
        requests=found.requests,
        input_tokens=found.input_tokens,
        cached_tokens=found.cached_tokens,
        output_tokens=found.output_tokens,
        cost_usd=found.cost / UNITS_PER_DOLLAR,
        unpriced_requests=found.unpriced,
        uncertain_requests=found.uncertain,
    )


def _total(sums: Sequence[Sum]) -> pb.UsageSum:
    return _sum(
        Sum(
            "",
            *(
                sum(getattr(each, name) for each in sums)
                for name in (
                    "requests",
                    "input_tokens",
                    "cached_tokens",
                    "output_tokens",
                    "cost",
                    "unpriced",
                    "uncertain",
                )
            ),
        )
    )
