"""Rules of egress: `[METHODS ][scheme://]host[:port][/path]`.

A host is a name, `*.` and a name for all names below it (not for that name itself), `*` for every
name, or an IP address, with brackets if it is an IPv6 address; addresses are meant only by rules
that name them. In a path, `*` stands for any text, slashes included. A path without `*` is exactly
that path. The query of a URL is not compared. One word, a preset, stands for several rules.
"""

import re
import secrets
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self
from urllib.parse import unquote

from wire.egress import hosts

_RULE: Final = re.compile(
    r"(?:(?P<methods>[A-Z]+(?:,[A-Z]+)*) +)?"
    r"(?:(?P<scheme>https?)://)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:@?#\[\]\\%]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!-~]*)?"
)
_CHARS_MAX: Final = 2_000
_PORT_MAX: Final = 65_535
_SLASH: Final = re.compile("%2f", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ROUNDS: Final = 4
_UNCLEAR: Final = frozenset("\\;?#")
ALTERING: Final = frozenset(
    (
        *("x-http-method-override", "x-http-method", "x-method-override", "x-original-method"),
        *("x-original-url", "x-original-uri", "x-rewrite-url", "x-override-url", "destination"),
        *("x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix", "x-forwarded-method"),
    )
)
"""Headers by which some servers take a request for another one."""
DEFAULT_PORTS: Final = {"http": 80, "https": 443, "tunnel": 443}
"""What a rule without a port means as one that allows, by scheme."""


@dataclass(frozen=True)
class Readings:
    """How servers may understand a path: `kept` with escaped slashes as they are, and `opened` with
    everything unescaped, also what was escaped twice. A path is `ambiguous` if servers may take it
    for another one: a segment of it is empty or ends with a dot or a space or begins with a space,
    as `..` does, it has a semicolon (a parameter), backslash, `?`, `#` or control character, or
    escapes that are none, or it changes under Unicode's compatibility forms."""

    kept: str
    opened: str
    ambiguous: bool

    @classmethod
    def of(cls, path: str) -> Self:
        """The readings of the path of a request; what follows a `?` or `#` is not part of it."""
        path = re.split(r"[?#]", path, maxsplit=1)[0]
        broken = "%" in _ESCAPE.sub("", path)
        kept = _unescaped(_SLASH.sub("%252F", path))
        opened = path
        for _ in range(_ROUNDS):
            opened = _unescaped(before := opened)
            if opened == before:
                break
        else:
            broken = True
        return cls(kept, opened, broken or any(map(_is_ambiguous, (kept, opened))))


@dataclass(frozen=True)
class Rule:
    """One rule. Empty methods, scheme and path, and port 0, stand for any; without a port, one that
    allows means only those of HTTP and HTTPS."""

    methods: tuple[str, ...]
    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError` that says what is wrong."""
        found = _RULE.fullmatch(text) if len(text) <= _CHARS_MAX else None
        if found is None:
            raise ValueError("a rule is [METHODS ][scheme://]host[:port][/path]")
        methods = tuple(sorted(set((found["methods"] or "").split(",")) - {""}))
        port = int(found["port"]) if found["port"] else 0
        if found["port"] and not 1 <= port <= _PORT_MAX:
            raise ValueError(f"ports are from 1 to {_PORT_MAX}")
        path = found["path"] or ""
        if "?" in path or "#" in path:
            raise ValueError("a rule has no query")
        if path and Readings.of(path.replace("*", "-")).ambiguous:
            raise ValueError(
                'a path has no "." or "..", no empty part, no ";" or backslash, no broken escape '
                "in it"
            )
        return cls(methods, found["scheme"] or "", _host(found["host"]), port, path)

    def __str__(self) -> str:
        methods = ",".join(self.methods) + " " if self.methods else ""
        scheme = f"{self.scheme}://" if self.scheme else ""
        return f"{methods}{scheme}{hosts.shown(self.host, self.port)}{self.path}"

    @property
    def reads(self) -> bool:
        """Whether it has to see a method or a path."""
        return bool(self.methods or self.path)

    def names(self, host: str) -> bool:
        """Whether it means a host, given in its one spelling."""
        if self.host == host:
            return True
        if not self.host.startswith("*") or hosts.is_address(host):
            return False
        return host.endswith(self.host[1:])

    def opens(self, scheme: str, port: int) -> bool:
        """Whether, as one that allows, it means a scheme ("http", "https" or "tunnel") and port."""
        return self._is_of(scheme) and port == (self.port or DEFAULT_PORTS[scheme])

    def shuts(self, scheme: str, port: int) -> bool:
        """Whether, as one that denies, it means them: every port, if it names none."""
        return self._is_of(scheme) and self.port in (0, port)

    def means(self, method: str, path: Readings) -> bool:
        """Whether it means a readable request, however servers understand the path."""
        return self._is_method(method) and (
            not self.path or (not path.ambiguous and all(self._matches(path)))
        )

    def may_mean(self, method: str, path: Readings) -> bool:
        """Whether it means a readable request as some server may understand the path: in capitals
        or not, and with a slash at its end or without."""
        return self._is_method(method) and (
            not self.path or path.ambiguous or any(self._matches(path, loosely=True))
        )

    @cached_property
    def _parts(self) -> list[Readings]:
        """What stands between the asterisks of the path."""
        return [Readings.of(part) for part in self.path.split("*")]

    def _matches(self, path: Readings, *, loosely: bool = False) -> Iterator[bool]:
        """Whether each of the two readings of a path is one that the rule's path means."""
        for parts, text in (
            ([part.kept for part in self._parts], path.kept),
            ([part.opened for part in self._parts], path.opened),
        ):
            if loosely:
                folded = [part.casefold() for part in parts]
                ends = (text.casefold().rstrip("/"), text.casefold().rstrip("/") + "/")
                yield any(_matches(folded, each or "/") for each in ends)
            else:
                yield _matches(parts, text)

    def _is_of(self, scheme: str) -> bool:
        return not self.scheme or self.scheme == ("https" if scheme == "tunnel" else scheme)

    def _is_method(self, method: str) -> bool:
        return not self.methods or method.upper() in self.methods


def _host(text: str) -> str:
    if text == "*":
        return text
    if not text.startswith("*."):
        return hosts.canonical(text)
    name = hosts.canonical(text[2:])
    if hosts.is_address(name):
        raise ValueError("there are no names below an address")
    return f"*.{name}"


def _matches(parts: list[str], text: str) -> bool:
    """Whether `text` is the parts in their order with anything between them. In linear time."""
    first, *more = parts
    if not more:
        return text == first
    *between, last = more
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last):
        return False
    at = len(first)
    for part in between:
        at = text.find(part, at, end) + len(part)
        if at < len(part):
            return False
    return at <= end


def _unescaped(path: str) -> str:
    return unquote(path, errors="surrogateescape")


def _is_ambiguous(path: str) -> bool:
    segments = path.split("/")
    return (
        not path.startswith("/")
        or any(char in _UNCLEAR or ord(char) < 0x20 or char == "\x7f" for char in path)
        or any(segment.strip() != segment or segment.endswith(".") for segment in segments)
        or "" in segments[1:-1]
        or unicodedata.normalize("NFKC", path) != path
        or not path.isprintable()
    )


PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "pypi": ("https://pypi.org", "https://files.pythonhosted.org"),
    "npm": ("https://registry.npmjs.org",),
    "debian": (
        "deb.debian.org",
        "security.debian.org",
        "https://snapshot.debian.org",
    ),
    "github": (
        "https://github.com",
        "https://api.github.com",
        "https://codeload.github.com",
        "https://raw.githubusercontent.com",
        "https://objects.githubusercontent.com",
        "https://release-assets.githubusercontent.com",
    ),
    "huggingface": (
        "https://huggingface.co",
        "https://cdn-lfs.huggingface.co",
        "https://cas-bridge.xethub.hf.co",
    ),
}
"""The rules of each preset by its name."""
PURPOSES: Final[Mapping[str, str]] = {
    "preset pypi": "the package index and its file host",
    "preset npm": "the package registry",
    "preset debian": "Debian's packages",
}
"""What the hosts of presets are, where their names do not say it."""


PREFIX: Final = "oxydra-credential-"
"""What every placeholder begins with, and nothing else does."""


def new_placeholder(name: str) -> str:
    """A placeholder of credential `name` that nobody can guess: in lower case, so that it stays
    the same where case does not count."""
    return f"{PREFIX}{name}-{secrets.token_hex(16)}"
