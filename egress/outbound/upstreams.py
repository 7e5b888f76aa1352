"""Upstreams: the servers that the settings name, which the agent uses by their names.

`https://egress/NAME/rest` is a request to the server's own address with `rest` appended; what
Ollama and LM Studio have of their own is beside the /v1 of their address. What the agent sent to
prove itself is dropped, and what proves the user put in its place.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from multidict import CIMultiDict
from wire.egress.loopback import LOGIN
from wire.limits import TOKEN_METADATA_KEY
from wire.providers import AT_THE_ROOT
from wire.v1 import egress_pb2

from egress.credentials.redaction import Values

_PROOFS: Final = frozenset(
    ("authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie")
)
"""Headers with which clients prove who they are."""
_SECRET_MIN_CHARS: Final = 8


@dataclass(frozen=True, repr=False)
class Upstream:
    """One server. `missing` says why it cannot be used; empty if it can. One on the loopback of the
    runner's machine is behind the runner's `host_socket`, which wants the `host_token`. With a
    `login`, its token is to be put into requests, too."""

    name: str
    url: str
    headers: Mapping[str, str]
    ca_pem: str = ""
    missing: str = ""
    host_socket: str = ""
    host_token: str = ""
    login: egress_pb2.EgressLogin | None = None

    def address(self, method: str, rest: str) -> str:
        """The address outside of `rest`, a path with its query as the agent sent it.

        Raises `ValueError` if `rest` leads out of the server's own address.
        """
        path = rest.partition("?")[0]
        if path and not path.startswith("/"):
            raise ValueError("a path begins with /")
        decoded = unquote(unquote(path)).replace("\\", "/")
        if any(part in (".", "..") for part in decoded.split("/")):
            raise ValueError("a path may not lead upwards")
        if f"{method} {path}" in AT_THE_ROOT.get(self.name, ()):
            return re.sub(r"(?<!/)/(v1|api)$", "", self.url) + rest
        return self.url + rest

    def outgoing(self, sent: Mapping[str, str]) -> CIMultiDict[str]:
        """The headers to send, from those that the agent sent."""
        own = {name.lower() for name in self.headers} | _PROOFS
        kept = CIMultiDict((name, value) for name, value in sent.items() if name.lower() not in own)
        if self.hidden.forms:
            can_be_searched = "gzip" in kept.get("Accept-Encoding", "")
            kept["Accept-Encoding"] = "gzip" if can_be_searched else "identity"
        kept.extend(self.headers)
        if self.host_token:
            kept[TOKEN_METADATA_KEY] = self.host_token
        return kept

    def is_runners(self, headers: Mapping[str, str]) -> bool:
        """Whether an answer is the runner's own, and not of the server behind its socket, which
        does not know the token."""
        shown = headers.get(TOKEN_METADATA_KEY, "")
        return bool(self.host_token) and hmac.compare_digest(
            shown.encode(), self.host_token.encode()
        )

    @cached_property
    def hidden(self) -> Values:
        """What no answer may repeat to the agent."""
        words = (value.rpartition(" ")[2] for value in self.headers.values())
        return Values(word for word in words if len(word) >= _SECRET_MIN_CHARS)


class Upstreams:
    """All upstreams of a configuration, by name."""

    def __init__(self, upstreams: Iterable[Upstream] = ()) -> None:
        self._by_name = {each.name: each for each in upstreams}

    @classmethod
    def of(cls, messages: Iterable[egress_pb2.EgressUpstream]) -> Self:
        """Raises `ValueError` for an invalid one."""
        return cls(map(_upstream, messages))

    def has(self, upstream: Upstream) -> bool:
        """Whether one of this name and address is there and can be used."""
        found = self._by_name.get(upstream.name)
        return found is not None and found.url == upstream.url and not found.missing

    def of_name(self, name: str) -> Upstream:
        """The upstream of a name that is there."""
        return self._by_name[name]

    def find(self, target: str) -> tuple[Upstream, str] | None:
        """The upstream of a request's target as `/NAME/rest?query`, and its `/rest?query`; None if
        there is none of that name."""
        name, slash, rest = target.partition("?")[0].removeprefix("/").partition("/")
        query = target.partition("?")[1] + target.partition("?")[2]
        found = None if name.endswith(LOGIN) else self._by_name.get(name)
        return None if found is None else (found, slash + rest + query)


def _upstream(message: egress_pb2.EgressUpstream) -> Upstream:
    url = urlsplit(message.url)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query:
        raise ValueError(f"upstream {message.name!r} has no usable address")
    texts = ("name", "ca_pem", "missing", "host_socket", "host_token")
    login = message.login if message.HasField("login") else None
    return Upstream(
        **{name: getattr(message, name) for name in texts},
        url=message.url.rstrip("/"),
        headers=dict(message.headers),
        login=login,
    )
