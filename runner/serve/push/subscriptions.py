"""The browsers that are told of notices, a file for each, and where their push services are.

Such an address comes from a browser: nothing is sent but to public ones, by HTTPS at its port.
"""

import base64
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from wire.disk import store
from wire.egress import hosts
from wire.errors import Code, WireError

from runner.access.tokens import digest
from runner.serve.login.links import DIRECTORY
from runner.workspace.directories import create_tree

SUBSCRIPTIONS_MAX: Final = 20
"""How many browsers of a user are told; of more, those that asked first are told no more."""
ENDPOINT_MAX_CHARS: Final = 1_000
_SECRET_BYTES: Final = 16


@dataclass(frozen=True)
class Subscription:
    """A browser that is told of a user's notices: its push service, the keys that are for it, and
    the login by which it asked; see `Authenticator.login_of`."""

    user_id: str
    login: str
    endpoint: str
    p256dh: str
    auth: str

    @classmethod
    def of(cls, user_id: str, login: str, asked: dict[str, Any]) -> "Subscription":
        """What a page says of its browser. Raises `WireError` (INVALID_ARGUMENT)."""
        try:
            keys = asked["keys"]
            made = cls(user_id, login, asked["endpoint"], keys["p256dh"], keys["auth"])
            host_of(made.endpoint)
            EllipticCurvePublicKey.from_encoded_point(SECP256R1(), _bytes(made.p256dh))
            if len(_bytes(made.auth)) != _SECRET_BYTES:
                raise ValueError(f"auth: it must have {_SECRET_BYTES} bytes")
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(
                Code.INVALID_ARGUMENT, "this is no subscription of a browser", details=str(error)
            ) from None
        return made


class Subscriptions:
    """All subscriptions, by the paths of their files; beside them `key`, the host's own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / DIRECTORY / "push"
        self.key = root / DIRECTORY / "push.pem"

    def path(self, user_id: str, endpoint: str) -> Path:
        return self._directory / user_id / digest(endpoint)

    def add(self, made: Subscription) -> Path:
        """Store one durably. Of more than `SUBSCRIPTIONS_MAX` of a user, the oldest go."""
        path = self.path(made.user_id, made.endpoint)
        parents = (DIRECTORY, f"{DIRECTORY}/push", f"{DIRECTORY}/push/{made.user_id}")
        create_tree(self._root, parents)
        store(path, json.dumps(asdict(made)))
        for old in sorted(self.all(made.user_id), key=_written)[:-SUBSCRIPTIONS_MAX]:
            self.end(old)
        return path

    def end(self, path: Path) -> None:
        """Tell that browser no more. Idempotent."""
        path.unlink(missing_ok=True)

    def all(self, user_id: str = "*") -> list[Path]:
        """Those of one user, or of all."""
        return list(self._directory.glob(f"{user_id}/[0-9a-f]*"))

    def end_user(self, user_id: str) -> None:
        shutil.rmtree(self._directory / user_id, ignore_errors=True)


def kept_at(path: Path) -> Subscription | None:
    """The subscription in a file; None if there is none any more."""
    try:
        return Subscription(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def host_of(endpoint: str) -> str:
    """The host of a push service, in its one spelling. Raises `ValueError` for a bad address."""
    if len(endpoint) > ENDPOINT_MAX_CHARS:
        raise ValueError(f"endpoint: at most {ENDPOINT_MAX_CHARS} characters are accepted")
    try:
        url = httpx2.URL(endpoint)
        host = hosts.canonical(url.raw_host.decode())
    except (httpx2.InvalidURL, ValueError) as error:
        raise ValueError(f"endpoint: {error}") from None
    if url.scheme != "https" or url.port or url.userinfo:
        raise ValueError("endpoint: it must be https://, without another port and without a user")
    return host


def _bytes(text: str) -> bytes:
    """What a key says in base64url, without padding. Raises `ValueError`."""
    return base64.b64decode(text + "=" * (-len(text) % 4), "-_", validate=True)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns
