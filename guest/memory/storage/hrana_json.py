"""Statements, results and errors as Hrana's JSON, the encoding of a libSQL server."""

from base64 import b64decode, b64encode
from typing import Any

from guest.memory.storage.base import Result, Statement, Value


class ServerError(Exception):
    """An error that the engine on the server reports for a statement."""

    def __init__(self, explanation: str, code: str) -> None:
        super().__init__(f"{explanation} ({code})")
        self.explanation = explanation


def encoded(statement: Statement) -> dict[str, Any]:
    arguments = [_encoded(value) for value in statement.args]
    return {"sql": statement.sql, "args": arguments, "want_rows": True}


def decoded(answer: Any) -> Result:
    """The rows of a query, or the number of rows that a change affected.

    Raises:
        ValueError: It is not a result; `LookupError`, `TypeError` and `AttributeError` mean the
            same.
    """
    if answer["cols"]:
        return Result(tuple(tuple(map(_decoded, row)) for row in answer["rows"]), 0)
    return Result((), int(answer["affected_row_count"]))


def error_of(answer: Any) -> ServerError:
    """Decode an error that the server answered with. Raises like `decoded`."""
    return ServerError(answer["message"], answer.get("code") or "UNKNOWN")


def _encoded(value: Value) -> dict[str, Any]:
    match value:
        case None:
            return {"type": "null"}
        case str():
            return {"type": "text", "value": value}
        case int():
            return {"type": "integer", "value": str(int(value))}
        case float():
            return {"type": "float", "value": value}
        case bytes():
            return {"type": "blob", "base64": b64encode(value).decode()}


def _decoded(value: Any) -> Value:
    match value["type"]:
        case "null":
            return None
        case "text":
            return str(value["value"])
        case "integer":
            return int(value["value"])
        case "float":
            return float(value["value"])
        case "blob":
            return b64decode(value["base64"] + "==")  # the server leaves out the padding
    raise ValueError(f"unknown type of value: {value['type']}")
