"""HTTP as listeners serve it, and inside of TLS that ends here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from egress.proxy.exchange import HEAD_MAX, HEADERS_MAX, bad_request
from egress.proxy.handshake import HEAD_S
from egress.refusals import Refused

log = logging.getLogger(__name__)
_SILENT: Final = logging.getLogger("egress.aiohttp")
"""aiohttp's own log of what clients do wrong."""
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())

BETWEEN_S: Final = 60.0
"""How long it has for that of another one."""
_LINGER_S: Final = 5.0
_READ_BYTES: Final = 32 * 1024
_AHEAD_MAX: Final = 2 * HEAD_MAX
"""How much of heads, of the ends of bodies and of requests that wait is read ahead."""

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]


class Serving(RequestHandler):
    """One connection with requests. `lost` is called when it has ended. A request whose client has
    left is cancelled, and a client that sends too much which is neither body nor answered left."""

    __slots__ = ("_ahead", "_content", "_deadline", "_lost")

    def __init__(self, handle: Handler, lost: Callable[[], None]) -> None:
        async def answer(request: BaseRequest) -> StreamResponse:
            self._deadline.cancel()
            self._content, self._ahead = request.content, 0
            return await _answer(handle, request)

        loop = asyncio.get_running_loop()
        super().__init__(
            Server(answer, handler_cancellation=True),
            loop=loop,
            keepalive_timeout=BETWEEN_S,
            lingering_time=_LINGER_S,
            max_line_size=HEAD_MAX // 2,
            max_field_size=HEAD_MAX // 2,
            max_headers=HEADERS_MAX,
            read_bufsize=_READ_BYTES,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes as none
            logger=_SILENT,
        )
        self._deadline = loop.call_later(HEAD_S, self.force_close)
        self._lost = lost
        self._content, self._ahead = EMPTY_PAYLOAD, 0

    def data_received(self, data: bytes) -> None:
        before = self._content.total_bytes
        super().data_received(data)
        self._ahead = 0 if self._content.total_bytes > before else self._ahead + len(data)
        if self._ahead > _AHEAD_MAX and self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)
        self._lost()

    def handle_error(
        self,
        _: BaseRequest,
        __: int = 500,
        ___: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer what is not a request."""
        words = " ".join((message or "").split())[:200]
        return refusal(bad_request(f"the request cannot be parsed: {words}"))


def refusal(refused: Refused) -> Response:
    """The answer to what is refused."""
    answer = Response(status=refused.status, headers=refused.headers, body=refused.body)
    answer.force_close()
    return answer


async def _answer(handle: Handler, request: BaseRequest) -> StreamResponse:
    try:
        return await handle(request)
    except Refused as refused:
        return refusal(refused)
    except ConnectionError:
        raise
    except Exception:
        log.exception("unexpected failure of a request")
        return refusal(Refused(500, "internal", "an unexpected failure; runner logs --role egress"))
