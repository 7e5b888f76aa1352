"""A push service on loopback, and browsers that open what it was sent, by the standards alone."""

import base64
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from runner.egress import configuration
from runner.serve.push import sending
from tests.support.egress.origins import Certificates, origin

HOST: Final = "push.example.com"
_POINT: Final = (Encoding.X962, PublicFormat.UncompressedPoint)


def spelled(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Browser:
    """A subscription of a browser, with the keys that it keeps to itself."""

    def __init__(self, name: str = "one", host: str = HOST) -> None:
        self.endpoint = f"https://{host}/to/{name}"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._auth = os.urandom(16)
        self.public = self._key.public_key().public_bytes(*_POINT)

    def subscription(self) -> dict[str, Any]:
        """What a page sends of it."""
        keys = {"p256dh": spelled(self.public), "auth": spelled(self._auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    def opened(self, body: bytes) -> dict[str, str]:
        """What a message says: RFC 8291, of one record as RFC 8188 has it."""
        salt, size, length = *struct.unpack("!16sL", body[:20]), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(body) <= 4096
        assert len(sealed) <= size
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        info = b"WebPush: info\0" + self.public + sender
        secret = _derived(self._auth, info, self._key.exchange(ec.ECDH(), theirs), 32)
        key = _derived(salt, b"Content-Encoding: aes128gcm\0", secret, 16)
        nonce = _derived(salt, b"Content-Encoding: nonce\0", secret, 12)
        text, end, _ = AESGCM(key).decrypt(nonce, sealed, None).rpartition(b"\2")
        assert end
        told: dict[str, str] = json.loads(text)
        return told


def _derived(salt: bytes, info: bytes, secret: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


@dataclass
class PushService:
    """What it was sent, oldest first; with what it answers the next ones, before 201; and all hosts
    that were connected to."""

    sent: list[tuple[str, Any, bytes]] = field(default_factory=list)
    answers: list[web.Response] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)

    def to(self, browser: Browser) -> list[dict[str, str]]:
        """What it was sent for a browser, opened."""
        path = httpx2.URL(browser.endpoint).path
        return [browser.opened(body) for there, _, body in self.sent if there == path]

    async def take(self, request: web.BaseRequest) -> web.Response:
        self.sent.append((request.path, request.headers, await request.read()))
        return self.answers.pop(0) if self.answers else web.Response(status=201)


@asynccontextmanager
async def push_service(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> AsyncIterator[PushService]:
    """A push service at `https://push.example.com`, as servers that begin meanwhile see it, and
    all that they wait for without the waiting."""
    certificates = Certificates(directory)
    (directory / "authority.pem").write_text(certificates.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(directory / "authority.pem"))
    monkeypatch.setattr(sending, "PAUSE_S", 0.02)
    monkeypatch.setattr(sending, "PACE_S", 0.02)
    service = PushService()
    resolve = configuration.public_addresses
    connect = httpx2.AsyncHTTPTransport.handle_async_request

    async def resolved(host: str) -> list[str]:
        return ["127.0.0.1"] if host == HOST else await resolve(host)

    monkeypatch.setattr(sending, "public_addresses", resolved)
    async with origin(certificates.server(HOST), lambda request: service.take(request)) as there:

        async def connected(self: Any, request: httpx2.Request) -> httpx2.Response:
            service.connected.append(request.headers["host"])
            if request.headers["host"] == HOST:
                assert request.url.host == "127.0.0.1"
                request.url = request.url.copy_with(port=there.port)
            return await connect(self, request)

        monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connected)
        yield service
