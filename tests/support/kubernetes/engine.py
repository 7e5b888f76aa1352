"""The local Docker engine, over its socket."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

Object = dict[str, Any]
_SOCKET: Final = "/var/run/docker.sock"
_VERSION: Final = "v1.41"
_LABEL: Final = "oxydra.test.kubernetes"
"""Of all that a stand-in makes; its value is the process that made it."""


class EngineError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """An async context manager, of one event loop. What it makes is marked as `owner`'s."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(_SOCKET, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The answer. Raises `EngineError`."""
        async with self._session.request(
            method, f"http://engine/{_VERSION}{path}", json=body, params=query
        ) as answer:
            text = await answer.text()
        found = json.loads(text) if text.startswith(("{", "[")) else {}
        if answer.status >= 400:
            raise EngineError(answer.status, str(found.get("message", text)))
        return found

    async def image(self, name: str) -> Object | None:
        """The configuration of an image that is here."""
        try:
            return dict((await self.request("GET", f"/images/{quote(name)}/json"))["Config"])
        except EngineError as error:
            if error.status != 404:
                raise
            return None

    async def create(self, name: str, labels: dict[str, str], options: Object) -> str:
        """Create a container. Returns its id."""
        body = {**options, "Labels": {**labels, _LABEL: self._owner}}
        return str((await self.request("POST", "/containers/create", body, name=name))["Id"])

    async def start(self, container: str) -> None:
        await self.request("POST", f"/containers/{container}/start")

    async def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal; a container that does not run needs none."""
        with contextlib.suppress(EngineError):
            await self.request("POST", f"/containers/{container}/kill", signal=signal)

    async def wait(self, container: str) -> None:
        """Return when the container has ended."""
        with contextlib.suppress(EngineError):
            await self.request("POST", f"/containers/{container}/wait")

    async def state(self, container: str) -> Object:
        """Of a container that is gone it says that it was killed."""
        try:
            return dict((await self.request("GET", f"/containers/{container}/json"))["State"])
        except EngineError:
            return {"Running": False, "ExitCode": 137}

    async def remove(self, container: str) -> None:
        with contextlib.suppress(EngineError):
            await self.request("DELETE", f"/containers/{container}", force="true", v="true")

    async def logs(self, container: str, **query: str) -> AsyncIterator[bytes]:
        """The blocks of what a container has printed, on both streams."""
        async with self._session.get(
            f"http://engine/{_VERSION}/containers/{container}/logs",
            params={"stdout": "1", "stderr": "1", **query},
        ) as answer:
            if answer.status >= 400:
                raise EngineError(answer.status, await answer.text())
            async for _, block in frames(answer.content):
                yield block

    async def attach(
        self, container: str, **streams: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the standard streams of a container."""
        reader, writer = await asyncio.open_unix_connection(_SOCKET)
        query = "&".join(f"{name}={value}" for name, value in streams.items())
        writer.write(
            f"POST /{_VERSION}/containers/{container}/attach?stream=1&{query} HTTP/1.1\r\n"
            "Host: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status >= 400:
            writer.close()
            raise EngineError(status, head.decode(errors="replace"))
        return reader, writer

    async def make_network(self, name: str, subnet: str) -> None:
        """A bridge. Raises `EngineError` (403) if a part of `subnet` is in use."""
        body = {
            "Name": name,
            "CheckDuplicate": True,
            "Driver": "bridge",
            "IPAM": {"Config": [{"Subnet": subnet}]},
            "Labels": {_LABEL: self._owner},
        }
        await self.request("POST", "/networks/create", body)

    async def containers(self, label: str = _LABEL) -> list[Object]:
        """All with this label, also those that have ended."""
        filters = json.dumps({"label": [label]})
        return list(await self.request("GET", "/containers/json", all="1", filters=filters))

    async def sweep(self, owners: set[str]) -> None:
        """Remove all containers and networks of these owners."""
        for each in await self.containers():
            if each["Labels"][_LABEL] in owners:
                await self.remove(each["Id"])
        for each in await self._networks():
            if each["Labels"][_LABEL] in owners:
                with contextlib.suppress(EngineError):
                    await self.request("DELETE", f"/networks/{each['Id']}")

    async def owners(self) -> set[str]:
        """Who has made something that is still here."""
        found = [*await self.containers(), *await self._networks()]
        return {each["Labels"][_LABEL] for each in found}

    async def _networks(self) -> list[Object]:
        filters = json.dumps({"label": [_LABEL]})
        return list(await self.request("GET", "/networks", filters=filters))


async def frames(
    reader: asyncio.StreamReader | aiohttp.StreamReader,
) -> AsyncIterator[tuple[int, bytes]]:
    """The blocks of the engine's stream with their number: 1 is output, 2 errors."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            head = await reader.readexactly(8)
            yield head[0], await reader.readexactly(int.from_bytes(head[4:], "big"))
