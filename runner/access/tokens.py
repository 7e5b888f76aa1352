"""Access tokens: who has one, for which user, for what and until when.

They are kept in `<workspace_root>/.access`, a private directory that is no user's workspace. Of a
token only its SHA-256 is kept. A slow or salted hash would protect a secret that people choose;
this one is 256 random bits, and nobody finds it from its hash.

`tokens.json` is written by commands, completely or not at all, and is on the disk when the command
ends. Whoever serves looks at it before each call. If it cannot be read, nobody is let in.
`last_used.json` is written by the server alone; nothing depends on it.
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from wire.disk import store
from wire.errors import Code

from runner.access.scopes import Scope, bearer_of
from runner.config.models import Config
from runner.errors import HostError
from runner.workspace.directories import check_root, check_tree, create_tree, descriptor

PREFIX: Final = "oxa_"
"""What every token begins with, so that scanners for secrets and our own redaction know it."""
DIRECTORY: Final = ".access"
EXPIRES_DAYS: Final = 90
EXPIRES_MAX_DAYS: Final = 3650
_NAME: Final = r"[a-z0-9][a-z0-9_-]{0,31}"
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([hdw])", re.ASCII)
_HOURS: Final = {"h": 1, "d": 24, "w": 24 * 7}
_Stamp = tuple[int, int, int]


class Token(BaseModel):
    """A token as it is kept. `digest` is the SHA-256 of the secret, in hexadecimal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user_id: str
    name: str
    scopes: frozenset[Scope]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created_at: AwareDatetime
    expires_at: AwareDatetime

    @property
    def channel(self) -> str:
        """What sessions and notes record as the channel of who uses it."""
        return f"access-{self.name}"

    def lifetime_s(self) -> float:
        """For how many seconds it is still good; negative after its end."""
        return (self.expires_at - datetime.now(UTC)).total_seconds()

    def listed(self, last_used: str | None) -> dict[str, object]:
        """What lists of tokens show of it, for JSON; never its digest."""
        return {
            "user_id": self.user_id,
            "name": self.name,
            "scopes": sorted(self.scopes),
            "bearer": bearer_of(self.user_id, self.scopes),
            "created_at": self.created_at.isoformat(),
            "expires_at": self.expires_at.isoformat(),
            "expired": self.lifetime_s() <= 0,
            "last_used_at": last_used,
        }


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    tokens: tuple[Token, ...] = ()


class Tokens:
    """The tokens for the users of one `workspace_root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.directory = root / DIRECTORY
        self._file = self.directory / "tokens.json"
        self._last_used = self.directory / "last_used.json"
        self._seen: _Stamp | None = None
        self._known: tuple[Token, ...] = ()

    @classmethod
    def locate(cls, config: Config) -> Self:
        """Touches nothing on disk."""
        return cls(config.workspace_root)

    def prepare(self) -> None:
        """Create the directory, private to this account. Idempotent. Raises `WorkspaceError` where
        others could read it or put another in its place."""
        check_root(self._root, private=False)
        create_tree(self._root, (DIRECTORY,))

    def all(self) -> tuple[Token, ...]:
        """All tokens, also expired ones. Raises `HostError` (DATA_LOSS) for a damaged file."""
        try:
            found = self._file.stat()
        except FileNotFoundError:
            self._seen, self._known = None, ()
            return ()
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._seen:
            self._known = self._read()
            self._seen = stamp
        return self._known

    def find(self, given: str) -> Token | None:
        """The token with this digest, also if it has expired; None if there is none."""
        found = None
        for token in self.all():
            if hmac.compare_digest(token.digest, given):
                found = token
        return found

    def create(
        self, user_id: str, name: str, scopes: frozenset[Scope], lifetime: timedelta
    ) -> tuple[Token, str]:
        """A new token and its secret, which is kept nowhere.

        Raises `HostError` for a bad name (INVALID_ARGUMENT) or a taken one (ALREADY_EXISTS).
        """
        if not re.fullmatch(_NAME, name, re.ASCII):
            raise HostError(
                Code.INVALID_ARGUMENT,
                f"bad name of a token: {name[:40]!r}",
                details="a name has 1 to 32 of the characters a-z, 0-9, _ and -, and begins with a "
                "letter or a digit",
                resolution="name it after the device or program that gets it, such as laptop",
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        now = datetime.now(UTC).replace(microsecond=0)
        token = Token(
            user_id=user_id,
            name=name,
            scopes=scopes,
            digest=digest(secret),
            created_at=now,
            expires_at=now + lifetime,
        )
        with self._changing() as tokens:
            if any((each.user_id, each.name) == (user_id, name) for each in tokens):
                raise HostError(
                    Code.ALREADY_EXISTS,
                    f"{user_id} has a token named {name} already",
                    resolution="choose another name, or first: "
                    f"runner --user {user_id} access revoke {name}",
                )
            tokens.append(token)
        return token, secret

    def revoke(self, user_id: str, name: str | None = None) -> list[Token]:
        """Remove one token of a user, or (None) all of them. Returns what was removed."""
        with self._changing() as tokens:
            gone = [
                each for each in tokens if each.user_id == user_id and name in (None, each.name)
            ]
            tokens[:] = [each for each in tokens if each not in gone]
        return gone

    def last_used(self) -> Mapping[str, str]:
        """When each token was used last, by digest, as far as that was noted."""
        try:
            noted = json.loads(self._last_used.read_text(encoding="utf-8"))
            return {str(digest): str(at) for digest, at in noted.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def note_used(self, used: Mapping[str, str]) -> None:
        """Add times of use to those that are noted, and drop those of tokens that are gone."""
        kept = {token.digest for token in self.all()}
        noted = {**self.last_used(), **used}
        content = {digest: at for digest, at in noted.items() if digest in kept}
        store(self._last_used, json.dumps(content))

    def _read(self) -> tuple[Token, ...]:
        check_tree(self._root, (DIRECTORY,))
        try:
            return _Stored.model_validate_json(self._file.read_bytes()).tokens
        except (OSError, ValidationError) as error:
            self._seen, self._known = None, ()
            why = "it is not what this program has written"
            raise HostError(
                Code.DATA_LOSS,
                "the file of access tokens cannot be read, so nobody is let in",
                details=f"{self._file}: {error.strerror if isinstance(error, OSError) else why}",
                resolution=f"mv {self._file} {self._file}.damaged; then create the tokens anew: "
                "runner access create",
            ) from None

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The tokens, to be changed by nobody else meanwhile. What is in the list at the end is
        stored, for good."""
        self.prepare()
        with descriptor(self.directory / "lock", os.O_RDWR | os.O_CREAT) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.all()
            tokens = list(before)
            yield tokens
            if tuple(tokens) == before:
                return
            store(self._file, _Stored(tokens=tuple(tokens)).model_dump_json(indent=1))
            with descriptor(self.directory, os.O_RDONLY | os.O_DIRECTORY) as directory:
                os.fsync(directory)


def lifetime_of(text: str) -> timedelta:
    """A lifetime as people write it: `12h`, `30d`, `8w`. Raises `HostError` for anything else."""
    matched = _SPAN.fullmatch(text)
    hours = int(matched[1]) * _HOURS[matched[2]] if matched else 0
    if not 0 < hours <= EXPIRES_MAX_DAYS * 24:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"bad --expires: {text[:40]!r}",
            details="accepted: hours, days or weeks, such as 12h, 30d or 8w, up to "
            f"{EXPIRES_MAX_DAYS}d",
            resolution=f"--expires {EXPIRES_DAYS}d",
        )
    return timedelta(hours=hours)


def digest(secret: str) -> str:
    """What is kept of a secret that is long and random."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
