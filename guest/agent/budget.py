"""The limits that `[agent.budget]` sets, and what a person reads where one is reached."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Final, cast

from wire.errors import Code
from wire.settings import AgentSettings
from wire.text import dollars

from guest.errors import BudgetError
from guest.memory.usage import UNITS_PER_DOLLAR, Amount, Cap, CapReached, Kind, Scope, Unit

_WHOSE: Final[dict[Scope, str]] = {
    "session": "this session",
    "day": "the day",
    "month": "the month",
    "background_day": "the day for background work",
}
_TABLE: Final = "agent.budget"
_EDIT: Final = "runner config edit, then: runner restart"


def local_time() -> datetime:
    """The time in the time zone of this process, which is the host's."""
    return datetime.now(UTC).astimezone()


class Account:
    """What the requests of one turn take, with those of its sub-agents.

    A request is checked against the account of its turn and those `above`, and counted, in one
    step: turns that ask at once cannot exceed a limit together.

    Attributes:
        limits: The most that it may take, by unit, of its own; in billionths of a US dollar.
        above: The account of the turn that it works for.
        turn: The limits that the settings give it.
        amounts: What the turn's own requests take, by their ids.
        reached: Whether a limit of its own has refused a request.
    """

    def __init__(
        self, limits: Mapping[Unit, int] | None = None, above: "Account | None" = None
    ) -> None:
        self.limits = limits or {}
        self.above = above
        self.turn: Mapping[Unit, int] = {}
        self.session_id = ""
        self.amounts: dict[str, Amount] = {}
        self.reached = False
        self._below: list[Account] = []
        if above is not None:
            above._below.append(self)

    @property
    def in_money(self) -> bool:
        """Whether its cost has a limit besides those of the settings."""
        return "usd" in self.limits or (self.above is not None and self.above.in_money)

    @property
    def is_limited(self) -> bool:
        """Whether it has a limit besides those of the settings."""
        return bool(self.limits) or self.above is not None

    def of(self, unit: Unit) -> int:
        own = sum(amount.of(unit) for amount in self.amounts.values())
        return own + sum(each.of(unit) for each in self._below)

    @contextmanager
    def taking(self, request_id: str, most: Amount) -> Iterator[None]:
        """Count a request with the most that it may take, unless the block fails. Raises
        `AccountReached`, with nothing counted."""
        account: Account | None = self
        while account is not None:
            for limits in (account.limits, account.turn):
                for unit, limit in limits.items():
                    if (used := account.of(unit)) + most.of(unit) > limit:
                        given = account.reached = limits is account.limits
                        raise AccountReached(unit, used, limit, most.of(unit), given=given)
            account = account.above
        self.amounts[request_id] = most
        try:
            yield
        except BaseException:
            del self.amounts[request_id]
            raise


class AccountReached(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A request could exceed a limit of its turn; `given` tells one of its own from those of the
    settings."""

    def __init__(self, unit: Unit, used: int, limit: int, needed: int, *, given: bool) -> None:
        super().__init__(unit)
        self.unit: Unit = unit
        self.used, self.limit, self.needed, self.given = used, limit, needed, given


class Limits:
    """The limits of one user. `turn` is that of one turn, by unit."""

    def __init__(self, settings: AgentSettings) -> None:
        self.output = settings.output_limit
        self.in_money = settings.budget.in_money
        self.turn: dict[Unit, int] = {"tokens": settings.max_tokens}
        if settings.budget.turn_usd:
            self.turn["usd"] = _most("usd", settings.budget.turn_usd)
        self.all: dict[str, Cap] = {}
        """The limits over several turns, by their setting."""
        for setting, most in settings.budget:
            scope, _, of = setting.rpartition("_")
            if most and scope in _WHOSE:
                unit = cast(Unit, of)
                self.all[setting] = Cap(scope, unit, _most(unit, most))

    def of(self, kind: Kind) -> Sequence[Cap]:
        """The limits over several turns for a request of this kind."""
        return [
            cap for cap in self.all.values() if kind != "answer" or cap.scope != "background_day"
        ]

    def reached(self, reached: CapReached, now: datetime, user_id: str, output: int) -> BudgetError:
        """The error for a request that could exceed a limit over several turns. `output` is how
        many tokens its answer may have."""
        cap = reached.cap
        setting = next(name for name, each in self.all.items() if each == cap)
        again = resets_at(cap.scope, now)
        renewed = f"; a new one begins on {_spoken(again)}" if again else ""
        instead = "wait until then" if again else "begin a new session (/new)"
        return BudgetError(
            Code.RESOURCE_EXHAUSTED,
            f"the budget of {_WHOSE[cap.scope]} does not cover the next request: "
            f"{_of(cap.unit, reached.used, cap.most, reached.needed)}{_reserved(output)}{renewed}",
            resolution=f"{instead}, {_raise(setting, _TABLE, user_id, output)}",
        )

    def turn_reached(self, reached: AccountReached, user_id: str, output: int) -> BudgetError:
        """The error for a request that could exceed a limit of its turn."""
        tokens = reached.unit == "tokens"
        setting, table = ("max_tokens", "agent") if tokens else ("turn_usd", _TABLE)
        amounts = _of(reached.unit, reached.used, reached.limit, reached.needed)
        whose = "that this work was given" if reached.given else "of the turn"
        more = "or give it more" if reached.given else _raise(setting, table, user_id, output)
        return BudgetError(
            Code.RESOURCE_EXHAUSTED,
            f"the budget {whose} does not cover the next request: {amounts}{_reserved(output)}",
            resolution=f"ask for less at once, {more}",
        )

    def unpriced(self, model: str) -> BudgetError:
        """The error for a request whose cost cannot be known beforehand."""
        return BudgetError(
            Code.FAILED_PRECONDITION,
            f"the price of model {model!r} is not known, so "
            f"{' and '.join(self.in_money) or 'the budget of this work'} cannot be kept",
            resolution="set input and output, in US dollars for a million tokens, in "
            f'[agent.prices."{model}"], or set a budget in tokens instead: {_EDIT}',
        )


def resets_at(scope: Scope, now: datetime) -> datetime | None:
    """When a limit begins anew, in the zone of `now`; None for that of a session."""
    if scope == "session":
        return None
    today = now.date()
    day = today + timedelta(days=1)
    if scope == "month":
        day = date(today.year + today.month // 12, today.month % 12 + 1, 1)
    return datetime(day.year, day.month, day.day).astimezone()


def _most(unit: Unit, most: float) -> int:
    return round(most * UNITS_PER_DOLLAR) if unit == "usd" else int(most)


def _reserved(output: int) -> str:
    return f", {output:,} tokens of it for the answer" if output else ""


def _raise(setting: str, table: str, user_id: str, output: int) -> str:
    """How more is allowed, or less is asked for. A user's own table counts before the general."""
    less = "lower max_output_tokens in [agent], or " if output else "or "
    own = f"[users.{user_id}.{table}]"
    return f"{less}raise {setting} in [{table}] (in {own} if it stands there): {_EDIT}"


def _of(unit: Unit, used: int, most: int, needed: int) -> str:
    if unit == "usd":
        spent, limit, more = (dollars(each / UNITS_PER_DOLLAR) for each in (used, most, needed))
        return f"{spent} of {limit} is used, and it may cost {more}"
    return f"{used:,} of {most:,} tokens are used, and it may take {needed:,}"


def _spoken(moment: datetime) -> str:
    return f"{moment:%A}, {moment.day} {moment:%B} at {moment:%H:%M} ({moment:%Z})"
