"""How long a browser's session lasts, and when its secret is exchanged."""

from collections.abc import Callable

import pytest
from wire.errors import Code, WireError

from runner.access.callers import Caller
from runner.serve.login import sessions as module
from runner.serve.login.sessions import GRACE_S, ROTATE_S, Sessions

ALICE = Caller.at_terminal("alice", "console")
IDLE_S, LIFETIME_S = 7_200.0, 86_400.0


@pytest.fixture
def now() -> list[float]:
    return [1_000.0]


@pytest.fixture
def sessions(now: list[float]) -> Sessions:
    return Sessions(IDLE_S, LIFETIME_S, clock=lambda: now[0])


def refused(find: Callable[[str], object], secret: str) -> bool:
    with pytest.raises(WireError) as raised:
        find(secret)
    return raised.value.code is Code.UNAUTHENTICATED


def test_a_session_ends_when_nobody_uses_it(sessions: Sessions, now: list[float]) -> None:
    secret = sessions.begin(ALICE)
    now[0] += IDLE_S - 1
    caller, _ = sessions.find(secret)
    assert caller.user_id == "alice"
    now[0] += IDLE_S + 1
    assert caller.ended() is not None
    assert refused(sessions.find, secret)


def test_a_session_ends_in_any_case(sessions: Sessions, now: list[float]) -> None:
    secret = sessions.begin(ALICE)
    end = now[0] + LIFETIME_S
    while now[0] < end - IDLE_S:
        secret = sessions.find(secret)[1] or secret
        now[0] += IDLE_S / 2
    assert sessions.find(secret)
    now[0] = end + 1
    assert refused(sessions.find, secret)


def test_a_new_secret_takes_the_place_of_the_old_one_shortly_after_its_use(
    sessions: Sessions, now: list[float]
) -> None:
    old = sessions.begin(ALICE)
    now[0] += ROTATE_S + 1
    _, new = sessions.find(old)
    assert new
    assert sessions.find(old)[1] == ""
    assert sessions.find(new)[1] == ""
    now[0] += GRACE_S + 1
    assert sessions.find(new)
    assert refused(sessions.find, old)


def test_who_never_got_the_new_secret_gets_another(sessions: Sessions, now: list[float]) -> None:
    old = sessions.begin(ALICE)
    now[0] += ROTATE_S + 1
    _, lost = sessions.find(old)
    now[0] += GRACE_S + 1
    _, new = sessions.find(old)
    assert new not in ("", lost)
    assert sessions.find(new)
    assert refused(sessions.find, lost)


def test_a_login_ends_the_session_that_the_browser_had(sessions: Sessions) -> None:
    planted = sessions.begin(ALICE)
    assert sessions.begin(ALICE, instead_of=planted) != planted
    assert refused(sessions.find, planted)
    assert sessions.begin(ALICE, instead_of="chosen by somebody") != "chosen by somebody"
    assert refused(sessions.find, "chosen by somebody")


def test_a_logout_ends_one_session_or_all_of_a_person(sessions: Sessions) -> None:
    bob = Caller("bob", ALICE.scopes, "access-x")
    first, second, other = sessions.begin(ALICE), sessions.begin(ALICE), sessions.begin(bob)
    sessions.end(first)
    assert refused(sessions.find, first)
    caller, _ = sessions.find(second)
    sessions.end(sessions.begin(ALICE), everywhere=True)
    assert caller.ended() is not None
    assert refused(sessions.find, second)
    assert sessions.find(other)


def test_there_are_only_so_many(
    sessions: Sessions, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    secrets = []
    for _ in range(4):
        now[0] += 1
        secrets.append(sessions.begin(ALICE))
    assert refused(sessions.find, secrets[0])
    assert all(sessions.find(secret) for secret in secrets[1:])
