"""One readable HTTP request, forwarded: read by a strict parser here and written anew, so that
nobody outside reads another request than the one that was decided."""

import os
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, Literal, NoReturn
from urllib.parse import unquote_plus

import aiohttp
from aiohttp.http import HttpVersion10, HttpVersion11
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from multidict import CIMultiDict, MultiMapping
from wire.egress import hosts
from wire.egress.policy import Attempt
from wire.egress.rules import ALTERING
from wire.identity import Party
from yarl import URL

from egress.admission.admission import Admission, OutboundRequest
from egress.admission.record import Caller
from egress.configuration import Configuration
from egress.credentials.bodies import Incoming, MisplacedError, Outgoing, UnreadableError
from egress.credentials.credentials import RequestHead
from egress.credentials.redaction import Values
from egress.outbound.dialing import CONNECT_S
from egress.outbound.upstreams import Upstream
from egress.proxy.logins import Logins
from egress.refusals import Refused

HEADERS_MAX: Final = 100
HEAD_MAX: Final = 32 * 1024
IDLE_S: Final = 300.0
"""How long a server may be silent in its answer to a command."""

_TARGET: Final = re.compile(r"(?P<path>/[!-\"$-~]*)")
_ABSOLUTE: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[/?][!-\"$-~]*)?"
)
_AUTHORITY: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]%\\]+)(:(?P<port>[0-9]{1,5}))?"
)
_CONTROL: Final = re.compile(r"[\0-\x08\n-\x1f\x7f]")
"""Characters that no header may have. Some servers send them nevertheless."""
_METHOD: Final = re.compile(r"[A-Z][A-Z-]{0,31}")
_PORTS: Final = {"http": 80, "https": 443}
_HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("proxy-connection", "trailer", "transfer-encoding", "upgrade", "http2-settings"),
    )
)
_NOT_SENT: Final = _HOP_BY_HOP | {"host", "expect", "content-length"}
_NOT_ANSWERED: Final = _HOP_BY_HOP | {"alt-svc"}
"""`alt-svc` invites clients to a way that is shut (QUIC)."""
_ALTERING_QUERY: Final = frozenset(("_method", "$httpmethod", *ALTERING))
_AS_SENT: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
OURS: Final = "oxydra-"
"""What the names of headers begin with that are for egress itself."""
_OUTCOMES: Final = {"limit": "limit", "credential": "credential", "policy": "cut"}
"""How a request ends that is refused after it has begun, by the code of the reason."""
_WHY_MAX: Final = 300
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True)
class RequestTarget:
    """Where a request goes: `path` is as the client wrote it, with the query."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        host = hosts.shown(self.host, 0 if self.port == _PORTS[self.scheme] else self.port)
        return f"{self.scheme}://{host}{self.path}"

    def attempt(self, request: BaseRequest) -> Attempt:
        path, _, query = self.path.partition("?")
        altered = _altering(request.headers, query)
        return Attempt(self.scheme, self.host, self.port, request.method, path, altered)


def authority(text: str, port: int) -> tuple[str, int]:
    """The host, in its one spelling, and the port that are written as `host[:port]`; `port` if none
    is, and 0 if one must be. Raises `Refused` if it can be read in more than one way."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise bad_request(f"{text[:80]!r} is not a host and port")
    number = int(found["port"]) if found["port"] else port
    if not 0 < number < 65_536:
        raise bad_request(f"{text[:80]!r} has no port")
    try:
        return hosts.canonical(found["host"]), number
    except ValueError as error:
        raise bad_request(f"{found['host'][:80]!r} is refused: {error}") from None


def bad_request(why: str) -> Refused:
    """Nobody can say for sure what was asked."""
    return Refused(400, "request", why)


def proxied(request: BaseRequest) -> RequestTarget:
    """Where a request to a proxy goes. Raises `Refused`."""
    found = _ABSOLUTE.fullmatch(request.raw_path)
    if found is None:
        raise bad_request("this is a proxy: requests to it begin with a whole http:// address")
    if found["scheme"].lower() != "http":
        raise bad_request("a proxy takes http:// addresses, and CONNECT for https://")
    if "@" in found["authority"]:
        raise bad_request("the address holds a user name")
    host, port = authority(found["authority"], _PORTS["http"])
    path = found["path"] or "/"
    target = RequestTarget("http", host, port, path if path.startswith("/") else f"/{path}")
    _check_host(request, target)
    return target


def intercepted(request: BaseRequest, host: str, port: int) -> RequestTarget:
    """Where a request goes that was sent to a host by name. Raises `Refused`."""
    if _TARGET.fullmatch(request.raw_path) is None:
        raise bad_request("inside TLS a request begins with a path")
    target = RequestTarget("https", host, port, request.raw_path)
    _check_host(request, target)
    return target


def check(request: BaseRequest) -> None:
    """Raises `Refused` for what is not forwarded, wherever it goes."""
    sent = request.headers
    if request.version not in (HttpVersion10, HttpVersion11):
        raise bad_request("this is neither HTTP/1.0 nor HTTP/1.1")
    size = sum(len(name) + len(value) + 4 for name, value in request.raw_headers)
    if len(request.raw_headers) > HEADERS_MAX or size + len(request.raw_path) > HEAD_MAX:
        raise Refused(
            431, "request", f"the headers are more than {HEADERS_MAX} or {HEAD_MAX} bytes"
        )
    if request.method == "CONNECT":
        raise bad_request("CONNECT comes first on a connection, and not inside of another")
    if not _METHOD.fullmatch(request.method) or request.method == "TRACE":
        raise bad_request(f"the method {request.method[:40]!r} is not forwarded")
    if "upgrade" in sent or "http2-settings" in sent or "upgrade" in _listed(sent, "connection"):
        raise Refused(403, "upgrade", "other protocols than HTTP/1.1 do not go out by a request")
    if _listed(sent, "transfer-encoding") not in ([], ["chunked"]):
        raise bad_request("the only transfer encoding is chunked")
    if _listed(sent, "expect") not in ([], ["100-continue"]):
        raise bad_request("the only expectation is 100-continue")


class Exchange:
    """Forwards requests that `admission` lets out."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._logins = Logins(admission)

    async def forward(
        self, request: BaseRequest, target: RequestTarget, caller: Caller
    ) -> StreamResponse:
        """Forward a request to where it goes, and its answer back. Raises `Refused`."""
        _outward(request, target, caller, self._admission.state.current)  # before anybody is asked
        passage = await self._admission.admit(caller, target.attempt(request))
        try:
            outward = _outward(request, target, caller, passage.configuration)
        except Refused as refused:
            refused.recorded = True
            await self._admission.end(passage, refused.code, refused.why)
            raise
        context = passage.configuration.outside.dialer.context
        return await self._pass(request, passage, outward, context, IDLE_S)

    async def forward_upstream(
        self, request: BaseRequest, upstream: Upstream, rest: str, caller: Caller
    ) -> StreamResponse:
        """Forward a request to an upstream as `forward` does. It is the agent that loses its
        patience with a silent one."""
        if upstream.missing:
            raise Refused(403, "missing", upstream.missing)
        try:
            url = URL(upstream.address(request.method, rest), encoded=True)
        except ValueError as error:
            raise bad_request(str(error)) from None
        assert url.host is not None
        attempt = RequestTarget(
            "https" if url.scheme == "https" else "http",
            url.host,
            url.port or _PORTS[url.scheme],
            url.raw_path,
        ).attempt(request)
        await self._logins.renew(upstream, caller)
        passage = await self._admission.admit(caller, attempt, upstream=upstream)
        upstream = passage.configuration.upstreams.of_name(
            upstream.name
        )  # its keys and socket as they are now
        passage.upstream = upstream = self._logins.applied(upstream)
        outward = Outward(str(url), upstream.outgoing(_forwarded(request)), upstream.hidden)
        context = passage.configuration.contexts[upstream.name]
        return await self._pass(request, passage, outward, context, None)

    async def _pass(
        self,
        request: BaseRequest,
        passage: OutboundRequest,
        outward: "Outward",
        context: ssl.SSLContext,
        idle_s: float | None,
    ) -> StreamResponse:
        outside = passage.configuration.outside
        hidden = outward.hidden
        meter = _Meter(self._admission, passage)
        outcome, reason = "cut", "the client has left"
        answer: StreamResponse | None = None
        try:
            async with (
                passage.lasting(),
                outside.client(
                    passage.caller.role,
                    passage.addresses,
                    upstream=passage.upstream,
                ) as client,
                client.request(
                    request.method,
                    URL(outward.url, encoded=True),
                    headers=outward.headers,
                    data=_body(request, meter, outward.search) if request.body_exists else None,
                    ssl=context,
                    allow_redirects=False,
                    skip_auto_headers=_AS_SENT,
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=CONNECT_S, sock_read=idle_s
                    ),
                ) as received,
            ):
                passage.entry.status = received.status
                if passage.upstream is not None and passage.upstream.is_runners(received.headers):
                    why = (await received.text())[:_WHY_MAX]
                    raise Refused(502, "unreachable", why)
                body = None
                if hidden.forms:
                    body = Incoming(hidden, _encoding(received.headers))
                answer = _answer(received, hidden, body)
                await answer.prepare(request)
                async for piece in received.content.iter_any():
                    meter.received(len(piece))
                    if shown := piece if body is None else body.feed(piece):
                        await answer.write(shown)
                await answer.write_eof(b"" if body is None else body.end())
            outcome, reason = "done", ""
        except (
            *(aiohttp.ClientError, OSError, _Stopped),
            *(Refused, UnreadableError, ValueError),
        ) as error:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError from None
            refused = _refused(error, passage.attempt, meter)
            refused.recorded = True
            outcome = _OUTCOMES.get(refused.code, "failed")
            reason = refused.why
            if answer is None or not answer.prepared:
                raise refused from None
            request.transport.abort()  # nobody may take what came for the whole answer
            raise ConnectionResetError from None
        finally:
            await self._admission.end(passage, outcome, reason)
        return answer


@dataclass(frozen=True, repr=False)
class Outward:
    """A request as it goes out: its address and headers, what its answer may not have in it, and
    what its body goes through."""

    url: str
    headers: CIMultiDict[str]
    hidden: Values
    search: Outgoing | None = None


def _outward(
    request: BaseRequest, target: RequestTarget, caller: Caller, configuration: Configuration
) -> Outward:
    """A request with values in the place of placeholders, which only commands have.

    Raises `Refused` if a placeholder would stay in it.
    """
    headers = _forwarded(request)
    if caller.role != Party.SHELL:
        return Outward(target.url, headers, Values(()))
    scheme, host, port, path = target.scheme, target.host, target.port, target.path
    sent = RequestHead(scheme, host, port, request.method, path, tuple(headers.items()))
    try:
        filled = configuration.credentials.fill(sent)
        search = Outgoing(_encoding(headers))
    except MisplacedError as error:
        raise Refused(403, "credential", str(error)) from None
    return Outward(
        replace(target, path=filled.target).url,
        CIMultiDict(filled.headers),
        configuration.credentials.hidden(host, port),
        search,
    )


class _Stopped(Exception):  # noqa: N818 - a limit is no error
    """Nothing of it may follow."""


class _Meter:
    """Counts the bytes of one request. `refused` says why it may not go on, once it may not."""

    def __init__(self, admission: Admission, passage: OutboundRequest) -> None:
        self._admission = admission
        self._passage = passage
        self.refused: Refused | None = None

    def sent(self, count: int) -> None:
        """Raises `_Stopped`."""
        self._limit(self._admission.passed(self._passage, sent=count))

    def received(self, count: int) -> None:
        """Raises `_Stopped`."""
        self._limit(self._admission.passed(self._passage, received=count))

    def stop(self, refused: Refused) -> NoReturn:
        """Raises `_Stopped`."""
        self.refused = refused
        raise _Stopped

    def _limit(self, why: str) -> None:
        if self._passage.forbidden:
            self.stop(Refused(403, "policy", self._passage.forbidden))
        if why:
            self.stop(Refused(429, "limit", why))


async def _body(
    request: BaseRequest, meter: _Meter, search: Outgoing | None
) -> AsyncIterator[bytes]:
    """The body of a request, piece by piece as it comes."""
    if "expect" in request.headers and request.transport is not None:
        request.transport.write(_CONTINUE)
    pieces = request.content.iter_any()
    try:
        async for piece in search.through(pieces) if search else pieces:
            meter.sent(len(piece))
            yield piece
    except MisplacedError as error:
        meter.stop(Refused(403, "credential", str(error)))


def _answer(
    received: aiohttp.ClientResponse, hidden: Values, body: Incoming | None
) -> StreamResponse:
    """What the client gets of an answer before its `body`: all but what concerns the connection to
    the server, and without what is `hidden`."""
    if received.status < HTTPStatus.OK:
        raise Refused(502, "upgrade", "the server changes to another protocol")
    if _listed(received.headers, "transfer-encoding") not in ([], ["chunked"]):
        raise Refused(502, "encoding", "the answer is in a transfer encoding that nobody asked for")
    if received.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        raise Refused(502, "proxy", "the proxy behind egress wants a user and password")
    dropped = _NOT_ANSWERED | set(_listed(received.headers, "connection"))
    if "transfer-encoding" in received.headers:
        dropped |= {"content-length"}
    if body is not None and body.is_decoded:
        dropped |= {"content-length", "content-encoding"}
    headers = CIMultiDict(
        (hidden.redacted(name), _CONTROL.sub(" ", hidden.redacted(value)))
        for name, value in received.headers.items()
        if name.lower() not in dropped and not name.lower().startswith(OURS)
    )
    reason = _CONTROL.sub(" ", hidden.redacted(received.reason or ""))
    return StreamResponse(status=received.status, reason=reason, headers=headers)


def _forwarded(request: BaseRequest) -> CIMultiDict[str]:
    """What the server gets of a request's headers: all but what concerns this connection."""
    dropped = _NOT_SENT | set(_listed(request.headers, "connection"))
    headers = CIMultiDict(
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in dropped and not name.lower().startswith(OURS)
    )
    if request.body_exists and "content-length" in request.headers:
        headers["Content-Length"] = request.headers["Content-Length"]
    return headers


def _check_host(request: BaseRequest, target: RequestTarget) -> None:
    """Raises `Refused` if the header names another host than the request."""
    named = request.headers.getall("host", [])
    if not named and request.version == HttpVersion10:
        return
    if len(named) != 1:
        raise bad_request("a request has one header Host")
    if authority(named[0], _PORTS[target.scheme]) != (target.host, target.port):
        raise Refused(
            403, "host", f"the header Host is for {named[0][:80]!r}, the request for {target.host}"
        )


def _altering(headers: MultiMapping[str], query: str) -> str:
    """What of a request makes some servers take it for another one; empty if nothing does."""
    for name in headers:
        if name.lower().replace("_", "-") in ALTERING:
            return f"the header {name}"
    for part in re.split("[&;]", query):
        name = unquote_plus(unquote_plus(part.partition("=")[0])).strip().lower()
        if name in _ALTERING_QUERY or name.replace("_", "-") in ALTERING:
            return f"the parameter {name}"
    return ""


def _encoding(headers: MultiMapping[str]) -> str:
    """The Content-Encoding from all headers of that name."""
    return ", ".join(_listed(headers, "content-encoding"))


def _listed(headers: MultiMapping[str], name: str) -> list[str]:
    """What a header lists, in small letters, from all of that name."""
    values = headers.getall(name, [])
    return [each.strip().lower() for value in values for each in value.split(",") if each.strip()]


def _refused(error: Exception, attempt: Attempt, meter: _Meter) -> Refused:
    """The client's error for a request that failed."""
    if isinstance(error, Refused):
        return error
    if meter.refused is not None:
        return meter.refused
    shown = hosts.shown(attempt.host, attempt.port)
    if isinstance(error, UnreadableError):
        return Refused(502, "encoding", f"the answer of {shown} is not let in: {error}")
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return Refused(502, "untrusted", f"{shown} does not prove who it is: {_words(error)}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Refused(502, "proxy", f"the proxy behind egress refuses {shown}: {error.status}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Refused(502, "proxy", f"the proxy behind egress cannot be used: {_words(error)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Refused(502, "unreachable", f"{shown} cannot be reached: {_words(error)}")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Refused(502, "unreachable", f"{shown} cannot be reached: it does not answer")
    if isinstance(error, TimeoutError):
        return Refused(502, "cut", f"{shown} has the request and does not answer")
    return Refused(502, "cut", f"{shown} has broken off: {_words(error)}")


def _words(error: Exception) -> str:
    """What went wrong, in words and without our own addresses."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error)[:200] or "it has closed the connection"
