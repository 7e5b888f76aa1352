"""Converts error codes to gRPC statuses and back.

The status code alone would lose information (CONFLICT and CANCELLED share theirs with others), so
the full error travels as an `ErrorDetail` in the trailing metadata; the status code is for proxies,
retries and foreign clients.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from wire.errors import Code, WireError
from wire.limits import ERROR_METADATA_KEY
from wire.v1 import common_pb2

_T = TypeVar("_T")

_OTHER_NAMES = {Code.CONFLICT: "ABORTED", Code.TIMEOUT: "DEADLINE_EXCEEDED"}
STATUS_OF: dict[Code, grpc.StatusCode] = {
    code: grpc.StatusCode[_OTHER_NAMES.get(code, code.name)] for code in Code
}
_CODE_OF = {status: code for code, status in STATUS_OF.items()}
_UNPROVEN = ("Tls handshake failed", "Hostname Verification Check failed")
"""gRPC's words for a server that shows the certificate of another authority or role, or none."""


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: WireError) -> NoReturn:
    """End the current call with `error`; does not return."""
    detail = common_pb2.ErrorDetail(**error.fields()).SerializeToString()
    await context.abort(STATUS_OF[error.code], error.brief, ((ERROR_METADATA_KEY, detail),))
    raise AssertionError("unreachable: abort raises")


async def answered(call: Awaitable[_T]) -> _T:
    """The reply to a call; raises the `WireError` of the other side, or of the transport, also if
    the connection is closed here meanwhile."""
    try:
        return await call
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise WireError(Code.UNAVAILABLE, "the connection was closed before an answer") from None


def from_rpc_error(error: grpc.RpcError) -> WireError:
    """Rebuild the error that the other side raised, or describe the transport's own."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return WireError(Code.INTERNAL, f"gRPC call failed: {error}")
    metadata: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()
    for key, value in metadata:
        if key == ERROR_METADATA_KEY and isinstance(value, bytes):
            detail = common_pb2.ErrorDetail()
            try:
                detail.ParseFromString(value)
                fields = {
                    field.name: getattr(detail, field.name) for field in detail.DESCRIPTOR.fields
                }
                return WireError.of(fields)
            except (DecodeError, ValueError):
                break
    status = error.code()
    text = error.details() or f"gRPC call failed: {status.name}"
    if any(words in text for words in _UNPROVEN):
        return WireError(
            Code.UNAVAILABLE,
            "somebody else answers at the socket: it did not prove to be who it must be",
            details=text,
            resolution="runner status says what was replaced; runner restart makes it anew",
        )
    return WireError(_CODE_OF.get(status, Code.INTERNAL), text)
