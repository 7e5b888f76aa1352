"""The policy decides as a simple model of it does: ten thousand attempts at hosts that rules name
or do not, in every spelling, of methods and paths that can be read or not, with grants.

That egress decides as the policy does: tests/integration/egress/test_decisions.py.
"""

import random
import re
from collections import Counter
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from wire.egress.hosts import canonical, is_address, networks, refusal
from wire.egress.rules import Readings, Rule

from tests.support.egress.policy_model import any_policy, any_try
from tests.support.examples import SEED, examples, scaled

POLICIES = scaled(500)
ATTEMPTS = 20
EVERY_NETWORK = networks(("0.0.0.0/0", "::/0"))


def test_ten_thousand_attempts() -> None:
    seen: Counter[str] = Counter()
    for seed in range(POLICIES):
        chance = random.Random(f"{SEED} {seed}")
        made = any_policy(chance)
        policy = made.policy
        for _ in range(ATTEMPTS):
            meant, written = any_try(chance)
            verdict = policy.decide(written, meant.session)
            seen[verdict.decision] += 1
            assert (verdict.decision, verdict.asks_for) == made.expected(meant), (
                f"{seed}: {written} in {meant.session!r} with {made}"
            )
    assert sum(seen.values()) == POLICIES * ATTEMPTS
    assert min(seen.values()) >= POLICIES * ATTEMPTS / 50, seen


def refused_in_words(error: ValueError) -> None:
    assert re.fullmatch(r"[a-z].{10,}", str(error))
    assert str(error).isprintable()


TEXTS = st.one_of(
    st.text(),
    st.text("0123456789.x:[]fa%"),
    st.from_regex(r"([A-Z]{1,3} )?(https?://)?[a-z0-9*.]{1,9}(:[0-9]{1,6})?(/[ab*%2e./]{0,6})?"),
)


@examples(200)
@given(TEXTS)
def test_a_rule_is_refused_in_words_or_says_the_same_again(text: str) -> None:
    try:
        rule = Rule.parse(text)
    except ValueError as error:
        refused_in_words(error)
        return
    assert Rule.parse(str(rule)) == rule


@examples(200)
@given(TEXTS)
def test_a_host_has_one_spelling(text: str) -> None:
    try:
        host = canonical(text)
    except ValueError as error:
        refused_in_words(error)
        return
    assert canonical(host) == host
    assert host.isascii()
    assert host == host.lower()
    assert is_address(host) or re.fullmatch(r"[a-z0-9._-]+", host)


@given(st.one_of(TEXTS, st.ip_addresses().map(str)))
def test_a_public_address_stays_one_where_private_networks_are_allowed(text: str) -> None:
    if not refusal(text):
        assert is_address(text)
        assert not refusal(text, EVERY_NETWORK)


@examples(200)
@given(st.one_of(st.text(), st.text("%2eEfF5cC./\\;ab?#")))
def test_a_path_that_a_rule_means_stays_below_it(path: str) -> None:
    """However often a server unescapes it, and whatever it takes for a slash."""
    if not Rule.parse("example.org/public/*").means("GET", Readings.of(path)):
        return
    seen = path.partition("?")[0].partition("#")[0]
    for _ in range(6):
        for slashes in (seen, seen.replace("\\", "/")):
            segments = [each.partition(";")[0] for each in slashes.split("/")]
            assert segments[1] == "public" or "%" in segments[1]
            assert not {".", ".."} & set(segments)
        seen = unquote(seen)
    assert seen.startswith("/public/")
