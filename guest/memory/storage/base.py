"""The interface of every database, and the values that it accepts."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

INTEGER_MAX: Final = 2**53 - 1


def check(statements: Iterable["Statement"]) -> None:
    """Raise `ValueError` or `TypeError` for the first argument that a database would damage.

    The message says what is wrong, but never the value: it may be private.
    """
    for statement in statements:
        for position, value in enumerate(statement.args, start=1):
            if problem := _problem(value):
                raise ValueError(f"argument {position}: {problem}")


def _problem(value: "Value") -> str:
    match value:
        case str():
            if "\0" in value:
                return "the text holds a NUL character"
            if not value.isascii() and _has_surrogate(value):
                return "the text holds a lone surrogate"
        case int():
            if abs(value) > INTEGER_MAX:
                return f"the integer lies beyond ±{INTEGER_MAX}"
        case float():
            if not math.isfinite(value):
                return "the number is NaN or infinite"
        case None | bytes():
            pass
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be stored")
    return ""


def nearest(value: "Value") -> "Value":
    """The value that can be bound and is like `value`."""
    match value:
        case str():
            return value.encode(errors="replace").decode().replace("\0", "?")
        case int():
            return max(-INTEGER_MAX, min(value, INTEGER_MAX))
        case float() if not math.isfinite(value):
            return None
    return value


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


Value = None | int | float | str | bytes
"""A value that can be bound or returned. What the local engine would silently damage raises
`ValueError` before anything is executed: integers beyond ±(2**53 - 1) (bound as floats), strings
with NUL (cut there) or lone surrogates, NaN (becomes NULL) and infinities (a server's answer
cannot hold them). Integers from 2**31 on come back as integers only from a column of INTEGER
affinity."""

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Statement:
    sql: str
    args: Sequence[Value] = ()


def failing(found: str, *, without: bool = False) -> str:
    """SQL that fails its batch where the query `found` gives a row, or `without` one."""
    return f"INSERT INTO guards (ok) SELECT 0 WHERE {'NOT ' * without}EXISTS ({found})"


@dataclass(frozen=True)
class Result:
    """`rows` of a query or of RETURNING, else `rows_affected` of a change.

    `rows_affected` leaves out triggers and cascades, and is 0 for a statement that returns rows.
    """

    rows: tuple[Row, ...]
    rows_affected: int


class ConstraintViolated(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A CHECK, UNIQUE or FOREIGN KEY constraint failed and the whole batch was
    rolled back. Callers use it for compare-and-swap through the `guards` table."""


class AnswerLost(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The batch was applied, once and durably, but its results are lost: the server's answer
    never came. Callers read again what they need; `apply` is for callers that need nothing. Only
    changes raise it, never queries."""


class Database(Protocol):
    """A libSQL database. Safe to call from many tasks at once.

    Every method raises `guest.errors.StorageError`, with a resolution, if the engine fails (locked,
    full, corrupt, unreachable), and `ConstraintViolated` if a constraint does. Nothing of the call
    has then happened, unless the error says that this is unknown because a server went away during
    a change. `execute` and `batch` raise `AnswerLost` if a server made the change but its answer
    was lost.
    """

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        """Run one statement in its own transaction; durable when it returns."""

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        """Run all statements in one transaction, all or nothing.

        Durable when it returns. Cancelling the caller does not interrupt a batch that has begun: it
        commits or rolls back, and later calls see the result.
        """

    async def checkpoint(self) -> None:
        """Write the log back and empty it, so that text deleted before the call remains in no file:
        neither in unused space nor in automatic copies.

        Raises `StorageError` if that is impossible. Does nothing where the files are not ours.
        """

    async def size_bytes(self) -> int:
        """Bytes on disk, including the log; 0 if unknown."""

    async def close(self) -> None:
        """Finish running calls, and release the file and its lock. Idempotent; every later call
        fails with `StorageError`."""


async def apply(database: Database, *statements: Statement) -> None:
    """Run `statements` as one batch, for a caller that needs no results."""
    with suppress(AnswerLost):
        await database.batch(statements)


_REMOVED_AT_ONCE: Final = 100


async def remove_rows(database: Database, sql: str, which: tuple[str, ...]) -> None:
    """Remove rows in slices, so that other work is not blocked.

    `sql` deletes at most as many rows as its last argument says and returns one row for each;
    `which` are its arguments before the last one.
    """
    while True:
        with suppress(AnswerLost):
            if not (await database.execute(sql, (*which, _REMOVED_AT_ONCE))).rows:
                return
