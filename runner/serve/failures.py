"""Errors as HTTP answers: a status, and what happened, why and what fixes it as JSON."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.responses import JSONResponse
from wire.errors import Code, WireError

STATUS_OF: Final[Mapping[Code, int]] = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.CONFLICT: 409,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.FAILED_PRECONDITION: 412,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
    Code.TIMEOUT: 504,
    Code.CANCELLED: 499,
    Code.DATA_LOSS: 500,
    Code.INTERNAL: 500,
}
INTERNAL: Final = partial(
    WireError,
    Code.INTERNAL,
    "internal error",
    resolution="tell the person who runs this host; its log has the traceback",
)


class Refusal(WireError):  # noqa: N818 - an answer, not a bug
    """What a request is refused with, where the code alone does not say the status."""

    def __init__(self, status: int, code: Code, brief: str, **more: str) -> None:
        super().__init__(code, brief, **more)
        self.status = status


def told(error: WireError) -> dict[str, Any]:
    """What is said of `error`, in an answer or as the last line of a stream."""
    return {"error": error.fields()}


def answer(error: WireError) -> JSONResponse:
    """The answer to a request that failed. The connection closes, because the request may not have
    been read to its end."""
    status = error.status if isinstance(error, Refusal) else STATUS_OF[error.code]
    headers = {"Connection": "close"}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(told(error), status, headers)
