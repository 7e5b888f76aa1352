"""Networks when all address ranges of the engine are in use."""

import ipaddress
import itertools
from pathlib import Path
from typing import Any, Final

import docker.errors
import pytest
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.container.names import ObjectNames
from runner.tiers.container.networks import Networks, free_subnets

HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT_ROUTE = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
FIRST_HALF = "tun0\t000012C6\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
"""A route to 198.18.0.0/16."""

EVERYTHING: Final = (
    "tun0\t00000000\t01000A0A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n"
    "tun0\t00000080\t01000A0A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n"
)
"""Routes to 0.0.0.0/1 and 128.0.0.0/1, with which a VPN takes all traffic."""


class FullEngine:
    """An engine with no ranges of its own left; all its other networks are in use."""

    def __init__(self) -> None:
        self.ranges: dict[str, str] = {}
        self.taken: set[str] = set()

    def inspect_network(self, net_id: str, *_: Any, **__: Any) -> dict[str, Any]:
        raise docker.errors.NotFound("no such network")

    def networks(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    def create_network(self, name: str, *_: Any, ipam: Any = None, **__: Any) -> None:
        if ipam is None:
            raise _refusal("all predefined address pools have been fully subnetted")
        subnet = ipam["Config"][0]["Subnet"]
        if subnet in self.taken or "every" in self.taken:
            raise _refusal(
                "invalid pool request: Pool overlaps with other one on this address space"
            )
        self.taken.add(subnet)
        self.ranges[name] = subnet


def _refusal(text: str) -> docker.errors.APIError:
    return docker.errors.APIError("403 Client Error", explanation=text)


def test_fifty_users_get_ranges_that_do_not_overlap() -> None:
    engine: Any = FullEngine()
    networks = Networks()
    for number in range(50):
        networks.acquire(engine, ObjectNames(f"user{number}", "0" * 64), "launch")
    ranges = [ipaddress.ip_network(each) for each in engine.ranges.values()]
    assert len(ranges) == 50
    assert not any(one.overlaps(other) for one, other in itertools.combinations(ranges, 2))


def test_a_range_that_another_runner_has_just_taken_is_not_the_last() -> None:
    engine: Any = FullEngine()
    place = ObjectNames("alice", "0" * 64)
    name = f"{place.prefix}-outbound"
    first, second = itertools.islice(free_subnets(name), 2)
    engine.taken = {str(first)}
    Networks().acquire(engine, place, "launch")
    assert engine.ranges == {name: str(second)}


def test_without_any_range_the_operator_is_told_what_to_set() -> None:
    engine: Any = FullEngine()
    engine.taken = {"every"}
    with pytest.raises(TierError) as raised:
        Networks().acquire(engine, ObjectNames("alice", "0" * 64), "launch")
    assert raised.value.code is Code.RESOURCE_EXHAUSTED
    assert '"default-address-pools"' in raised.value.resolution


def test_a_range_that_this_machine_has_a_route_to_is_left_alone(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    routes.write_text(HEADER + DEFAULT_ROUTE + FIRST_HALF)
    taken = ipaddress.ip_network("198.18.0.0/16")
    for name in map(str, range(20)):
        found = list(free_subnets(name, routes))
        assert found
        assert not any(each.overlaps(taken) for each in found)


def test_a_vpn_that_takes_all_traffic_leaves_ranges(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    routes.write_text(HEADER + DEFAULT_ROUTE + EVERYTHING)
    assert list(free_subnets("alice", routes))


def test_where_no_routes_can_be_read_ranges_are_found_all_the_same(tmp_path: Path) -> None:
    assert list(free_subnets("alice", tmp_path / "absent"))
