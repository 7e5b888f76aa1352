"""Which values a database is given: only those that every engine keeps whole."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

INTEGER_MAX: Final = 2**53 - 1


def check(statements: Iterable["Statement"]) -> None:
    """Raise `ValueError` or `TypeError` for the first argument that would be damaged.

    The message says what is wrong and never the value: it may be private.
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


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


Value = None | int | float | str | bytes
"""What may be bound or comes back. Refusals keep data whole, because the local
engine would otherwise damage it silently: integers beyond ±(2**53 - 1) (it
binds large integers as floats), strings that hold NUL (it cuts them there) or
lone surrogates, NaN (it becomes NULL) and infinities (a server's answer cannot
hold them) raise `ValueError` before anything is executed. An integer of 2**31
and above comes back as one only from a column of INTEGER affinity."""

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Statement:
    """One SQL statement and its positional arguments."""

    sql: str
    args: Sequence[Value] = ()


@dataclass(frozen=True)
class Result:
    """`rows` of a query or of RETURNING, else `rows_affected` of a change.

    `rows_affected` does not count what triggers and cascades did, and is 0 for
    a statement that gives rows.
    """

    rows: tuple[Row, ...]
    rows_affected: int


class ConstraintViolated(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A CHECK, UNIQUE or FOREIGN KEY constraint failed and the whole batch was
    rolled back. Callers use it for compare-and-swap through the `guards` table."""


class AnswerLost(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The batch was applied, once and durably, but its results are lost: a server
    did it, and its answer never came. Callers read again what they need of it;
    `apply` is for those that need nothing. Only changes raise it, never queries."""


class Database(Protocol):
    """A libSQL database. Safe to call from many tasks at once.

    Every method raises `guest.errors.StorageError` when the engine fails
    (locked, full, corrupt, unreachable), with the fix in its resolution, and
    `ConstraintViolated` when a constraint does. After either, nothing of the
    call has happened, unless the error itself says that this is not known: a
    server that went away in the middle of a change has left that open.
    `execute` and `batch` raise `AnswerLost` for a change on a server whose
    answer was lost.
    """

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        """Run one statement in its own transaction; durable when it returns."""
        ...

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        """Run all statements in one transaction, all or nothing.

        Durable when it returns. Cancelling the caller does not interrupt a
        batch that has begun: it is then either committed or rolled back, and
        calls made after the cancellation see which.
        """
        ...

    async def checkpoint(self) -> None:
        """Bring the main file up to date and empty the log, so that content
        deleted before the call is in no file any more: neither in unused space nor
        in copies that were made by themselves.

        Raises `StorageError` when that cannot be reached. A no-op where the
        files are not ours to look at."""
        ...

    async def size_bytes(self) -> int:
        """What the database occupies on disk, log included; 0 where unknown."""
        ...

    async def close(self) -> None:
        """Finish what has begun, release the file and its lock. Idempotent;
        every other call fails with `StorageError` from then on."""
        ...


async def apply(database: Database, *statements: Statement) -> None:
    """Run `statements` as one batch, for a caller who needs none of its results."""
    with suppress(AnswerLost):
        await database.batch(statements)


_REMOVED_AT_ONCE: Final = 100


async def remove_rows(database: Database, sql: str, which: tuple[str, ...]) -> None:
    """Remove rows slice by slice, so that other work gets its turn in between.

    `sql` deletes up to as many as its last argument says, and returns a row for each;
    `which` are its arguments before that one.
    """
    while True:
        with suppress(AnswerLost):
            if not (await database.execute(sql, (*which, _REMOVED_AT_ONCE))).rows:
                return
