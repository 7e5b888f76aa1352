"""A colleague without the account: by the real command, and by the two clients of the guide."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.household import Household
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("access_clients")

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guide" / "connect-a-client.md").read_text()
NODE = ROOT / "tests" / "support" / "node"


def code(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def serving(made: Household) -> None:
    """Alice's agent, and the server, with access files on a socket and on TCP."""
    made.environment |= {
        "OXYDRA_EMBEDDER__BACKEND": "none",
        "OXYDRA_ACCESS__SOCKET": str(made.path / "a.sock"),
        "OXYDRA_ACCESS__LISTEN": f"127.0.0.1:{free_port()}",
        "OXYDRA_SERVE__LISTEN": f"127.0.0.1:{free_port()}",
    }
    (made.workspaces / "alice").mkdir(parents=True, mode=0o700)
    process = made.begin("start", "--all")
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("alice: running, pid "):
        assert line, process.communicate()
    server = made.begin("serve")
    assert server.stdout is not None
    assert server.stdout.readline().startswith("serving at http"), server.communicate()
    assert f"are let in at  {made.path / 'a.sock'} and 127.0.0.1:" in server.stdout.readline()


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    made = Household()
    serving(made)
    yield made
    made.run("stop", "--all")
    made.remove()


class Colleague:
    """Somebody with an access file and nothing else of the household."""

    def __init__(self, house: Household, *options: str, name: str = "laptop") -> None:
        self.file = house.path / f"{name}.json"
        made = house.run(
            "--user", "alice", "access", "create", name, "--access-file", str(self.file), *options
        )
        assert made.returncode == 0, made.stderr
        self.said = made.stdout + made.stderr
        self.token = json.loads(self.file.read_text())["token"]
        home = house.path / f"home-of-{name}"
        home.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.environment["HOME"],
            timeout=120,
            check=False,
        )

    def runner(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "runner.cli.app", "--connect", str(self.file))
        return self.run(*command, *words, stdin=stdin)


def test_a_colleague_chats_finds_and_is_told_what_needs_the_account(house: Household) -> None:
    colleague = Colleague(house)
    assert colleague.token not in colleague.said
    assert colleague.file.stat().st_mode & 0o777 == 0o600

    chat = colleague.runner("chat", stdin="remember that I drink my coffee black\n/status\n")
    assert "✓ saved" in chat.stdout, chat.stdout + chat.stderr
    assert chat.returncode == 1
    assert "for the account that runs it" in chat.stdout
    shown = colleague.runner("memory", "search", "coffee", "--json")
    (note,) = json.loads(shown.stdout)["notes"]
    assert note["origin"]["channel"] == "access-laptop"
    asked = colleague.runner("ask", "what do you know about coffee?")
    assert "I drink my coffee black" in asked.stdout, asked.stderr
    sessions = json.loads(colleague.runner("sessions", "list", "--json").stdout)
    assert [session["channel"] for session in sessions] == ["access-laptop"] * 2
    for words in (("status",), ("memory", "backup"), ("start",), ("access", "list"), ("logs",)):
        refused = colleague.runner(*words)
        assert refused.returncode == 1
        assert "this needs the account that runs the agent" in refused.stderr, words

    listed = json.loads(house.works("access", "list", "--json"))
    assert ("alice", "laptop") in [(each["user_id"], each["name"]) for each in listed]
    assert house.works("--user", "alice", "access", "revoke", "laptop") == "revoked: alice/laptop\n"
    refused = colleague.runner("memory", "search", "coffee")
    assert refused.returncode == 1
    assert "this access token is not known" in refused.stderr
    assert colleague.token not in refused.stderr
    for file in house.path.rglob("*"):
        assert (
            file == colleague.file
            or not file.is_file()
            or colleague.token not in file.read_text(errors="replace")
        )


def test_the_client_in_python_runs(house: Household) -> None:
    colleague = Colleague(house, name="python")
    client = house.path / "client.py"
    client.write_text(code("python"))
    done = colleague.run(
        sys.executable, str(client), str(colleague.file), "remember that tea is for Sundays"
    )
    assert done.returncode == 0, done.stderr
    check(done.stdout, "tea is for Sundays")


@pytest.mark.node
def test_the_client_in_typescript_runs(house: Household) -> None:
    """Also over TCP, to the same name in the certificate."""
    colleague = Colleague(house, name="node")
    place = house.path / "node"
    place.mkdir()
    (place / "node_modules").symlink_to(NODE / "node_modules")
    (place / "client.mts").write_text(code("typescript"))
    tsx = str(NODE / "node_modules" / ".bin" / "tsx")
    for address in ("unix", "tcp"):
        if address == "tcp":
            access = json.loads(colleague.file.read_text())
            access["address"] = house.environment["OXYDRA_ACCESS__LISTEN"]
            colleague.file.write_text(json.dumps(access))
        said = f"my {address} has a number"
        done = colleague.run(
            *(tsx, str(place / "client.mts"), str(colleague.file)),
            f"remember that {said}",
        )
        assert done.returncode == 0, done.stderr
        check(done.stdout, said)


def check(output: str, saved: str) -> None:
    assert "the agent of alice: offline" in output
    assert "[memory_save]" in output
    assert re.search(r"^memory: saved note-\S+: done$", output, re.MULTILINE), output
    assert re.search(rf"^note note-\S+: .*{saved}", output, re.MULTILINE), output


def test_the_server_alone_lets_people_in_until_a_signal() -> None:
    """Beside it, for other users, one that finds its port taken ends."""
    made = Household()
    try:
        made.environment["OXYDRA_ACCESS__LISTEN"] = f"127.0.0.1:{free_port()}"
        made.environment["OXYDRA_SERVE__LISTEN"] = ""
        (made.workspaces / "alice").mkdir(parents=True, mode=0o700)
        process = made.begin("serve")
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving at 127.0.0.1:")
        colleague = Colleague(made)
        refused = colleague.runner("memory", "list")
        assert "no agent runs for alice" in refused.stderr
        assert "runner --user alice start --detach" in refused.stderr

        (made.path / "others" / "bob").mkdir(parents=True, mode=0o700)
        taken = made.run("--workspace-root", str(made.path / "others"), "serve")
        assert taken.returncode == 1
        assert "cannot listen on 127.0.0.1:" in taken.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert made.left_behind() == []
    finally:
        made.remove()


@pytest.mark.docker
def test_in_the_container_tier_a_colleague_gets_in_just_so() -> None:
    made = Household(containers=True)
    try:
        serving(made)
        colleague = Colleague(made, "--scope", "memory", "--expires", "1h")
        saved = colleague.runner("memory", "save", "Coffee is black", "--json")
        assert saved.returncode == 0, saved.stderr
        found = json.loads(colleague.runner("memory", "search", "coffee", "--json").stdout)
        assert [note["text"] for note in found["notes"]] == ["Coffee is black"]
        refused = colleague.runner("chat", stdin="hi\n")
        assert "needs a token with the scope chat" in refused.stdout + refused.stderr
    finally:
        made.run("stop", "--all")
        made.remove()
