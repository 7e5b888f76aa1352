"""What common credentials look like.

Every search here takes time linear in the text: a pattern either fails within a
bounded number of characters or consumes what it has read (possessive
quantifiers), so that no text makes it start over again and again.

The trade-off is in favour of plain language. A value is taken for a credential
when it has a credential's own shape, or when it stands as data behind a name
such as `password`: quoted, after `=`, alone on a `name: value` line, or with a
digit or symbol in it. Prose stays whole ("the password is kept by Bob", "API
key: ask the admin"), and so does code that only refers to a secret
(`token = request.headers[...]`). A plain word in a sentence ("my password is
swordfish") is therefore not recognised.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

Span = tuple[int, int]
"""Start and end of what must not be shown, as indices of the text."""

_TOKENS: Final = re.compile(
    r"""
      (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}                             # AWS key id
    | gh[pousr]_[A-Za-z0-9]{36}[A-Za-z0-9]*+                          # GitHub
    | github_pat_[A-Za-z0-9_]{22}[A-Za-z0-9_]*+
    | glpat-[A-Za-z0-9_-]{20}[A-Za-z0-9_-]*+                          # GitLab
    | sk-(?:ant|proj|svcacct|admin|or|lf)-[A-Za-z0-9_-]{16}[A-Za-z0-9_-]*+
    | sk-(?=[A-Za-z0-9]{0,20}[0-9])[A-Za-z0-9]{20}[A-Za-z0-9]*+       # OpenAI, classic
    | (?:gsk|hf|npm|dop_v1)_[A-Za-z0-9]{30}[A-Za-z0-9]*+
    | [sr]k_(?:live|test)_[A-Za-z0-9]{16}[A-Za-z0-9]*+                # Stripe
    | AIza[A-Za-z0-9_-]{35}                                           # Google
    | ya29\.[A-Za-z0-9_-]{20}[A-Za-z0-9_-]*+
    | GOCSPX-[A-Za-z0-9_-]{20}[A-Za-z0-9_-]*+
    | xox[abeoprs]-[A-Za-z0-9-]{10}[A-Za-z0-9-]*+                     # Slack
    | xapp-[A-Za-z0-9-]{10}[A-Za-z0-9-]*+
    | hooks\.slack\.com/services/[A-Za-z0-9/]{20}[A-Za-z0-9/]*+
    | pypi-[A-Za-z0-9_-]{50}[A-Za-z0-9_-]*+
    | SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{40}[A-Za-z0-9_-]*+      # SendGrid
    | oxa_[A-Za-z0-9_-]{40}[A-Za-z0-9_-]*+                            # our own access tokens
    | [0-9]{8,10}:AA[A-Za-z0-9_-]{33}                                 # Telegram
    """,
    re.VERBOSE,
)

_DOTTED: Final = re.compile(r"[A-Za-z0-9_.-]{21}[A-Za-z0-9_.-]*+")
_JWT_PART: Final = 10

_AUTHORIZATION: Final = re.compile(
    r"""(?ix) \b(?:bearer|basic|digest)[ \t]{1,8}
    (?P<value>[A-Za-z0-9._~+/=-]{8}[A-Za-z0-9._~+/=-]*+)"""
)
_HEADER: Final = re.compile(r"(?i)authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?\Z")

_USERINFO: Final = re.compile(r"://[^\s/:@\"']{0,128}:(?P<value>[^\s/@\"']{1,256})@")

_BEGIN_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END_KEY: Final = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY: Final = re.compile(
    r"""
    (?:\s{0,4}[A-Za-z-]{1,40}:[ ][^\n]{0,200}\n)*+      # Proc-Type: 4,ENCRYPTED
    (?:(?:\s|\\[rn])*+[A-Za-z0-9+/=]{16}[A-Za-z0-9+/=]*+)*+
    (?:(?:\s|\\[rn])*+[A-Za-z0-9+/=]++)?
    """,
    re.VERBOSE,
)
_KEY_BODY_CHARS: Final = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\ \t\r\n"
)

_ASSIGNMENT: Final = re.compile(
    r"""
    (?P<name>
        pass(?:word|wd|phrase) | secret(?:[ _-]?(?:access[ _-]?)?key)? | _pwd
      | (?:api|access|auth|account|signing|encryption|private)[ _-]?key
      | (?:access|auth|refresh|session|bearer|id)?[_-]?token
      | credentials? | authorization
    )
    \\?["']?
    [ \t]{0,4} (?P<sep>:=|=>|[:=]) [ \t]{0,4}
    (?:
        \\"(?P<q1>(?:[^"\\\n]|\\(?!"))*+)
      | \\'(?P<q2>(?:[^'\\\n]|\\(?!'))*+)
      | "(?P<q3>(?:[^"\\\n]|\\.)*+)
      | '(?P<q4>(?:[^'\\\n]|\\.)*+)
      | (?P<bare>[^\s"'`,;&<>{}()\[\]\\]++)
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOTHING: Final = frozenset(
    "none null nil true false yes no undefined optional required string str text unknown".split()  # noqa: SIM905
)
_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\$.*|%[\w({].*", re.DOTALL)
_MARK: Final = re.compile(r"[0-9!@#$%^&*+/=~?]")
_ONLY_NAME: Final = re.compile(r"[ \t]*(?:-[ \t]+)?[\"']?[\w.-]*\Z")

SENSITIVE_NAME: Final = re.compile(
    r"(?i)(?:.*[_-])?(?:password|passwd|passphrase|secret|(?:api|access|private)[_-]?key"
    r"|token|authorization|client[_-]?secret)"
)
"""A key of structured data whose value is not shown, whatever it looks like."""


def find_all(text: str) -> Iterator[Span]:
    """Where credentials stand in `text`; spans may overlap and come in no order."""
    searches: tuple[Callable[[str], Iterator[Span]], ...] = (
        _tokens,
        _web_tokens,
        _authorizations,
        _userinfo,
        _private_keys,
        _assignments,
    )
    for search in searches:
        yield from search(text)


def _tokens(text: str) -> Iterator[Span]:
    yield from (match.span() for match in _TOKENS.finditer(text))


def _web_tokens(text: str) -> Iterator[Span]:
    """JSON web tokens: two or three parts, the first of which encodes `{"`."""
    if "eyJ" not in text:
        return
    for match in _DOTTED.finditer(text):
        parts = match.group().split(".")
        start = match.start()
        for part, following in pairwise(parts):
            header = part.find("eyJ")
            if header >= 0 and min(len(part) - header, len(following)) >= _JWT_PART:
                yield start + header, match.end()
                break
            start += len(part) + 1


def _authorizations(text: str) -> Iterator[Span]:
    """`Authorization: Bearer …`; without the header only what has a token's shape."""
    for match in _AUTHORIZATION.finditer(text):
        before = text[max(0, match.start() - 32) : match.start()]
        value = match["value"]
        if _HEADER.search(before) or (len(value) >= 16 and re.search("[0-9]", value)):
            yield match.span("value")


def _userinfo(text: str) -> Iterator[Span]:
    """The password in `scheme://user:password@host`."""
    yield from (match.span("value") for match in _USERINFO.finditer(text))


def _private_keys(text: str) -> Iterator[Span]:
    """PEM blocks, whole or cut: a begin without its end, an end without its beginning."""
    if "PRIVATE KEY" not in text:
        return
    marks = [(mark, True) for mark in _BEGIN_KEY.finditer(text)]
    marks += [(mark, False) for mark in _END_KEY.finditer(text)]
    marks.sort(key=lambda item: item[0].start())
    for index, (mark, begins) in enumerate(marks):
        if not begins:
            floor = marks[index - 1][0].end() if index else 0
            yield floor + len(text[floor : mark.start()].rstrip(_KEY_BODY_CHARS)), mark.end()
        elif index + 1 < len(marks) and not marks[index + 1][1]:
            yield mark.start(), marks[index + 1][0].end()
        else:
            body = _KEY_BODY.match(text, mark.end())
            yield mark.start(), body.end() if body else mark.end()


def _assignments(text: str) -> Iterator[Span]:
    for match in _ASSIGNMENT.finditer(text):
        group = match.lastgroup or ""
        if group == "bare":
            end = match.start("bare") + len(match["bare"].rstrip(".:!?"))
            if _is_bare_secret(text, match, end):
                yield match.start("bare"), end
        elif _is_quoted_secret(match[group]):
            yield match.span(group)


def _is_quoted_secret(value: str) -> bool:
    return len(value) >= 4 and not _is_nothing(value)


def _is_bare_secret(text: str, match: re.Match[str], end: int) -> bool:
    value = text[match.start("bare") : end]
    if len(value) < 4 or _is_nothing(value) or text[match.end() : match.end() + 1] in ("(", "["):
        return False
    marked = bool(_MARK.search(value))
    if match["sep"] != ":":
        return marked or value.casefold() != match["name"].casefold()
    return (len(value) >= 6 and marked) or len(value) >= 20 or _fills_line(text, match)


def _is_nothing(value: str) -> bool:
    """Placeholders and references: they name a secret and are none."""
    return (
        value.casefold() in _NOTHING
        or _REFERENCE.fullmatch(value) is not None
        or not any(character.isalnum() for character in value)
    )


def _fills_line(text: str, match: re.Match[str]) -> bool:
    """Whether the line is `name: value` and nothing else, as in YAML."""
    line = text[max(0, match.start() - 80) : match.start()].rpartition("\n")[2]
    rest = text[match.end() : match.end() + 4].lstrip(" \t\r")
    return _ONLY_NAME.fullmatch(line) is not None and (not rest or rest.startswith("\n"))
