"""The addresses that notices are sent to: which kinds there are, and what each may reach.

An address is one of the library apprise. It holds secrets, so that only its variable is ever shown.
Kinds that act on this machine, or that do not go through an HTTP proxy, are not among them.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from wire.egress import hosts
from wire.errors import Code
from wire.settings import NoticesSettings

from runner.errors import ConfigError, packages
from runner.workspace.keys import read_variable

_AT_SERVICES: Final = {
    "discord": ("discord.com",),
    "gchat": ("chat.googleapis.com",),
    "pbul": ("api.pushbullet.com",),
    "pover": ("api.pushover.net",),
    "slack": ("hooks.slack.com", "slack.com"),
    "tgram": ("api.telegram.org",),
    "webex": ("api.ciscospark.com",),
}
"""Kinds of one service, and its hosts."""
_AT_HOSTS: Final = (
    *("apprise", "bark", "form", "gotify", "json", "matrix", "mmost", "nctalk", "ntfy", "rocket"),
    *("signal", "synology"),
)
"""Kinds whose address names the host; with an s at the end, by TLS."""
_MAIL: Final = "mailtos"
_MAIL_PORT: Final = 465
_NTFY: Final = "https://ntfy.sh"
_UNREADABLE: Final = "its host or port cannot be read"
KINDS: Final = (*sorted((*_AT_SERVICES, *(f"{kind}[s]" for kind in _AT_HOSTS), _MAIL)),)


@dataclass(frozen=True)
class Address:
    """One address: the variable that holds it, and the rules of egress for what it reaches."""

    variable: str
    url: str = field(repr=False)
    rules: tuple[str, ...]

    @property
    def surface(self) -> str:
        """As which it is told notices: another address is another surface."""
        return f"url-{hashlib.blake2b(self.url.encode(), digest_size=4).hexdigest()}"

    @classmethod
    def of(cls, variable: str, url: str) -> Self:
        """Raises `ConfigError` for a kind that is not accepted, and for one without its host."""
        try:
            return cls(variable, url, _rules(url))
        except ValueError as error:
            raise ConfigError(
                Code.INVALID_ARGUMENT,
                f"notices cannot be sent to what the environment variable {variable} holds",
                details=f"notices.urls_env names it; {error}",
                resolution=f"export {variable}=ntfys://ntfy.sh/TOPIC or another address of "
                "docs/guide/notices.md, then start again",
            ) from None


def read(settings: NoticesSettings, environ: Mapping[str, str]) -> list[Address]:
    """The addresses that the settings name.

    Raises `ConfigError` for a variable that is missing or holds none, and without apprise.
    """
    if settings.urls_env:
        with packages("notices", "notices.urls_env"):
            if find_spec("apprise") is None:
                raise ModuleNotFoundError(name="apprise")
    purpose = "notices.urls_env names it as an address that notices go to"
    return [Address.of(each, read_variable(each, environ, purpose)) for each in settings.urls_env]


def _rules(url: str) -> tuple[str, ...]:
    """Raises `ValueError` that says what is wrong, without a word of the address but its kind."""
    kind, separator, rest = url.partition("://")
    if not separator or not re.fullmatch("[a-z0-9]{1,20}", kind := kind.lower()):
        raise ValueError("it is no address; those begin with a kind and ://")
    if kind in _AT_SERVICES:
        return tuple(f"https://{host}" for host in _AT_SERVICES[kind])
    if kind.removesuffix("s") not in (*_AT_HOSTS, "mailto"):
        raise ValueError(f"{kind} is no accepted kind; accepted: {', '.join(KINDS)}")
    if kind.startswith("ntfy") and "/" not in rest.partition("?")[0].rstrip("/"):
        return (_NTFY,)  # a topic alone
    try:
        host, default, port = urlsplit(url).hostname or "", 0, urlsplit(url).port
        options = parse_qs(urlsplit(url).query)
    except ValueError:
        raise ValueError(_UNREADABLE) from None
    if kind.startswith("mailto"):
        host, default = options.get("smtp", [""])[-1], _MAIL_PORT
        if kind != _MAIL or not host or options.get("mode", [""])[-1] != "ssl":
            raise ValueError(
                "egress lets out only what is TLS from its first byte on, so mail needs a server's "
                f"port for that: {_MAIL}://USER:PASSWORD@DOMAIN?mode=ssl&smtp=HOST"
            )
    try:
        where = hosts.shown(hosts.canonical(host), port or default)
    except ValueError:
        raise ValueError(_UNREADABLE) from None
    return (f"{'https' if kind.endswith('s') else 'http'}://{where}",)
