"""The scan for secrets, of which only digests are known."""

import socket

import pytest
from wire.boundary import CANARY, SECRET_MIN_CHARS, SecretDigest, digest_secret

from shell_daemon.probe import secrets
from shell_daemon.probe.world import BoundaryHit
from tests.support.boundary.probed_guest import ProbedGuest

TOKEN = "A-token_of-43-characters-as-the-runner-makes"
PHRASE = "a key with spaces, and ünïcode"
SALT = bytes(16)
WANTED = (
    digest_secret("the token", SALT, TOKEN),
    digest_secret("the key", SALT, PHRASE),
    digest_secret(CANARY, SALT, TOKEN[::-1]),
)


def found(guest: ProbedGuest, wanted: tuple[SecretDigest, ...] = WANTED) -> str:
    world = guest.look(secrets=wanted)
    try:
        return secrets.secrets(world)
    except BoundaryHit as hit:
        return f"hit: {hit}"


def test_nothing_to_find(guest: ProbedGuest) -> None:
    guest.write("1/environ", "PATH=/usr/bin\0HOME=/tmp\0")
    assert found(guest).startswith("2 not found in ")


def test_without_secrets_there_is_nothing_to_look_for(guest: ProbedGuest) -> None:
    assert found(guest, ()) == "nothing to look for"


@pytest.mark.parametrize("name", ["environ", "cmdline", "comm", "mountinfo"])
def test_a_secret_of_a_process_is_a_hit(guest: ProbedGuest, name: str) -> None:
    guest.write(f"7/{name}", f"x\0--token={TOKEN}\0y")
    assert found(guest) == f"hit: the token is in /proc/7/{name}"


def test_a_secret_with_other_characters_is_a_hit(guest: ProbedGuest) -> None:
    guest.write("7/environ", f"KEY=[{PHRASE}]\0")
    assert found(guest) == "hit: the key is in /proc/7/environ"


@pytest.mark.parametrize("place", ["/ipc/deep/er/file", "/logs/old.log", "/run/x"])
def test_a_secret_in_a_file_is_a_hit(guest: ProbedGuest, place: str) -> None:
    top = guest.share("/" + place.split("/")[1])
    path = top.parent / place[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a line\n" * 10_000 + f'{{"token": "{TOKEN}"}}\n')
    assert found(guest) == f"hit: the token is in {place}"


def test_only_the_end_of_a_huge_file_is_read(guest: ProbedGuest) -> None:
    path = guest.share("/logs") / "old.log"
    path.write_text(TOKEN + "\n" + "a line\n" * 100_000)
    assert "not found" in found(guest)


def test_the_users_own_files_are_their_own(guest: ProbedGuest) -> None:
    (guest.share("/shared") / "x").write_text(TOKEN)
    assert "not found" in found(guest)


def test_what_is_no_file_is_passed_over(guest: ProbedGuest) -> None:
    logs = guest.share("/logs")
    (logs / "directory").mkdir()
    (logs / "link").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(logs / "x.sock"))
        assert "not found" in found(guest)


def test_the_canary_is_a_check_of_its_own(guest: ProbedGuest) -> None:
    guest.write("7/environ", f"ENVELOPE={TOKEN[::-1]}\0")
    assert "not found" in found(guest)
    with pytest.raises(BoundaryHit, match=r"^the canary is in /proc/7/environ$"):
        secrets.canary(guest.look(secrets=WANTED))


def test_without_a_canary_there_is_nothing_to_look_for(guest: ProbedGuest) -> None:
    assert secrets.canary(guest.look(secrets=WANTED[:1])) == "nothing to look for"


def test_the_budget_bounds_what_is_digested() -> None:
    content = bytes(range(33, 127)) * 1000
    hits, tried = secrets.search(content, WANTED, SALT, budget=50)
    assert (hits, tried) == ([], 50)


def test_a_digest_says_nothing_but_length_and_alphabet() -> None:
    first, second = digest_secret("x", SALT, TOKEN), digest_secret("x", bytes([1] * 16), TOKEN)
    assert first.digest != second.digest
    assert TOKEN not in repr(first)
    assert (first.length, first.word) == (len(TOKEN), True)
    assert not digest_secret("x", SALT, PHRASE).word
    assert SECRET_MIN_CHARS == 12
