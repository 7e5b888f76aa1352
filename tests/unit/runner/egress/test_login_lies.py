"""Logins at servers that lie: what each lie is answered with, and that nothing was given away."""

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from wire.settings import EgressSettings, McpServerSettings
from wire.v1.egress_pb2 import EgressLogin

from runner.egress.login import ANSWER_MAX_BYTES, Login
from runner.errors import ConfigError

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

    def come_back(self, said: str) -> None:
        """What the browser of a person does, who agrees."""
        self.said, self.opened = said, said.splitlines()[-1]
        asked = parse_qs(urlsplit(self.opened).query)
        said_back = {"state": asked["state"][0], **self.back}
        place = urlsplit(asked["redirect_uri"][0])
        target = f"{place.path}?{urlencode({k: v for k, v in said_back.items() if v is not None})}"
        for each in (*self.guesses, target):
            with socket.create_connection((place.hostname or "", place.port or 0)) as browser:
                browser.sendall(f"GET {each} HTTP/1.1\r\nHost: here\r\n\r\n".encode())

    def form(self, path: str) -> dict[str, list[str]]:
        """What was posted there."""
        (posted,) = (each for each in self.requests if each.url.path == path)
        return parse_qs(posted.content.decode())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def looked(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        address = host if host[0].isdigit() else made.addresses[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(httpx2, "AsyncHTTPTransport", made.way_out)
    monkeypatch.setattr(socket, "getaddrinfo", looked)
    return made


async def logged_in(
    world: World, egress: EgressSettings | None = None, **settings: Any
) -> EgressLogin:
    server = McpServerSettings(url=SERVER, **settings)
    environ = {"SECRET": "of-the-operator", "PROXY": "me:of-me"}
    return await Login("docs", server, egress or EgressSettings(), environ, world.come_back).run()


async def test_a_login_registers_and_names_the_resource(world: World) -> None:
    found = await logged_in(world)
    assert (found.access_token, found.url, found.resource) == (TOKEN, SERVER, SERVER)
    assert (found.client_id, found.token_url) == ("registered", f"{ISSUER}/token")
    assert parse_qs(urlsplit(world.opened).query)["resource"] == [SERVER]
    assert world.form("/token")["resource"] == [SERVER]
    assert "code_verifier" in world.form("/token")


async def test_who_does_not_know_the_state_is_not_heard(world: World) -> None:
    many = "&".join(["a=b"] * 50)
    wrong = ("code=x&state=guessed", "error=access_denied", many, "")
    world.guesses = tuple(f"/callback?{query}" for query in wrong)
    assert (await logged_in(world)).access_token == TOKEN


async def test_the_operators_client_proves_itself_with_its_secret(world: World) -> None:
    del world.metadata["registration_endpoint"]
    found = await logged_in(world, client_id="ours", client_secret_env="SECRET")
    assert (found.client_id, found.client_secret) == ("ours", "of-the-operator")
    assert world.requests[-2].headers["authorization"].startswith("Basic ")
    assert "the client's secret goes to as.example.net after that" in world.said


async def test_a_metadata_document_is_the_client_where_it_may_be(world: World) -> None:
    world.metadata["client_id_metadata_document_supported"] = True
    document = "https://example.com/oxydra.json"
    assert (await logged_in(world, client_id=document)).client_id == document


async def test_a_proxy_looks_names_up_and_gets_its_password(world: World) -> None:
    proxied = EgressSettings(proxy="http://10.0.0.9:3128", proxy_auth_env="PROXY")
    world.addresses = {}
    assert (await logged_in(world, proxied)).access_token == TOKEN
    assert world.proxy.url == "http://10.0.0.9:3128"
    assert world.proxy.headers["proxy-authorization"].startswith("Basic ")
    await logged_in(world, EgressSettings(proxy="http://10.0.0.9:3128"))
    assert "proxy-authorization" not in world.proxy.headers
    world.metadata["token_endpoint"] = "https://10.0.0.5/token"
    with pytest.raises(ConfigError) as refused:
        await logged_in(world, proxied)
    assert "10.0.0.5, which may not be reached: it is private" in refused.value.details


async def test_a_private_network_of_the_settings_may_have_the_server(world: World) -> None:
    world.metadata["token_endpoint"] = f"{INNER}token"
    inside = EgressSettings(private_networks=("10.0.0.0/24",))
    assert (await logged_in(world, inside)).token_url == f"{INNER}token"


def changed(part: str, **changes: Any) -> Callable[[World], None]:
    return lambda world: getattr(world, part).update(changes)


HTTP, INNER = "http://as.example.net/", "https://inner.example.net/"
LIES = {
    "another iss": (changed("back", iss="https://evil.example"), "iss mismatch"),
    "no iss": (changed("back", iss=None), "missing iss parameter"),
    "a refusal": (changed("back", error="access_denied"), "it was refused: access_denied"),
    "another resource": (
        changed("resource", resource="https://other.example.org/mcp"),
        "does not match expected https://mcp.example.org/mcp",
    ),
    "another issuer": (changed("metadata", issuer="https://evil.example"), "issuer mismatch"),
    "authorization in the open": (
        changed("metadata", authorization_endpoint=f"{HTTP}authorize"),
        "does not protect a login",
    ),
    "tokens in the open": (
        changed("metadata", token_endpoint=f"{HTTP}token"),
        "http://as.example.net/token does not protect a login",
    ),
    "an issuer in the open": (
        changed("resource", authorization_servers=[HTTP]),
        "does not protect a login",
    ),
    "metadata elsewhere": (
        lambda world: world.redirects.update(
            dict.fromkeys(
                (
                    "/.well-known/oauth-authorization-server",
                    "/.well-known/openid-configuration",
                ),
                "https://evil.example/",
            )
        ),
        "no authorization server of it says how to log in",
    ),
    "tokens elsewhere": (
        changed("redirects", **{"/token": "https://evil.example/token"}),
        "redirected to https://evil.example/token; not followed",
    ),
    "no PKCE": (changed("metadata", code_challenge_methods_supported=["plain"]), "S256 (PKCE)"),
    "a flood": (changed("resource", resource_name="x" * ANSWER_MAX_BYTES), "is too long"),
    "another kind of token": (changed("token", token_type="mac"), "Invalid token response"),
    "no token": (lambda world: world.token.pop("access_token"), "Invalid token response"),
    "a token of somebody else": (changed("token", access_token="x" * 20), "refuses the token"),
    "a private name": (
        changed("metadata", token_endpoint=f"{INNER}token"),
        "inner.example.net is 10.0.0.5, which may not be reached: it is private",
    ),
    "a private address": (
        changed("metadata", registration_endpoint="https://127.0.0.1:8443/register"),
        "which may not be reached: it is this machine's own (loopback)",
    ),
    "a page inside": (
        changed("metadata", authorization_endpoint=f"{INNER}authorize"),
        "it is private",
    ),
    "no registration": (
        lambda world: world.metadata.pop("registration_endpoint"),
        "register one there, for http://127.0.0.1/callback with any port, and set client_id",
    ),
    "no login": (
        changed("redirects", **{"/mcp": "/"}),
        "it asks for no login: it answers with 307",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_ends_the_login(world: World, lie: str) -> None:
    change, said = LIES[lie]
    change(world)
    with pytest.raises(ConfigError) as refused:
        await logged_in(world)
    assert said in f"{refused.value} {refused.value.details}"
    assert TOKEN not in refused.value.details
    hosts = {each.headers["host"] for each in world.requests}
    assert hosts <= {"mcp.example.org", "as.example.net"}
    assert not any(word in world.opened for word in ("inner", "http://as."))
