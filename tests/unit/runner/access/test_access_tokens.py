"""Access tokens as they are kept."""

import hashlib
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from wire.errors import Code

from runner.access.scopes import Scope
from runner.access.sockets import own_authority
from runner.access.tokens import PREFIX, Tokens, digest, lifetime_of
from runner.errors import HostError, WorkspaceError
from tests.support.scratch import SCRATCH

CHAT = frozenset({Scope.CHAT})
DAY = timedelta(days=1)


@pytest.fixture
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("w"))


def test_a_secret_is_found_and_kept_nowhere(tokens: Tokens) -> None:
    token, secret = tokens.create("alice", "laptop", CHAT, DAY)
    assert secret.startswith(PREFIX)
    assert len(secret) == len(PREFIX) + 43
    assert Tokens(tokens.directory.parent).find(digest(secret)) == token
    assert token.digest == hashlib.sha256(secret.encode()).hexdigest()
    for path in tokens.directory.iterdir():
        assert secret.removeprefix(PREFIX).encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
    assert tokens.directory.stat().st_mode & 0o777 == 0o700


def test_what_is_nearly_a_secret_is_none(tokens: Tokens) -> None:
    token, secret = tokens.create("alice", "laptop", CHAT, DAY)
    for wrong in ("", PREFIX, secret[:-1], f"{secret}x", secret.swapcase(), token.digest, "\udcff"):
        assert tokens.find(digest(wrong)) is None


def test_a_name_is_taken_once_by_each_user(tokens: Tokens) -> None:
    tokens.create("alice", "laptop", CHAT, DAY)
    tokens.create("bob", "laptop", CHAT, DAY)
    with pytest.raises(HostError, match="alice has a token named laptop already") as raised:
        tokens.create("alice", "laptop", CHAT, DAY)
    assert raised.value.code is Code.ALREADY_EXISTS
    assert len(tokens.all()) == 2


@pytest.mark.parametrize("name", ["", "Laptop", "my laptop", "../x", "-x", "x" * 33, "x\n"])
def test_a_bad_name_is_refused(tokens: Tokens, name: str) -> None:
    with pytest.raises(HostError, match="bad name of a token"):
        tokens.create("alice", name, CHAT, DAY)
    assert tokens.all() == ()


def test_what_was_revoked_is_gone_for_others_at_once(tokens: Tokens) -> None:
    other = Tokens(tokens.directory.parent)
    _, secret = tokens.create("alice", "laptop", CHAT, DAY)
    _, kept = tokens.create("bob", "phone", CHAT, DAY)
    assert other.find(digest(secret))
    assert tokens.revoke("bob", "laptop") == []
    assert [token.name for token in tokens.revoke("alice", "laptop")] == ["laptop"]
    assert other.find(digest(secret)) is None
    assert other.find(digest(kept))
    tokens.create("bob", "tablet", CHAT, DAY)
    assert len(tokens.revoke("bob")) == 2
    assert other.all() == ()


def test_commands_at_once_lose_no_token(tokens: Tokens) -> None:
    def create(number: int) -> None:
        Tokens(tokens.directory.parent).create("alice", f"t{number}", CHAT, DAY)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens.all()) == 12


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"version":2,"tokens":[]}', b'{"tokens":[{"name":"x"}]}', b"\xff\xfe"],
)
def test_nobody_is_found_in_a_damaged_file(tokens: Tokens, damage: bytes) -> None:
    _, secret = tokens.create("alice", "laptop", CHAT, DAY)
    path = tokens.directory / "tokens.json"
    path.write_bytes(damage)
    for _ in range(2):
        with pytest.raises(HostError, match="nobody is let in") as raised:
            tokens.find(digest(secret))
        assert raised.value.code is Code.DATA_LOSS
        assert str(path) in raised.value.resolution
    with pytest.raises(HostError, match="nobody is let in"):
        tokens.create("alice", "phone", CHAT, DAY)
    assert path.read_bytes() == damage


def test_when_a_token_was_used_is_kept_and_goes_with_it(tokens: Tokens) -> None:
    token, _ = tokens.create("alice", "laptop", CHAT, DAY)
    tokens.note_used({token.digest: "2026-11-22T10:00:00+00:00", "0" * 64: "never"})
    assert tokens.last_used() == {token.digest: "2026-11-22T10:00:00+00:00"}
    (tokens.directory / "last_used.json").write_text("[")
    assert tokens.last_used() == {}
    tokens.note_used({token.digest: "2026-11-22T11:00:00+00:00"})
    assert tokens.last_used() == {token.digest: "2026-11-22T11:00:00+00:00"}


def test_a_directory_that_is_a_link_is_refused(tokens: Tokens) -> None:
    tokens.directory.symlink_to(Path(SCRATCH))
    with pytest.raises(WorkspaceError, match="symbolic link"):
        tokens.create("alice", "laptop", CHAT, DAY)


@pytest.mark.parametrize(
    ("text", "hours"), [("1h", 1), ("12h", 12), ("30d", 720), ("8w", 1344), ("3650d", 87_600)]
)
def test_a_lifetime_is_written_in_hours_days_or_weeks(text: str, hours: int) -> None:
    assert lifetime_of(text) == timedelta(hours=hours)


@pytest.mark.parametrize(
    "text", ["", "0d", "-1d", "1", "d", "3651d", "1y", "never", "9" * 30 + "d"]
)
def test_another_lifetime_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(HostError, match="bad --expires") as raised:
        lifetime_of(text)
    assert "12h, 30d or 8w" in raised.value.details


def test_the_authority_stays_and_a_damaged_one_is_not_replaced(tokens: Tokens) -> None:
    made = own_authority(tokens)
    assert own_authority(tokens).public == made.public
    path = tokens.directory / "authority.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text()[:-200])
    with pytest.raises(HostError, match="authority for access files is damaged") as raised:
        own_authority(tokens)
    assert f"mv {path}" in raised.value.resolution
