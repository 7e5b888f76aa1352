"""What the policy of a user's egress lets out."""

from ipaddress import ip_address, ip_network

import pytest
from wire.settings import KubernetesSettings

from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.policies import outside, policies


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


def _open(address: str) -> bool:
    found = ip_address(address)
    blocks = [each["ipBlock"] for each in outside(KubernetesSettings())]
    return any(
        found in ip_network(block["cidr"])
        and not any(found in ip_network(each) for each in block["except"])
        for block in blocks
    )
