"""What the policy of a user's egress lets out."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from wire.v1.egress_pb2 import EgressConfiguration

from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.policies import Ports, outside, policies, ports_of
from runner.tiers.kubernetes.settings import KubernetesSettings


def test_names_are_asked_where_the_cluster_resolves_them() -> None:
    owner = Owner("alice")
    settings = KubernetesSettings(dns_labels=("app=coredns",), dns_namespace="openshift-dns")
    (egress,) = (
        each
        for each in policies(owner, settings)
        if each["metadata"]["name"] == owner.name("egress")
    )
    (rule,) = (
        each for each in egress["spec"]["egress"] if each.get("ports", [{}])[0].get("port") == 53
    )
    assert rule["to"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}},
            "podSelector": {"matchLabels": {"app": "coredns"}},
        },
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
    ]
    assert [str(each).count("'memory'") for each in policies(owner, settings)] == [0, 0, 1, 0]
    for each in policies(owner, settings):
        for direction in ("ingress", "egress"):
            assert "'namespaceSelector': {}" not in str(each["spec"][direction])


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "127.0.0.1", "169.254.169.254", "169.254.20.10", "100.100.100.200"),
        *("168.63.129.16", "192.168.1.1", "172.31.0.1", "0.0.0.0", "224.0.0.1", "fd00:ec2::254"),
        *("fe80::1", "::1", "2002:a00:1::", "64:ff9b::a00:1", "2001::1"),
    ],
)
def test_what_is_not_the_worlds_is_closed_to_egress(address: str) -> None:
    assert not _open(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "168.63.129.15", "168.63.129.17", "2606:4700::1"])
def test_the_world_is_open(address: str) -> None:
    assert _open(address)


@pytest.mark.parametrize(
    ("told", "ports"),
    [
        ({}, (80, 443)),
        ({"shell": {"allow": ["pypi.org", "GET https://a.example:8443/x"]}}, (80, 443, 8443)),
        ({"agent": {"allow": ["b.example:25"], "deny": ["c.example:26"]}}, (25, 80, 443)),
        ({"upstreams": [{"name": "m", "url": "https://h.example:7000/v1"}]}, (80, 443, 7000)),
        ({"proxy": "http://proxy.example:3128"}, (80, 443, 3128)),
        ({"shell": {"grants": [{"rule": "https://d.example:9000"}]}}, (80, 443, 9000)),
        ({"shell": {"grants": [{"rule": "e.example:9000", "denied": True}]}}, (80, 443)),
        ({"shell": {"ask": True}}, None),
        ({"name_servers": ["9.9.9.9"]}, None),
    ],
)
def test_of_the_world_egress_reaches_the_ports_of_its_rules(
    told: dict[str, Any], ports: Ports
) -> None:
    found = ports_of(ParseDict(told, EgressConfiguration()))
    assert found == ports
    for made in policies(Owner("alice"), KubernetesSettings(), ports=found)[2:]:
        (world,) = (e for e in made["spec"]["egress"] if e["to"] == outside(KubernetesSettings()))
        opened = [(each["protocol"], each["port"]) for each in world.get("ports", ())]
        assert opened == [("TCP", port) for port in ports or ()]


def _open(address: str) -> bool:
    found = ip_address(address)
    blocks = [each["ipBlock"] for each in outside(KubernetesSettings())]
    return any(
        found in ip_network(block["cidr"])
        and not any(found in ip_network(each) for each in block["except"])
        for block in blocks
    )
