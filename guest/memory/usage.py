"""What requests to models take: reserved before they are sent, settled after, and summed.

A request that was sent counts, also if the guest ends before the answer: its reservation stays. A
reservation and the check of every limit are one transaction, so that requests that are sent at once
cannot exceed a limit together.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, cast

from guest.errors import BudgetError, StorageError
from guest.memory.models import User
from guest.memory.storage.availability import is_away
from guest.memory.storage.base import INTEGER_MAX, ConstraintViolated, Database, Statement, apply
from guest.memory.storage.changes import RETRIES, unexplained

log = logging.getLogger(__name__)

Kind = Literal["answer", "summary"]
"""What a request is for: an answer to the user, or background work."""

Measure = Literal["reserved", "estimated", "reported"]
Unit = Literal["usd", "tokens"]
Scope = Literal["session", "day", "month", "background_day"]
By = Literal["day", "session", "model", "kind"]

UNITS_PER_DOLLAR: Final = 10**9

_UNSTORED_MAX: Final = 10_000

_RELEASE: Final = "DELETE FROM model_requests WHERE request_id = ?"

_WITHIN: Final[dict[Scope, str]] = {
    "session": "(session_id = ?2 OR ?2 <> '' AND session_id IN "
    "(SELECT session_id FROM sessions WHERE parent_id = ?2))",
    "day": "day = ?3",
    "month": "day BETWEEN substr(?3, 1, 7) || '-01' AND substr(?3, 1, 7) || '-31'",
    "background_day": "day = ?3 AND kind <> 'answer'",
}
_UNITS: Final[dict[Unit, str]] = {"usd": "cost", "tokens": "input_tokens + output_tokens"}
_USED: Final = """
SELECT TOTAL({unit}) FROM model_requests
    WHERE user_id = ?1 AND ?2 IS NOT NULL AND ?3 IS NOT NULL AND {within}
"""
_KEEP: Final = "INSERT INTO guards (ok) SELECT 0 WHERE ({used}) > ?4"

_KEYS: Final[dict[By, str]] = {
    "day": "day",
    "session": "session_id",
    "model": "provider || ':' || model",
    "kind": "kind",
}
_SUMS: Final = """
SELECT {key}, COUNT(*), TOTAL(input_tokens), TOTAL(cached_tokens), TOTAL(output_tokens),
       TOTAL(cost), SUM(cost IS NULL), SUM(measure <> 'reported'),
       COALESCE((SELECT title FROM sessions WHERE sessions.session_id = {title}), '')
    FROM model_requests WHERE user_id = ?1 AND day >= ?2 AND ?3 IN ('', session_id)
    GROUP BY 1 ORDER BY MIN(sent_at)
"""


_OF_TURNS: Final = """
SELECT turn_id, TOTAL(input_tokens), TOTAL(output_tokens), TOTAL(cost) FROM model_requests
    WHERE user_id = ? AND session_id IN (SELECT value FROM json_each(?))
        AND turn_id IN (SELECT value FROM json_each(?)) GROUP BY turn_id
"""


@dataclass(frozen=True)
class Amount:
    """What a request takes. `cached_tokens` are those of the input that the provider's cache had;
    `cost` is in billionths of a US dollar, None if the price is unknown."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cost: int | None = None

    def of(self, unit: Unit) -> int:
        """The amount in one unit; an unknown cost is 0."""
        return (self.cost or 0) if unit == "usd" else self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class ModelRequest:
    """A request to a model: for whom, what for, and when. `day` is the host's date."""

    request_id: str
    session_id: str
    turn_id: str
    kind: Kind
    provider: str
    model: str
    sent_at: str
    day: str


_COLUMNS: Final = (
    *(each.name for each in (*fields(ModelRequest), *fields(Amount))),
    *("measure", "user_id"),
)
COLUMNS: Final = ", ".join(_COLUMNS)
INSERT: Final = f"""
INSERT INTO model_requests ({COLUMNS}) VALUES (?{", ?" * (len(_COLUMNS) - 1)})
"""  # noqa: S608
_SETTLE: Final = f"""
{INSERT} ON CONFLICT (request_id) DO UPDATE
    SET provider = excluded.provider, model = excluded.model,
        input_tokens = excluded.input_tokens, cached_tokens = excluded.cached_tokens,
        output_tokens = excluded.output_tokens, cost = excluded.cost, measure = excluded.measure
"""  # noqa: S608


@dataclass(frozen=True)
class Cap:
    """The most that all requests of a scope may take together."""

    scope: Scope
    unit: Unit
    most: int


class CapReached(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A request could exceed a cap and was not reserved; `used` is what counts already."""

    def __init__(self, cap: Cap, used: int, needed: int) -> None:
        super().__init__(f"{cap.scope} {cap.unit}")
        self.cap = cap
        self.used = used
        self.needed = needed


OnReached = Callable[[CapReached, ModelRequest, BudgetError], Awaitable[None]]
"""Is told of a request that a cap has refused, with the error that says so."""


@dataclass(frozen=True)
class Sum:
    """What several requests took. `cost` leaves out the `unpriced` ones; the amounts of
    `uncertain` ones are not from a provider. `key` is a day, session, model or kind."""

    key: str
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: int
    unpriced: int
    uncertain: int
    title: str = ""


class Usage:
    """What one user's requests to models take.

    While a memory server is away, requests without caps are remembered and stored when it is back;
    those still waiting when the guest ends are lost.
    """

    def __init__(self, database: Database, user: User) -> None:
        self._database = database
        self._user = user
        self._unstored: OrderedDict[str, tuple[ModelRequest, Amount, Measure]] = OrderedDict()
        self.on_reached: OnReached | None = None

    async def reserve(
        self, request: ModelRequest, most: Amount, caps: Sequence[Cap], session_id: str = ""
    ) -> None:
        """Count a request, before it is sent, with the most that it may take. A cap of a session is
        that of `session_id` (empty: the request's own) with the sessions that work for it.

        Raises:
            CapReached: It could exceed one of `caps`; it is not counted.
            StorageError: It could not be counted.
        """
        try:
            await self._store_late()
            await self._reserve(request, most, caps, session_id or request.session_id)
        except StorageError as error:
            if caps or not is_away(error):
                raise
            self._later(request, most, "reserved")

    async def settle(self, request: ModelRequest, amount: Amount, measure: Measure) -> None:
        """Count a request with what it took. If that cannot be stored now, it is tried again with
        the next request."""
        self._later(request, amount, measure)
        await self._try_to_store_late()

    async def release(self, request: ModelRequest) -> None:
        """Do not count a request, which its provider has refused."""
        self._unstored.pop(request.request_id, None)
        try:
            await apply(self._database, Statement(_RELEASE, (request.request_id,)))
        except StorageError as error:
            log.warning("a refused request to a model stays counted: %s", error.brief)

    async def used(self, cap: Cap, session_id: str, day: str) -> int:
        """What counts in the scope of `cap` for a request in that session on that day."""
        result = await self._database.execute(_used(cap), (self._user.id, session_id, day))
        return _whole(result.rows[0][0])

    async def of_turns(self, turns: Sequence[tuple[str, str]]) -> dict[str, Amount]:
        """What these turns, each with its session, took, as far as it is stored."""
        sessions, ids = zip(*turns, strict=True) if turns else ((), ())
        which = (self._user.id, json.dumps(sessions), json.dumps(ids))
        result = await self._database.execute(_OF_TURNS, which)
        return {
            str(row[0]): Amount(_whole(row[1]), _whole(row[2]), cost=_whole(row[3]))
            for row in result.rows
        }

    async def sums(self, by: By, since: str = "", session_id: str = "") -> list[Sum]:
        """What requests took since the day `since`, in one session if it is named; earliest
        first."""
        await self._try_to_store_late()
        title = "model_requests.session_id" if by == "session" else "''"
        sql = _SUMS.format(key=_KEYS[by], title=title)
        result = await self._database.execute(sql, (self._user.id, since, session_id))
        return [_sum(row) for row in cast("tuple[tuple[Any, ...], ...]", result.rows)]

    async def _reserve(
        self, request: ModelRequest, most: Amount, caps: Sequence[Cap], session_id: str
    ) -> None:
        counted = Statement(INSERT, self._row(request, most, "reserved"))
        place = (self._user.id, session_id, request.day)
        kept = [Statement(_KEEP.format(used=_used(cap)), (*place, cap.most)) for cap in caps]
        for _ in range(RETRIES):
            try:
                await apply(self._database, counted, *kept)
            except ConstraintViolated:
                await self._refuse(request, most, caps, session_id)
            else:
                return
        raise unexplained("a request to a model cannot be counted")

    async def _refuse(
        self, request: ModelRequest, most: Amount, caps: Sequence[Cap], session_id: str
    ) -> None:
        """Raise `CapReached` if there is still no room."""
        for cap in caps:
            used = await self.used(cap, session_id, request.day)
            needed = most.of(cap.unit)
            if used + needed > cap.most:
                raise CapReached(cap, used, needed)

    def _later(self, request: ModelRequest, amount: Amount, measure: Measure) -> None:
        self._unstored[request.request_id] = (request, amount, measure)
        if len(self._unstored) > _UNSTORED_MAX:
            self._unstored.popitem(last=False)

    async def _store_late(self) -> None:
        for request_id, waiting in list(self._unstored.items()):
            try:
                await apply(self._database, Statement(_SETTLE, self._row(*waiting)))
            except (ValueError, ConstraintViolated) as error:  # it would never be stored
                log.error("what a request took is dropped, since it cannot be stored: %s", error)
            if self._unstored.get(request_id) is waiting:
                del self._unstored[request_id]

    async def _try_to_store_late(self) -> None:
        try:
            await self._store_late()
        except StorageError as error:
            log.warning("what a request to a model took is not stored yet: %s", error.brief)

    def _row(self, request: ModelRequest, amount: Amount, measure: Measure) -> tuple[Any, ...]:
        return (*vars(request).values(), *vars(amount).values(), measure, self._user.id)


def _used(cap: Cap) -> str:
    return _USED.format(unit=_UNITS[cap.unit], within=_WITHIN[cap.scope])


def _whole(total: Any) -> int:
    """A sum of an engine, which is a float, and infinite where an amount is."""
    return int(min(max(total, 0), INTEGER_MAX))


def _sum(row: tuple[Any, ...]) -> Sum:
    key, *amounts, title = row
    requests, taken, cached, given, cost, unpriced, uncertain = map(_whole, amounts)
    return Sum(key, requests, taken, cached, given, cost, unpriced, uncertain, title)
