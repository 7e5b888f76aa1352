"""No key that opens an account outside is in a guest: looked for as root, in the memory, the files
and the environment of the agent and of the shell, while a turn is answered with it."""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest
from aiohttp import web

from egress.proxy.logins import EARLY_S
from tests.support.commands.household import Household, soon
from tests.support.egress.origins import Certificates, names, origin
from tests.support.guests.engine import bridge_address
from tests.support.guests.siblings import containers, role_of
from tests.support.internet.repositories import Repositories
from tests.support.servers import openai_server as provider
from tests.support.servers.oidc_server import log_in_at, oidc_server
from tests.support.servers.openai_server import Reply
from tests.support.servers.scripted_provider import Script, Seen, calls, scripted
from tests.support.tools.tool_guests import SERVER

_AREA: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r\S* \S+ \S+ (\d+)\s*(.*)")
_PIECE: Final = 16 * 1024 * 1024
_SKIPPED: Final = ("[vvar]", "[vsyscall]", "[vvar_vclock]")

pytestmark = [pytest.mark.root]


@pytest.fixture(params=["process", pytest.param("container", marks=pytest.mark.docker)])
def house(request: pytest.FixtureRequest) -> Iterator[Household]:
    made = Household(containers=request.param == "container")
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    yield made
    made.stop()
    made.remove()


def memory_holds(pid: int, words: list[bytes]) -> list[bytes]:
    """Which of `words` the readable memory of a process holds."""
    found: set[bytes] = set()
    overlap = max(map(len, words)) - 1
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            area = _AREA.fullmatch(line)
            if area is None or area[4] in _SKIPPED:
                continue
            at, end, tail = int(area[1], 16), int(area[2], 16), b""
            while at < end:
                try:
                    data = os.pread(memory.fileno(), min(_PIECE, end - at), at)
                except OSError:
                    break  # of a device, or beyond the end of a file
                if not data:
                    break
                found |= {word for word in words if word in tail + data}
                at, tail = at + len(data), data[-overlap:]
    return sorted(found)


def tops(house: Household) -> dict[str, list[int]]:
    """The first processes of all guests, by role."""
    if not house.containers:
        words = {
            "agent": "guest.app",
            "shell": "shell_daemon.server",
            "egress": "--agent-listener",
            "shell-egress": "--shell-listener",
        }
        return {role: house.guest_pids(word) for role, word in words.items()}
    found: dict[str, list[int]] = {
        role: [] for role in ("agent", "shell", "egress", "shell-egress")
    }
    for each in containers(house.path):
        if (role := role_of(each)) in found:
            found[role].append(each["State"]["Pid"])
    return found


def guests(house: Household) -> dict[str, list[int]]:
    """The processes of each guest, by role."""
    return {
        role: [
            each
            for pid in pids
            for each in (pid, *(child.pid for child in psutil.Process(pid).children(True)))
        ]
        for role, pids in tops(house).items()
    }


def forms(key: str) -> list[bytes]:
    """The key as it is and, as a part of it is enough to be found, its halves."""
    half = len(key) // 2
    return [key.encode(), key[:half].encode(), key[half:].encode()]


def searched(house: Household, *keys: str) -> dict[str, list[bytes]]:
    """What of the keys each guest holds."""
    found, words = {}, [word for key in keys for word in forms(key)]
    for role, pids in guests(house).items():
        assert pids, f"no {role} guest"
        held = []
        for pid in pids:
            with suppress(FileNotFoundError, ProcessLookupError):  # a child may just end
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                held += [word for word in words if word in environment]
                held += memory_holds(pid, words)
        found[role] = held
    return found


def test_a_providers_key_is_in_no_byte_but_of_the_agents_egress(house: Household) -> None:
    given, later = ("sk-" + secrets.token_hex(24) for _ in range(2))
    address = bridge_address() if house.containers else "127.0.0.1"
    with scripted(address) as model:
        house.environment |= {
            "OXYDRA_AGENT__PROVIDER": "openai",
            "OXYDRA_AGENT__MODEL": "m",
            "OXYDRA_AGENT__BASE_URL": model.base_url,
            "OXYDRA_EGRESS__SHELL__ASK": "true",
            "OTHER": later,
        }
        house.works("credentials", "set", stdin=given)
        (stored,) = (house.path / "home/config/oxydra/keys").iterdir()
        house.environment["OXYDRA_AGENT__API_KEY_FILE"] = str(stored)
        house.works("start", "--detach")
        answer_with_commands(model, given, stored)
        assert "done with it" in house.works("ask", "run something")
        found = searched(house, given)
        assert found.pop("egress"), "the key is nowhere: the search cannot see"
        assert found == {"agent": [], "shell": [], "shell-egress": []}

        house.works("credentials", "set", "--provider", "openai", "--from-env", "OTHER")
        answer_with_commands(model, later, stored)
        assert "done with it" in house.works("ask", "run something")
        model.play(lambda seen: provider.error("401 Unauthorized", f"wrong key: {seen.key}"))
        refused = house.run("ask", "once more")
        assert "refused the API key" in refused.stderr
        found = searched(house, later)
        assert found.pop("egress")
        assert found == {"agent": [], "shell": [], "shell-egress": []}
        assert_in_no_file(house, given, later, but=stored)
        house.works("stop")
        house.works("start", "--detach")
        answer_with_commands(model, given, stored)
        assert "done with it" in house.works("ask", "run something")


LOGIN = """
[mcp.servers.docs]
url = "{url}"
safety = "read_only"
[mcp.servers.own]
command = "python3"
args = ["-c", '''{program}''']
isolated = true
[agent]
provider = "openai"
model = "m"
base_url = "{model}"
api_key_env = "MODEL_KEY"
[egress.shell]
ask = true
"""


@pytest.mark.node
def test_a_token_of_a_login_is_in_no_byte_but_of_the_agents_egress(house: Household) -> None:
    """A person logs in at a real authorization server, and egress renews the token before each
    request and tells the runner, which keeps it."""

    def told(seen: Seen) -> Reply:
        assert "xyzzy *****" in seen.results[-1]
        return provider.says("done with it")

    def refused(seen: Seen) -> Reply:
        assert "it wants a login (401): runner tools login docs" in seen.results[-1]
        return provider.says("not any more")

    address = bridge_address() if house.containers else "127.0.0.1"
    with scripted(address) as model, oidc_server(EARLY_S - 5) as server:
        settings = LOGIN.format(url=server.url, model=model.base_url, program=SERVER)
        (house.working_directory / "runner.toml").write_text(settings)
        house.environment["MODEL_KEY"] = "sk-of-no-account"
        login = house.begin("tools", "login", "docs")
        assert login.stdout is not None
        url = next(line.strip() for line in login.stdout if line.startswith("http"))
        assert log_in_at(url) == "The answer has arrived.\n"
        assert "logged in at docs" in login.stdout.read()
        (stored,) = (house.path / "home/config/oxydra/logins").iterdir()
        handed = [server.url, json.loads(stored.read_text())["tokenUrl"]]
        house.environment["OXYDRA_EGRESS__HOST_LOOPBACK"] = ",".join(handed)
        house.works("start", "--detach")
        assert soon(lambda: " is away" not in house.works("status"))
        model.play(calls("docs_word"), told)
        assert "done with it" in house.works("ask", "for the word")
        given = [line.split()[-1] for line in server.given]
        tokens = [*given[:2], *given[-2:]]
        assert len(given) >= 8
        assert "revoked" not in given
        assert "tool-own" in house.works("status")
        assert len(tops(house)["shell"]) == 2, "of commands, and of the server own"
        found = searched(house, *tokens)
        assert {token.encode() for token in tokens[2:]} <= set(found.pop("egress"))
        assert found == {"agent": [], "shell": [], "shell-egress": []}
        assert stored.stat().st_mode & 0o777 == 0o600
        assert tokens[-1] in stored.read_text()
        assert_in_no_file(house, *tokens, but=stored)
        house.works("tools", "logout", "docs")
        assert not stored.exists()
        model.play(calls("docs_word"), refused)
        assert "not any more" in house.works("ask", "for the word again")


def assert_in_no_file(house: Household, *keys: str, but: Path | None = None) -> None:
    for path in house.path.rglob("*"):
        if path.is_file() and path != but:
            content = path.read_bytes()
            assert not [word for key in keys for word in forms(key) if word in content], path


def answer_with_commands(model: Script, key: str, stored: Path) -> None:
    """The model looks for a key in the shell, and is done."""

    def looked(seen: Seen) -> Reply:
        assert seen.key == key
        assert key[3:] not in seen.results[-1]
        return provider.says("done with it")

    look = f"env; cat /proc/*/environ /proc/*/cmdline {stored}; ls -la / /egress"
    model.play(calls("shell_exec", command=look), looked)


CREDENTIALS = """
[egress]
private_networks = ["{address}/32"]
name_servers = ["{name_server}"]
ca_file = "{authority}"
[egress.agent]
ask = true
[egress.shell]
allow = ["https://{place}"]
[egress.credentials.git]
env = "THE_TOKEN"
hosts = ["{place}"]
place = "basic"
file = ".netrc"
content = "machine {host} login me password {{placeholder}}\\n"
[egress.credentials.notes]
env = "THE_TOKEN"
hosts = ["{place}"]
variable = "NOTES_TOKEN"
"""
FETCH = (
    "run git clone -q https://{place}/notes.git /tmp/notes && cat /tmp/notes/README; env; "
    "echo ${{NOTES_TOKEN%-*}}; sed -e 's/.* //' -e 's/-[0-9a-f]*$//' ~/.netrc; "
    'curl -sS -H "Authorization: Bearer $NOTES_TOKEN" https://{place}/told; '
    'curl -sS "https://{place}/?$NOTES_TOKEN"'
)


async def test_a_credentials_value_is_in_no_byte_but_of_the_commands_egress(
    house: Household, tmp_path: Path
) -> None:
    """Commands clone with it, and are told by a server what they sent."""
    token, host = "ghp_" + secrets.token_hex(20), "git.example.org"
    repositories = Repositories(tmp_path, token)
    certificates = Certificates(tmp_path)
    authority = house.working_directory / "outside.pem"
    authority.write_text(certificates.pem)
    told = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/told":
            told.append(request.headers["authorization"])
            return web.Response(text=f"you said {told[-1]}")
        return await repositories.answer(request, await request.read())

    address = bridge_address() if house.containers else "127.0.0.1"
    async with (
        origin(certificates.server(host), answer, address) as server,
        names({host: [address]}, address) as (name_server, _),
    ):
        place = f"{host}:{server.port}"
        (house.working_directory / "runner.toml").write_text(
            CREDENTIALS.format(
                address=address,
                name_server=name_server,
                authority=authority,
                place=place,
                host=host,
            )
        )
        house.environment["THE_TOKEN"] = token
        await asyncio.to_thread(house.works, "start", "--detach")
        said = await asyncio.to_thread(house.works, "ask", FETCH.format(place=place))
        assert "the notes of a private repository" in said
        assert told == [f"Bearer {token}"]
        assert f"you said Bearer {'*' * len(token)}" in said
        assert "oxydra-credential-notes\n" in said
        assert "oxydra-credential-git\n" in said
        assert "the placeholder of the credential notes stands in the query" in said
        assert "?" not in server.requests[-1].raw_path
        found = await asyncio.to_thread(searched, house, token)
        assert found.pop("shell-egress"), "the value is nowhere: the search cannot see"
        assert found == {"agent": [], "shell": [], "egress": []}
        assert_in_no_file(house, token)
