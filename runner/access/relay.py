"""The relay: calls that carry an access token are passed on to the agent of the token's user.

    token ─ scope ─ number of calls ─ channel ─ gateway

Nothing of a call is read before its token was recognised. A reply is asked of the gateway only when
the one before it was taken, so a slow reader slows the agent's stream and not this process. Who
leaves cancels the call at the gateway too.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import grpc
from wire.errors import Code, WireError
from wire.status import abort

from runner.access.agents import Replies
from runner.access.callers import Callers
from runner.access.scopes import METHODS, Method

log = logging.getLogger(__name__)

_SCHEME: Final = "Bearer "
INTERNAL: Final = partial(
    WireError,
    Code.INTERNAL,
    "internal error",
    resolution="tell the person who runs this host; its log has the traceback",
)

Context = grpc.aio.ServicerContext[Any, Any]


class Relay(grpc.GenericRpcHandler):
    """Serves the gateway's contract for whoever has a token."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = METHODS.get(handler_call_details.method)
        if method is None:
            return None

        async def call(_: AsyncIterator[bytes], context: Context) -> None:
            await self._answer(method, context)

        return grpc.stream_stream_rpc_method_handler(call)

    async def _answer(self, method: Method, context: Context) -> None:
        began = time.monotonic()
        outcome, who = "ok", "nobody"
        try:
            caller = self._callers.with_token(_bearer(context), _address(context.peer()))
            who = f"{caller.user_id} by {caller.channel}"
            method.check(caller.scopes)
            async with self._callers.running(caller):
                request = await context.read()
                if request is grpc.aio.EOF:
                    raise WireError(
                        Code.INVALID_ARGUMENT, f"{method.name} was called without a request"
                    )
                replies = self._callers.call(caller, caller.user_id, method, request)
                await _pass_on(replies, context)
        except WireError as error:
            outcome = error.code
            await abort(context, error)
        except asyncio.CancelledError:
            outcome = "left"
            raise
        except Exception:
            log.exception("unexpected failure in a call of %s", method.name)
            outcome = Code.INTERNAL
            await abort(context, INTERNAL())
        finally:
            took = time.monotonic() - began
            log.debug("%s called %s: %s after %.3f s", who, method.name, outcome, took)


async def _pass_on(replies: Replies, context: Context) -> None:
    try:
        while (reply := await replies.read()) is not None:
            await context.write(reply)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None  # the caller is gone in the middle of a write
    finally:
        replies.cancel()


def _bearer(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value.startswith(_SCHEME):
            return value.removeprefix(_SCHEME)
    return ""


def _address(peer: str) -> str:
    """Where a call comes from, without the port, such as `ipv4:192.0.2.7`."""
    return "the socket" if peer.startswith("unix:") else peer.rpartition(":")[0]
