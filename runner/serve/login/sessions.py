"""Sessions of browsers: a cookie with a random secret, of which only the hash is kept, in memory.

A session holds who was let in when it began, and ends with that: a token that is revoked ends the
sessions that it began. Its secret is exchanged now and then; the one before is good until shortly
after the new one was used, for requests that were on their way and answers that never arrived.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from wire.errors import Code, WireError

from runner.access.callers import Caller

ROTATE_S: Final = 900.0
GRACE_S: Final = 60.0
SESSIONS_MAX: Final = 1_000
_ENDED: Final = partial(
    WireError,
    Code.UNAUTHENTICATED,
    "this login has ended",
    resolution="log in again: runner serve --open shows a new link",
)


@dataclass(eq=False)
class _Session:
    admitted: Caller
    name: str
    began: float
    seen: float
    rotated: float
    digest: str = ""
    before: str = ""
    confirmed: float | None = None
    over: bool = field(default=False)


class Sessions:
    """All sessions of one server.

    Args:
        idle_s: A session ends after this time without a request.
        lifetime_s: And after this time in any case.
    """

    def __init__(
        self, idle_s: float, lifetime_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self.lifetime_s = lifetime_s
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def begin(self, admitted: Caller, instead_of: str = "") -> str:
        """Begin a session of who was let in, and return its secret. The session of the secret
        `instead_of`, which the browser has shown, ends."""
        if (known := self._known(instead_of)) is not None:
            self._end(known)
        for each in [each for each in self._sessions.values() if self._why(each) is not None]:
            self._end(each)
        while len({id(each) for each in self._sessions.values()}) >= SESSIONS_MAX:
            self._end(min(self._sessions.values(), key=lambda each: each.seen))
        now = self._clock()
        session = _Session(admitted, secrets.token_hex(8), now, now, now)
        return self._new_secret(session)

    def find(self, secret: str) -> tuple[Caller, str]:
        """Who has the session of `secret`, and the secret to use from now on; empty: the same.

        Raises `WireError` (UNAUTHENTICATED) if there is no such session, or none any more.
        """
        session = self._known(secret)
        if session is None:
            raise _ENDED()
        if (why := self._why(session)) is not None:
            self._end(session)
            raise why
        now = session.seen = self._clock()
        current = _digest(secret) == session.digest
        if current and session.confirmed is None:
            session.confirmed = now
        if session.confirmed is not None and now - session.confirmed > GRACE_S:
            self._sessions.pop(session.before, None)
            if not current:
                raise _ENDED()
        lost = not current and session.confirmed is None and now - session.rotated > GRACE_S
        new = ""
        if lost:
            self._sessions.pop(session.digest, None)
            session.digest = session.before
        if lost or (current and now - session.rotated > ROTATE_S):
            new = self._new_secret(session)
        return self._caller(session), new

    def end(self, secret: str, *, everywhere: bool = False) -> None:
        """End the session of `secret`, or all of the same person."""
        session = self._known(secret)
        if session is None:
            return
        whose = (session.admitted.user_id, session.admitted.operator)
        for each in list(self._sessions.values()):
            if each is session or (
                everywhere and (each.admitted.user_id, each.admitted.operator) == whose
            ):
                self._end(each)

    def _new_secret(self, session: _Session) -> str:
        secret = secrets.token_urlsafe(32)
        session.before, session.digest = session.digest, _digest(secret)
        session.rotated, session.confirmed = self._clock(), None
        self._sessions[session.digest] = session
        return secret

    def _known(self, secret: str) -> _Session | None:
        return self._sessions.get(_digest(secret)) if secret else None

    def _end(self, session: _Session) -> None:
        session.over = True
        self._sessions.pop(session.digest, None)
        self._sessions.pop(session.before, None)

    def _why(self, session: _Session) -> WireError | None:
        now = self._clock()
        old = now - session.began > self.lifetime_s or now - session.seen > self._idle_s
        return _ENDED() if session.over or old else session.admitted.ended()

    def _caller(self, session: _Session) -> Caller:
        return replace(
            session.admitted,
            ended=partial(self._why, session),
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
