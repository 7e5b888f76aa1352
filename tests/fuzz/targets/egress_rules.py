"""Rules of egress, and hosts, addresses and paths as attackers write them.

What is no rule and no host is refused in a sentence. What is one says the same when read again.
A rule with a path means no request that some server takes for one outside of that path.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from wire.egress import hosts
from wire.egress.addresses import networks, refusal
from wire.egress.policy import Attempt, Policy
from wire.egress.rules import Readings, Rule
from wire.v1.egress_pb2 import EgressPolicy

from tests.fuzz.material import Choices, Target, chosen, stateless

_ALL: Final = networks(("0.0.0.0/0", "::/0"))
_BELOW: Final = Rule.parse("example.org/public/*")
_ROUNDS: Final = 6
_WORDS: Final = (
    *("", "/", ".", "..", "%2e", "%2E%2e", "%25", "%2f", "%5c", "\\", ";", "*", "?", "#", "public"),
    *(
        "example.org",
        "*.example.org",
        "0x7f",
        "127",
        "1",
        "[::ffff:",
        "[::1]",
        ":",
        "@",
        "https://",
    ),
    *("GET ", "GET,POST ", "ß", "。", "xn--", "-", "_", "\0", "\n", " ", "169.254.169.254", "%zz"),
)


def _one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.below(4)
    text = _written(choices)
    if kind == 0:
        _rule(text)
    elif kind == 1:
        _host(text)
    elif kind == 2:
        _path(f"/public/{text}")
        _path(text)
    else:
        _decided(text, choices)


def _written(choices: Choices) -> str:
    """Words and text, joined."""
    return "".join(
        choices.text()[:300] if choices.below(8) == 7 else choices.one_of(_WORDS)
        for _ in range(1 + choices.below(8))
    )


def _rule(text: str) -> None:
    try:
        rule = Rule.parse(text)
    except ValueError as error:
        _is_sentence(error)
        return
    assert Rule.parse(str(rule)) == rule


def _host(text: str) -> None:
    try:
        host = hosts.canonical(text)
    except ValueError as error:
        _is_sentence(error)
    else:
        assert hosts.canonical(host) == host
        assert host == host.lower()
        assert host.isascii()
        assert not set(host) & set("/@?#%\\ \t\r\n\0*[]")
    if not refusal(text):
        assert not refusal(text, _ALL), "what is public is refused with private networks"
        assert hosts.is_address(text)


def _path(path: str) -> None:
    if not _BELOW.means("GET", Readings.of(path)):
        return
    seen = path.partition("?")[0].partition("#")[0]
    for _ in range(_ROUNDS):
        assert ".." not in [part.partition(";")[0] for part in seen.replace("\\", "/").split("/")]
        seen = unquote(seen, errors="surrogateescape")
    assert seen.startswith("/public/")


def _decided(text: str, choices: Choices) -> None:
    opened = Policy.of(
        EgressPolicy(allow=["*", "GET example.org/public/*"], deny=["*.evil.example"])
    )
    scheme = choices.one_of(("http", "https", "tunnel"))
    port = choices.one_of((80, 443, 22))
    attempt = Attempt(scheme, text, port, "GET", _written(choices))  # type: ignore[arg-type]
    verdict = opened.decide(attempt, "session")
    assert verdict.decision in ("allow", "deny")
    assert verdict.rule or verdict.reason
    if verdict.decision == "allow":
        host = hosts.canonical(text)
        assert not hosts.is_address(host)
        assert not host.endswith(".evil.example")


def _is_sentence(error: ValueError) -> None:
    told = str(error)
    assert told
    assert told.isprintable()


def _seeds() -> Mapping[str, bytes]:
    words = {f"word-{number}": bytes([0, 0, 0, number]) for number in range(len(_WORDS))}
    return words | {
        "rule": chosen(0, 0, 7, "GET,HEAD https://example.org:8443/a/*"),
        "host": chosen(1, 0, 7, "Example.ORG."),
        "octal": chosen(1, 0, 7, "0177.0.0.1"),
        "mapped": chosen(1, 0, 7, "[::ffff:10.0.0.1]"),
        "translated": chosen(1, 0, 7, "64:ff9b::a9fe:a9fe"),
        "path": chosen(2, 0, 7, "a/%2e%2e/b"),
        "twice": chosen(2, 0, 7, "%252e%252e%252fb"),
        "decided": chosen(3, 0, 7, "www.evil.example", 2, 1, 0, 1),
        "empty": b"",
    }


TARGET = Target("egress_rules", 60, stateless(_one_input), _seeds, longest=512)
