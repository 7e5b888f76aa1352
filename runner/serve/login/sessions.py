"""Sessions of browsers, as files: who was let in, until when, and the hashes of two random secrets.

One secret is a cookie, which no script can read, but which browsers send to every port of a host.
The other one is the page's: it is kept where pages of this very origin read it and no other server,
and is sent as a header. Neither is of use alone.

A session ends with what let its owner in: a token that is revoked ends the sessions that it began.
It does not end with the server.
"""

import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from wire.disk import store
from wire.errors import Code, WireError

from runner.access.callers import Caller
from runner.access.tokens import digest
from runner.serve.login.links import CHANNEL

SESSIONS_MAX: Final = 50
"""How many may be begun with one token, or by the operator; the least used ends."""
_SEEN_S: Final = 60.0
_ENDED: Final = partial(
    WireError,
    Code.UNAUTHENTICATED,
    "this login has ended",
    resolution="log in again: runner serve --open shows a new link",
)


@dataclass(frozen=True)
class _Session:
    """What a file holds. `key` is that of the caller who was let in, `page` a secret's hash."""

    user_id: str
    operator: bool
    key: str
    page: str
    began: float


@dataclass(repr=False, eq=False)
class Sessions:
    """All sessions of one server.

    Args:
        directory: Where they are kept, private to this account.
        with_key: Who is let in by the token of that key; raises `WireError`.
        idle_s: A session ends after this time without a request.
        lifetime_s: And after this time in any case.
    """

    directory: Path
    with_key: Callable[[str], Caller]
    idle_s: float
    lifetime_s: float
    clock: Callable[[], float] = time.time

    def begin(self, admitted: Caller) -> tuple[str, str]:
        """Begin a session of who was let in: the secrets of the cookie and of the page."""
        alike = [
            path
            for path in sorted(self.directory.iterdir(), key=lambda path: path.stat().st_mtime)
            if (found := self._load(path)) is not None and found.key == admitted.key
        ]
        for path in alike[: max(0, len(alike) + 1 - SESSIONS_MAX)]:
            path.unlink(missing_ok=True)
        cookie, page = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        session = _Session(
            admitted.user_id, admitted.operator, admitted.key, digest(page), self.clock()
        )
        store(self._path(cookie), json.dumps(asdict(session)))
        self._touch(self._path(cookie))
        return cookie, page

    def find(self, cookie: str, page: str) -> Caller:
        """Who has the session of these secrets. Raises `WireError` (UNAUTHENTICATED) for none."""
        path = self._path(cookie)
        admitted = self._admitted(path, self._of(cookie, page))
        if self.clock() - path.stat().st_mtime > _SEEN_S:
            self._touch(path)
        return admitted

    def named(self, name: str) -> Caller:
        """As `find`, by the digest of the cookie; the session does not count as used."""
        path = self.directory / name
        return self._admitted(path, self._load(path))

    def _admitted(self, path: Path, session: _Session | None) -> Caller:
        if session is None:
            raise _ENDED()
        admitted = (
            Caller.at_terminal(session.user_id, CHANNEL)
            if session.operator
            else self.with_key(session.key)
        )
        admitted.check()
        return replace(admitted, ended=partial(self._why, path, admitted))

    def end(self, cookie: str, page: str, *, everywhere: bool = False) -> None:
        """End the session of these secrets, if there is one, or all of the same person."""
        if (session := self._of(cookie, page)) is None:
            return
        self._path(cookie).unlink(missing_ok=True)
        if not everywhere:
            return
        for path in list(self.directory.iterdir()):
            found = self._load(path)
            if found is None or found.operator != session.operator:
                continue
            if session.operator or found.user_id == session.user_id:
                path.unlink(missing_ok=True)

    def _of(self, cookie: str, page: str) -> _Session | None:
        session = self._load(self._path(cookie))
        same = session is not None and hmac.compare_digest(session.page, digest(page))
        return session if same else None

    def _why(self, path: Path, admitted: Caller) -> WireError | None:
        return _ENDED() if self._load(path) is None else admitted.ended()

    def _load(self, path: Path) -> _Session | None:
        """What is kept at `path`; None, and nothing any more, where a session is over."""
        try:
            session = _Session(**json.loads(path.read_bytes()))
            seen = path.stat().st_mtime
        except (OSError, ValueError, TypeError):
            return None
        now = self.clock()
        if now - session.began > self.lifetime_s or now - seen > self.idle_s:
            path.unlink(missing_ok=True)
            return None
        return session

    def _touch(self, path: Path) -> None:
        now = self.clock()
        os.utime(path, (now, now))

    def _path(self, cookie: str) -> Path:
        return self.directory / digest(cookie)
