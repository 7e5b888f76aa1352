"""Limits of requests, bytes and connections, each alone and all in any order."""

from collections import Counter
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.v1.egress_pb2 import EgressLimits, EgressSpent

from egress.admission.allowance import Allowance
from egress.admission.record import Caller
from tests.support.examples import examples

MONDAY = date(2026, 11, 23)


def caller(role: str = "shell", turn_id: str = "") -> Caller:
    return Caller(role, "session", turn_id)


class Calendar:
    def __init__(self) -> None:
        self.day = MONDAY

    def __call__(self) -> date:
        return self.day


def allowance(limits: EgressLimits, *spent: EgressSpent) -> tuple[Allowance, Calendar]:
    calendar = Calendar()
    made = Allowance(calendar)
    made.configure(limits, spent)
    return made, calendar


def test_zero_is_no_limit() -> None:
    free, _ = allowance(EgressLimits())
    for _ in range(100):
        assert free.connect("shell") == ""
        assert free.admit(caller(turn_id="t"), "example.org") == ""
        assert free.count(caller(turn_id="t"), "example.org", 10**12, 10**12) == ""


def test_connections_at_once_of_each_role() -> None:
    two, _ = allowance(EgressLimits(connections=2))
    assert two.connect("shell") == two.connect("shell") == ""
    assert two.connect("shell") == (
        "the limit of 2 connections at once is reached (egress.limits.connections)"
    )
    assert two.connect("agent") == ""
    two.disconnect("shell")
    assert two.connect("shell") == ""


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (EgressLimits(turn_requests=2), "2 requests a turn is reached (egress.limits.turn_"),
        (
            EgressLimits(host_day_requests=2),
            "2 requests to example.org a day is reached (egress.limits.host_day_",
        ),
        (EgressLimits(day_requests=2), "2 requests a day is reached (egress.limits.day_"),
    ],
)
def test_requests(limits: EgressLimits, sentence: str) -> None:
    two, _ = allowance(limits)
    someone = caller(turn_id="t")
    assert two.admit(someone, "example.org") == two.admit(someone, "example.org") == ""
    assert two.admit(someone, "example.org") == f"the limit of {sentence}requests)"
    assert two.admit(caller("agent", "t"), "example.org") == ""


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (EgressLimits(turn_bytes=2_500_000), "2.5 MB a turn is reached (egress.limits.turn_"),
        (
            EgressLimits(host_day_bytes=2_500_000),
            "2.5 MB to example.org a day is reached (egress.limits.host_day_",
        ),
        (EgressLimits(day_bytes=2_500_000), "2.5 MB a day is reached (egress.limits.day_"),
    ],
)
def test_bytes_of_both_directions(limits: EgressLimits, sentence: str) -> None:
    some, _ = allowance(limits)
    someone = caller(turn_id="t")
    assert some.admit(someone, "example.org") == ""
    assert some.count(someone, "example.org", 500_000, 2_000_000) == ""
    assert some.admit(someone, "example.org") == f"the limit of {sentence}mb)"
    assert some.count(someone, "example.org", 0, 1) == f"the limit of {sentence}mb)"
    assert some.count(caller("agent", "t"), "example.org", 1, 0) == ""


def test_other_turns_hosts_and_days_have_their_own() -> None:
    one, calendar = allowance(EgressLimits(turn_requests=1))
    assert one.admit(caller(turn_id="t"), "example.org") == ""
    assert one.admit(caller(turn_id="t"), "other.example") != ""
    assert one.admit(caller(turn_id="u"), "example.org") == ""
    assert one.admit(caller(), "example.org") == one.admit(caller(), "example.org") == ""

    one, calendar = allowance(EgressLimits(host_day_requests=1, day_requests=2))
    assert one.admit(caller(), "example.org") == ""
    assert "to example.org a day" in one.admit(caller(), "example.org")
    assert one.admit(caller(), "other.example") == ""
    assert "requests a day" in one.admit(caller(), "third.example")
    calendar.day += timedelta(1)
    assert one.admit(caller(), "example.org") == ""


def test_what_was_spent_before_counts_on_its_day() -> None:
    spent = EgressSpent(
        role="shell", host="example.org", day=MONDAY.isoformat(), requests=2, bytes=50
    )
    limits = EgressLimits(day_requests=3, host_day_bytes=60)
    some, calendar = allowance(limits, spent)
    assert some.admit(caller(), "example.org") == ""
    assert "requests a day" in some.admit(caller(), "other.example")
    assert some.count(caller(), "example.org", 0, 10) == ""
    assert some.count(caller(), "example.org", 0, 1) != ""
    assert some.admit(caller("agent"), "example.org") == ""
    some.configure(limits, [spent])
    assert "requests a day" in some.admit(caller(), "other.example"), "what was counted is kept"
    calendar.day += timedelta(1)
    some.configure(limits, [spent])
    assert some.admit(caller(), "example.org") == some.count(caller(), "example.org", 0, 60) == ""


def test_hosts_of_one_day_are_bounded() -> None:
    free, calendar = allowance(EgressLimits())
    for number in range(10_000):
        assert free.admit(caller(), f"{number}.example.org") == ""
    assert "10000 hosts" in free.admit(caller(), "one-more.example.org")
    assert free.admit(caller(), "0.example.org") == ""
    assert free.admit(caller("agent"), "one-more.example.org") == ""
    calendar.day += timedelta(1)
    assert free.admit(caller(), "one-more.example.org") == ""


def test_a_turn_that_asked_for_something_lately_is_remembered() -> None:
    one, _ = allowance(EgressLimits(turn_requests=2))
    for number in range(5_000):
        assert one.admit(caller(turn_id=f"turn-{number}"), "example.org") == ""
        if number == 4_000:
            assert one.admit(caller(turn_id=f"turn-{number}"), "example.org") == ""
    assert one.admit(caller(turn_id="turn-4000"), "example.org") != ""


ROLES = st.sampled_from(("agent", "shell"))
HOSTS = st.sampled_from(("a.example", "b.example", "c.example"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), ROLES, st.sampled_from(("", "t", "u")), HOSTS, st.just(0)),
        st.tuples(
            st.just("count"), ROLES, st.sampled_from(("", "t", "u")), HOSTS, st.integers(0, 50)
        ),
        st.tuples(st.just("day"), st.just(""), st.just(""), st.just(""), st.integers(0, 2)),
    ),
    max_size=60,
)
MOST = st.integers(0, 8)
LIMITS = st.builds(
    EgressLimits,
    turn_requests=MOST,
    turn_bytes=st.integers(0, 200),
    host_day_requests=MOST,
    host_day_bytes=st.integers(0, 200),
    day_requests=MOST,
    day_bytes=st.integers(0, 200),
)


@examples(300)
@given(LIMITS, STEPS)
def test_no_order_of_requests_exceeds_a_limit(
    limits: EgressLimits, steps: list[tuple[str, str, str, str, int]]
) -> None:
    """Against sums over the whole history."""
    real, calendar = allowance(limits)
    requests: Counter[tuple[str, ...]] = Counter()
    taken: Counter[tuple[str, ...]] = Counter()
    for step, role, turn_id, host, amount in steps:
        if step == "day":
            calendar.day += timedelta(amount)
            continue
        day = calendar.day.isoformat()
        keys = [
            (("host", role, host, day), limits.host_day_requests, limits.host_day_bytes),
            (("day", role, day), limits.day_requests, limits.day_bytes),
        ]
        if turn_id:
            keys.append((("turn", role, turn_id), limits.turn_requests, limits.turn_bytes))
        someone = caller(role, turn_id)
        if step == "admit":
            full = any(
                (most and requests[key] >= most) or (bytes_ and taken[key] >= bytes_)
                for key, most, bytes_ in keys
            )
            assert bool(real.admit(someone, host)) == full
            if not full:
                requests.update(key for key, _, _ in keys)
        else:
            for key, _, _ in keys:
                taken[key] += amount
            over = any(bytes_ and taken[key] > bytes_ for key, _, bytes_ in keys)
            assert bool(real.count(someone, host, amount // 2, amount - amount // 2)) == over
