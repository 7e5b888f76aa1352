"""How much may leave and come in: limits by connection, turn, host and day."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final

from wire import zones
from wire.v1 import egress_pb2

from egress.admission.record import Caller

_TURNS_MAX: Final = 1_000
_HOSTS_MAX: Final = 10_000
_MB: Final = 1_000_000


@dataclass
class _Sum:
    """What something has taken."""

    requests: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class _Limit:
    """One limit and what counts towards it, now and before this process began; 0 is no limit."""

    name: str
    what: str
    requests: int
    bytes: int
    now: _Sum
    before: _Sum

    def reached(self) -> str:
        """Why there can be no further request; empty if there can."""
        if self.requests and self.now.requests + self.before.requests >= self.requests:
            return self._sentence(f"{self.requests} requests", "requests")
        return self._reached_by_bytes(1)

    def exceeded(self) -> str:
        """Why no further byte may follow; empty if one may."""
        return self._reached_by_bytes(0)

    def _reached_by_bytes(self, more: int) -> str:
        if self.bytes and self.now.bytes + self.before.bytes + more > self.bytes:
            return self._sentence(f"{self.bytes / _MB:g} MB", "mb")
        return ""

    def _sentence(self, most: str, unit: str) -> str:
        return f"the limit of {most} {self.what} is reached (egress.limits.{self.name}_{unit})"


class _Account:
    """What one role has taken."""

    def __init__(self) -> None:
        self.open = 0
        self.turns: OrderedDict[str, _Sum] = OrderedDict()
        self.hosts: defaultdict[str, _Sum] = defaultdict(_Sum)
        self.day = _Sum()
        self.hosts_before: defaultdict[str, _Sum] = defaultdict(_Sum)
        self.day_before = _Sum()

    def begin_day(self) -> None:
        """Forget what was taken on the day before."""
        self.hosts.clear()
        self.day = _Sum()

    def carry_over(self, spent: Iterable[egress_pb2.EgressSpent]) -> None:
        """Count what hosts took on this day before this process began, in place of what was given
        before."""
        self.hosts_before.clear()
        self.day_before = _Sum()
        for each in spent:
            for sum_ in (self.hosts_before[each.host], self.day_before):
                sum_.requests += each.requests
                sum_.bytes += each.bytes

    def turn(self, turn_id: str) -> _Sum:
        """The sum of a turn. The one that was asked for longest ago is forgotten for a new one."""
        turn = self.turns.setdefault(turn_id, _Sum())
        self.turns.move_to_end(turn_id)
        if len(self.turns) > _TURNS_MAX:
            self.turns.popitem(last=False)
        return turn


class Allowance:
    """The limits of one user's guests. Each limit counts for the agent and for commands by itself,
    so that commands cannot use up what the agent needs to reach its model.

    Of each role's turns, the last thousand that asked for something are remembered. One role
    reaches at most ten thousand hosts on one day. `today` is asked for the day."""

    def __init__(self, today: Callable[[], date] = zones.today) -> None:
        self._today = today
        self._day = today()
        self._limits = egress_pb2.EgressLimits()
        self._spent: tuple[egress_pb2.EgressSpent, ...] = ()
        self._accounts: defaultdict[str, _Account] = defaultdict(_Account)

    def configure(
        self, limits: egress_pb2.EgressLimits, spent: Iterable[egress_pb2.EgressSpent]
    ) -> None:
        """Take other limits, at once and for what is under way too; 0 is none. `spent` is what
        hosts took before this process began."""
        self._limits = limits
        self._spent = tuple(spent)
        for each in self._spent:
            self._accounts[each.role]
        self._notice_day()
        self._carry_over()

    def connect(self, role: str) -> str:
        """Count a connection that begins. Returns why it is refused; empty if it is not. Only then
        `disconnect` follows."""
        most = self._limits.connections
        if most and self._accounts[role].open >= most:
            return f"the limit of {most} connections at once is reached (egress.limits.connections)"
        self._accounts[role].open += 1
        return ""

    def disconnect(self, role: str) -> None:
        self._accounts[role].open -= 1

    def admit(self, caller: Caller, host: str) -> str:
        """Count a request or tunnel. Returns why it is refused; empty if it is not."""
        self._notice_day()
        hosts = self._accounts[caller.role].hosts
        if host not in hosts and len(hosts) >= _HOSTS_MAX:
            return f"{_HOSTS_MAX} hosts were reached today, and more are too many"
        limits = self._limits_of(caller, host)
        if why := next(filter(None, (limit.reached() for limit in limits)), ""):
            return why
        for limit in limits:
            limit.now.requests += 1
        return ""

    def count(self, caller: Caller, host: str, sent: int, received: int) -> str:
        """Count bytes of what was admitted. Returns why it has to end; empty if it may go on."""
        self._notice_day()
        limits = self._limits_of(caller, host)
        for limit in limits:
            limit.now.bytes += sent + received
        return next(filter(None, (limit.exceeded() for limit in limits)), "")

    def _limits_of(self, caller: Caller, host: str) -> list[_Limit]:
        most, account = self._limits, self._accounts[caller.role]
        by_host = account.hosts[host], account.hosts_before.get(host, _Sum())
        of = [
            _Limit(
                "host_day",
                f"to {host} a day",
                most.host_day_requests,
                most.host_day_bytes,
                *by_host,
            ),
            _Limit(
                "day", "a day", most.day_requests, most.day_bytes, account.day, account.day_before
            ),
        ]
        if caller.turn_id:
            turn = account.turn(caller.turn_id)
            of.append(_Limit("turn", "a turn", most.turn_requests, most.turn_bytes, turn, _Sum()))
        return of

    def _notice_day(self) -> None:
        if (today := self._today()) != self._day:
            self._day = today
            for account in self._accounts.values():
                account.begin_day()
            self._carry_over()

    def _carry_over(self) -> None:
        day = self._day.isoformat()
        for role, account in self._accounts.items():
            account.carry_over(e for e in self._spent if (e.role, e.day) == (role, day))
