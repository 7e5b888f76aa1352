"""How long a browser's session lasts, and what it takes to have it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from wire.errors import Code, WireError

from runner.access.callers import Caller
from runner.access.tokens import digest
from runner.serve.login import sessions as module
from runner.serve.login.sessions import Sessions

ALICE = Caller.at_terminal("alice", "console")
BOB = Caller("bob", ALICE.scopes, "access-x", key="bob's token")
IDLE_S, LIFETIME_S = 7_200.0, 86_400.0


@pytest.fixture
def now() -> list[float]:
    return [1_000_000.0]


@pytest.fixture
def again(tmp_path: Path, now: list[float]) -> Callable[[], Sessions]:
    """The sessions, as each start of the server has them."""

    def with_key(key: str) -> Caller:
        return {BOB.key: BOB}[key]

    return lambda: Sessions(tmp_path, with_key, IDLE_S, LIFETIME_S, clock=lambda: now[0])


@pytest.fixture
def sessions(again: Callable[[], Sessions]) -> Sessions:
    return again()


def refused(sessions: Sessions, cookie: str, page: str) -> bool:
    with pytest.raises(WireError) as raised:
        sessions.find(cookie, page)
    return raised.value.code is Code.UNAUTHENTICATED


def test_a_session_ends_when_nobody_uses_it(sessions: Sessions, now: list[float]) -> None:
    secrets = sessions.begin(ALICE)
    now[0] += IDLE_S - 1
    caller = sessions.find(*secrets)
    assert caller.user_id == "alice"
    now[0] += IDLE_S + 1
    assert caller.ended() is not None
    assert refused(sessions, *secrets)


def test_a_session_ends_in_any_case(sessions: Sessions, now: list[float]) -> None:
    secrets = sessions.begin(ALICE)
    end = now[0] + LIFETIME_S
    while now[0] < end - IDLE_S:
        assert sessions.find(*secrets)
        now[0] += IDLE_S / 2
    assert sessions.find(*secrets)
    now[0] = end + 1
    assert refused(sessions, *secrets)


def test_who_is_told_while_no_page_is_open_visits_nothing(
    sessions: Sessions, now: list[float]
) -> None:
    cookie, page = sessions.begin(ALICE)
    now[0] += IDLE_S - 1
    assert sessions.named(digest(cookie)).user_id == "alice"
    now[0] += 2
    with pytest.raises(WireError):
        sessions.named(digest(cookie))
    assert refused(sessions, cookie, page)


def test_it_takes_both_secrets_and_only_hashes_are_kept(sessions: Sessions, tmp_path: Path) -> None:
    cookie, page = sessions.begin(ALICE)
    other, others_page = sessions.begin(BOB)
    for wrong in ((cookie, ""), ("", page), (cookie, cookie), (cookie, others_page), (other, page)):
        assert refused(sessions, *wrong)
    kept = "".join(f"{path.name} {path.read_text()}" for path in tmp_path.iterdir())
    assert not any(secret in kept for secret in (cookie, page, other, others_page))


def test_a_session_outlives_the_server_as_who_it_was_and_not_its_token(
    again: Callable[[], Sessions], tmp_path: Path
) -> None:
    operator, bob = again().begin(ALICE), again().begin(BOB)
    assert again().find(*operator).operator
    assert again().find(*bob).key == BOB.key

    def revoked(key: str) -> Caller:
        raise WireError(Code.UNAUTHENTICATED, f"{key} was revoked")

    gone = Sessions(tmp_path, revoked, IDLE_S, LIFETIME_S, clock=lambda: 1_000_000.0)
    assert refused(gone, *bob)
    for path in tmp_path.iterdir():
        path.write_text("{")
    assert refused(again(), *operator)


def test_a_logout_ends_one_session_or_all_of_a_person(sessions: Sessions) -> None:
    first, second, other = sessions.begin(ALICE), sessions.begin(ALICE), sessions.begin(BOB)
    for wrong in ((first[0], ""), (first[0], second[1]), ("", first[1])):
        sessions.end(*wrong, everywhere=True)
    assert sessions.find(*first)
    sessions.end(*first)
    assert refused(sessions, *first)
    caller = sessions.find(*second)
    sessions.end(*sessions.begin(ALICE), everywhere=True)
    assert caller.ended() is not None
    assert refused(sessions, *second)
    assert sessions.find(*other)


def test_a_token_has_so_many_and_takes_nobody_elses(
    sessions: Sessions, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    operator = sessions.begin(ALICE)
    begun = []
    for _ in range(5):
        now[0] += 1
        begun.append(sessions.begin(replace(BOB)))
    assert refused(sessions, *begun[0])
    assert refused(sessions, *begun[1])
    assert all(sessions.find(*secrets) for secrets in (*begun[2:], operator))
