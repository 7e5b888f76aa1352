"""An MCP server and its authorization server without sockets, which a test lets lie."""

import json
import socket
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

SERVER = "https://mcp.example.org/mcp"
ISSUER = "https://as.example.net"
TOKEN = "token-of-ann"
ADDRESSES = {
    "mcp.example.org": "1.1.1.1",
    "as.example.net": "1.0.0.1",
    "inner.example.net": "10.0.0.5",
}


@dataclass
class World(httpx2.AsyncBaseTransport):
    """A server and its authorization server, as they should be; each test changes something."""

    resource: dict[str, Any] = field(
        default_factory=lambda: {"resource": SERVER, "authorization_servers": [ISSUER]}
    )
    metadata: dict[str, Any] = field(
        default_factory=lambda: {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "registration_endpoint": f"{ISSUER}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
    )
    token: dict[str, Any] = field(
        default_factory=lambda: {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 60}
    )
    back: dict[str, Any] = field(default_factory=lambda: {"code": "c", "iss": ISSUER})
    redirects: dict[str, str] = field(default_factory=dict)
    requests: list[httpx2.Request] = field(default_factory=list)
    guesses: tuple[str, ...] = ()
    opened: str = ""
    proxy: Any = None
    addresses: dict[str, str] = field(default_factory=ADDRESSES.copy)

    @classmethod
    def entered(cls, monkeypatch: pytest.MonkeyPatch) -> Self:
        """The world in which every login of this process happens."""
        made, lookup = cls(), socket.getaddrinfo

        def looked(host: Any, port: Any, *more: Any, **options: Any) -> Any:
            if not isinstance(host, str) or not host[0].isalpha():
                return lookup(host, port, *more, **options)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (made.addresses[host], port))]

        monkeypatch.setattr(httpx2, "AsyncHTTPTransport", made.way_out)
        monkeypatch.setattr(socket, "getaddrinfo", looked)
        return made

    def way_out(self, proxy: Any, **_: Any) -> "World":
        self.proxy = proxy
        return self

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.requests.append(request)
        is_checked = request.url.host in ("mcp.example.org", *ADDRESSES.values())
        assert is_checked or self.proxy, "it was not checked"
        assert request.extensions["sni_hostname"] == request.headers["host"]
        path = request.url.path
        if path in self.redirects:
            return httpx2.Response(307, headers={"Location": self.redirects[path]})
        if path.startswith("/.well-known/oauth-protected-resource"):
            return httpx2.Response(200, json=self.resource)
        if path.startswith("/.well-known/oauth-authorization-server"):
            return httpx2.Response(200, json=self.metadata)
        match path:
            case "/register":
                asked = json.loads(request.content)
                return httpx2.Response(201, json={**asked, "client_id": "registered"})
            case "/token":
                return httpx2.Response(200, json=self.token)
            case "/mcp" if request.headers.get("authorization") == f"Bearer {TOKEN}":
                return httpx2.Response(400, text="no session")
            case "/mcp":
                return httpx2.Response(401)
        return httpx2.Response(404)

    def answer(self, opened: str) -> str:
        """With what the browser of a person comes back, who has agreed at `opened`."""
        asked = parse_qs(urlsplit(opened).query)
        said = {"state": asked["state"][0], **self.back}
        return urlencode({name: value for name, value in said.items() if value is not None})

    def come_back(self, opened: str) -> None:
        """What the browser of a person does, who agrees."""
        self.opened = opened
        place = urlsplit(parse_qs(urlsplit(opened).query)["redirect_uri"][0])
        for each in (*self.guesses, f"{place.path}?{self.answer(opened)}"):
            with socket.create_connection((place.hostname or "", place.port or 0)) as browser:
                browser.sendall(f"GET {each} HTTP/1.1\r\nHost: here\r\n\r\n".encode())

    def form(self, path: str) -> dict[str, list[str]]:
        """What was posted there."""
        (posted,) = (each for each in self.requests if each.url.path == path)
        return parse_qs(posted.content.decode())
