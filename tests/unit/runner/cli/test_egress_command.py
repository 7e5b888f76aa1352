"""`runner egress`: what it shows, tries and changes, with and without a host."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.v1 import control_pb2, egress_pb2

from runner.audit.log import AuditLog, LogLocation
from runner.cli.operation import egress, egress_policy
from tests.unit.runner.cli.conftest import RunCommand

SETTINGS = """
[egress.shell]
presets = ["pypi"]
allow = ["*.example.org", "GET https://read.example.com/public/*", "10.1.2.3:8080", "10.9.9.9"]
deny = ["secret.example.org"]
ask = true

[egress]
inspect = ["read.example.com"]
private_networks = ["10.1.0.0/16"]

[egress.limits]
day_mb = 5000
day_requests = 0
"""


class Host:
    """Answers as the host of a user whose egress guest runs."""

    def __init__(self) -> None:
        self.changed = True
        self.grants: list[tuple[str, egress_pb2.EgressGrant, bool]] = []
        self.reply = control_pb2.GetEgressReply(
            guest=control_pb2.GuestStatus(role="egress", state="ready"),
            shell_guest=control_pb2.GuestStatus(
                role="shell-egress", state="starting", reason="soon"
            ),
            configuration=egress_pb2.EgressConfiguration(
                upstreams=[
                    egress_pb2.EgressUpstream(name="openai", url="https://api.openai.com/v1"),
                    egress_pb2.EgressUpstream(name="memory", url="https://db", missing="no token"),
                ],
                shell=egress_pb2.EgressPolicy(
                    presets=["npm"],
                    grants=[
                        egress_pb2.EgressGrant(rule="example.org", session_id="one"),
                        egress_pb2.EgressGrant(rule="preset npm", denied=True),
                    ],
                ),
                limits=egress_pb2.EgressLimits(connections=256),
            ),
            counters=egress_pb2.EgressCountersReply(
                open=3,
                counts=[
                    egress_pb2.EgressCount(
                        role="shell", host="ex\x1bample", requests=1200, refused=2, sent=999,
                        received=2_500_000,
                    )
                ],
            ),
        )  # fmt: skip

    async def __aenter__(self) -> "Host":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def get_egress(self) -> control_pb2.GetEgressReply:
        return self.reply

    async def reload_egress(self) -> list[str]:
        return ["egress runs from now on"]

    async def grant_egress(
        self, role: str, grant: egress_pb2.EgressGrant, *, withdraw: bool
    ) -> bool:
        self.grants.append((role, grant, withdraw))
        return self.changed


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host runs, unless a test has one."""

    async def connect(*_: object) -> None:
        return None

    monkeypatch.setattr(egress_policy, "connect_if_running", connect)


@pytest.fixture
def settings(run_command: RunCommand, tmp_path: Path) -> None:
    """Where no host runs."""
    (tmp_path / "runner.toml").write_text(SETTINGS)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()

    async def connect(*_: object) -> Host:
        return made

    def ask(_: object, question: Any) -> Any:
        return asyncio.run(question(made))

    monkeypatch.setattr(egress_policy, "connect_if_running", connect)
    monkeypatch.setattr(egress, "ask_host", ask)
    return made


@pytest.mark.usefixtures("settings")
def test_without_a_host_the_settings_are_shown(run_command: RunCommand) -> None:
    done = run_command("egress", "show")
    assert done.code == 0
    assert done.out.startswith("no host runs; the settings say:\n")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "shell deny secret.example.org settings" in lines
    assert "shell allow preset pypi settings" in lines
    assert "shell ask everything else settings" in lines
    assert "agent deny everything else settings" in lines
    assert "data a day 5.0 GB 0 B 0 B" in lines
    assert "requests a day no limit 0 0" in lines
    done = run_command("egress", "show", "--presets")
    assert "https://files.pythonhosted.org (preset pypi)" in done.out
    assert "guests of their own" not in done.out


@pytest.mark.parametrize("own", ["isolated = true", ""])
def test_servers_with_rules_of_their_own_are_named(
    run_command: RunCommand, tmp_path: Path, own: str
) -> None:
    (tmp_path / "runner.toml").write_text(f"[mcp.servers.a]\ncommand = 'a'\n{own}\n")
    told = "MCP servers in guests of their own have rules of their own: runner tools list"
    assert (told in run_command("egress", "show").out) == bool(own)


def test_the_keys_of_commands_are_named_and_not_shown(
    run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "runner.toml").write_text(
        '[egress.credentials.api]\nenv = "TOKEN"\nhosts = ["api.example.org"]\n'
        'methods = ["GET"]\nplace = "query:key"\nvariable = "T"\n'
    )
    lines = [" ".join(line.split()) for line in run_command("egress", "show").out.splitlines()]
    assert "api api.example.org GET query:key" in lines
    (shown,) = json.loads(run_command("egress", "show", "--json").out)["credentials"]
    assert shown == {
        "name": "api", "hosts": ["api.example.org"], "methods": ["GET"], "place": "query:key"
    }  # fmt: skip


def test_a_rule_that_would_have_to_see_into_tunnels_is_marked(
    run_command: RunCommand, tmp_path: Path
) -> None:
    rule = '"GET https://raw.example.org/a/*"'
    for settings, marked in (
        (f"[egress.shell]\nallow = [{rule}]", True),
        (f'[egress]\ninspect = ["raw.example.org"]\nshell.allow = [{rule}]', False),
        (f'[egress]\ninspect = ["raw.example.org"]\nagent.allow = [{rule}]', True),
        ('[egress.shell]\nallow = ["GET http://raw.example.org/a/*"]', False),
        ('[egress.shell]\nallow = ["https://raw.example.org"]', False),
    ):
        (tmp_path / "runner.toml").write_text(settings)
        assert ("never allows anything" in run_command("egress", "show").out) is marked, settings


@pytest.mark.usefixtures("host")
def test_with_a_host_all_is_shown_and_nothing_that_a_terminal_would_obey(
    run_command: RunCommand,
) -> None:
    done = run_command("egress", "show")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[:3] == ["egress ready", "shell-egress starting: soon", "3 open now"]
    assert "agent allow openai at https://api.openai.com/v1 settings" in lines
    assert "agent missing memory at https://db settings no token" in lines
    assert "shell allow example.org session one" in lines
    assert "shell deny preset npm until the host ends" in lines
    assert "shell ex␛ample 1,200 2 999 B 2.5 MB" in lines
    shown = json.loads(run_command("egress", "show", "--json").out)
    assert shown["guest"]["state"] == "ready"
    assert shown["shell_guest"]["state"] == "starting"
    assert shown["open"] == 3
    assert shown["limits"]["connections"] == 256
    assert shown["hosts"][0]["received"] == 2_500_000
    assert {
        "role": "shell",
        "decision": "allow",
        "what": "preset npm",
        "source": "settings",
        "remark": "",
    } in (shown["rules"])


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("https://pypi.org/simple/",), "allowed: the rule preset pypi\nit is a tunnel"),
        (("www.example.org",), "allowed: the rule *.example.org"),
        (("https://read.example.com/public/a",), "allowed: the rule GET https://read"),
        (("http://10.1.2.3:8080/",), "allowed: the rule 10.1.2.3:8080"),
    ],
)
def test_what_may_go_out(run_command: RunCommand, words: tuple[str, ...], said: str) -> None:
    done = run_command("egress", "test", *words)
    assert done.out.startswith(said)
    assert done.code == 0


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("secret.example.org",), "denied: the rule secret.example.org denies it"),
        (("https://read.example.com/private",), "denied: the rule GET https://read.example.com"),
        (("https://read.example.com/public/%2e%2e/x",), "denied: the rule GET https://read."),
        (("https://read.example.com/public/a", "--method", "post"), "denied: the rule GET"),
        (("http://0x7f.1/",), "denied: '0x7f.1' is refused: it is another spelling"),
        (("http://[::ffff:10.1.2.3]:8080/",), "denied: '::ffff:10.1.2.3' is refused"),
        (("http://169.254.169.254/",), "denied: no rule allows 169.254.169.254, and addresses"),
        (("http://10.9.9.9/",), "denied: 10.9.9.9 is refused: it is private"),
        (
            ("https://other.example/",),
            "a person is asked: allow https://other.example for this session?",
        ),
        (("https://registry.npmjs.org/",), "a person is asked: allow preset npm for this session?"),
        (("pypi.org", "--role", "agent"), "denied: no rule allows pypi.org"),
    ],
)
def test_what_may_not(run_command: RunCommand, words: tuple[str, ...], said: str) -> None:
    done = run_command("egress", "test", *words)
    assert done.out.startswith(said)
    assert done.code == 1


@pytest.mark.usefixtures("settings")
def test_how_to_open_it_is_said_where_a_rule_would(run_command: RunCommand) -> None:
    done = run_command("egress", "test", "https://other.example:8443/")
    assert "fix: runner egress allow https://other.example:8443" in done.out
    done = run_command("egress", "test", "--role", "agent", "other.example")
    assert "fix: runner egress allow --role agent other.example" in done.out
    for url in ("secret.example.org", "http://0x7f.1/", "http://10.9.9.8/"):
        assert "fix:" not in run_command("egress", "test", url).out
    shown = json.loads(run_command("egress", "test", "--json", "other.example").out)
    assert shown == {
        "url": "other.example",
        "role": "shell",
        "readable": False,
        "decision": "ask",
        "rule": "",
        "reason": "no rule names other.example",
        "asks_for": "https://other.example",
    }


@pytest.mark.parametrize("url", ["ftp://example.org", "https://", "a@b", "https://x:99999/", ""])
def test_what_is_no_url(run_command: RunCommand, url: str) -> None:
    done = run_command("egress", "test", url)
    assert done.code == 1
    assert "is not a URL" in done.err
    assert "runner egress test https://example.org/" in done.err


def test_with_a_host_its_grants_count(host: Host, run_command: RunCommand) -> None:
    assert run_command("egress", "test", "example.org", "--session", "one").code == 0
    assert run_command("egress", "test", "example.org", "--session", "two").code == 1
    assert run_command("egress", "test", "registry.npmjs.org").code == 1


@pytest.mark.usefixtures("settings")
def test_a_grant_says_how_long_it_holds_and_what_would_keep_it(
    host: Host, run_command: RunCommand
) -> None:
    done = run_command("egress", "allow", "GET", "https://New.example/a/*")
    assert done.code == 0
    assert (
        "GET https://new.example/a/* is allowed to commands in all sessions until the" in done.out
    )
    assert '  [egress.shell]\n  allow = ["*.example.org", ' in done.out
    assert done.out.rstrip().endswith('"GET https://new.example/a/*"]')
    done = run_command("--user", "alice", "egress", "allow", "preset", "npm", "--role", "agent")
    assert "preset npm is allowed to the agent's tools" in done.out
    assert '  [users.alice.egress.agent]\n  presets = ["npm"]' in done.out
    done = run_command("egress", "deny", "www.example.org", "--session", "one")
    assert "www.example.org is denied to commands in session one until the host ends" in done.out
    assert '  deny = ["secret.example.org", "www.example.org"]' in done.out
    assert host.grants == [
        ("shell", egress_pb2.EgressGrant(rule="GET https://new.example/a/*"), False),
        ("agent", egress_pb2.EgressGrant(rule="preset npm"), False),
        (
            "shell",
            egress_pb2.EgressGrant(rule="www.example.org", denied=True, session_id="one"),
            False,
        ),
    ]


def test_a_grant_is_taken_back(host: Host, run_command: RunCommand) -> None:
    done = run_command("egress", "allow", "example.org", "--withdraw")
    assert "example.org is no longer allowed to commands in all sessions by a grant" in done.out
    host.changed = False
    done = run_command("egress", "deny", "example.org", "--withdraw")
    assert "example.org was not denied to commands" in done.out
    assert [withdraw for *_, withdraw in host.grants] == [True, True]


@pytest.mark.parametrize("text", ["ftp://example.org", "0x7f.1", "preset all", "a b"])
def test_what_is_no_rule(host: Host, run_command: RunCommand, text: str) -> None:
    done = run_command("egress", "allow", text)
    assert done.code == 1
    assert "is not a rule: " in done.err
    assert "presets are pypi" in done.err
    assert host.grants == []


@pytest.mark.usefixtures("host")
def test_the_settings_are_taken_up(run_command: RunCommand) -> None:
    done = run_command("egress", "reload")
    assert done.out.startswith("egress runs from now on\negress settings reloaded")


@pytest.fixture
def record(tmp_path: Path) -> Iterator[None]:
    """What the host has written of three requests."""
    made = AuditLog(LogLocation(tmp_path / "ws", "default"), 365)
    made.open()
    said = {"role": "shell", "session": "one", "scheme": "https", "port": 443}
    allowed = {"decision": "allowed", "method": "GET", **said}
    first = made.note("egress", **allowed, host="pypi.org", path="/simple/", rule="preset pypi")
    made.note("egress-end", begin=first, outcome="done", status=200, sent=1500, received=3_000_000)
    made.note("egress", decision="refused", **said, host="ev\x1bil.example", reason="no rule")
    agent = allowed | {"role": "agent", "upstream": "openai"}
    made.note("egress", **agent, host="api.openai.com", path="/v1/responses")
    yield
    made.close()


@pytest.mark.usefixtures("record")
def test_the_record_is_shown(run_command: RunCommand) -> None:
    done = run_command("egress", "log")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0] == "at role outcome method where status sent received why"
    assert lines[1].endswith(
        "shell done GET https://pypi.org/simple/ 200 1.5 kB 3.0 MB preset pypi"
    )
    assert "shell refused https://ev␛il.example 0 B 0 B no rule" in lines[2]
    assert "agent running GET openai: https://api.openai.com/v1/responses" in lines[3]
    assert [json.loads(line)["host"] for line in _lines(run_command, "--refused")] == [
        "ev\x1bil.example"
    ]
    assert [json.loads(line)["host"] for line in _lines(run_command, "--role", "agent")] == [
        "api.openai.com"
    ]
    assert [json.loads(line)["host"] for line in _lines(run_command, "-n", "1")] == [
        "api.openai.com"
    ]
    assert len(_lines(run_command, "--host", "example")) == 1
    assert len(_lines(run_command, "--session", "one")) == 3
    assert run_command("egress", "log", "--session", "two").out == "no such request is recorded\n"


def _lines(run_command: RunCommand, *words: str) -> list[str]:
    return run_command("egress", "log", "--json", *words).out.splitlines()


@pytest.mark.usefixtures("record")
def test_what_was_taken_today_is_shown(run_command: RunCommand) -> None:
    lines = [" ".join(line.split()) for line in run_command("egress", "show").out.splitlines()]
    assert "requests a day 100,000 1 1" in lines
    assert "data a day 50.0 GB 0 B 3.0 MB" in lines
