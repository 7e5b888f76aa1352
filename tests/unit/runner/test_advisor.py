"""What an agent proposes to open is checked against the record and the rules, and asked."""

import asyncio
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wire.errors import Code
from wire.limits import ALWAYS
from wire.v1.egress_pb2 import EgressGrant, EgressPolicy
from wire.v1.gateway_pb2 import AskReply, AskRequest, EgressProposal

from runner.audit.log import AuditLog, LogLocation
from runner.config.loading import load_settings
from runner.errors import HostError
from runner.host import advisor
from runner.host.advisor import advise, keep_rules

TURN: dict[str, Any] = {"session_id": "s", "turn_id": "t"}


@dataclass
class House:
    """A host's record, rules and person."""

    place: LogLocation
    log: AuditLog
    policy: EgressPolicy = field(default_factory=EgressPolicy)
    reply: AskReply = field(default_factory=lambda: AskReply(approved=True, by="person"))
    asked: list[AskRequest] = field(default_factory=list)
    granted: list[EgressGrant] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def refused(self, host: str, scheme: str = "tunnel", port: int = 443, **fields: Any) -> None:
        request = {"role": "shell", "session": "s", "turn": "t", "method": "CONNECT"}
        request |= {"decision": "refused", "reason": "no rule allows it", "host": host}
        self.log.note("egress", **request | {"scheme": scheme, "port": port} | fields)

    async def ask(self, request: AskRequest) -> AskReply:
        self.asked.append(request)
        return self.reply

    async def grant(self, role: str, *grants: EgressGrant) -> bool:
        assert role == "shell"
        self.granted += grants
        return True

    async def propose(self, *hosts: str) -> str:
        launcher = SimpleNamespace(configuration=lambda **_: SimpleNamespace(shell=self.policy))
        egress = SimpleNamespace(agents=SimpleNamespace(launcher=launcher), grant=self.grant)
        guests = SimpleNamespace(egress=egress, ask=self.ask)
        proposal = EgressProposal(hosts=hosts, reason="to\u202e install", **TURN)
        keep = self.kept.extend
        return (await advise(self.place, lambda: cast(Any, guests), keep, proposal)).told

    @property
    def card(self) -> dict[str, str]:
        (asked,) = self.asked
        return dict(json.loads(asked.arguments_json))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    place = LogLocation(tmp_path, "alice")
    log = AuditLog(place, 365)
    log.open()
    yield House(place, log)
    log.close()


async def test_a_person_reads_what_a_preset_opens_what_is_new_and_what_was_refused(
    house: House,
) -> None:
    house.policy.allow.append("https://pypi.org")
    for _ in range(3):
        house.refused("files.pythonhosted.org")
    told = await house.propose("files.pythonhosted.org")
    assert told == "opened for this turn: preset pypi; run the command again"
    (asked,) = house.asked
    assert asked.question == "allow commands preset pypi for this turn?"
    opens, refused, new = house.card["preset pypi"].split("\n")
    assert opens == (
        "the package index and its file host: https://pypi.org, https://files.pythonhosted.org, "
        "all methods"
    )
    assert refused.startswith("refused 3× since ")
    assert new == "new: files.pythonhosted.org"
    assert house.card["the agent says"] == "to\\u202e install"
    assert house.granted == [EgressGrant(rule="preset pypi", **TURN)]


async def test_what_a_preset_opens_besides_is_named(house: House) -> None:
    house.refused("pypi.org")
    await house.propose("pypi.org")
    assert house.card["preset pypi"].endswith(
        "\nnew: pypi.org, files.pythonhosted.org (not refused yet)"
    )


@pytest.mark.parametrize(
    ("scheme", "port", "method", "rule"),
    [
        ("tunnel", 443, "CONNECT", "https://example.org"),
        ("tunnel", 8443, "CONNECT", "https://example.org:8443"),
        ("https", 443, "GET", "GET,HEAD https://example.org"),
        ("http", 80, "POST", "GET,HEAD,POST http://example.org"),
        ("http", 8080, "HEAD", "GET,HEAD http://example.org:8080"),
    ],
)
async def test_as_little_is_opened_as_lets_out_what_was_refused(
    house: House, scheme: str, port: int, method: str, rule: str
) -> None:
    house.refused("example.org", scheme, port, method=method)
    await house.propose(f"Example.org:{port}")
    assert house.granted == [EgressGrant(rule=rule, **TURN)]
    assert ("all methods" in house.card[rule]) is (scheme == "tunnel")


@pytest.mark.parametrize(
    ("answer", "scope", "kept"),
    [
        ("", TURN, []),
        ("what this opens", {"session_id": "s"}, []),
        (ALWAYS, {}, ["https://a.example", "https://b.example"]),
    ],
)
async def test_it_is_opened_for_as_long_as_the_person_says(
    house: House, answer: str, scope: dict[str, Any], kept: list[str]
) -> None:
    house.refused("a.example")
    house.refused("b.example")
    house.reply.granted = answer
    await house.propose("a.example", "b.example")
    assert [*house.asked[0].offers] == ["what this opens", ALWAYS]
    rules = ("https://a.example", "https://b.example")
    assert house.granted == [EgressGrant(rule=rule, **scope) for rule in rules]
    assert house.kept == kept


async def test_a_no_opens_nothing(house: House) -> None:
    house.refused("a.example")
    house.reply = AskReply(approved=False, by="person", granted=ALWAYS)
    with pytest.raises(HostError, match="nothing is opened: a person said no") as refused:
        await house.propose("a.example")
    assert refused.value.code is Code.PERMISSION_DENIED
    assert (house.granted, house.kept) == ([], [])


async def test_what_cannot_be_kept_is_not_opened(house: House) -> None:
    house.refused("a.example")
    house.reply.granted = ALWAYS
    house.kept = cast(Any, SimpleNamespace(extend=_fails))
    with pytest.raises(HostError, match="cannot write"):
        await house.propose("a.example")
    assert house.granted == []


def _fails(_: object) -> None:
    raise HostError(Code.FAILED_PRECONDITION, "cannot write runner.toml")


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "other.example"},
        {"session": "another"},
        {"role": "agent"},
        {"decision": "allowed"},
        {"rule": "evil.example"},
        {"scheme": "?"},
    ],
)
@pytest.mark.parametrize("proposed", ["evil.example", "*.example", "*", "", "preset pypi"])
async def test_only_what_commands_of_the_session_were_refused_for_want_of_a_rule_is_asked(
    house: House, fields: dict[str, Any], proposed: str
) -> None:
    house.refused("good.example")
    house.refused(**{"host": "evil.example", **fields})
    with pytest.raises(HostError, match="no command of this session was refused"):
        await house.propose("good.example", proposed)
    assert house.asked == []


@pytest.mark.parametrize("host", ["*.example", "*", "10.0.0.1", "::1", "a..b", "x" * 64, "a/b"])
async def test_patterns_addresses_and_what_is_no_name_are_refused(house: House, host: str) -> None:
    house.refused(host)
    with pytest.raises(HostError, match="no command of this session was refused"):
        await house.propose(host)
    assert house.asked == []


async def test_what_a_rule_denies_or_allows_is_not_asked(house: House) -> None:
    house.refused("a.example")
    house.policy.deny.append("*.example")
    with pytest.raises(HostError, match="cannot be opened: the rule"):
        await house.propose("a.example")
    house.policy = EgressPolicy(grants=[EgressGrant(rule="a.example", session_id="s")])
    with pytest.raises(HostError, match="is open already"):
        await house.propose("a.example")
    assert house.asked == []


def test_always_is_written_for_this_user_alone_and_keeps_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text('# mine\n[egress.shell]\nallow = ["files.example.org"]\n')
    file.chmod(0o600)
    load = partial(load_settings, file, environ={})
    keep_rules(load().config, "alice", {}, ["preset pypi", "https://a.example"])
    keep_rules(load().config, "alice", {}, ["https://b.example"])
    assert file.read_text().startswith("# mine\n")
    written = tomllib.loads(file.read_text())
    assert written["egress"]["shell"]["allow"] == ["files.example.org"]
    own = load().config.for_user("alice").egress.shell.allow
    assert own == (
        "files.example.org",
        *("https://pypi.org", "https://files.pythonhosted.org", "https://a.example"),
        "https://b.example",
    )
    assert load().config.for_user("bob").egress.shell.allow == ("files.example.org",)


async def test_the_record_is_looked_through_within_bounds(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisor, "LOOKED_AT_MAX", 2)
    for host in ("a.example", "b.example", "c.example"):
        house.refused(host)
    await house.propose("b.example")
    with pytest.raises(HostError, match=r"a\.example"):
        await asyncio.wait_for(house.propose("a.example"), 30)
