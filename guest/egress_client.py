"""The agent's client of the egress guest, through which alone requests leave this one.

What the settings name as a server is behind it by a name, as `https://egress/openai/…`. The egress
guest puts the keys in; this guest has none. Every request says for which session and turn it is
made.
"""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import httpx2
from wire.endpoint import Endpoint
from wire.errors import Code, WireError
from wire.identity import Peer
from wire.tls import client_context

from guest.errors import GuestError

NO_KEY: Final = "behind-egress"
"""What libraries that insist on a key are given."""
REFUSED: Final = "oxydra-refused"
"""The header of egress' own answers. Its value is the kind of refusal; the body says why."""
MISSING: Final = "missing"
"""The kind of refusal where an upstream has no key."""
UNTRUSTED: Final = "untrusted"
"""The kind where the certificate of the server is not trusted."""
CUT: Final = "cut"
"""The kind where the server has got the request, and no answer came."""
_URL: Final = "https://egress/"
_CONNECTIONS: Final = 100
_IDLE_S: Final = 5.0
_CONNECT_S: Final = 5.0
_WHY_MAX_CHARS: Final = 500
_LINES: Final = "application/x-ndjson"
"""The type of an answer with one event in each line, as Ollama's."""
_EVENT_MAX_BYTES: Final = 8 * 1024 * 1024
"""How long one event of a stream may be, or an answer that is none. Clients hold it in memory, and
parse it at once."""

_on_behalf_of: ContextVar[tuple[str, str]] = ContextVar("on_behalf_of", default=("", ""))


@contextmanager
def on_behalf_of(session_id: str, turn_id: str) -> Iterator[None]:
    """What goes out in this context is of this session and turn."""
    token = _on_behalf_of.set((session_id, turn_id))
    try:
        yield
    finally:
        _on_behalf_of.reset(token)


def url_of(name: str) -> str:
    return _URL + name


def name_in(url: str) -> str:
    """The upstream that an address of ours names; empty if it is none."""
    return url.removeprefix(_URL).partition("/")[0] if url.startswith(_URL) else ""


class EgressUnreachable(httpx2.ConnectError):
    """Nobody serves egress' listener."""


@dataclass
class EgressClient:
    """Connects clients to the egress guest, which may be started anew somewhere else. `close`
    ends the connections of `http`.

    Attributes:
        moves: How often it has moved.
    """

    peer: Peer
    moves: int = field(default=0, compare=False)

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """What a client connects to it with. The name to expect is that of `peer`."""
        return client_context(self.peer.identity)

    @property
    def place(self) -> Endpoint:
        return Endpoint.of_target(self.peer.endpoint, self.peer.launch_id)

    def move(self, peer: Peer) -> None:
        """Lead to `peer` from now on. What is under way goes on where it is."""
        self.peer = peer
        self.moves += 1
        vars(self).pop("tls", None)

    def headers(self) -> dict[str, str]:
        session_id, turn_id = _on_behalf_of.get()
        return {
            "oxydra-token": self.peer.token,
            "oxydra-session": session_id,
            "oxydra-turn": turn_id,
        }

    @cached_property
    def http(self) -> httpx2.AsyncClient:
        """A client of addresses that `url_of` makes, for libraries that want one. Whoever asks
        says how long an answer may take: a turn by its own limits."""
        timeout = httpx2.Timeout(None, connect=_CONNECT_S)
        return httpx2.AsyncClient(transport=self.transport(), timeout=timeout, trust_env=False)

    def transport(self) -> httpx2.AsyncBaseTransport:
        """Connections of their own for a client that the caller closes."""
        return _Transport(self)

    async def close(self) -> None:
        if "http" in vars(self):
            await self.http.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, until one of its events (up to one of `ends`) is too long."""

    def __init__(self, body: httpx2.AsyncByteStream, ends: tuple[bytes, ...]) -> None:
        self._body, self._ends = body, ends

    async def __aiter__(self) -> AsyncIterator[bytes]:
        waiting, end = 0, b""
        async for piece in self._body:
            seen = end + piece
            last = max(map(seen.rfind, self._ends))
            waiting = waiting + len(piece) if last < 0 else len(seen) - last
            if waiting > _EVENT_MAX_BYTES:
                raise httpx2.RemoteProtocolError(
                    f"one event of the answer is longer than {_EVENT_MAX_BYTES // 2**20} MiB"
                )
            end = seen[-2:]
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    """Connects to egress whatever the URL names, and says for whom."""

    def __init__(self, egress: EgressClient) -> None:
        import httpcore2

        from guest.egress_network import EgressNetwork

        super().__init__(verify=egress.tls, trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=egress.tls,
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=EgressNetwork(egress),
        )
        self._egress = egress

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers.update(self._egress.headers())
        request.headers["accept-encoding"] = "identity"
        try:
            response = await super().handle_async_request(request)
        except httpx2.ConnectError as error:
            raise EgressUnreachable(str(error), request=request) from error
        if REFUSED in response.headers and response.status_code not in (429, 503):
            response.headers["x-should-retry"] = "false"  # as the providers' clients ask
        if response.status_code == 500:  # it may be what the model wrote: see guest.agent.waiting
            response.headers["x-should-retry"] = "false"
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, which was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        lines = response.headers.get("content-type", "").startswith(_LINES)
        ends = (b"\n",) if lines else (b"\n\n", b"\n\r\n", b"\r\r")
        response.stream = _Bounded(response.stream, ends)
        return response


def refusal_in(error: BaseException | None) -> WireError | None:
    """Why egress, and not the server behind it, kept a request from being answered; None if it
    did not. `error` may be what any of the providers' libraries made of it."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, EgressUnreachable):
            return GuestError(
                Code.UNAVAILABLE,
                "nothing can leave this guest: the egress guest does not answer",
                details=str(error),
                resolution="runner status; it is started again by itself",
            )
        response = getattr(error, "response", None)
        if isinstance(response, httpx2.Response) and REFUSED in response.headers:
            kind = response.headers[REFUSED]
            try:
                why = response.text
            except httpx2.ResponseNotRead:
                why = ""
            return refusal(response.status_code, kind, why)
        error = error.__cause__ or error.__context__
        seen += 1
    return None


_KINDS: Final = {
    429: (Code.RESOURCE_EXHAUSTED, "a limit of [egress.limits] is reached", "runner egress log"),
    502: (Code.UNAVAILABLE, "it cannot be reached from the egress guest", "runner egress log"),
    503: (Code.UNAVAILABLE, "the egress guest lets nothing out yet", "runner status"),
}


def refusal(status: int, kind: str, why: str) -> WireError:
    """The error for an answer of egress' own."""
    why = " ".join(why.split())[:_WHY_MAX_CHARS].removeprefix("egress: ")
    if kind == MISSING:
        return GuestError(
            Code.FAILED_PRECONDITION,
            why or "the egress guest has no key for it",
            details=kind,
            resolution="runner credentials set",
        )
    code, brief, resolution = _KINDS.get(
        status,
        (Code.PERMISSION_DENIED, "the egress guest does not let it out", "runner egress log"),
    )
    return GuestError(
        code, f"{brief}: {why}" if why else brief, details=kind, resolution=resolution
    )
