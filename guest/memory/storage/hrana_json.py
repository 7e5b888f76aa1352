"""Statements and results as the JSON of Hrana, by `libsql-client`.

The only module that uses that library, and only its encoding: its own HTTP client speaks
paths that servers have dropped and keeps one token for ever, so `hrana` sends the
requests. It comes with the extra `remote`: it also depends on a documentation theme,
which a memory in a file must not bring along.
"""

from typing import Any

from libsql_client import LibsqlError
from libsql_client.hrana.convert import _error_from_proto, _result_set_from_proto, _stmt_to_proto

from guest.memory.storage.base import Result, Statement


class ServerError(Exception):
    """What the engine on the server says of a statement."""

    def __init__(self, explanation: str, code: str) -> None:
        super().__init__(f"{explanation} ({code})")
        self.explanation = explanation


def encoded(statement: Statement) -> dict[str, Any]:
    proto: dict[str, Any] = _stmt_to_proto(statement.sql, tuple(statement.args))
    return proto


def decoded(proto: Any) -> Result:
    """The rows of a query, or how many rows a change has changed.

    Raises:
        ValueError: It is no result, as do `LookupError`, `TypeError` and `AttributeError`.
    """
    try:
        found = _result_set_from_proto(proto)
    except LibsqlError as error:
        raise ValueError(str(error)) from None
    if found.columns:
        return Result(tuple(row.astuple() for row in found.rows), 0)
    return Result((), found.rows_affected)


def error_of(proto: Any) -> ServerError:
    """An error that the server has answered with. Raises as `decoded` does."""
    error = _error_from_proto(proto)
    return ServerError(error.explanation, error.code)
