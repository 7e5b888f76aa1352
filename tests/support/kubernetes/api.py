"""Requests to the API server, as JSON."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

import aiohttp

Object = dict[str, Any]
ANSWER_S: Final = 20.0
_WATCH_S: Final = 60
_PAUSE_S: Final = 0.3
UNREACHABLE: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What a request raises that got no answer."""


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:600]}")
        self.status = status


class Api:
    """Access to an API server. An async context manager, of one event loop."""

    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        self._url = url
        self._tls = tls
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=ANSWER_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json"
    ) -> Object:
        """The answer. Raises `ApiError`, and what is in `UNREACHABLE`."""
        async with self._session.request(
            method,
            self._url + path,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": kind},
        ) as answer:
            text = await answer.text()
        if answer.status >= 400:
            raise ApiError(answer.status, text)
        return dict(json.loads(text))

    async def get(self, path: str) -> Object:
        return await self.request("GET", path)

    async def post(self, path: str, body: object) -> Object:
        return await self.request("POST", path, body)

    async def merge(self, path: str, body: object) -> Object:
        """Replace the given parts of an object."""
        return await self.request("PATCH", path, body, kind="application/merge-patch+json")

    async def delete(self, path: str, **options: object) -> None:
        """Remove an object; one that is not there is removed."""
        with contextlib.suppress(ApiError):
            await self.request("DELETE", path, options or None)

    async def insist(self, request: Callable[[], Awaitable[object]]) -> bool:
        """Repeat a request until there is an answer. Returns whether it was no error."""
        while True:
            try:
                await request()
            except ApiError as error:
                if error.status not in (409, 429) and error.status < 500:
                    return False
            except UNREACHABLE:
                pass
            else:
                return True
            await asyncio.sleep(_PAUSE_S)

    async def follow(
        self, path: str, take: Callable[[list[Object]], object], query: str = ""
    ) -> None:
        """Call `take` with all objects at `path`, now and after each change, for ever."""
        while True:
            with contextlib.suppress(ApiError, *UNREACHABLE):
                await self._follow_once(path, take, query)
            await asyncio.sleep(_PAUSE_S)

    async def _follow_once(
        self, path: str, take: Callable[[list[Object]], object], query: str
    ) -> None:
        found = await self.get(f"{path}?{query}")
        known = {each["metadata"]["uid"]: each for each in found["items"]}
        take([*known.values()])
        version = found["metadata"]["resourceVersion"]
        url = f"{self._url}{path}?{query}&watch=1&resourceVersion={version}"
        limit = aiohttp.ClientTimeout(total=_WATCH_S)
        async with self._session.get(url, timeout=limit) as answer:
            rest = b""
            async for block, _ in answer.content.iter_chunks():
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    uid = event["object"]["metadata"]["uid"]
                    known.pop(uid, None)
                    if event["type"] != "DELETED":
                        known[uid] = event["object"]
                    take([*known.values()])
