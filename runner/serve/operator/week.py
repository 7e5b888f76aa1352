"""What a user's agent did in the last seven days, as the audit log has it."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from runner.audit.calls import LIMIT_MAX, Calls, Filter
from runner.audit.log import LogLocation
from runner.egress.log import Requests

DAYS: Final = 7
READ_MAX: Final = 50_000
"""Requests, and calls, that are counted; what is older is left out."""
HOSTS_MAX: Final = 50


@dataclass
class Reached:
    """What went to one host. Bytes are counted where a request was let out."""

    host: str
    role: str
    requests: int = 0
    refused: int = 0
    bytes: int = 0


def week(log: LogLocation, now: datetime | None = None) -> dict[str, Any]:
    """Counts since `since`: tool `calls`, of which a person was `asked` about some and some were
    `refused`; and the hosts that were `reached` or refused, the most asked first, without those
    after the first `HOSTS_MAX`. Blocks."""
    since = ((now or datetime.now(UTC)) - timedelta(days=DAYS)).isoformat(timespec="seconds")
    reached: dict[tuple[str, str], Reached] = {}
    for request in itertools.islice(Requests(log).newest(), READ_MAX):
        if datetime.fromisoformat(request.at) < datetime.fromisoformat(since):
            break
        name, role = request.host or request.upstream, request.role
        host = reached.setdefault((name, role), Reached(name, role))
        host.requests += 1
        host.refused += request.decision == "refused"
        host.bytes += request.sent + request.received
    calls = list(_calls(Calls(log), since))
    most = sorted(reached.values(), key=lambda each: -each.requests)[:HOSTS_MAX]
    return {
        "since": since,
        "reached": [asdict(each) for each in most],
        "calls": len(calls),
        "asked": sum(asked for asked, _ in calls),
        "refused": sum(asked and outcome == "refused" for asked, outcome in calls),
    }


def _calls(log: Calls, since: str) -> Iterator[tuple[bool, str]]:
    """Whether a person was asked about each call, and how it ended."""
    cursor = 0
    for _ in range(READ_MAX // LIMIT_MAX):
        page = log.list(Filter(since=since), limit=LIMIT_MAX, cursor=cursor)
        yield from ((call.asked, call.outcome) for call in page.calls)
        cursor = page.next_cursor
        if not cursor:
            return
