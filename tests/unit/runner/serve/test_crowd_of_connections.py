"""Which connection makes room for another, and what counts as one address."""

from typing import Any

import pytest
from wire.errors import WireError

from runner.serve import connections
from runner.serve.connections import Crowd, place_of


class Waiting:
    """A connection that only waits."""

    def __init__(self, crowd: Crowd, place: str) -> None:
        self.crowd = crowd
        self.place = place
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True
        self.crowd.leave(self, "")  # type: ignore[arg-type]


def waiting(crowd: Crowd, place: str = "") -> Any:
    made = Waiting(crowd, place)
    crowd.wait(made)  # type: ignore[arg-type]
    return made


def test_an_address_that_is_one_persons_makes_room_by_itself() -> None:
    crowd = Crowd(8_192)
    first = waiting(crowd, "192.0.2.1")
    many = [waiting(crowd, "192.0.2.9") for _ in range(connections.WAITING_OF_PLACE_MAX * 3)]
    proxied = [waiting(crowd) for _ in range(100)]
    assert not first.is_cut
    assert [each.is_cut for each in many].count(False) == connections.WAITING_OF_PLACE_MAX
    assert not many[-1].is_cut
    assert not any(each.is_cut for each in proxied)


def test_few_descriptors_leave_room_for_those_who_are_in() -> None:
    crowd = Crowd(64)
    many = [waiting(crowd) for _ in range(40)]
    assert [each.is_cut for each in many].count(False) == 16


def test_who_was_let_in_is_not_cut_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ADMITTED_MAX", 1)
    crowd = Crowd(64)
    inside, more = waiting(crowd), waiting(crowd)
    crowd.admit(inside, "alice")
    with pytest.raises(WireError, match="too many requests"):
        crowd.admit(more, "alice")
    for _ in range(40):
        waiting(crowd)
    assert (inside.is_cut, more.is_cut) == (False, True)
    crowd.leave(inside, "alice")
    crowd.admit(waiting(crowd), "alice")


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::9", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a name", "a name"),
    ],
)
def test_of_ipv6_a_customers_network_is_one_address(host: str, place: str) -> None:
    assert place_of(host) == place
