"""The HTTP client for libSQL servers (the Hrana protocol), one request at a time.

Every request goes to `v2/pipeline`, in its own stream on the server.
"""

import asyncio
import json
import math
import secrets
import ssl
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from guest.egress_client import CUT, REFUSED, UNTRUSTED, EgressClient
from guest.memory.storage.base import Result, Statement, Value
from guest.memory.storage.changes import Background
from guest.memory.storage.sound import sound, with_bytes


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
        names = [each["name"] or "" for each in answer["cols"]]
        rows = [tuple([_DECODED[each["type"]](each) for each in row]) for row in answer["rows"]]
        return Result(sound(names, rows), 0)
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


_DECODED: Final[dict[str, Callable[[Any], Value]]] = {
    "null": lambda _: None,
    "text": lambda value: str(value["value"]),
    "integer": lambda value: int(value["value"]),
    "float": lambda value: math.inf if value["value"] is None else float(value["value"]),
    "blob": lambda value: a2b_base64(value["base64"] + "=="),  # the server leaves out the padding
}


_CONNECTIONS: Final = 16
_IDLE_S: Final = 30.0
_CONNECT_S: Final = 5.0
_ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
NOT_TEXT: Final = "invalid utf-8 sequence"
_ECHO: Final = "SELECT ?"


class NoAnswer(Exception):  # noqa: N818 - says what is known, not what failed
    """No answer, or an unintelligible one. If `sent` is false, the request has not reached the
    server; otherwise the server may have carried it out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class _Stale(NoAnswer):
    """The connection still held the answer to an earlier request; other connections may, too."""


class HttpRefused(Exception):  # noqa: N818 - see above
    """The server refused the request with an HTTP status: nothing was done, and retrying is
    useless."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"HTTP status {status}: {reason}")
        self.status = status


class Untrusted(Exception):  # noqa: N818 - see above
    """The server's certificate is not trusted."""


@dataclass(frozen=True)
class ServerAddress:
    """Where requests go, and the token that they carry; empty if somebody else puts it in."""

    url: str
    token: str = field(default="", repr=False)

    @property
    def pipeline(self) -> str:
        """The address of the protocol."""
        return self.url.rstrip("/") + "/v2/pipeline"


class PipelineClient:
    """Sends statements to one server, in at most `_CONNECTIONS` requests at a time.

    Methods raise `ServerError` if the engine there rejects a statement (nothing of the call has
    then happened), and the exceptions above. `target` may be replaced at any time.

    Args:
        tls: What to trust; None for a URL without TLS, and with `egress`.
        egress: Through which it is asked, if not directly.
    """

    def __init__(
        self,
        target: ServerAddress,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        egress: EgressClient | None = None,
    ) -> None:
        self.target = target
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._tls = tls
        self._egress = egress
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(_CONNECT_S, timeout_s))
        self._moves = 0
        self._session = self._new_session()
        self._leaving = Background()

    async def query(self, statement: Statement) -> Result:
        """Run one statement that changes nothing."""
        request = {"type": "execute", "stmt": encoded(statement)}
        try:
            response = await self._request(request, self.target)
        except NoAnswer as error:
            if NOT_TEXT not in str(error):
                raise
            about = await self._request({"type": "describe", "sql": statement.sql}, self.target)
            names = _understood(lambda: [str(each["name"]) for each in about["cols"]])
            request["stmt"] = encoded(Statement(with_bytes(statement.sql, names), statement.args))
            response = await self._request(request, self.target)
        result: Result = _understood(decoded, response)
        return result

    async def transaction(
        self, statements: Sequence[Statement], begin: str, *, target: ServerAddress | None = None
    ) -> list[Result]:
        """Run all of `statements` between `begin` and COMMIT, or none of them."""
        batch = {"type": "batch", "batch": {"steps": _steps(statements, begin)}}
        response = await self._request(batch, target or self.target)
        results: list[Result] = _understood(_decoded_steps, response, len(statements))
        return results

    async def close(self) -> None:
        await self._leaving.stop()
        await self._session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if self._egress is not None:
            connector = _ListenerConnector(limit=_CONNECTIONS, keepalive_timeout=_IDLE_S)
            connector.egress = self._egress
            self._moves = self._egress.moves
        else:
            connector = aiohttp.TCPConnector(
                limit=_CONNECTIONS, keepalive_timeout=_IDLE_S, ssl=self._tls or True
            )
        return aiohttp.ClientSession(connector=connector, timeout=self._timeout)

    def _present_session(self) -> aiohttp.ClientSession:
        """Where egress has moved, a session with the new one. What is under way with the old one
        may come to its end."""
        if self._egress is not None and self._moves != self._egress.moves:
            self._leaving.begin(_close_later(self._session, self._timeout.total or 0))
            self._session = self._new_session()
        return self._session

    async def _leave(self, session: aiohttp.ClientSession) -> None:
        """Drop all connections; requests on them are lost, as in any network failure."""
        if self._session is session:
            self._session = self._new_session()
        await session.close()

    async def _request(self, request: dict[str, Any], target: ServerAddress) -> Any:
        """The result of `request`. Each request carries a random word that the answer repeats,
        so that a late answer to an earlier request is not mistaken for it."""
        word = secrets.token_hex(8)
        echo = {"type": "execute", "stmt": encoded(Statement(_ECHO, (word,)))}
        body = {"requests": [echo, request, {"type": "close"}]}
        outcome = await self._post(body, target, word)
        if outcome["type"] == "error":
            failure: ServerError = _understood(error_of, outcome.get("error"))
            raise failure
        return _understood(lambda: outcome["response"]["result"])

    async def _post(self, body: dict[str, Any], target: ServerAddress, word: str) -> Any:
        headers = {"Accept-Encoding": "identity"}
        if self._egress is not None:
            headers |= self._egress.headers()
        if token := target.token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with self._places:
                session = self._present_session()
                async with session.post(
                    target.pipeline, json=body, headers=headers, allow_redirects=False
                ) as response:
                    text = await _read(response)
            if self._egress is not None and (kind := response.headers.get(REFUSED)):
                raise _not_let_out(kind, text)
            if response.status != HTTPStatus.OK and token:
                text = text.replace(token.encode(), b"[the token]")
            return _outcome(response.status, text, word)
        except _Stale:
            await self._leave(session)
            raise
        except aiohttp.ClientConnectorCertificateError as error:
            raise Untrusted(str(error)) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NoAnswer(str(error), sent=False) from None
        except TimeoutError:
            raise NoAnswer("it did not answer in time", sent=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}", sent=True) from None


class _ListenerConnector(aiohttp.BaseConnector):
    """Connects to where egress is, whatever the URL names."""

    egress: EgressClient

    async def _create_connection(self, req: Any, _: Any, timeout: Any) -> Any:
        egress = self.egress
        try:
            async with asyncio.timeout(timeout.sock_connect or timeout.connect):
                _, protocol = await self._loop.create_connection(
                    self._factory,
                    sock=await egress.place.connect(),
                    ssl=egress.tls,
                    server_hostname=egress.peer.name,
                )
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return protocol


async def _close_later(session: aiohttp.ClientSession, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        await session.close()


def _not_let_out(kind: str, text: bytes) -> NoAnswer | Untrusted:
    """What egress' own answer means for the request."""
    why = text[:300].decode("utf-8", "replace").strip()
    if kind == UNTRUSTED:
        return Untrusted(why)
    return NoAnswer(why, sent=kind == CUT)


def _outcome(status: int, text: bytes, word: str) -> dict[str, Any]:
    """The result of the request that carried `word`."""
    if status != HTTPStatus.OK:
        reason = text[:300].decode("utf-8", "replace")
        if status >= 500 or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise NoAnswer(f"HTTP status {status}: {reason}", sent=True)
        raise HttpRefused(status, reason)
    echo, outcome = _understood(lambda: json.loads(text)["results"][:2])
    if _understood(lambda: echo["response"]["result"]["rows"][0][0]["value"]) != word:
        raise _Stale("it answers another request", sent=True)
    if not isinstance(outcome, dict) or "type" not in outcome:
        raise NoAnswer("it is not understood", sent=True)
    return outcome


def _steps(statements: Sequence[Statement], begin: str) -> list[dict[str, Any]]:
    """Steps that each run only if the previous one succeeded; without COMMIT they are rolled
    back."""
    before = map(Statement, ("PRAGMA foreign_keys = ON", begin))
    steps: list[dict[str, Any]] = []
    for statement in (*before, *statements, Statement("COMMIT")):
        step = {"stmt": encoded(statement)}
        if steps:
            step["condition"] = {"type": "ok", "step": len(steps) - 1}
        steps.append(step)
    undo = {"type": "not", "cond": {"type": "ok", "step": len(steps) - 1}}
    return [*steps, {"stmt": encoded(Statement("ROLLBACK")), "condition": undo}]


def _decoded_steps(response: Any, count: int) -> list[Result]:
    results, errors = response["step_results"], response["step_errors"]
    if len(results) != count + 4 or len(errors) != count + 4:
        raise ValueError(f"{len(results)} results for {count + 4} steps")
    for error in errors:
        if error is not None:
            raise error_of(error)
    if any(result is None for result in results[:-1]):
        raise ValueError("a step has neither result nor error")
    return [decoded(result) for result in results[2:-2]]


def _understood(read: Callable[..., Any], *answer: Any) -> Any:
    """Parse an answer with `read`; one that cannot be parsed counts as no answer."""
    try:
        return read(*answer)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise NoAnswer(f"it is not understood: {error}", sent=True) from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    text = bytearray()
    async for piece in response.content.iter_any():
        text += piece
        if len(text) > _ANSWER_MAX_BYTES:
            raise NoAnswer(f"it is longer than {_ANSWER_MAX_BYTES} bytes", sent=True)
    return bytes(text)
