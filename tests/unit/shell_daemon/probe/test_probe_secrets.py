"""The scan for secrets, of which only marks are known."""

import socket

import pytest
from wire.boundary import CANARY, Mark, mark_of, marked
from wire.transport import new_token

from shell_daemon.probe import secrets
from shell_daemon.probe.world import BoundaryHit, Budget, Budgets
from tests.support.boundary.probed_guest import ProbedGuest

TOKEN = new_token()
OTHER = marked("ünïcode", "another token")
PLANTED = "a-canary-as-the-runner-makes-it"
WANTED = (
    Mark("the token", mark_of(TOKEN)),
    Mark("the other token", mark_of(OTHER)),
    Mark(CANARY, PLANTED),
)


def found(guest: ProbedGuest, wanted: tuple[Mark, ...] = WANTED) -> str:
    world = guest.look(marks=wanted)
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
    guest.write("7/environ", f"KEY=[{OTHER}]\0")
    assert found(guest) == "hit: the other token is in /proc/7/environ"


@pytest.mark.parametrize("place", ["/ipc/deep/er/file", "/ipc/old.log", "/run/x"])
def test_a_secret_in_a_file_is_a_hit(guest: ProbedGuest, place: str) -> None:
    top = guest.share("/" + place.split("/")[1])
    path = top.parent / place[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a line\n" * 10_000 + f'{{"token": "{TOKEN}"}}\n')
    assert found(guest) == f"hit: the token is in {place}"


def test_only_the_end_of_a_huge_file_is_read(guest: ProbedGuest) -> None:
    path = guest.share("/ipc") / "old.log"
    path.write_text(TOKEN + "\n" + "a line\n" * 200_000)
    assert "not found" in found(guest)


def test_files_that_are_too_large_together_are_a_hit(guest: ProbedGuest) -> None:
    directory = guest.share("/ipc")
    for number in range(3):
        (directory / f"{number}").write_text("a line\n")
    assert "not found" in found(guest)
    world = guest.look(budgets=Budgets(own=Budget(100, 5.0, 10)), marks=WANTED)
    with pytest.raises(BoundaryHit, match=r"^the files of /ipc are too many or too large"):
        secrets.secrets(world)


def test_a_crowd_elsewhere_hides_no_secret(guest: ProbedGuest) -> None:
    """Each place has a budget of its own, and one that is used up is a hit only for itself."""
    shared, directory = guest.share("/shared"), guest.share("/ipc")
    for number in range(30):
        (shared / f"{number}").touch()
    (directory / "x.log").write_text(TOKEN)
    world = guest.look(budgets=Budgets(users=Budget(20, 5.0)), marks=WANTED)
    with pytest.raises(BoundaryHit, match=r"^the token is in /ipc/x\.log$"):
        secrets.secrets(world)


def test_a_crowd_beside_it_is_a_hit(guest: ProbedGuest) -> None:
    directory = guest.share("/ipc")
    for number in range(30):
        (directory / f"{number}").touch()
    world = guest.look(budgets=Budgets(own=Budget(20, 5.0, 100)), marks=WANTED)
    for check in (secrets.secrets, secrets.canary):
        with pytest.raises(BoundaryHit, match="the walk of /ipc did not end"):
            check(world)


def test_the_users_own_files_are_their_own(guest: ProbedGuest) -> None:
    (guest.share("/shared") / "x").write_text(TOKEN)
    assert "not found" in found(guest)


def test_what_is_no_file_is_passed_over(guest: ProbedGuest) -> None:
    directory = guest.share("/ipc")
    (directory / "directory").mkdir()
    (directory / "link").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "x.sock"))
        assert "not found" in found(guest)


def test_the_canary_is_a_check_of_its_own(guest: ProbedGuest) -> None:
    guest.write("7/environ", f"ENVELOPE={PLANTED}\0")
    assert "not found" in found(guest)
    with pytest.raises(BoundaryHit, match=r"^the canary is in /proc/7/environ$"):
        secrets.canary(guest.look(marks=WANTED))


def test_without_a_canary_there_is_nothing_to_look_for(guest: ProbedGuest) -> None:
    assert secrets.canary(guest.look(marks=WANTED[:1])) == "nothing to look for"


def test_a_mark_says_nothing_about_the_rest_of_its_token() -> None:
    mark = mark_of(TOKEN)
    assert len(mark) >= 16
    assert TOKEN.startswith(f"{mark}.")
    assert len(TOKEN) - len(mark) > 43
    assert mark_of(new_token()) != mark
    assert mark_of("a token without a mark") == ""
