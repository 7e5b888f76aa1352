"""Requests, as the bytes in which they arrive."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from wire.errors import Code, WireError


def message_of(read: Callable[[bytes], Any], request: bytes) -> Any:
    """The message that `read` makes of a request.

    Raises `WireError` (INVALID_ARGUMENT) for what is no message of the contract.
    """
    try:
        return read(request)
    except DecodeError:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "the request cannot be read",
            details="it is no message of this contract",
            resolution="use a client of the same version",
        ) from None
