"""A simple model of the policy of egress, and attempts of every kind to compare the two by."""

import random
import re
from dataclasses import dataclass

from wire.egress.policy import Attempt, Policy, Scheme
from wire.egress.rules import PRESETS
from wire.v1.egress_pb2 import EgressGrant, EgressPolicy

SCHEMES: tuple[Scheme, ...] = ("http", "https", "tunnel", "tunnel")
SESSIONS = ("one", "two", "")
HOSTS = (
    *("example.org", "www.example.org", "a.b.example.org", "badexample.org", "example.com"),
    *("pypi.org", "files.pythonhosted.org", "deb.debian.org", "github.com", "api.github.com"),
    *("10.1.2.3", "192.0.2.7"),
)
ADDRESSES = ("10.1.2.3", "192.0.2.7")
PATTERNS = (*HOSTS, "*.example.org", "*.org", "*", "*.github.com")
PATHS = ("", "", "", "/*", "/public/*", "/public", "/*/private", "/public/*/a", "/a*c")
SEGMENTS = ("public", "private", "a", "b", "abc", "ac", "aXc")
TRAPS = (
    *("a;x=1", ";", "a.", "%20", "a%20", "a%3Fb", "a%23", "%5c", "%e2%80%a5", "%ff", "%c0%af"),
    "..",
    ".",
    "%2e%2e",
    "%2E.",
    "%252e%252e",
    "..;x=1",
    "..%2fa",
    "a%5Cb",
    "%00",
    "%zz",
    "",
)


@dataclass(frozen=True)
class Line:
    """A rule, as its parts."""

    methods: tuple[str, ...]
    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return (
            (",".join(self.methods) + " " if self.methods else "")
            + (f"{self.scheme}://" if self.scheme else "")
            + self.host
            + (f":{self.port}" if self.port else "")
            + self.path
        )


@dataclass(frozen=True)
class Given:
    """A grant."""

    lines: tuple[Line, ...]
    text: str
    denied: bool
    session: str


@dataclass(frozen=True)
class Try:
    """An attempt, as its parts. The path is as one server reads it and as another does, which
    unescapes it twice; or it is a trap."""

    scheme: Scheme
    host: str
    port: int
    method: str
    paths: tuple[str, str]
    is_trap: bool
    session: str


def preset_lines(name: str) -> tuple[Line, ...]:
    return tuple(
        Line((), "https" if text.startswith("https://") else "", text.split("/")[-1], 0, "")
        for text in PRESETS[name]
    )


def means_host(line: Line, host: str) -> bool:
    if line.host.startswith("*"):
        return host not in ADDRESSES and host.endswith(line.host[1:])
    return line.host == host


def means_scheme(line: Line, attempt: Try) -> bool:
    encrypted = attempt.scheme in ("https", "tunnel")
    return {"": True, "https": encrypted, "http": not encrypted}[line.scheme]


def means_paths(line: Line, attempt: Try) -> list[bool]:
    pattern = ".*".join(re.escape(part) for part in line.path.split("*"))
    return [not line.path or bool(re.fullmatch(pattern, path)) for path in attempt.paths]


def denies(line: Line, attempt: Try) -> bool:
    if not means_host(line, attempt.host) or not means_scheme(line, attempt):
        return False
    if line.port and line.port != attempt.port:
        return False
    if attempt.scheme == "tunnel":
        return True
    if line.methods and attempt.method not in line.methods:
        return False
    loosely = [
        f"{path.lower().rstrip('/')}{end}" or "/" for path in attempt.paths for end in ("", "/")
    ]
    pattern = ".*".join(re.escape(part) for part in line.path.lower().split("*"))
    meant = not line.path or any(re.fullmatch(pattern, each) for each in loosely)
    return (attempt.is_trap and line.path != "") or meant


def allows(line: Line, attempt: Try) -> bool:
    usual = 80 if attempt.scheme == "http" else 443
    if not means_host(line, attempt.host) or not means_scheme(line, attempt):
        return False
    if attempt.port != (line.port or usual):
        return False
    if not line.methods and not line.path:
        return True
    if attempt.scheme == "tunnel" or (line.path and attempt.is_trap):
        return False
    return (not line.methods or attempt.method in line.methods) and all(means_paths(line, attempt))


def expected(
    allow: list[Line], deny: list[Line], grants: list[Given], ask: bool, attempt: Try
) -> tuple[str, str]:
    """The decision, and what a question asks for."""
    here = [each for each in grants if each.session in ("", attempt.session)]
    forbidden = deny + [line for each in here if each.denied for line in each.lines]
    permitted = allow + [line for each in here if not each.denied for line in each.lines]
    if any(denies(line, attempt) for line in forbidden):
        return "deny", ""
    if any(allows(line, attempt) for line in permitted):
        return "allow", ""
    bare = Try(attempt.scheme, attempt.host, attempt.port, "", ("/", "/"), False, "")
    named = any(allows(Line((), x.scheme, x.host, x.port, ""), bare) for x in allow)
    if not ask or not attempt.session or attempt.host in ADDRESSES or named:
        return "deny", ""
    for name in PRESETS:
        if any(allows(line, bare) for line in preset_lines(name)):
            return "ask", f"preset {name}"
    scheme, usual = ("http", 80) if attempt.scheme == "http" else ("https", 443)
    where = attempt.host if attempt.port == usual else f"{attempt.host}:{attempt.port}"
    return "ask", f"{scheme}://{where}"


@dataclass(frozen=True)
class Made:
    """A policy, as egress gets it and as the model has it."""

    message: EgressPolicy
    allow: list[Line]
    deny: list[Line]
    grants: list[Given]

    @property
    def policy(self) -> Policy:
        return Policy.of(self.message)

    def expected(self, attempt: Try) -> tuple[str, str]:
        """The decision, and what a question asks for."""
        return expected(self.allow, self.deny, self.grants, self.message.ask, attempt)


def any_policy(chance: random.Random, lines: int = 5) -> Made:
    """A policy with fewer than `lines` rules that allow."""
    presets = chance.sample(tuple(PRESETS), chance.choice((0, 0, 1, 2)))
    allow = [any_line(chance) for _ in range(chance.randrange(lines))]
    deny = [any_line(chance) for _ in range(chance.choice((0, 0, 1, 2)))]
    grants = [any_grant(chance) for _ in range(chance.choice((0, 0, 1, 3)))]
    message = EgressPolicy(
        presets=presets,
        allow=map(str, allow),
        deny=map(str, deny),
        ask=chance.random() < 0.6,
        grants=[
            EgressGrant(rule=each.text, denied=each.denied, session_id=each.session)
            for each in grants
        ],
    )
    opened = allow + [line for name in presets for line in preset_lines(name)]
    return Made(message, opened, deny, grants)


def any_line(chance: random.Random) -> Line:
    return Line(
        chance.choice(((), (), (), ("GET",), ("GET", "HEAD"), ("POST",))),
        chance.choice(("", "", "https", "http")),
        chance.choice(PATTERNS),
        chance.choice((0, 0, 0, 80, 443, 8443)),
        chance.choice(PATHS),
    )


def any_grant(chance: random.Random) -> Given:
    denied, session = chance.random() < 0.3, chance.choice(SESSIONS)
    if chance.random() < 0.3:
        name = chance.choice(tuple(PRESETS))
        return Given(preset_lines(name), f"preset {name}", denied, session)
    line = any_line(chance)
    return Given((line,), str(line), denied, session)


def any_try(chance: random.Random) -> tuple[Try, Attempt]:
    """An attempt, and how a client writes it."""
    scheme: Scheme = chance.choice(SCHEMES)
    host = chance.choice(HOSTS)
    port = chance.choice((80, 443, 443, 8443, 22))
    method = "" if scheme == "tunnel" else chance.choice(("GET", "HEAD", "POST", "DELETE"))
    plain = "/" + "/".join(chance.choices(SEGMENTS, k=chance.randrange(0, 4)))
    once = escaped(plain, chance) if chance.random() < 0.2 else plain
    written = escaped(once, chance)
    is_trap = scheme != "tunnel" and chance.random() < 0.25
    if is_trap:
        written += f"/{chance.choice(TRAPS)}/a"
    attempt = Try(scheme, host, port, method, (once, plain), is_trap, chance.choice(SESSIONS))
    if host not in ADDRESSES:
        host = chance.choice((host, host.upper(), host.title(), f"{host}."))
    path = "" if scheme == "tunnel" else written + chance.choice(("", "", "?a=/../b"))
    return attempt, Attempt(scheme, host, port, chance.choice((method, method.lower())), path)


def escaped(path: str, chance: random.Random) -> str:
    """A path with some characters escaped, and all signs of escapes."""
    return "".join(
        f"%{ord(each):02{chance.choice('xX')}}"
        if each == "%" or (each != "/" and chance.random() < 0.2)
        else each
        for each in path
    )
