"""Which values a database is given: only those that every engine keeps whole."""

import math
from collections.abc import Iterable
from typing import Final

from guest.memory.database.base import Statement, Value

INTEGER_MAX: Final = 2**53 - 1


def check(statements: Iterable[Statement]) -> None:
    """Raise `ValueError` or `TypeError` for the first argument that would be damaged.

    The message says what is wrong and never the value: it may be private.
    """
    for statement in statements:
        for position, value in enumerate(statement.args, start=1):
            if problem := _problem(value):
                raise ValueError(f"argument {position}: {problem}")


def _problem(value: Value) -> str:
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
