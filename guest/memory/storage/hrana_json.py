"""Encodes statements and decodes results as Hrana's JSON, with `libsql-client`.

The only module that uses that library, and only its encoding: its HTTP client uses paths that
servers have dropped and cannot change its token, so `hrana` sends the requests. It is part of the
extra `remote` because it depends on a documentation theme, which a memory in a file should not
need.
"""

from typing import Any

from libsql_client import LibsqlError
from libsql_client.hrana.convert import _error_from_proto, _result_set_from_proto, _stmt_to_proto

from guest.memory.storage.base import Result, Statement


class ServerError(Exception):
    """An error that the engine on the server reports for a statement."""

    def __init__(self, explanation: str, code: str) -> None:
        super().__init__(f"{explanation} ({code})")
        self.explanation = explanation


def encoded(statement: Statement) -> dict[str, Any]:
    proto: dict[str, Any] = _stmt_to_proto(statement.sql, tuple(statement.args))
    return proto


def decoded(proto: Any) -> Result:
    """The rows of a query, or the number of rows that a change affected.

    Raises:
        ValueError: It is not a result; `LookupError`, `TypeError` and `AttributeError` mean the
            same.
    """
    try:
        found = _result_set_from_proto(proto)
    except LibsqlError as error:
        raise ValueError(str(error)) from None
    if found.columns:
        return Result(tuple(row.astuple() for row in found.rows), 0)
    return Result((), found.rows_affected)


def error_of(proto: Any) -> ServerError:
    """Decode an error that the server answered with. Raises like `decoded`."""
    error = _error_from_proto(proto)
    return ServerError(error.explanation, error.code)
