"""Requests to the API server, as JSON."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self

import aiohttp

Object = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
_WATCH_S: Final = 60


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Api:
    """One party's access to an API server. An async context manager."""

    def __init__(self, url: str, ca: str, token: str) -> None:
        self._url = url
        self._token = token
        self._tls = ssl.create_default_context(cadata=ca)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"},
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json"
    ) -> Object:
        """The answer. Raises `ApiError`."""
        assert self._session is not None
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind}
        async with self._session.request(
            method, self._url + path, data=data, headers=headers
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiError(answer.status, text)
            return dict(json.loads(text)) if text.startswith("{") else {"text": text}

    async def get(self, path: str) -> Object:
        return await self.request("GET", path)

    async def post(self, path: str, body: object) -> Object:
        return await self.request("POST", path, body)

    async def merge(self, path: str, body: object) -> Object:
        """Change parts of an object."""
        return await self.request("PATCH", path, body, kind=MERGE)

    async def delete(self, path: str, body: object = None) -> None:
        """Remove an object; one that is not there is removed."""
        try:
            await self.request("DELETE", path, body)
        except ApiError as error:
            if error.status != 404:
                raise

    async def follow(
        self, path: str, take: Callable[[list[Object]], object], query: str = ""
    ) -> None:
        """Call `take` with all objects at `path`, now and after each change, for ever."""
        while True:
            try:
                async for objects in self._states(path, query):
                    take(objects)
            except (ApiError, aiohttp.ClientError, OSError, TimeoutError):
                await asyncio.sleep(0.3)

    async def _states(self, path: str, query: str) -> AsyncIterator[list[Object]]:
        assert self._session is not None
        found = await self.get(f"{path}?{query}")
        known = {each["metadata"]["uid"]: each for each in found["items"]}
        yield list(known.values())
        version = found["metadata"]["resourceVersion"]
        url = f"{self._url}{path}?{query}&watch=1&resourceVersion={version}"
        limit = aiohttp.ClientTimeout(total=_WATCH_S)
        async with self._session.get(url, timeout=limit) as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, await answer.text())
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(410, str(event["object"]))
                uid = event["object"]["metadata"]["uid"]
                if event["type"] == "DELETED":
                    known.pop(uid, None)
                else:
                    known[uid] = event["object"]
                yield list(known.values())
