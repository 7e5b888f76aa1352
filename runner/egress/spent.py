"""What each host has taken on this day, as far as it is in the record."""

from collections.abc import Callable
from datetime import date, datetime
from typing import Final

from wire.v1 import egress_pb2

from runner.audit.log import Place
from runner.egress.log import Requests

HOSTS_MAX: Final = 10_000


def local_today() -> date:
    """The day in the host's time zone."""
    return datetime.now().astimezone().date()


class Spent:
    """The requests and bytes of today, by role and host; a day is one of the host's time zone.

    It begins with what the record says of today. Hosts beyond `HOSTS_MAX` are left out. `today`
    returns the day.
    """

    def __init__(self, place: Place, today: Callable[[], date] = local_today) -> None:
        self._today = today
        self._day = today()
        self._hosts: dict[tuple[str, str], egress_pb2.EgressSpent] = {}
        for request in Requests(place).newest():
            if datetime.fromisoformat(request.at).astimezone().date() < self._day:
                break
            if request.decision == "allowed":
                self.add(request.role, request.host, 1, request.sent + request.received)

    def add(self, role: str, host: str, requests: int, moved: int) -> None:
        """Count requests and bytes."""
        self._notice_day()
        if (role, host) not in self._hosts and len(self._hosts) >= HOSTS_MAX:
            return
        spent = self._hosts.setdefault(
            (role, host),
            egress_pb2.EgressSpent(role=role, host=host, day=self._day.isoformat()),
        )
        spent.requests += requests
        spent.bytes += moved

    def today(self) -> list[egress_pb2.EgressSpent]:
        """A copy of what was counted today."""
        self._notice_day()
        return [
            egress_pb2.EgressSpent(
                role=each.role,
                host=each.host,
                day=each.day,
                requests=each.requests,
                bytes=each.bytes,
            )
            for each in self._hosts.values()
        ]

    def _notice_day(self) -> None:
        if (today := self._today()) != self._day:
            self._day = today
            self._hosts.clear()
