"""Errors as OpenAI's API reports them."""

from typing import Any, Final

from wire.errors import Code, WireError

from runner.access.agents import NoAgent
from runner.access.exchange import STATUS_OF
from runner.client.turn import in_a_line

_STATUS: Final = {**STATUS_OF, Code.TIMEOUT: 408, Code.FAILED_PRECONDITION: 400}
_TYPE: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class BadRequest(WireError):  # noqa: N818 - what clients call it
    """A request that cannot be served. `param` names the field."""

    def __init__(self, param: str, why: str, resolution: str = "") -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"bad {param}: {why}", resolution=resolution)
        self.param = param


def status_of(error: WireError) -> int:
    """The HTTP status that says the same as `error`. Clients ask again after 503."""
    if isinstance(error, NoAgent):
        return 503
    return getattr(error, "status", 0) or _STATUS[error.code]


def body_of(error: WireError) -> dict[str, Any]:
    """`error` in the shape that the SDKs read. The message says all that an operator is told."""
    status = status_of(error)
    return {
        "error": {
            "message": in_a_line(error),
            "type": _TYPE.get(status, "invalid_request_error"),
            "param": error.param if isinstance(error, BadRequest) else None,
            "code": str(error.code),
        }
    }
