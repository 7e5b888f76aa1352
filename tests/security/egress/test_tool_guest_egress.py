"""An MCP server in a guest of its own uses a key that it does not have; another one cannot."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from wire.settings import McpSettings

from runner.egress.log import Requests, Wanted
from tests.security.egress.conftest import ALLOWED, TIERS
from tests.security.egress.test_egress_attempts import PAST_EGRESS, TRIES, Try, nothing_leaves
from tests.security.test_keys_of_no_guest import memory_holds
from tests.support.attempts import attempt
from tests.support.internet.guests import Guests, guests
from tests.support.internet.internet import Internet
from tests.support.tools.tool_guests import Tools, server

pytestmark = pytest.mark.asyncio(loop_scope="session")

OF_THE_RUNNER = "FORGE_KEY_OF_THE_RUNNER"
KEY = "k-of-the-forge-0123456789abcdef"
CREDENTIAL = {"env": OF_THE_RUNNER, "hosts": ["api.example.org"], "variable": "FORGE_KEY"}
SERVERS = {
    "forge": server(egress={"allow": ["api.example.org"]}, credentials={"key": CREDENTIAL}),
    "other": server(isolated=True, egress={"allow": ["files.example.org"]}),
    "hostile": server(isolated=True, egress={"allow": ALLOWED}),
}
CALL = 'curl -sS -m 20 -H "authorization: Bearer $FORGE_KEY" https://api.example.org/quiet'


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=TIERS)
async def forge(request: pytest.FixtureRequest, net: Internet) -> AsyncIterator[Guests]:
    opened = {"allow": ("www.example.org",)}
    environ = {OF_THE_RUNNER: KEY}
    async with guests(
        net,
        request.param,
        environ=environ,
        shell=opened,
        servers=SERVERS,
        inspect=("api.example.org",),
    ) as ready:
        yield ready


async def test_the_key_arrives_and_is_in_no_byte_of_the_guest(forge: Guests) -> None:
    tools = Tools(forge.host, forge.gateway)
    with forge.net.arrivals.during() as seen:
        said = await tools.run("forge", f"{CALL}; env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
    (request,) = seen.of("request")
    assert (request.to, request.holds(f"Bearer {KEY}")) == ("api.example.org", True)
    assert re.search("FORGE_KEY=oxydra-credential-key-", said)
    assert KEY not in said
    assert memory_holds(await forge.pid("tool-forge"), [KEY.encode()]) == []
    for path in forge.host.workspace.path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    listed = Requests.locate(forge.config, "alice").list(Wanted(role="tool-forge"))
    assert [(each.host, each.decision) for each in listed] == [("api.example.org", "allowed")]


@pytest.mark.attempt(
    "an MCP server that uses the key, the rules and the way out of another one, or of commands",
    stopped_by="it has egress of its own, with its own rules and placeholders",
)
async def test_one_server_has_not_what_another_one_has(forge: Guests) -> None:
    tools = Tools(forge.host, forge.gateway)
    placeholder = (await tools.run("forge", "echo $FORGE_KEY")).strip()
    with forge.net.arrivals.during() as seen:
        told = await tools.run(
            "other",
            f"export FORGE_KEY={placeholder}; {CALL} -i; env; ls /shared /vault /tools"
            f"; curl -sS -m 20 -i -H 'x-key: {placeholder}' https://files.example.org/echo"
            "; curl -sS -m 20 -i https://www.example.org/echo",
        )
        ran = await forge.command(
            f"curl -sS -m 20 -H 'x-key: {placeholder}' https://www.example.org"
        )
    assert not any(each.holds(KEY) for each in seen.of("request"))
    assert {each.to for each in seen.of("request")} <= {"files.example.org", "www.example.org"}
    assert "FORGE_KEY=oxydra" in told
    assert told.count("No such file or directory") == 3
    assert ran.exit.exit_code == 0
    listed = Requests.locate(forge.config, "alice").list(Wanted(role="tool-other"))
    assert [(each.host, each.decision) for each in listed] == [
        ("www.example.org", "refused"),
        ("files.example.org", "allowed"),
        ("api.example.org", "refused"),
    ]


def by_server(row: Try, *, long: bool) -> Any:
    named = f"by an MCP server: {row.name}"
    return attempt(named, row, stopped_by=row.stopped_by, long=long)


@pytest.mark.parametrize(
    "row",
    [
        *(by_server(row, long=False) for row in PAST_EGRESS),
        *(by_server(row, long=True) for row in TRIES),
    ],
)
async def test_nothing_leaves_from_a_tool_guest(forge: Guests, row: Try) -> None:
    """Its egress is the program that commands have, whose attempts each run makes."""
    await nothing_leaves(forge, "tool", row)


async def test_what_a_server_may_reach_answers(forge: Guests) -> None:
    assert "this is files.example.org/hello" in await forge.told("tool", "plain")


async def test_a_reload_reaches_the_guests_that_run(forge: Guests) -> None:
    tools, before = Tools(forge.host, forge.gateway), forge.config
    ask = "curl -sS -m 20 -o /dev/null -w '%{http_code} ' http://{www,files}.example.org/echo"
    assert await tools.run("other", ask) == "403 200 "
    guest = await forge.pid("tool-other")
    changed = {**SERVERS, "other": server(isolated=True, egress={"allow": ["www.example.org"]})}
    mcp = McpSettings.model_validate({"servers": changed})
    for forge.config, found in (
        (before.model_copy(update={"mcp": mcp}), "200 403 "),
        (before, "403 200 "),
    ):
        await forge.host.reload_egress()
        assert await tools.run("other", ask) == found
    assert await forge.pid("tool-other") == guest
