"""Logins at servers that lie: what each lie is answered with, and that nothing was given away."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from wire.settings import EgressSettings, McpServerSettings
from wire.v1.egress_pb2 import EgressLogin

from runner.egress.login import ANSWER_MAX_BYTES, Login
from runner.errors import ConfigError
from tests.support.servers.login_world import ISSUER, SERVER, TOKEN, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World.entered(monkeypatch)


async def logged_in(
    world: World, egress: EgressSettings | None = None, **settings: Any
) -> EgressLogin:
    server = McpServerSettings(url=SERVER, **settings)
    environ = {"SECRET": "of-the-operator", "PROXY": "me:of-me"}
    login = Login("docs", server, egress or EgressSettings(), environ, world.come_back)
    return await login.run_here()


OURS: dict[str, Any] = {"client_id": "ours", "client_secret_env": "SECRET", "issuer": ISSUER}


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
    found = await logged_in(world, **OURS)
    assert (found.client_id, found.client_secret) == ("ours", "of-the-operator")
    assert world.requests[-2].headers["authorization"].startswith("Basic ")


async def test_no_other_issuer_hears_of_the_operators_client(world: World) -> None:
    world.requests.clear()
    with pytest.raises(ConfigError) as refused:
        await logged_in(world, **{**OURS, "issuer": "https://as.example.org"})
    assert f"its authorization server {ISSUER} is not its issuer" in refused.value.details
    assert not world.opened
    assert {each.method for each in world.requests if each.url.path != "/mcp"} == {"GET"}


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
    world.metadata["token_endpoint"] = "http://localhost/token"  # of the proxy's own machine
    world.addresses["localhost"] = "127.0.0.1"
    posted = len(world.requests)
    with pytest.raises(ConfigError) as refused:
        await logged_in(world, proxied)
    assert "localhost is 127.0.0.1, which may not be reached" in refused.value.details
    assert "/token" not in [each.url.path for each in world.requests[posted:]]


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
        "/callback (any port, if it is 127.0.0.1), and set client_id of the server",
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
