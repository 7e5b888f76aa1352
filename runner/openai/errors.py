"""Errors as OpenAI's API reports them."""

from typing import Any, Final

from wire.errors import Code, WireError

_STATUS: Final[dict[Code, int]] = {
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.TIMEOUT: 408,
    Code.CANCELLED: 499,
    Code.CONFLICT: 409,
    Code.ALREADY_EXISTS: 409,
    Code.FAILED_PRECONDITION: 400,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
}
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
    """The HTTP status that says the same as `error`."""
    return getattr(error, "status", 0) or _STATUS.get(error.code, 500)


def body_of(error: WireError) -> dict[str, Any]:
    """`error` in the shape that the SDKs read. The message says all that an operator is told."""
    status = status_of(error)
    told = [error.brief, error.details, error.resolution]
    return {
        "error": {
            "message": "; ".join(filter(None, told)),
            "type": _TYPE.get(status, "invalid_request_error"),
            "param": error.param if isinstance(error, BadRequest) else None,
            "code": str(error.code),
        }
    }
