"""The scan for secrets finds what is there and nothing else; the specification and the report
survive their way."""

from hypothesis import given
from hypothesis import strategies as st
from wire.boundary import digest_secret

from shell_daemon.probe.secrets import search
from tests.support.examples import examples

SALT = bytes(range(16))
WORDS = st.text("abcXYZ019_-", min_size=12, max_size=40)
PHRASES = st.text(st.characters(codec="utf-8"), min_size=12, max_size=40)


@examples(200)
@given(
    secret=st.one_of(WORDS, PHRASES), before=st.binary(max_size=60), after=st.binary(max_size=60)
)
def test_a_secret_is_found_wherever_it_stands(secret: str, before: bytes, after: bytes) -> None:
    wanted = (digest_secret("it", SALT, secret),)
    found, _ = search(before + secret.encode() + after, wanted, SALT)
    assert found == list(wanted)


@examples(200)
@given(secret=st.one_of(WORDS, PHRASES), content=st.binary(max_size=200))
def test_nothing_is_found_that_is_not_there(secret: str, content: bytes) -> None:
    found, _ = search(content, (digest_secret("it", SALT, secret),), SALT)
    assert bool(found) == (secret.encode() in content)


@examples(100)
@given(secrets=st.lists(st.one_of(WORDS, PHRASES), min_size=1, max_size=5, unique=True))
def test_secrets_of_every_length_are_told_apart(secrets: list[str]) -> None:
    wanted = tuple(digest_secret(str(at), SALT, secret) for at, secret in enumerate(secrets))
    found, _ = search(b"\0".join(secret.encode() for secret in secrets), wanted, SALT)
    assert set(found) == set(wanted)
