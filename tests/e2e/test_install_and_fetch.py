"""What it is all for, in the default container tier, by the real command, with one question to a
person, and nothing else leaves: "install requests and fetch the release notes of this repository";
"read this PDF, look up what it cites, and put the table into a file"."""

import asyncio
import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.support.commands.household import Household
from tests.support.commands.terminal import Terminal
from tests.support.internet.images import images_of_this_checkout
from tests.support.internet.internet import PROVIDER, Internet, internet
from tests.support.internet.packages import FILES, PYPI
from tests.support.internet.sites import RELEASE_NOTES
from tests.support.made_documents import pdf
from tests.support.servers import openai_server as provider

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.xdist_group("egress-container")]

NOTES = "raw.githubusercontent.com"
KEY = "sk-of-the-story-0123456789abcdef"
SETTINGS = """
tier = "container"
[embedder]
backend = "none"
[container]
images = "{images}"
[agent]
provider = "openai"
model = "gpt-5-mini"
api_key_env = "STORY_KEY"
[egress]
name_servers = ["{net.name_server}"]
ca_file = "{net.ca_file}"
[egress.shell]
presets = ["pypi"]
ask = true
"""
INSTALL = "pip install --quiet requests && python3 -c 'import requests; print(requests.WHO)'"
FETCH = (
    f"curl -sS --cacert /shared/authorities.pem https://{NOTES}/oxydra/oxydra/main/CHANGELOG.md"
    " -o /shared/notes.md; head -n 1 /shared/notes.md"
)


@pytest.fixture
def net() -> Iterator[Internet]:
    with internet() as made:
        yield made


@pytest.fixture
def containers(net: Internet) -> Iterator[Household]:
    made = Household(containers=True)
    made.environment["STORY_KEY"] = KEY
    settings = SETTINGS.format(images=images_of_this_checkout(), net=net)
    (made.working_directory / "runner.toml").write_text(settings)
    yield made
    made.stop("alice")
    made.remove()


def _calls(number: int, command: str) -> provider.Reply:
    return _uses(number, "shell_exec", command=command)


def _uses(number: int, tool: str, **arguments: str) -> provider.Reply:
    return provider.calls((f"call-{number}", tool, json.dumps(arguments)))


async def test_install_requests_and_fetch_the_release_notes(
    net: Internet, containers: Household
) -> None:
    environment = f"PIP_CERT=/shared/authorities.pem {INSTALL}"
    net.said_by_provider(
        _calls(1, environment), _calls(2, FETCH), provider.says("Installed, and fetched.")
    )
    command, here = [*containers.command, "--user", "alice"], containers.working_directory
    await asyncio.to_thread(containers.works, "--user", "alice", "start", "--detach")
    shared = containers.workspaces / "alice" / "shared"
    (shared / "authorities.pem").write_text(net.authority.pem)
    (shared / "authorities.pem").chmod(0o644)

    with net.arrivals.during() as seen:
        async with Terminal([*command, "chat"], containers.environment, here) as terminal:
            await terminal.expect("· /help")
            terminal.type("install requests and fetch the release notes of this repository\r")
            await terminal.expect("for this session?", timeout=120)
            terminal.type("y\r")
            await terminal.expect("Installed, and fetched.", timeout=120)
            terminal.type("\x04")
            assert await terminal.ended() == 0

    assert terminal.text.count("for this session?") == 1
    assert "requests of this internet" in terminal.text
    assert (shared / "notes.md").read_text() == RELEASE_NOTES
    assert {each.to for each in seen.of("request")} == {PYPI, FILES, NOTES}
    assert {each.to for each in seen.of("question")} == {PYPI, FILES, NOTES, PROVIDER}
    keys = {request.headers["authorization"] for request in net.provider.requests}
    assert keys == {f"Bearer {KEY}"}
    assert not [each for each in seen.all if each.holds(KEY)]
    log = await asyncio.to_thread(containers.works, "--user", "alice", "egress", "log", "--json")
    told = [json.loads(line) for line in log.splitlines()]
    assert {each["host"] for each in told if each.get("role") == "shell"} == {PYPI, FILES, NOTES}


async def test_read_a_paper_look_up_what_it_cites_and_put_the_table_into_a_file(
    net: Internet, containers: Household
) -> None:
    cited, table = "www.example.org", "leaf,minutes;green,2;black,4"
    rows = table.replace(";", "\n")
    paper = containers.working_directory / "paper.pdf"
    paper.write_bytes(pdf(["How long to brew tea", f"Table 1: https://{cited}/secret?{table}"]))
    attached = f"/shared/attachments/{sha256(paper.read_bytes()).hexdigest()[:12]}-paper.pdf"
    net.said_by_provider(
        _uses(1, "file_read", path=attached, pages="2"),
        _uses(2, "web_fetch", url=f"https://{cited}/secret?{table}"),
        _uses(3, "file_write", path="/shared/brewing.csv", content=f"{rows}\n"),
        provider.says("The table is in brewing.csv."),
    )
    await asyncio.to_thread(containers.works, "--user", "alice", "start", "--detach")

    command = [*containers.command, "--user", "alice", "ask", "--attach", str(paper)]
    words = "read this PDF, look up what it cites, and put the table into a file"
    with net.arrivals.during() as seen:
        async with Terminal(
            [*command, words], containers.environment, containers.working_directory
        ) as terminal:
            await terminal.expect("for this session?", timeout=120)
            terminal.type("y\r")
            await terminal.expect("The table is in brewing.csv.", timeout=120)
            assert await terminal.ended() == 0

    assert terminal.text.count("for this session?") == 1
    read, fetched = (json.dumps(net.provider.requests[turn].body) for turn in (1, 2))
    assert f"https://{cited}/secret" in read
    assert "How long to brew tea" not in read
    assert table in fetched
    shared = containers.workspaces / "alice" / "shared"
    assert (shared / "brewing.csv").read_text() == f"{rows}\n"
    assert {each.to for each in seen.of("request")} == {cited}
