"""What one role may reach: the decision about each attempt.

What is denied counts more than what is allowed, whoever said it. A rule that has to see a method or
a path allows no tunnel, because nobody can read them there; a deny that has to see them denies one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self

from wire.egress import hosts
from wire.egress.rules import DEFAULT_PORTS, PRESETS, Readings, Rule
from wire.v1 import egress_pb2

Scheme = Literal["http", "https", "tunnel"]

_PRESET: Final = "preset "
_PRESET_RULES: Final = {name: tuple(map(Rule.parse, texts)) for name, texts in PRESETS.items()}
UNREADABLE: Final = (
    "methods and paths cannot be read in a tunnel; egress.inspect makes those of a host readable"
)


@dataclass(frozen=True)
class Attempt:
    """Somebody wants to reach a host. In a tunnel nobody can read method and path. `altered` is
    what makes some servers take a request for one with another method or path; empty if nothing
    does. No rule that has to see them allows such a request, and each denies it."""

    scheme: Scheme
    host: str
    port: int
    method: str = ""
    path: str = ""
    altered: str = ""


@dataclass(frozen=True)
class Verdict:
    """What becomes of an attempt: by which `rule`, as the operator writes it, if by one; why not,
    or on whose word, as a part of a sentence; and the rule that a yes would add:
    `scheme://host[:port]` or `preset NAME`."""

    decision: Literal["allow", "ask", "deny"]
    rule: str
    reason: str
    asks_for: str = ""


@dataclass(frozen=True)
class _Grant:
    text: str
    rules: tuple[Rule, ...]
    denied: bool
    session_id: str
    turn_id: str

    def counts_in(self, session_id: str, turn_id: str) -> bool:
        return self.session_id in ("", session_id) and self.turn_id in ("", turn_id)

    @property
    def reason(self) -> str:
        within = "turn" if self.turn_id else "session"
        return f"allowed for this {within}" if self.session_id else "allowed until the host ends"


def rules_of(text: str) -> tuple[Rule, ...]:
    """The rules that a rule or `preset NAME` stands for. Raises `ValueError` that says what is
    wrong."""
    if not text.startswith(_PRESET):
        return (Rule.parse(text),)
    name = text.removeprefix(_PRESET)
    if name not in PRESETS:
        raise ValueError(f"there is no such preset; presets are {', '.join(PRESETS)}")
    return _PRESET_RULES[name]


def attempt_by(rule: Rule) -> Attempt:
    """An attempt that the rule is about."""
    scheme: Scheme = "http" if rule.scheme == "http" else "https"
    return Attempt(scheme, rule.host, rule.port or DEFAULT_PORTS[scheme], "GET", "/")


def spelled(text: str) -> str:
    """A rule or `preset NAME` in its one spelling. Raises `ValueError` that says what is wrong."""
    (rule, *_) = rules_of(text)
    return text if text.startswith(_PRESET) else str(rule)


class Policy:
    """What one role may reach. See `of`."""

    def __init__(self, allow: Iterable[str], deny: Iterable[str], *, ask: bool) -> None:
        self._allow = [(text, rule) for text in allow for rule in rules_of(text)]
        self._deny = [(text, rule) for text in deny for rule in rules_of(text)]
        self._ask = ask
        self._grants: set[_Grant] = set()

    @classmethod
    def of(cls, policy: egress_pb2.EgressPolicy) -> Self:
        """Raises `ValueError` that names the rule and says what is wrong with it."""
        for text in (*policy.allow, *policy.deny):
            _parsed(text)
        presets = [_PRESET + name for name in policy.presets]
        made = cls((*policy.allow, *presets), policy.deny, ask=policy.ask)
        for grant in policy.grants:
            made.grant(grant)
        return made

    def grant(self, grant: egress_pb2.EgressGrant) -> None:
        """Allow or deny something besides what the settings say. Raises `ValueError`."""
        within = (grant.denied, grant.session_id, grant.turn_id)
        self._grants.add(_Grant(grant.rule, rules_of(grant.rule), *within))

    def opens_every_host(self, port: int) -> bool:
        """Whether a tunnel to any host by name is allowed, so that nothing is won by hiding it."""
        whole = (rule for _, rule in self._allow if rule.host == "*" and not rule.reads)
        every = any(rule.opens("tunnel", port) for rule in whole)
        return every and not self._deny and not any(each.denied for each in self._grants)

    def decide(self, attempt: Attempt, session_id: str, turn_id: str = "") -> Verdict:
        """The verdict on an attempt in a turn of a session; empty ids if it belongs to none."""
        try:
            host = hosts.canonical(attempt.host)
        except ValueError as error:
            return Verdict("deny", "", f"{attempt.host[:80]!r} is refused: {error}")
        path = Readings.of(attempt.path or "/")
        grants = [each for each in self._grants if each.counts_in(session_id, turn_id)]
        return (
            self._denied(attempt, host, path, [each for each in grants if each.denied])
            or self._allowed(attempt, host, path, [each for each in grants if not each.denied])
            or self._unnamed(attempt, host, session_id)
        )

    def _denied(
        self, attempt: Attempt, host: str, path: Readings, grants: list[_Grant]
    ) -> Verdict | None:
        granted = ((each.text, rule) for each in grants for rule in each.rules)
        for text, rule in (*self._deny, *granted):
            if not (rule.names(host) and rule.shuts(attempt.scheme, attempt.port)):
                continue
            if attempt.scheme != "tunnel":
                if attempt.altered and rule.reads:
                    reason = f"the rule {text} denies some of it, and {_altered(attempt)}"
                    return Verdict("deny", text, reason)
                if rule.may_mean(attempt.method, path):
                    return Verdict("deny", text, f"the rule {text} denies it")
            elif rule.reads:
                return Verdict("deny", text, f"the rule {text} denies some of it, and {UNREADABLE}")
            else:
                return Verdict("deny", text, f"the rule {text} denies it")
        return None

    def _allowed(
        self, attempt: Attempt, host: str, path: Readings, grants: list[_Grant]
    ) -> Verdict | None:
        granted = ((each.text, rule, each.reason) for each in grants for rule in each.rules)
        for text, rule, reason in (*((*each, "") for each in self._allow), *granted):
            if not (rule.names(host) and rule.opens(attempt.scheme, attempt.port)):
                continue
            readable = attempt.scheme != "tunnel" and not attempt.altered
            if not rule.reads or (readable and rule.means(attempt.method, path)):
                return Verdict("allow", text, reason)
        return None

    def _unnamed(self, attempt: Attempt, host: str, session_id: str) -> Verdict:
        """The verdict on what no rule denies or allows."""
        where = hosts.shown(
            host, 0 if attempt.port == DEFAULT_PORTS[attempt.scheme] else attempt.port
        )
        partly = [
            text
            for text, rule in self._allow
            if rule.names(host) and rule.opens(attempt.scheme, attempt.port)
        ]
        if hosts.is_address(host):
            reason = (
                f"no rule allows {where}, and addresses are allowed only by rules that name them"
            )
        elif partly and attempt.scheme == "tunnel":
            reason = f"the rule {partly[0]} allows only some of it, and {UNREADABLE}"
        elif partly and attempt.altered:
            reason = f"the rule {partly[0]} allows only some of it, and {_altered(attempt)}"
        elif partly:
            reason = f"the rule {partly[0]} allows other methods or paths of {where}"
        elif self._ask and session_id:
            scheme = "http" if attempt.scheme == "http" else "https"
            asks_for = preset_with(attempt, host) or f"{scheme}://{where}"
            return Verdict("ask", "", f"no rule names {where}", asks_for)
        elif self._ask:
            reason = f"no rule allows {where}, and outside of a session nobody can be asked"
        else:
            reason = f"no rule allows {where}"
        return Verdict("deny", "", reason)


def _altered(attempt: Attempt) -> str:
    return f"{attempt.altered} makes some servers take it for another request"


def _parsed(text: str) -> Rule:
    try:
        return Rule.parse(text)
    except ValueError as error:
        raise ValueError(f"{text[:80]!r} is not a rule: {error}") from None


def preset_with(attempt: Attempt, host: str) -> str:
    """The preset that allows an attempt; empty if there is none."""
    for name in PRESETS:
        for rule in rules_of(_PRESET + name):
            if rule.names(host) and rule.opens(attempt.scheme, attempt.port):
                return _PRESET + name
    return ""
